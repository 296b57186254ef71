//! Loads, refuses and unloads the plugins that objects of the API server define. `objects` decides which.
//!
//! Each load is a task of its own. A change is processed without waiting for a load, a disk or the API server, so runs
//! that it does not permit end as soon as the watch brings the change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use podium_vocabulary::{PluginId, PluginSpec};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    loading::{Loader, OfObject},
    watchdog::{Steps, Watched, is_waiting},
};
use crate::{
    api::Api,
    objects::{Action, Beyond, Change, Desired, Kind, ObjectWatch, Spec},
};

/// Capacity of the channel of changes.
const CHANGES: usize = 16;

/// The objects, as the watch and the status share them.
pub(super) type Shared = Arc<Mutex<Known>>;

/// The objects, and the loads of their plugins.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) desired: Desired,
    /// The first lists of all kinds are there. Before, it is not known whose a finalizer is.
    pub(super) is_listed: bool,
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

    /// Records that the latest loads are of the present objects, of one or of all: a changed spec without an action
    /// means the same as the one before.
    fn acted(&mut self, one: Option<&PluginId>) {
        let Self { desired, loads, .. } = self;
        let all = one.is_none().then(|| desired.decided().map(|(object, _)| object)).into_iter().flatten();
        let one = one.and_then(|id| desired.object(id)).filter(|object| !object.deleting);
        for object in all.chain(one) {
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
    sender: mpsc::Sender<(Kind, Change)>,
    changes: mpsc::Receiver<(Kind, Change)>,
    steps: Steps,
    /// The loads, with their plugins, and what follows a removal.
    tasks: JoinSet<Option<PluginId>>,
    unlisted: BTreeSet<Kind>,
    /// Kinds whose next list has objects with the finalizer of a host before this one: none is known of them.
    unadopted: BTreeSet<Kind>,
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
        let (sender, changes) = mpsc::channel(CHANGES);
        let known = Known { desired: Desired::beside(files, loader.policy().cloned()), ..Known::default() };
        let follower = Self {
            loader,
            known: Arc::new(Mutex::new(known)),
            watches,
            sender,
            changes,
            steps: Steps::default(),
            tasks: JoinSet::new(),
            unlisted: kinds.iter().copied().collect(),
            unadopted: kinds.iter().copied().collect(),
            first: BTreeSet::new(),
            started,
        };
        (follower, has_started)
    }

    pub(super) fn known(&self) -> Shared {
        self.known.clone()
    }

    /// Returns what the watchdog watches.
    pub(super) fn watched(&self) -> Watched {
        let waits = is_waiting(&self.sender);
        Watched::new("changes of plugin objects wait, and none was processed", self.steps.clone(), waits)
    }

    /// Follows the objects; never returns.
    ///
    /// # Errors
    /// Returns an error if one of the tasks panicked.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let mut watches: JoinSet<()> = self.watches.drain(..).map(|watch| watch.run(self.sender.clone())).collect();
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next() => {
                    if let Some(id) = ended? {
                        self.first.remove(&id);
                    }
                }
                Some((kind, change)) = self.changes.recv() => {
                    let one = match &change {
                        Change::Listed(_) | Change::Absent => None,
                        Change::Applied(object) | Change::Deleted(object) => Some(object.id.clone()),
                    };
                    let actions = self.observe(kind, change);
                    actions.into_iter().for_each(|action| self.act(action));
                    self.unlisted.remove(&kind);
                    let mut known = self.known.lock();
                    known.acted(one.as_ref());
                    known.is_listed = self.unlisted.is_empty();
                }
                Some(_) = watches.join_next() => anyhow::bail!("a watch of plugin objects ended"),
            }
            if self.unlisted.is_empty() && self.first.is_empty() {
                self.started.send_if_modified(|started| !std::mem::replace(started, true));
            }
            self.steps.completed();
        }
    }

    fn observe(&mut self, kind: Kind, change: Change) -> Vec<Action> {
        let undecided = {
            // One lock: the removal of finalizers forgets the holds of objects that are not known.
            let mut known = self.known.lock();
            match &change {
                Change::Listed(objects) if self.unadopted.remove(&kind) => self.loader.adopt(objects),
                Change::Absent => drop(self.unadopted.insert(kind)),
                _ => {}
            }
            known.desired.changed(kind, change)
        };
        // Takes long for a tenant with many objects; only this task changes them.
        let decided = undecided.decide();
        let desired = &mut self.known.lock().desired;
        for (id, Beyond { reason, message }, plugins) in decided.newly_beyond(desired) {
            tracing::warn!(plugin = %id, plugins, reason, error = message, "plugin objects not loaded");
        }
        desired.decide(decided)
    }

    /// Begins an action. Runs that it does not permit have ended when this returns.
    fn act(&mut self, action: Action) {
        let loader = self.loader.clone();
        let removed = match action {
            Action::Load(spec) => {
                let id = spec.id.clone();
                let of = self.known.lock().desired.object(&id).map(|object| OfObject {
                    uid: object.uid.clone(),
                    generation: object.generation,
                    spec: object.spec.clone(),
                    held: object.held,
                });
                let number = loader.begin(&spec, of);
                self.known.lock().begun(&id, number);
                if self.unlisted.contains(&Kind::of(&id)) {
                    self.first.insert(id.clone());
                }
                self.tasks.spawn(async move {
                    loader.load(PluginSpec::clone(&spec), number).await;
                    Some(id)
                });
                return;
            }
            Action::Refuse { id, problems, permissions } => {
                let (number, removed) = loader.refuse(&id, permissions.as_deref(), problems.to_vec());
                self.known.lock().begun(&id, number);
                removed
            }
            Action::Unload(id) => {
                self.known.lock().loads.remove(&id);
                loader.remove(&id).1
            }
        };
        if removed.is_some() {
            self.tasks.spawn(async move {
                loader.forget(removed).await;
                None
            });
        }
    }
}

#[cfg(test)]
mod tests;
