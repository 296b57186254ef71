//! A host that is started again runs the version of an object that ran before, also if the object's present spec cannot
//! be loaded, or was refused after it was tried.
//!
//! The record is on disk, where only the host writes: the status of an object could be written by others. The version
//! is loaded as any other, so the present policy, signatures and spec must permit it.

use std::sync::Arc;

use podium_engine::status::LoadState;
use podium_registry::Digest;
use podium_vocabulary::{PluginId, PluginSpec, text};

use super::{Active, LoadFailure, Loader, Outcome, Prepared, attempt::From, disk::on_disk};
use crate::{
    app::objects::Began,
    images::{Ran, Record, Refused, Tried},
    objects::{Spec, plugin_again},
};

/// The object of a plugin.
#[derive(Debug, Clone)]
pub(in crate::app) struct OfObject {
    pub(in crate::app) uid: String,
    pub(in crate::app) generation: i64,
    pub(in crate::app) spec: Spec,
    /// It had the host's finalizer.
    pub(in crate::app) held: bool,
}

/// The object of the latest load of a plugin, and its record.
pub(super) struct Recorded {
    of: OfObject,
    record: Record,
    /// The record of before the host's start is in it.
    is_read: bool,
    /// It is on disk as it is here.
    is_saved: bool,
}

impl Loader {
    /// Records the object of the load that begins; `None` if there is none, or none any more.
    pub(super) fn of_object(&self, id: &PluginId, of: Option<OfObject>) {
        let mut objects = self.objects.lock();
        match of {
            Some(of) => match objects.get_mut(id).filter(|object| object.of.uid == of.uid) {
                Some(object) => object.of = of,
                None => {
                    let record = Record::new(&of.uid);
                    // The record of an earlier object of the name may still have to be removed.
                    let is_saved = !self.unsaved.lock().contains(id);
                    objects.insert(id.clone(), Recorded { of, record, is_read: false, is_saved });
                }
            },
            None => drop(objects.remove(id)),
        }
    }

    /// Returns the uid of a plugin's object, and whether it had the host's finalizer when its load began.
    pub(super) fn object(&self, id: &PluginId) -> Option<(String, bool)> {
        self.objects.lock().get(id).map(|object| (object.of.uid.clone(), object.of.held))
    }

    /// Returns the version of the present object, for its record.
    pub(super) fn ran(&self, id: &PluginId, manifest: Option<&Digest>) -> Option<Ran> {
        let objects = self.objects.lock();
        let OfObject { generation, spec, .. } = &objects.get(id)?.of;
        let manifest = manifest.map(ToString::to_string);
        Some(Ran { generation: *generation, spec: spec.text().to_owned(), manifest })
    }

    /// Records a version that is not in its trial.
    pub(super) fn note_ran(&self, id: &PluginId, ran: Option<Ran>) {
        self.note(id, |record, _| (record.ran, record.refused) = (ran, None));
    }

    /// Records that the version of the present object failed when it was tried.
    pub(super) fn note_refused(&self, id: &PluginId, tried: Tried, failure: &str) {
        self.note(id, |record, of| {
            // A failure that was read from the record has more in its text.
            if record.refused.as_ref().is_none_or(|refused| refused.spec != of.spec.text()) {
                record.refused = Some(Refused { spec: of.spec.text().to_owned(), tried, failure: failure.to_owned() });
            }
        });
    }

    /// Records that no version runs.
    pub(super) fn note_stopped(&self, id: &PluginId) {
        self.note(id, |record, _| (record.ran, record.refused) = (None, None));
    }

    fn note(&self, id: &PluginId, change: impl FnOnce(&mut Record, &OfObject)) {
        let mut objects = self.objects.lock();
        let Some(object) = objects.get_mut(id) else { return };
        let mut record = object.record.clone();
        change(&mut record, &object.of);
        if record != object.record {
            (object.record, object.is_saved) = (record, false);
        }
    }

    /// Has [`Loader::run`] write the record of a plugin if it has changed, or remove the one of an object that is gone.
    pub(super) fn save_record(&self, id: &PluginId) {
        if self.store.is_some() {
            self.unsaved.lock().insert(id.clone());
            self.work.notify_one();
        }
    }

