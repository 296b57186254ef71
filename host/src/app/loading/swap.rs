//! How a new version of a plugin replaces the one that runs: it is tried on a few Pods before, and its first runs are
//! a trial, after which the version before may come back.
//!
//! Only code and `config` can keep a version: a version that the new configuration does not permit was stopped before,
//! and neither stays nor comes back. Without a version that runs there is nothing to keep, so a plugin that is loaded
//! first is not tried: it runs, and its failures are in its status.

use std::sync::Arc;

use podium_engine::{
    dispatch::{IsWanted, Lane, LoadedPlugin},
    status::LoadState,
};
use podium_vocabulary::{PluginId, PluginSpec};
use tokio::sync::oneshot;

use super::{Active, LoadFailure, Loader, Outcome, Prepared};
use crate::images::{Ran, Tried};

/// How a version is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Swap {
    /// At once: no version runs that may stay, or its code and `config` stay.
    Direct,
    /// After a probe on this number of Pods, and with a trial.
    Tried { pods: usize },
}

/// A version that was replaced, during the trial of the next one.
pub(super) struct Predecessor {
    /// The load that replaced it.
    number: u64,
    loaded: Arc<LoadedPlugin>,
    active: Option<Active>,
    /// Dropped at the end of the trial.
    _ended: oneshot::Sender<()>,
}

/// A trial that has begun.
pub(super) struct Trial {
    id: PluginId,
    number: u64,
    loaded: Arc<LoadedPlugin>,
    before: Arc<LoadedPlugin>,
    /// For the record of the object, if the trial succeeds.
    ran: Option<Ran>,
    /// Closed when the trial is of no use any more.
    ended: oneshot::Receiver<()>,
}

/// Whether a version can be kept instead of a new one, and differs from it in more than permissions and order. The
/// digests are of the components.
fn is_tried(before: (&PluginSpec, &str), new: (&PluginSpec, &str)) -> bool {
    new.0.permits(before.0) && (before.1 != new.1 || before.0.config != new.0.config)
}

impl Loader {
    /// Tries a compiled version beside the one that runs.
    pub(super) async fn probed(&self, prepared: Prepared) -> Result<Prepared, LoadFailure> {
        let Prepared { spec, number, component: Some(component), plugin: Some(plugin), .. } = &prepared else {
            return Ok(prepared);
        };
        let Some(before) = self.running(&spec.id) else { return Ok(prepared) };
        let active = self.outcomes.lock().get(&spec.id).and_then(|outcome| outcome.active.clone());
        let digest = active.as_ref().map_or("", |active| &active.component.sha256);
        if !is_tried((&before.spec, digest), (spec, &component.sha256)) {
            return Ok(prepared);
        }
        let (pending, id, number) = (self.pending.clone(), spec.id.clone(), *number);
        let is_wanted: IsWanted = Arc::new(move || pending.lock().is_current(&id, number));
        let probe = self.dispatch.probe(&before, spec, &**plugin, is_wanted).await;
        let pods = probe.map_err(LoadFailure::ProbeFailed)?;
        Ok(Prepared { swap: Swap::Tried { pods }, ..prepared })
    }

    /// Returns the version that would come back if the trial of a new one failed. The caller holds
    /// [`Loader::changing`], as the callers of the other functions on trials do.
    pub(super) fn predecessor(&self, spec: &PluginSpec, swap: Swap) -> Option<(Arc<LoadedPlugin>, Option<Active>)> {
        let may_stay = |before: &Arc<LoadedPlugin>| swap != Swap::Direct && spec.permits(&before.spec);
        let before = self.running(&spec.id).filter(may_stay)?;
        let active = self.outcomes.lock().get(&spec.id).and_then(|outcome| outcome.active.clone());
        Some((before, active))
    }

    /// Begins the trial of the version that a load has installed in a lane.
    pub(super) fn begin_trial(
        &self,
        id: &PluginId,
        number: u64,
        lane: Lane,
        (before, active): (Arc<LoadedPlugin>, Option<Active>),
        ran: Option<Ran>,
    ) {
        let Some(loaded) = self.dispatch.registry.get(lane) else { return };
        let (sender, ended) = oneshot::channel();
        let predecessor = Predecessor { number, loaded: before.clone(), active, _ended: sender };
        self.predecessors.lock().insert(id.clone(), predecessor);
        self.begun.lock().push(Trial { id: id.clone(), number, loaded, before, ran, ended });
        self.work.notify_one();
    }

    /// Ends a trial: from now on no version comes back.
    pub(super) fn end_trial(&self, id: &PluginId) {
        self.predecessors.lock().remove(id);
    }

    /// Waits for the end of a trial, and brings the version before back if it failed.
    pub(super) async fn follow(self: Arc<Self>, trial: Trial) {
        let Trial { id, number, loaded, before, ran, ended } = trial;
        let result = tokio::select! {
            biased;
            _ = ended => return,
            result = loaded.trial(&before) => result,
        };
        let lane = {
            let _changing = self.changing.lock();
            let replaced = |predecessor: &mut Predecessor| predecessor.number == number;
            let predecessor =
                self.predecessors.lock().extract_if(.., |of, before| *of == id && replaced(before)).next();
            let Some((_, predecessor)) = predecessor else { return };
            match result {
                Ok(()) => {
                    self.note_ran(&id, ran);
                    None
                }
                Err(failure) => self.roll_back(&id, number, predecessor, failure),
            }
        };
        self.save_record(&id);
        let Some(lane) = lane else { return };
        self.ingest_handle.plugins_changed(Some(lane)).await;
    }

