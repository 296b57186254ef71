//! Removes the finalizers that a deleted plugin's Pods still have, and then the finalizer of its object. Puts that one
//! back where it is missing while the object is not being deleted.
//!
//! The object stays until then, so a host that is started again continues: the objects and the cache show the rest of
//! the work, and nothing is kept beside them. A write of a run of the plugin may arrive late, so the object's finalizer
//! is removed only after the longest time that a request has.
//!
//! An object that lost its finalizer and is gone, or cannot get it back because it is being deleted, is cleaned up in
//! the same way: the host knows which objects it let hold finalizers, with a state directory also after a restart.
//!
//! Plugins whose objects stay hold Pods too: `release` decides for how long.
//!
//! A tenant's work is a task of its own, so that no other tenant waits for its answers. Tenants write in rotation, and
//! what the API server refuses is tried again with back-off.

mod found;
mod left;
mod release;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use found::{Looks, OfObject};
use futures::{StreamExt, stream};
use left::Elsewhere;
use parking_lot::Mutex;
use podium_api::Api;
use podium_engine::{
    dispatch::Dispatch,
    intervals::Intervals,
    ports::{Sender, Staged},
    throttle::Backoff,
};
use podium_life::{Plugin, Taker, taker};
use podium_vocabulary::{
    Action, Grants, PluginId, PluginSpec, PodKey, Write, WriteGrants, WriteResult, authz::authorize, text,
};
use podium_writeback::manager_name;
use release::LOOK;
pub(super) use release::{Holding, Releases};
use tokio::{
    sync::Semaphore,
    task::{JoinSet, yield_now},
    time::{Instant, sleep},
};

use super::{
    life::Driver,
    objects::{Known, Shared},
    operator::stale,
};
use crate::objects::{Removing, hold, release};

/// How often a tenant's objects are looked at.
const INTERVAL: Duration = Duration::from_millis(500);
/// The time of a turn to write, of which there is one at a time: 50 writes per second over all plugins.
const TURN: Duration = Duration::from_millis(20);
/// The most Pods of a plugin that are written to before the API server's answers are looked at. It is 1 at first and
/// after a refusal, and doubles with each success, so that a plugin of which everything is refused takes few turns.
const MOST: usize = 25;
/// Requests of a tenant under way at the same time.
const CONCURRENT: usize = 8;
/// How often all Pods are looked at, which takes about a microsecond for a Pod.
const SCAN: Duration = Duration::from_secs(3);
/// Longer than the deadline of a delivery, after which no write of an ended run arrives.
const LATE_WRITES: Duration = Duration::from_secs(12);
/// The pauses after refusals, of a Pod and of a plugin.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) };

/// The rest of the work, by plugin that was deleted.
pub(super) type Removals = Arc<Mutex<BTreeMap<PluginId, Removal>>>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Removal {
    /// Pods with a finalizer of the plugin.
    pub(super) pods: usize,
    /// The latest refusal by the API server, or why the object waits, escaped; `None` while nothing is refused.
    pub(super) refused: Option<String>,
}

/// Whether Pods of a namespace, or with `None` of any, are missing.
type Missing = Box<dyn Fn(Option<&str>) -> bool + Send + Sync>;

/// Follows the objects that are being deleted.
pub(super) struct Cleanup {
    pub(super) api: Api,
    pub(super) known: Shared,
    pub(super) driver: Arc<Driver>,
    pub(super) dispatch: Arc<Dispatch>,
    /// The account that is used where the plugin's own is refused, as RBAC names it.
    pub(super) account: Option<String>,
    /// Returns true while the cache lacks Pods of a namespace, or with `None` of any, that cannot be decoded.
    pub(super) undecoded: Missing,
    /// The turn to write, in the order of asking.
    pub(super) turn: Semaphore,
    pub(super) removals: Removals,
    pub(super) holding: Holding,
    pub(super) releases: Releases,
    /// Returns the namespaces in which RBAC refuses plugins to change Pods.
    pub(super) forbidden: Box<dyn Fn() -> Forbidden + Send + Sync>,
}

/// Namespaces, by the field managers of plugins.
pub(super) type Forbidden = BTreeMap<String, BTreeSet<String>>;