    /// Writes or removes the record of a plugin, however long the disk takes. The caller does not call this again for
    /// the plugin before it has ended, so that the latest record is written last.
    pub(super) async fn write_record(self: Arc<Self>, id: PluginId) {
        let Some(disk) = &self.store else { return };
        let record = match self.objects.lock().get_mut(&id) {
            Some(object) if object.is_saved => return,
            Some(object) => {
                object.is_saved = true;
                Some(object.record.clone()).filter(|record| record.ran.is_some())
            }
            None => None,
        };
        disk.call(move |store| store.keep_record(&id, record.as_ref())).await;
    }

    /// Before the first load of a plugin since the host's start: runs the version that ran before, if it is of another
    /// spec that the present one permits. Returns why the present spec is not tried again, if it was refused.
    pub(super) async fn restored(&self, spec: &PluginSpec, number: u64) -> Option<LoadFailure> {
        let (store, id) = (self.store.clone()?, &spec.id);
        let of = self.objects.lock().get(id).filter(|object| !object.is_read).map(|object| object.of.clone())?;
        let plugin = id.clone();
        let found = on_disk(store, move |store| store.record(&plugin)).await.flatten();
        let found = found.filter(|record| record.uid == of.uid);
        {
            let mut objects = self.objects.lock();
            let object = objects.get_mut(id).filter(|object| object.of.uid == of.uid && !object.is_read)?;
            object.is_read = true;
            if let Some(found) = &found {
                object.record = found.clone();
            }
        }
        let Record { ran: Some(ran), refused, .. } = found? else { return None };
        if spec.suspend || ran.spec == of.spec.text() {
            return None;
        }
        let again = self.run_again(spec, &ran, number).await;
        if let Err(error) = &again {
            let generation = ran.generation;
            tracing::warn!(plugin = %id, generation, error, "version that ran before the start does not run again");
        }
        let Refused { tried, mut failure, .. } = refused.filter(|refused| refused.spec == of.spec.text())?;
        if let Err(error) = again {
            failure += &format!("; the version of generation {} cannot be run again: {error}", ran.generation);
        }
        Some(match tried {
            Tried::Before => LoadFailure::ProbeFailed(failure),
            Tried::After => LoadFailure::RolledBack(failure),
        })
    }