    /// Installs the version before. `None` if the permissions of the version in trial were revoked meanwhile.
    fn roll_back(&self, id: &PluginId, number: u64, predecessor: Predecessor, failure: String) -> Option<Lane> {
        let Predecessor { loaded: before, active, .. } = predecessor;
        self.running(id).filter(|running| running.spec.permits(&before.spec))?;
        self.note_refused(id, Tried::After, &failure);
        let failure = LoadFailure::RolledBack(failure);
        let error = failure.to_string();
        let lane = self.put(before.spec.clone(), before.reconcile.clone());
        self.status.set_load(id, LoadState::Refused { reason: error.clone() }, true);
        self.outcomes.lock().insert(id.clone(), Outcome { active, ..Outcome::default() });
        self.record(id, number, &failure);
        tracing::warn!(plugin = %id, error, "plugin rolled back to the version before");
        Some(lane)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        time::Duration,
    };

    use futures::future::BoxFuture;
    use podium_engine::ports::{
        Failure, FailureKind, Outcome as Answer, Reconcile, Request, RunReport, Staged, Usage, World,
    };

    use super::{
        super::tests::{loaded_as, loader, spec},
        *,
    };

    /// Traps while the flag is set.
    #[derive(Default)]
    struct Version(AtomicBool);

    impl Reconcile for Version {
        fn reconcile(&self, _: Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
            let trap = Failure { kind: FailureKind::Trap, message: "unreachable".to_owned() };
            let result = if self.0.load(SeqCst) { Err(trap) } else { Ok(Answer::Settled) };
            Box::pin(std::future::ready(RunReport { result, staged: Staged::default(), usage: Usage::default() }))
        }
    }

    fn configured(config: &str) -> PluginSpec {
        PluginSpec { config: config.to_owned(), ..spec() }
    }

    fn tried(config: &str, traps: bool) -> Prepared {
        let version = Arc::new(Version(traps.into()));
        Prepared { number: 7, swap: Swap::Tried { pods: 1 }, ..loaded_as(configured(config), version) }
    }

    /// A loader whose trials are followed and whose keys are run, with a version that runs.
    async fn at_work() -> (Arc<Loader>, impl Sized) {
        let (loader, observe) = loader().await;
        tokio::spawn(loader.clone().run());
        tokio::spawn(loader.dispatch.clone().work());
        loader.install(loaded_as(configured("1"), Arc::new(Version::default()))).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        (loader, observe)
    }

    fn config(loader: &Loader) -> String {
        loader.running(&spec().id).map(|loaded| loaded.spec.config.clone()).unwrap_or_default()
    }

    #[test]
    fn only_a_change_of_code_or_config_is_tried() {
        let same = configured("1");
        assert!(!is_tried((&same, "a"), (&same, "a")));
        assert!(is_tried((&same, "a"), (&same, "b")));
        assert!(is_tried((&same, "a"), (&configured("2"), "a")));
        let mut wide = configured("2");
        wide.grants.write.delete = true;
        assert!(is_tried((&same, "a"), (&wide, "b")), "more is permitted");
        assert!(!is_tried((&wide, "a"), (&same, "b")), "the version before was stopped");
        let resync = Some(Duration::from_secs(60));
        let mut watch = same.clone();
        watch.watch.resync = resync;
        assert!(!is_tried((&same, "a"), (&watch, "a")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_traps_in_its_trial_is_replaced_by_the_one_before() {
        let (loader, _observe) = at_work().await;
        loader.install(tried("2", true)).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(config(&loader), "1");
        let outcome = loader.outcome(&spec().id);
        let failure = outcome.failure.unwrap();
        assert_eq!((failure.number, failure.reason), (7, "RolledBack"));
        let expected = "in one of its first runs, on pod shop/cart-0, reason trap: unreachable";
        assert!(failure.message.contains(expected), "{}", failure.message);
        let [state] = &loader.plugins()[..] else { unreachable!("one plugin") };
        assert!(state.runs && matches!(state.load, LoadState::Refused { .. }), "{state:?}");
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(config(&loader), "1", "it is not tried again");
    }

    /// Installs a version that has been tried, and returns a switch that makes it trap.
    async fn swapped(loader: &Loader, prepared: Prepared) -> Arc<Version> {
        let version = Arc::new(Version::default());
        loader.install(Prepared { plugin: Some(version.clone()), ..prepared }).await;
        version
    }

    /// Makes the version trap, and runs it.
    async fn trap(loader: &Loader, version: &Version) {
        version.0.store(true, SeqCst);
        loader.ingest_handle.plugins_changed(Some(Lane(1))).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_traps_after_its_trial_stays() {
        let (loader, _observe) = at_work().await;
        let version = swapped(&loader, tried("2", false)).await;
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert!(loader.predecessors.lock().is_empty());
        trap(&loader, &version).await;
        assert_eq!(config(&loader), "2");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trial_ends_when_the_next_load_begins() {
        let (loader, _observe) = at_work().await;
        let version = swapped(&loader, tried("2", false)).await;
        loader.begin(&configured("3"), None);
        trap(&loader, &version).await;
        assert_eq!(config(&loader), "2");
    }

    #[tokio::test(start_paused = true)]
    async fn no_version_comes_back_after_a_revocation() {
        let (loader, _observe) = at_work().await;
        let _version = swapped(&loader, tried("2", false)).await;
        loader.restrict(&PluginSpec { impersonate: Some("system:serviceaccount:shop:other".into()), ..spec() });
        let predecessor = loader.predecessors.lock().remove(&spec().id).unwrap();
        assert!(loader.roll_back(&spec().id, 7, predecessor, "it trapped".to_owned()).is_none());
        assert_eq!(config(&loader), "", "nothing runs");
        assert_eq!(&*loader.dispatch.registry.by_id(&spec().id).unwrap().spec.config, "2");
    }
}
