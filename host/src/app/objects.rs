//! Loads, refuses and unloads the plugins that objects of the API server define. `objects` decides which; a load that
//! takes long delays no other.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use podium_pods::model::{BoxFuture, PluginId, PluginSpec};
use tokio::sync::{mpsc, watch};

use super::loading::{Loader, OfObject};
use crate::{
    api::Api,
    objects::{Action, Beyond, Change, Desired, Kind, ObjectWatch, Spec},
};

/// Capacity of the channel of changes. They wait while a plugin is installed or removed.
const CHANGES: usize = 16;

/// The objects, as the watch and the status share them.
pub(super) type Shared = Arc<Mutex<Known>>;

/// The objects, and the loads of their plugins.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) desired: Desired,
    /// By plugin, its latest loads by their numbers.
    loads: BTreeMap<PluginId, BTreeMap<u64, Began>>,
}

/// The object that a load was of.
#[derive(Debug, Clone)]
pub(super) struct Began {
    pub(super) generation: i64,
    /// As text: values would take up to a hundred times the memory, for each of the kept loads.
    pub(super) grants: Spec,
}

/// The most loads of a plugin of which the object is kept: the version that runs is of one of them, unless as many
/// configurations failed since.
const KEPT_LOADS: usize = 8;

impl Known {
    /// Returns what a load was of.
    pub(super) fn load(&self, id: &PluginId, number: u64) -> Option<&Began> {
        self.loads.get(id)?.get(&number)
    }

    /// Returns the latest load of a plugin.
    pub(super) fn latest(&self, id: &PluginId) -> Option<(u64, &Began)> {
        self.loads.get(id)?.last_key_value().map(|(number, began)| (*number, began))
    }

    /// Records that the latest loads are of the present objects: a changed spec without an action means the same as the
    /// one before.
    fn acted(&mut self) {
        let Self { desired, loads } = self;
        for (object, _) in desired.decided() {
            if let Some(mut latest) = loads.get_mut(&object.id).and_then(BTreeMap::last_entry) {
                let (generation, grants) = (object.generation, object.grants.clone());
                *latest.get_mut() = Began { generation, grants };
            }
        }
    }

    fn begun(&mut self, id: &PluginId, number: u64) {
        let Some(object) = self.desired.object(id) else { return };
        let of_plugin = self.loads.entry(id.clone()).or_default();
        // Equal texts are kept once.
        let same = of_plugin.values().map(|began| &began.grants).find(|grants| **grants == object.grants);
        let grants = same.unwrap_or(&object.grants).clone();
        let began = Began { generation: object.generation, grants };
        of_plugin.insert(number, began);
        while of_plugin.len() > KEPT_LOADS {
            of_plugin.pop_first();
        }
    }
}

/// Follows the objects of the API server.
pub(super) struct Follower {
    loader: Arc<Loader>,
    known: Shared,
    watches: Vec<ObjectWatch>,
    unlisted: BTreeSet<Kind>,
    /// The plugins of the first lists whose first attempt has not ended.
    first: BTreeSet<PluginId>,
    started: watch::Sender<bool>,
}