/// An object to work on.
enum Work {
    /// Its finalizer is put back.
    Hold,
    /// It is being deleted.
    Remove(Removing),
    /// It stays, and its plugin holds Pods that are being deleted.
    Free(Removing),
}

impl Work {
    /// Returns the number of the kind; an object has its own progress in each.
    fn number(&self) -> u8 {
        match self {
            Self::Hold => 0,
            Self::Remove(_) => 1,
            Self::Free(_) => 2,
        }
    }
}

/// The progress of one object.
struct Progress {
    /// When there was no plugin of the object for the first time.
    unloaded: Option<Instant>,
    /// When Pods are looked at next.
    scan: Instant,
    /// Pods to write to, and a finalizer of each.
    left: VecDeque<(PodKey, String)>,
    /// Those of them that are released because their namespace ends.
    ending: BTreeSet<PodKey>,
    /// The Pods of which the API server refused the latest write.
    refused: BTreeMap<PodKey, Wait>,
    wait: Wait,
    /// The most Pods to write to next.
    batch: usize,
    /// The plugin's own account was refused, and the other one was not.
    own_refused: bool,
    losses: Intervals,
}

/// The writes of a tenant, of which one waits for its turn among other tenants'.
struct Line {
    tenant: Taker,
    first: Semaphore,
    looks: Arc<Looks>,
}

/// A pause after refusals in a row.
struct Wait {
    refusals: u32,
    until: Instant,
}

impl Wait {
    fn none() -> Self {
        Self { refusals: 0, until: Instant::now() }
    }

    fn refused(&mut self) {
        self.refusals = self.refusals.saturating_add(1);
        self.until = Instant::now() + BACKOFF.doubled(self.refusals);
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }
}

impl Progress {
    fn new() -> Self {
        let (left, ending, refused, losses) = <_>::default();
        let scan = Instant::now();
        let wait = Wait::none();
        Self { unloaded: None, scan, left, ending, refused, wait, batch: 1, own_refused: false, losses }
    }

    /// Records the Pods that have a finalizer. Those that were refused least come first, others by their uids, so that
    /// a few Pods of which all is refused do not stand before the others.
    fn found(&mut self, held: BTreeMap<PodKey, String>) {
        self.refused.retain(|pod, _| held.contains_key(pod));
        let refusals = |pod: &PodKey| self.refused.get(pod).map_or(0, |wait| wait.refusals);
        let is_due = |pod: &PodKey| self.refused.get(pod).is_none_or(Wait::is_over);
        let mut left: Vec<_> = held.into_iter().filter(|(pod, _)| is_due(pod)).collect();
        left.sort_by_cached_key(|(pod, _)| (refusals(pod), pod.uid.clone()));
        self.left = left.into();
    }
}

