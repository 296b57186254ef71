//! Feeds the automaton of plugins' lives with the wishes of the API server's objects, as `objects` decides them.
//!
//! A change is processed without waiting for a load, a disk or the API server, so runs that it does not permit end as
//! soon as the watch brings the change.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use podium_api::{Api, watch::Counters};
use podium_lease::Part;
use podium_life::{Event, Object, Plugin, Source, Want};
use podium_vocabulary::{PluginId, PluginSpec};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    life::{Driver, LoadFailure},
    watchdog::{Steps, Watched, is_waiting},
};
use crate::{
    config::Policy,
    objects::{self, Action, Beyond, Change, Desired, Kind, Names, ObjectWatch},
};

/// Capacity of the channel of changes.
const CHANGES: usize = 16;
/// After so long since the first lists, first attempts that have not ended are not waited for.
const FIRST_ATTEMPTS: Duration = Duration::from_secs(5 * 60);

/// The objects, as the watch, the status and the removal of finalizers share them.
pub(super) type Shared = Arc<Mutex<Known>>;

/// The objects.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) desired: Desired,
    /// All objects, also those that do not decide anything.
    pub(super) names: Arc<Mutex<BTreeMap<Kind, Names>>>,
    /// The namespace whose objects are known; `None` for all.
    pub(super) namespace: Option<Arc<str>>,
    /// The first lists of all kinds are there. Before, it is not known whose a finalizer is.
    pub(super) is_listed: bool,
}

/// Follows the objects of the API server.
pub(super) struct Follower {
    driver: Arc<Driver>,
    policy: watch::Receiver<Option<Policy>>,
    known: Shared,
    watches: Vec<ObjectWatch>,
    sender: mpsc::Sender<(Kind, Change)>,
    changes: mpsc::Receiver<(Kind, Change)>,
    steps: Steps,
    unlisted: BTreeSet<Kind>,
    /// Kinds whose next list has objects with the finalizer of a host before this one: none is known of them.
    unadopted: BTreeSet<Kind>,
    /// The plugins of the first lists whose first attempt has not ended, with the numbers of their loads.
    first: BTreeMap<PluginId, u64>,
    started: watch::Sender<bool>,
}