impl Follower {
    /// Returns a follower of the objects of one namespace, or of all objects, and a channel that reports true when the
    /// first lists are there and an attempt to load each of their plugins has ended. `files` are the plugins that
    /// objects cannot displace.
    pub(super) fn new<'a>(
        loader: Arc<Loader>,
        api: &Api,
        namespace: Option<&str>,
        files: impl IntoIterator<Item = &'a PluginSpec>,
        seed: u64,
    ) -> (Self, watch::Receiver<bool>) {
        let kinds: &[Kind] = if namespace.is_some() { &[Kind::Namespaced] } else { &Kind::ALL };
        let watch = |kind: &Kind| {
            let watch = ObjectWatch::new(api.clone(), *kind, namespace.map(str::to_owned), seed);
            watch.bounded_by(loader.policy())
        };
        let watches = kinds.iter().map(watch).collect();
        let (started, has_started) = watch::channel(false);
        let known = Known { desired: Desired::beside(files, loader.policy().cloned()), ..Known::default() };
        let follower = Self {
            loader,
            known: Arc::new(Mutex::new(known)),
            watches,
            unlisted: kinds.iter().copied().collect(),
            first: BTreeSet::new(),
            started,
        };
        (follower, has_started)
    }

    pub(super) fn known(&self) -> Shared {
        self.known.clone()
    }

    /// Follows the objects; never returns.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let (sender, mut changes) = mpsc::channel(CHANGES);
        let mut watches: FuturesUnordered<_> = self.watches.drain(..).map(|watch| watch.run(sender.clone())).collect();
        let mut loads: FuturesUnordered<BoxFuture<'static, PluginId>> = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(id) = loads.next() => {
                    self.first.remove(&id);
                }
                Some((kind, change)) = changes.recv() => {
                    let actions = self.observe(kind, change);
                    for action in actions {
                        loads.extend(self.act(action).await);
                    }
                    self.known.lock().acted();
                    self.unlisted.remove(&kind);
                }
                Some(()) = watches.next() => anyhow::bail!("a watch of plugin objects ended"),
            }
            if self.unlisted.is_empty() && self.first.is_empty() {
                self.started.send_if_modified(|started| !std::mem::replace(started, true));
            }
        }
    }

    fn observe(&self, kind: Kind, change: Change) -> Vec<Action> {
        if let Change::Listed(objects) = &change
            && self.unlisted.contains(&kind)
        {
            self.loader.adopt(objects);
        }
        let undecided = self.known.lock().desired.changed(kind, change);
        // Takes long for a tenant with many objects; only this task changes them.
        let decided = undecided.decide();
        let desired = &mut self.known.lock().desired;
        for (id, Beyond { reason, message }, plugins) in decided.newly_beyond(desired) {
            tracing::warn!(plugin = %id, plugins, reason, error = message, "plugin objects not loaded");
        }
        desired.decide(decided)
    }

    /// Returns the load that an action begins. Its permissions hold already.
    async fn act(&mut self, action: Action) -> Option<BoxFuture<'static, PluginId>> {
        match action {
            Action::Load(spec) => {
                let id = spec.id.clone();
                let of = self.known.lock().desired.object(&id).map(|object| OfObject {
                    uid: object.uid.clone(),
                    generation: object.generation,
                    spec: object.spec.clone(),
                    held: object.held,
                });
                let number = self.loader.begin(&spec, of).await;
                self.known.lock().begun(&id, number);
                if self.unlisted.contains(&Kind::of(&id)) {
                    self.first.insert(id.clone());
                }
                let loader = self.loader.clone();
                Some(Box::pin(async move {
                    loader.load(PluginSpec::clone(&spec), number).await;
                    id
                }))
            }
            Action::Refuse { id, problems, permissions } => {
                let number = self.loader.refuse(&id, permissions.as_deref(), problems.to_vec()).await;
                self.known.lock().begun(&id, number);
                None
            }
            Action::Unload(id) => {
                self.loader.unload(&id).await;
                self.known.lock().loads.remove(&id);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use podium_engine::status::LoadState;
    use serde_json::json;

    use super::{super::loading::tests, *};

    /// Answers lists with these bodies, and no watch.
    fn api(namespaced: Option<String>, cluster: Option<String>) -> Api {
        let service = tower::service_fn(move |request: Request<Body>| {
            let is_cluster = request.uri().path().ends_with("/clusterreconcileplugins");
            let body = if is_cluster { cluster.clone() } else { namespaced.clone() };
            let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=1"));
            async move {
                if is_watch {
                    std::future::pending::<()>().await;
                }
                let code = if body.is_some() { 200 } else { 404 };
                let body = Full::new(bytes::Bytes::from(body.unwrap_or_default()));
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        Api::new(kube::Client::new(service, "default"), Duration::from_secs(5))
    }

    fn list(names: &[&str]) -> Option<String> {
        let item = |name: &&str| {
            let source = json!({ "configMap": { "name": "slow", "key": "a", "sha256": "0".repeat(64) } });
            json!({
                "metadata": { "name": name, "namespace": "shop", "uid": format!("u-{name}"), "generation": 4 },
                "spec": { "source": source },
            })
        };
        let items: Vec<_> = names.iter().map(item).collect();
        Some(json!({ "metadata": { "resourceVersion": "7" }, "items": items }).to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn the_start_waits_for_an_attempt_of_each_object_and_not_for_success() {
        let (loader, _observe) = tests::loader().await;
        let api = api(list(&["a", "b"]), list(&[]));
        let (follower, mut started) = Follower::new(loader.clone(), &api, None, [], 1);
        let known = follower.known();
        tokio::spawn(follower.run());
        // The API server answers for a ConfigMap after 3 s.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!*started.borrow());
        started.wait_for(|started| *started).await.unwrap();
        let states: Vec<_> = loader.plugins().into_iter().map(|plugin| plugin.load).collect();
        assert!(matches!(states[..], [LoadState::Waiting { .. }, LoadState::Waiting { .. }]), "{states:?}");
        let id = loader.plugins()[0].id.clone();
        let failure = loader.outcome(&id).failure.unwrap();
        assert_eq!(failure.reason, "ConfigMapNotFound");
        assert_eq!(known.lock().load(&id, failure.number).unwrap().generation, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn the_start_does_not_wait_for_a_kind_that_is_not_served() {
        let (loader, _observe) = tests::loader().await;
        let (follower, mut started) = Follower::new(loader.clone(), &api(None, None), None, [], 1);
        tokio::spawn(follower.run());
        started.wait_for(|started| *started).await.unwrap();

        let (follower, started) = Follower::new(loader, &api(Some("no list".into()), None), None, [], 1);
        tokio::spawn(follower.run());
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(!*started.borrow(), "the namespaced kind is served and cannot be listed");
    }
}