impl Cleanup {
    /// Never returns, except with the failure of a task.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let this = Arc::new(self);
        let mut tasks = JoinSet::new();
        let mut busy = BTreeSet::new();
        let mut recall = JoinSet::new();
        let driver = this.driver.clone();
        recall.spawn(async move { driver.components.recall().await });
        let mut looks = JoinSet::new();
        let mut look = Instant::now();
        let mut shared: BTreeMap<Option<Arc<str>>, Arc<Looks>> = BTreeMap::new();
        let mut elsewhere = Elsewhere::new();
        let mut forget = Instant::now();
        loop {
            sleep(INTERVAL).await;
            if Instant::now() >= forget {
                forget = Instant::now() + LOOK;
                this.forget_elsewhere(&mut elsewhere);
            }
            if this.driver.owns().is_empty() {
                this.holding.forget();
            } else if Instant::now() >= look && looks.is_empty() {
                look = Instant::now() + LOOK;
                let this = this.clone();
                looks.spawn(async move { this.look().await });
            }
            while let Some(ended) = looks.try_join_next().or_else(|| recall.try_join_next()) {
                ended?;
            }
            while let Some(ended) = tasks.try_join_next() {
                busy.remove(&ended?);
            }
            let work = this.work(None);
            let removed = work.iter().filter(|(.., work)| matches!(work, Work::Remove(_)));
            let removed: BTreeSet<&PluginId> = removed.map(|(id, ..)| id).collect();
            this.removals.lock().retain(|id, _| removed.contains(id));
            shared.retain(|_, looks| Arc::strong_count(looks) > 1);
            for (id, ..) in work {
                let tenant = taker(&id);
                if busy.insert(tenant.clone()) {
                    let looks = shared.entry(id.namespace.clone()).or_default().clone();
                    let line = Line { tenant, first: Semaphore::new(1), looks };
                    tasks.spawn(this.clone().of_tenant(line, id.namespace));
                }
            }
        }
    }

    /// Returns the objects to work on, of a namespace or of all, with their uids; none before the first lists, and none
    /// of plugins that another replica runs.
    fn work(&self, namespace: Option<&Option<Arc<str>>>) -> Vec<(PluginId, String, Work)> {
        let owned = self.driver.owns();
        if owned.is_empty() {
            return Vec::new();
        }
        // Only copied under the lock, however many objects there are.
        let desired = {
            let known = self.known.lock();
            let Known { desired, is_listed, .. } = &*known;
            if !is_listed {
                return Vec::new();
            }
            namespace.map_or_else(|| desired.clone(), |namespace| desired.part(namespace))
        };
        let unheld = desired.unheld().filter(|object| self.driver.components.holds.has(&object.id, &object.uid));
        let unheld = unheld.map(|object| (object.id.clone(), object.uid.clone(), Work::Hold));
        let removing = desired.removing().map(|mut object| {
            // An author may have added the host's finalizer to an object whose plugin was refused.
            object.spec = object.spec.filter(|_| self.driver.components.holds.has(&object.id, &object.uid));
            (object.id.clone(), object.uid.clone(), Work::Remove(object))
        });
        let held = desired.staying().filter(|(object, _)| self.holding.is_long(&object.id));
        let freeing = held.map(|(object, spec)| {
            let id = object.id.clone();
            let uid = object.uid.clone();
            (id.clone(), uid.clone(), Work::Free(Removing { id, uid, position: object.held, spec: Some(spec) }))
        });
        let left = self.left(&desired, namespace).into_iter().map(|(id, uid, spec)| {
            let object = Removing { id: id.clone(), uid: uid.clone(), position: None, spec: Some(spec) };
            (id, uid, Work::Remove(object))
        });
        let all = unheld.chain(removing).chain(freeing).chain(left);
        all.filter(|(id, ..)| owned.has(&id.tenant())).collect()
    }

    /// Works until nothing is left to do for the tenant, and returns it.
    async fn of_tenant(self: Arc<Self>, line: Line, namespace: Option<Arc<str>>) -> Taker {
        let mut all: BTreeMap<(String, u8), Progress> = BTreeMap::new();
        loop {
            let mut work = self.work(Some(&namespace));
            work.retain(|(id, ..)| taker(id) == line.tenant);
            if work.is_empty() {
                return line.tenant;
            }
            let key = |(_, uid, work): &(PluginId, String, Work)| (uid.clone(), work.number());
            let keys: BTreeSet<_> = work.iter().map(key).collect();
            all.retain(|of, _| keys.contains(of));
            work.sort_by_cached_key(|work| all.get(&key(work)).map_or(0, |progress| progress.wait.refusals));
            let mut done = 0;
            for work in work {
                let progress = all.entry(key(&work)).or_insert_with(Progress::new);
                match work {
                    (id, uid, Work::Hold) => self.put_back(&line, &id, &uid, progress).await,
                    (.., Work::Remove(object)) => done += self.step(&line, &object, progress).await,
                    (.., Work::Free(object)) => done += self.free(&line, &object, progress).await,
                }
            }
            if done == 0 {
                sleep(INTERVAL).await;
            }
        }
    }

    /// Waits for the tenant's turn to write.
    async fn turn(&self, line: &Line) {
        // Both are never closed.
        let _first = line.first.acquire().await;
        let _turn = self.turn.acquire().await;
        sleep(TURN).await;
    }

    /// Adds the object's finalizer again.
    async fn put_back(&self, line: &Line, id: &PluginId, uid: &str, progress: &mut Progress) {
        if !progress.wait.is_over() {
            return;
        }
        // The watch may bring the latest write in the first second.
        let is_first = progress.wait.refusals == 0;
        progress.wait.refused();
        if !is_first && self.set_held(line, id, hold(id, uid), progress).await {
            tracing::info!(plugin = %id, "finalizer of the plugin object put back");
        }
    }

    /// Writes to some Pods, or ends the removal. Returns the number of Pods without the plugin's finalizers since.
    async fn step(&self, line: &Line, object: &Removing, progress: &mut Progress) -> usize {
        let id = &object.id;
        // Its unload is on its way. The plugin of a file stays, and so does that of a later object of the name.
        let is_latest = {
            let desired = &self.known.lock().desired;
            desired.object(id).is_none_or(|of| of.uid == object.uid) && !desired.is_of_file(id)
        };
        if object.spec.is_some() && is_latest && self.dispatch.registry.by_id(id).is_some() {
            progress.unloaded = None;
            return 0;
        }
        let now = Instant::now();
        let unloaded = *progress.unloaded.get_or_insert(now);
        // Another plugin may get the finalizers of one that does not wait for the host.
        let is_early = object.position.is_none() && unloaded.elapsed() < LATE_WRITES;
        // Without a current cache nothing is known of Pods.
        if is_early || stale(&self.dispatch.reader).is_some() {
            return 0;
        }
        let excluded = self.driver.rules().policy.as_ref().and_then(|policy| policy.excluded(&line.tenant.0));
        if now >= progress.scan {
            // Others have their turns between the scans of a tenant with many objects.
            yield_now().await;
            let Some(OfObject { at, held, is_none, undecoded }) = self.held(object, &line.looks).await else {
                return 0;
            };
            progress.scan = line.looks.next();
            let is_late = at >= unloaded + LATE_WRITES;
            let refused = match &excluded {
                _ if is_none => undecoded.then(|| "the host cannot decode pods that may have some".to_owned()),
                Some(excluded) => Some(format!("{}; remove the finalizers as an administrator", text::line(excluded))),
                None => self.refused(id),
            };
            self.removals.lock().insert(id.clone(), Removal { pods: held.len(), refused });
            if is_none && !undecoded && is_late {
                self.release(line, object, progress).await;
                return 0;
            }
            progress.found(held);
        }
        match object.spec.as_deref().filter(|_| excluded.is_none() && progress.wait.is_over()) {
            Some(spec) if !progress.left.is_empty() => {
                let (done, refusal) = self.remove_some(line, object, spec, progress).await;
                let done = done.len();
                let mut removals = self.removals.lock();
                let removal = removals.entry(id.clone()).or_default();
                removal.pods = removal.pods.saturating_sub(done);
                removal.refused = refusal.or_else(|| removal.refused.take()).filter(|_| !progress.refused.is_empty());
                done
            }
            _ => 0,
        }
    }

    /// Returns true if a version of a plugin runs, also one before that of the spec, or another replica may run one.
    fn has_version(&self, id: &PluginId) -> bool {
        let has_version = |plugin: &Plugin<_>| plugin.running().is_some() || plugin.is_standby();
        self.driver.read(id, has_version).unwrap_or_default()
    }

    /// Removes finalizers of some Pods. Returns those without them now, with the results, and a refusal.
    async fn remove_some(
        &self,
        line: &Line,
        object: &Removing,
        spec: &PluginSpec,
        progress: &mut Progress,
    ) -> (Vec<(PodKey, WriteResult)>, Option<String>) {
        let Removing { id, uid, .. } = object;
        let next: Vec<_> = progress.left.drain(..progress.batch.min(progress.left.len())).collect();
        let own_refused = progress.own_refused;
        let results = stream::iter(next).map(async |(pod, name)| {
            self.turn(line).await;
            // A later object of the name may have what this one held.
            if !self.driver.components.holds.has(id, uid) {
                return (pod, WriteResult::NotSent, own_refused);
            }
            let (result, own_refused) = self.remove(spec, &pod, name, own_refused).await;
            (pod, result, own_refused)
        });
        let results: Vec<_> = results.buffer_unordered(CONCURRENT).collect().await;
        let mut done = Vec::new();
        let mut refusal = None;
        for (pod, result, own_refused) in results {
            progress.own_refused = own_refused;
            match result {
                WriteResult::Forbidden(text)
                | WriteResult::Invalid(text)
                | WriteResult::Blocked(text)
                | WriteResult::OwnedByOther(text) => {
                    refusal = Some(text::line(&text));
                    progress.refused.entry(pod).or_insert_with(Wait::none).refused();
                }
                result if result.is_settled() => {
                    progress.refused.remove(&pod);
                    done.push((pod, result));
                }
                // The Pod is found again.
                _ => {}
            }
        }
        if !done.is_empty() {
            progress.wait = Wait::none();
            progress.batch = (progress.batch * 2).min(MOST);
        } else if refusal.is_some() {
            progress.wait.refused();
            progress.batch = 1;
        }
        if let Some(error) = &refusal
            && let Some(count) = progress.losses.occurred(Instant::now())
        {
            tracing::warn!(plugin = %id, error, count, "finalizers of the plugin not removed from pods");
        }
        (done, refusal)
    }

    fn refused(&self, id: &PluginId) -> Option<String> {
        self.removals.lock().get(id).and_then(|removal| removal.refused.clone())
    }

    /// Removes a finalizer of a Pod. Also returns true if the plugin's own account was refused and the other one was
    /// not: if both are refused, the own one may get the right.
    async fn remove(&self, spec: &PluginSpec, pod: &PodKey, name: String, own_refused: bool) -> (WriteResult, bool) {
        let own = Sender { manager: manager_name(&spec.id), impersonate: spec.impersonate.clone() };
        if !own_refused {
            let result = self.send(&own, spec, pod, &name).await;
            if self.account.is_none() || !matches!(result, WriteResult::Forbidden(_)) {
                return (result, false);
            }
        }
        let cleanup = Sender { impersonate: self.account.clone(), ..own };
        let result = self.send(&cleanup, spec, pod, &name).await;
        let is_refused = matches!(result, WriteResult::Forbidden(_));
        (result, !is_refused)
    }

    async fn send(&self, sender: &Sender, spec: &PluginSpec, pod: &PodKey, name: &str) -> WriteResult {
        let finalizers = spec.grants.write.finalizers.clone();
        let write = WriteGrants { finalizers, ..WriteGrants::default() };
        let grants = Grants { write, ..Grants::default() };
        let action = Action::RemoveFinalizer { target: pod.clone(), name: name.to_owned() };
        let write = match authorize(&spec.scope(), &grants, Write { id: 0, action }) {
            Ok(write) => write,
            Err(refused) => return WriteResult::Invalid(refused.to_string()),
        };
        let list = self.dispatch.expectations.seen.latest_list();
        let view = self.dispatch.reader.snapshot();
        let now = self.dispatch.clock.now_millis();
        let staged = Staged { writes: vec![write], ..Staged::default() };
        let sent = self.dispatch.deliver.deliver(sender, pod, &*view, staged, now).await;
        // Otherwise the Pod would be found again.
        self.dispatch.expectations.see(&sent.expected, list).await;
        sent.reports.into_iter().next().map_or(WriteResult::NotSent, |report| report.result)
    }

    /// Removes the object's finalizer, if it has it. The watch reports that the object is gone.
    async fn release(&self, line: &Line, object: &Removing, progress: &mut Progress) {
        let Removing { id, uid, position, .. } = object;
        if let Some(position) = position
            && !self.set_held(line, id, release(id, uid, *position), progress).await
        {
            progress.wait.refused();
            progress.scan = progress.scan.max(progress.wait.until);
            return;
        }
        tracing::info!(plugin = %id, "finalizers of the deleted plugin removed");
        self.driver.let_go(id, uid).await;
    }

    /// Sends the request that adds or removes the object's finalizer. Returns false if the API server refused it.
    async fn set_held(
        &self,
        line: &Line,
        id: &PluginId,
        request: Result<http::Request<Vec<u8>>, http::Error>,
        progress: &mut Progress,
    ) -> bool {
        self.turn(line).await;
        let Ok(request) = request else { return false };
        let Err(error) = self.api.for_tenant(id.tenant()).bytes(request).await else { return true };
        if let Some(count) = progress.losses.occurred(Instant::now()) {
            let error = text::line(&error.to_string());
            tracing::warn!(plugin = %id, error, count, "finalizer of the plugin object not changed");
        }
        false
    }
}

#[cfg(test)]
mod tests;