    /// Installs a version that ran before, from the bytes on disk.
    async fn run_again(&self, spec: &PluginSpec, ran: &Ran, number: u64) -> Result<(), String> {
        let id = &spec.id;
        let value: serde_json::Value = serde_json::from_str(&ran.spec).map_err(|error| error.to_string())?;
        let before = plugin_again(id, &value).map_err(|problems| LoadFailure::Mistaken(problems).to_string())?;
        if !spec.permits(&before) {
            return Err("the spec does not permit all that it may do".to_owned());
        }
        let manifest = ran.manifest.as_ref().and_then(|manifest| manifest.parse().ok());
        let attempt = self.attempt(before, number, From::Disk { manifest }).await;
        let Prepared { spec, component, plugin, .. } = attempt.map_err(|failure| text::line(&failure.to_string()))?;
        let lane = {
            let _changing = self.changing.lock();
            // The object may have changed meanwhile.
            let (true, Some(plugin)) = (self.is_current(id, number), plugin) else { return Ok(()) };
            let began = Began { generation: ran.generation, grants: Spec::new(&value["grants"]) };
            let active = component.map(|component| Active { number: 0, component, restored: Some(began) });
            self.outcomes.lock().insert(id.clone(), Outcome { active, ..Outcome::default() });
            let lane = self.put(spec, plugin);
            // The present spec is not loaded yet.
            self.status.set_load(id, LoadState::Loading, true);
            lane
        };
        self.ingest_handle.plugins_changed(Some(lane)).await;
        tracing::info!(plugin = %id, generation = ran.generation, "plugin runs again in the version before its spec");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering::SeqCst},
        },
        time::Duration,
    };

    use futures::future::BoxFuture;
    use podium_engine::ports::{
        Failure, FailureKind, Outcome as Answer, Reconcile, Request, RunReport, Staged, Usage, World,
    };
    use serde_json::json;

    use super::{
        super::{
            Rules, Swap,
            tests::{loaded_as, loader_on, spec},
        },
        *,
    };
    use crate::images::Store;

    #[derive(Default)]
    struct Version(AtomicBool);

    impl Reconcile for Version {
        fn reconcile(&self, _: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
            let trap = Failure { kind: FailureKind::Trap, message: "unreachable".to_owned() };
            let result = if self.0.load(SeqCst) { Err(trap) } else { Ok(Answer::Settled) };
            Box::pin(std::future::ready(RunReport { result, staged: Staged::default(), usage: Usage::default() }))
        }
    }

    fn of(uid: &str, generation: i64, config: &str) -> OfObject {
        let sha256 = "0".repeat(64);
        let source = json!({ "configMap": { "name": "tidy", "key": "plugin.wasm", "sha256": sha256 } });
        let spec = Spec::new(&json!({ "source": source, "config": { "is": config } }));
        OfObject { uid: uid.to_owned(), generation, spec, held: false }
    }

    fn configured(config: &str) -> PluginSpec {
        PluginSpec { config: config.to_owned(), ..spec() }
    }

    fn began(loader: &Loader, generation: i64, config: &str) -> u64 {
        loader.begin(&configured(config), Some(of("u", generation, config)))
    }

    async fn install(loader: &Loader, number: u64, config: &str, swap: Swap, traps: bool) {
        let version = Arc::new(Version(traps.into()));
        loader.install(Prepared { number, swap, ..loaded_as(configured(config), version) }).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn record(state: &std::path::Path) -> Option<Record> {
        Store::open(state).unwrap().record(&spec().id)
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_is_recorded_after_its_trial_and_a_rolled_back_one_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let (loader, _observe) = loader_on(Rules::default(), Some(state.path())).await;
        tokio::spawn(loader.clone().run());
        tokio::spawn(loader.dispatch.clone().work());
        let number = began(&loader, 1, "1");
        install(&loader, number, "1", Swap::Direct, false).await;
        let ran = || record(state.path()).unwrap().ran.unwrap().generation;
        assert_eq!(ran(), 1);
        let number = began(&loader, 2, "2");
        install(&loader, number, "2", Swap::Tried { pods: 1 }, false).await;
        assert_eq!(ran(), 1, "in its trial");
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(ran(), 2);

        let number = began(&loader, 3, "3");
        install(&loader, number, "3", Swap::Tried { pods: 1 }, true).await;
        let refused = record(state.path()).unwrap().refused.unwrap();
        assert!(refused.tried == Tried::After && refused.spec.contains(r#""is":"3""#), "{refused:?}");
        assert_eq!(ran(), 2);

        // The host is started again; the bytes of the version are gone.
        let again = || loader_on(Rules::default(), Some(state.path()));
        let (restarted, _observe) = again().await;
        let number = began(&restarted, 3, "3");
        let Some(LoadFailure::RolledBack(failure)) = restarted.restored(&configured("3"), number).await else {
            unreachable!("it was rolled back")
        };
        let expected = "unreachable; the version of generation 2 cannot be run again: the component with the SHA-256";
        assert!(failure.contains(expected), "{failure}");
        assert!(restarted.restored(&configured("3"), number).await.is_none(), "only at the first load");

        // Another spec is tried, and so is one of another object of the name.
        let (restarted, _observe) = again().await;
        let number = began(&restarted, 4, "4");
        assert!(restarted.restored(&configured("4"), number).await.is_none());
        let (restarted, _observe) = again().await;
        let number = restarted.begin(&configured("3"), Some(of("other", 1, "3")));
        assert!(restarted.restored(&configured("3"), number).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_is_stopped_or_deleted_leaves_no_version_behind() {
        let state = tempfile::tempdir().unwrap();
        let (loader, _observe) = loader_on(Rules::default(), Some(state.path())).await;
        tokio::spawn(loader.clone().run());
        let number = began(&loader, 1, "1");
        install(&loader, number, "1", Swap::Direct, false).await;
        assert!(record(state.path()).is_some());
        loader.unload(&spec().id).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(record(state.path()), None);

        let number = began(&loader, 1, "1");
        install(&loader, number, "1", Swap::Direct, false).await;
        let other = PluginSpec { impersonate: Some("system:serviceaccount:shop:other".into()), ..spec() };
        let number = loader.begin(&other, Some(of("u", 2, "2")));
        loader.load(other, number).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(record(state.path()), None, "its account was changed, and the new version has no component");
    }
}