impl Follower {
    /// Returns a follower of the objects of one namespace, or of all objects, and a channel that reports true when the
    /// first lists are there and an attempt to load each of their plugins has ended, or 5 minutes later. `files` are
    /// the plugins that objects cannot displace.
    pub(super) fn new<'a>(
        driver: Arc<Driver>,
        api: &Api,
        namespace: Option<&str>,
        files: impl IntoIterator<Item = &'a PluginSpec>,
        seed: u64,
    ) -> (Self, watch::Receiver<bool>) {
        let kinds: &[Kind] = if namespace.is_some() { &[Kind::Namespaced] } else { &Kind::ALL };
        let mut policy = driver.policy();
        let watch = |kind: &Kind| {
            let watch = ObjectWatch::new(api.clone(), *kind, namespace.map(str::to_owned), seed);
            watch.bounded_by(driver.policy())
        };
        let watches = kinds.iter().map(watch).collect();
        let (started, has_started) = watch::channel(false);
        let (sender, changes) = mpsc::channel(CHANGES);
        let desired = Desired::beside(files, policy.borrow_and_update().clone());
        let known = Known { desired, namespace: namespace.map(Into::into), ..Known::default() };
        let follower = Self {
            driver,
            policy,
            known: Arc::new(Mutex::new(known)),
            watches,
            sender,
            changes,
            steps: Steps::default(),
            unlisted: kinds.iter().copied().collect(),
            unadopted: kinds.iter().copied().collect(),
            first: BTreeMap::new(),
            started,
        };
        (follower, has_started)
    }

    /// Lists the objects also when the watch of Pods has found that the API server's history was set back.
    pub(super) fn beside(mut self, pods: &Arc<Counters>) -> Self {
        self.watches = self.watches.into_iter().map(|watch| watch.beside(pods.clone())).collect();
        self
    }

    pub(super) fn known(&self) -> Shared {
        self.known.clone()
    }

    /// Returns what the watchdog watches.
    pub(super) fn watched(&self) -> Watched {
        let waits = is_waiting(&self.sender);
        Watched::new(Part::Life, "changes of plugin objects wait, and none was processed", self.steps.clone(), waits)
    }

    /// Follows the objects; never returns.
    ///
    /// # Errors
    /// Returns an error if a watch panicked.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let mut watches: JoinSet<()> = self.watches.drain(..).map(|watch| watch.run(self.sender.clone())).collect();
        let mut changed = self.driver.changed();
        let mut listed = Instant::now();
        loop {
            tokio::select! {
                biased;
                // The driver is here.
                Ok(()) = self.policy.changed() => {
                    let policy = self.policy.borrow_and_update().clone();
                    let names = self.known.lock().names.clone();
                    let of_kind = |(kind, names): (&Kind, &mut Names)| {
                        names.set_policy(policy.as_ref()).into_iter().map(|change| (*kind, change)).collect::<Vec<_>>()
                    };
                    let changes = names.lock().iter_mut().flat_map(of_kind).collect();
                    let actions = self.decide(|desired| desired.set_policy(policy, changes), Vec::new());
                    actions.into_iter().for_each(|action| self.act(action));
                }
                Some((kind, change)) = self.changes.recv() => {
                    let one = match &change {
                        Change::Listed(_) | Change::Absent => None,
                        Change::Applied(object) => Some(object.id.clone()),
                        Change::Deleted(id) | Change::Left(id) => Some(id.clone()),
                    };
                    let actions = self.observe(kind, change);
                    actions.into_iter().for_each(|action| self.act(action));
                    self.mean(one.as_ref());
                    if self.unlisted.remove(&kind) {
                        listed = Instant::now();
                    }
                    self.known.lock().is_listed = self.unlisted.is_empty();
                    self.steps.completed();
                }
                // Before the next branch, which a plugin that is always loaded again may keep busy.
                () = sleep_until(listed + FIRST_ATTEMPTS), if self.unlisted.is_empty() && !self.first.is_empty() => {
                    let count = self.first.len();
                    let minutes = FIRST_ATTEMPTS.as_secs() / 60;
                    tracing::warn!(count, minutes, "first attempts to load plugins have not ended; not waited for");
                    self.first.clear();
                }
                _ = changed.changed(), if !self.first.is_empty() => {}
                Some(_) = watches.join_next() => anyhow::bail!("a watch of plugin objects ended"),
            }
            let is_under_way = |id: &PluginId, load: u64| {
                let result = self.driver.read(id, |plugin: &Plugin<_>| plugin.result(load));
                result.is_some_and(|result| result.is_none())
            };
            // One that is under way is enough to wait for.
            while let Some(first) = self.first.first_entry()
                && !is_under_way(first.key(), *first.get())
            {
                first.remove();
            }
            if self.unlisted.is_empty() && self.first.is_empty() {
                self.started.send_if_modified(|started| !std::mem::replace(started, true));
            }
        }
    }

    /// Records and decides a change.
    fn observe(&mut self, kind: Kind, change: Change) -> Vec<Action> {
        let holds = &self.driver.components.holds;
        let is_new = |object: &objects::Object| {
            // Otherwise it was cleaned up before it lost the host's finalizer.
            let is_held = !object.deleting || object.held.is_some();
            object.has_held() && is_held && !holds.has(&object.id, &object.uid)
        };
        let mut adopted: Vec<&objects::Object> = match &change {
            Change::Listed(objects) if self.unadopted.remove(&kind) => {
                objects.iter().filter(|object| object.held.is_some() || object.has_held()).collect()
            }
            // Another replica may have let them hold finalizers.
            Change::Listed(objects) => objects.iter().filter(|object| is_new(object)).collect(),
            Change::Applied(object) => [&**object].into_iter().filter(|object| is_new(object)).collect(),
            Change::Absent => {
                self.unadopted.insert(kind);
                Vec::new()
            }
            Change::Deleted(_) | Change::Left(_) => Vec::new(),
        };
        // An author can write metadata, so these come last.
        adopted.sort_by_key(|object| !object.has_held());
        let adopted = adopted.into_iter().filter_map(|object| Some((object.uid.clone(), object.may_have_held()?)));
        let adopted: Vec<_> = adopted.collect();
        let changes = self.passed(kind, change);
        if changes.is_empty() {
            // One that is not passed on has its finalizers all the same.
            self.adopt(&adopted);
            return Vec::new();
        }
        self.decide(|desired| desired.change(kind, changes), adopted)
    }

    /// Records the names of a change, and returns the changes that may decide something.
    fn passed(&self, kind: Kind, change: Change) -> Vec<Change> {
        let all = self.known.lock().names.clone();
        let policy = self.policy.borrow();
        match change {
            Change::Listed(mut objects) => {
                let names = Names::listed(&mut objects, policy.as_ref());
                // Those of before are dropped without the lock.
                let _before = all.lock().insert(kind, names);
                vec![Change::Listed(objects)]
            }
            Change::Absent => {
                // Nothing is known of objects, also not that they are gone.
                let _before = all.lock().remove(&kind);
                vec![Change::Absent]
            }
            Change::Applied(object) => all.lock().entry(kind).or_default().applied(*object, policy.as_ref()),
            Change::Deleted(id) => all.lock().entry(kind).or_default().deleted(&id),
            Change::Left(_) => vec![change],
        }
    }

    /// Decides. This is slow for a tenant with many objects, so it is done on a copy; only this task changes the
    /// objects.
    fn decide(
        &self,
        change: impl FnOnce(&mut Desired) -> Vec<Action>,
        adopted: Vec<(String, Arc<PluginSpec>)>,
    ) -> Vec<Action> {
        let before = self.known.lock().desired.clone();
        let mut desired = before.clone();
        let actions = change(&mut desired);
        for (id, Beyond { reason, message }) in desired.newly_beyond(&before) {
            tracing::warn!(plugin = %id, reason, error = message, "plugin objects not loaded");
        }
        // Before the objects are known, which is when their finalizers may be removed.
        self.adopt(&adopted);
        // The replica that runs the plugin has removed its finalizers from Pods. Later ones may be those of others.
        let owned = self.driver.owns();
        let names = self.known.lock().names.clone();
        let ended = desired.ended_since(&before, |id, uid| is_gone(&names, id, uid));
        for (id, uid) in ended.into_iter().filter(|(id, _)| !owned.has(&id.tenant())) {
            self.driver.let_go_later(id, uid);
        }
        self.known.lock().desired = desired;
        actions
    }

    /// Records objects that another host may have let hold finalizers.
    fn adopt(&self, adopted: &[(String, Arc<PluginSpec>)]) {
        let owned = self.driver.owns();
        let names = self.known.lock().names.clone();
        let is_there = |id: &PluginId, uid: &str| {
            owned.has(&id.tenant()) || names.lock().get(&Kind::from_id(id)).is_some_and(|names| names.has(id, uid))
        };
        self.driver.components.holds.adopt(adopted, self.policy.borrow().as_ref(), is_there);
    }

    /// Begins an action. Runs that it does not permit have ended when this returns.
    fn act(&mut self, action: Action) {
        let (id, want) = match action {
            Action::Load(spec) => (spec.id.clone(), Want::Run(spec)),
            Action::Refuse { id, problems, permissions } => {
                (id, Want::Mistaken { failure: Arc::new(LoadFailure::Mistaken(problems.to_vec())), permissions })
            }
            Action::Unload(id) => return self.driver.feed(Event::Gone(id, false)),
            Action::Exceed(id) => return self.driver.feed(Event::Beyond(id)),
        };
        let Some(object) = self.known.lock().desired.object(&id).map(object) else { return };
        self.driver.feed(Event::Seen(id.clone(), Source::Object(object), want));
        if self.unlisted.contains(&Kind::from_id(&id)) {
            let load = self.driver.read(&id, Plugin::load).unwrap_or_default();
            self.first.insert(id, load);
        }
    }

    /// Records that the latest loads are of the present objects, of one or of all: a changed spec without an action
    /// means the same as the one before.
    fn mean(&self, one: Option<&PluginId>) {
        let meant: Vec<_> = {
            let desired = &self.known.lock().desired;
            let all = one.is_none().then(|| desired.decided().map(|(object, _)| object)).into_iter().flatten();
            let one = one.and_then(|id| desired.object(id)).filter(|object| !object.deleting);
            all.chain(one).map(|of| (of.id.clone(), object(of))).collect()
        };
        meant.into_iter().for_each(|(id, object)| self.driver.feed(Event::Meant(id, object)));
    }
}

/// Returns true if an object is not there any more. Of a kind that is not listed or not served nothing is known.
pub(super) fn is_gone(names: &Mutex<BTreeMap<Kind, Names>>, id: &PluginId, uid: &str) -> bool {
    // The names are known before the objects are.
    names.lock().get(&Kind::from_id(id)).is_some_and(|names| !names.has(id, uid))
}

/// Returns what the automaton knows of an object.
fn object(object: &objects::Object) -> Object {
    Object {
        uid: object.uid.as_str().into(),
        generation: object.generation,
        spec: object.spec.shared(),
        held: object.held.is_some(),
        ran: object.has_run(),
    }
}

#[cfg(test)]
mod tests;
