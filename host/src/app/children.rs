//! Watches the objects that plugins apply, as their accounts, and runs a plugin again when another client has changed
//! one of them.
//!
//! A plugin without an account has no such watch: the host's own account lists nothing for a tenant.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use podium_api::Api;
use podium_engine::{
    dispatch::{Dispatch, LoadedPlugin},
    intervals::Intervals,
    throttle::{Bucket, Rate},
};
use podium_vocabulary::{ObjectRef, Tenant, text};
use podium_writeback::{ChangedChild, Child, Origin, Writeback};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, sleep_until},
};

use super::life::Driver;
use crate::objects::{Change, ChildKind, ObjectWatch};

/// The most watches of a tenant, and of the host: those of the plugins that were loaded first.
const OF_TENANT: usize = 16;
const OF_HOST: usize = 1_024;
/// The shortest time between two comparisons of the watches with the loaded plugins.
const SETTLE: Duration = Duration::from_secs(1);
/// The pages of lists that are read at once.
const LISTS: usize = 4;
/// Capacity of the channel of changes of one watch.
const CHANGES: usize = 4;
/// The repairs of one object: three at once, then one in 20 s. Two clients that both insist on a field would otherwise
/// change it as fast as they can.
const REPAIRS: Rate = Rate { per_second: 1, burst: 3 * REPAIR };
const REPAIR: u32 = 20;
/// Objects whose buckets are kept also when they are full again.
const KEPT: usize = 1_024;

/// The watches and repairs of all plugins.
pub(super) struct Children {
    api: Api,
    dispatch: Arc<Dispatch>,
    writeback: Arc<Writeback>,
    /// Changes when plugins were loaded or unloaded.
    changed: watch::Receiver<()>,
    seed: u64,
}

/// A watch: of a kind of objects of a plugin, in a namespace or in all.
type Watched = (ChildKind, Option<Arc<str>>);

impl Children {
    /// `seed` is for the jitter of waits.
    pub(super) fn new(
        api: &Api,
        dispatch: &Arc<Dispatch>,
        writeback: &Arc<Writeback>,
        driver: &Driver,
        seed: u64,
    ) -> Self {
        let changed = driver.changed();
        Self { api: api.clone(), dispatch: dispatch.clone(), writeback: writeback.clone(), changed, seed }
    }

    /// Never returns.
    ///
    /// # Errors
    /// Returns an error if a watch panicked.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let writeback = self.writeback.clone();
        let dispatch = self.dispatch.clone();
        tokio::select! {
            ended = self.watch() => ended,
            never = repair(&writeback, &dispatch) => never,
        }
    }

    /// Keeps a watch for each kind that a loaded plugin may apply.
    async fn watch(&mut self) -> anyhow::Result<()> {
        let turns = Arc::new(Semaphore::new(LISTS));
        let mut tasks = JoinSet::new();
        let mut watches: BTreeMap<Watched, AbortHandle> = BTreeMap::new();
        loop {
            let wanted = wanted(&self.dispatch.registry.all());
            watches.retain(|watched, task| {
                let stays = wanted.contains(watched);
                if !stays {
                    task.abort();
                }
                stays
            });
            for watched in wanted {
                watches.entry(watched).or_insert_with_key(|watched| tasks.spawn(self.follow(watched, &turns)));
            }
            sleep(SETTLE).await;
            loop {
                tokio::select! {
                    changed = self.changed.changed() => {
                        changed.map_err(|_| anyhow::anyhow!("the life cycle of plugins ended"))?;
                        break;
                    }
                    Some(ended) = tasks.join_next() => match ended {
                        Err(error) if error.is_panic() => return Err(error.into()),
                        Ok(()) | Err(_) => {}
                    },
                }
            }
        }
    }

    /// Reports the objects of one kind of a plugin to the memory of applied objects.
    fn follow(&self, (kind, namespace): &Watched, turns: &Arc<Semaphore>) -> impl Future<Output = ()> + use<> {
        let tenant = namespace.clone().map_or(Tenant::Cluster, Tenant::Namespace);
        let namespace = namespace.as_deref().map(str::to_owned);
        let kind = Arc::new(kind.clone());
        let watch = ObjectWatch::<Child>::new(self.api.for_tenant(tenant), kind.clone(), namespace, self.seed);
        let watch = watch.taking(turns.clone());
        let writeback = self.writeback.clone();
        let (sender, mut changes) = mpsc::channel(CHANGES);
        async move {
            let record = async {
                while let Some((_, change)) = changes.recv().await {
                    let ChildKind { manager, kind, .. } = &*kind;
                    match change {
                        Change::Listed(children) => writeback.see_children(manager, kind, &children),
                        Change::Applied(child) => writeback.see_child(manager, kind, &child, false),
                        Change::Deleted(child) => writeback.see_child(manager, kind, &child, true),
                        Change::Absent | Change::Left(_) => {}
                    }
                }
            };
            tokio::join!(watch.run(sender), record);
        }
    }
}

/// Returns the watches of plugins, in the order in which they were loaded.
fn wanted(plugins: &[Arc<LoadedPlugin>]) -> BTreeSet<Watched> {
    let mut of_tenants: BTreeMap<Tenant, usize> = BTreeMap::new();
    let mut wanted = BTreeSet::new();
    for plugin in plugins {
        let Some(account) = &plugin.sender.impersonate else { continue };
        let count = of_tenants.entry(plugin.spec.tenant()).or_default();
        for kind in &plugin.spec.grants.write.objects {
            if *count >= OF_TENANT || wanted.len() >= OF_HOST {
                break;
            }
            let manager = plugin.sender.manager.clone();
            let child = ChildKind { kind: kind.clone(), manager, account: account.clone() };
            *count += usize::from(wanted.insert((child, plugin.spec.id.namespace.clone())));
        }
    }
    wanted
}

/// Runs the plugins again whose objects another client has changed.
async fn repair(writeback: &Writeback, dispatch: &Dispatch) -> anyhow::Result<()> {
    let mut repairs = Repairs::default();
    let mut fights = Intervals::new();
    loop {
        let next = repairs.next();
        tokio::select! {
            changed = writeback.next_changed_child() => {
                let ChangedChild { manager, object, origin } = changed;
                let wait = repairs.add((manager.clone(), object.clone()), origin, Instant::now());
                if !wait.is_zero() && let Some(count) = fights.occurred(Instant::now()) {
                    let plugin = manager.strip_prefix("podium/");
                    let object = text::line(&object.to_string());
                    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                    tracing::warn!(
                        plugin, object, wait_ms, count,
                        "another client changes fields that the plugin applies, again and again: the next repair waits"
                    );
                }
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                let now = Instant::now();
                while let Some((manager, Origin { pod, workload })) = repairs.due(now) {
                    let Some(plugin) = dispatch.registry.by_manager(&manager) else { continue };
                    dispatch.child_changed(&plugin, pod.as_ref(), workload.as_ref()).await;
                }
            }
        }
    }
}

/// A field manager and an object that it applied.
type Name = (String, ObjectRef);

/// When the objects are due that other clients have changed. Pure.
#[derive(Default)]
struct Repairs {
    buckets: BTreeMap<Name, Bucket>,
    waiting: BTreeMap<Name, (Instant, Origin)>,
    due: BTreeSet<(Instant, Name)>,
}

impl Repairs {
    /// Adds a change of an object, and returns how long its repair waits.
    fn add(&mut self, name: Name, origin: Origin, now: Instant) -> Duration {
        if self.buckets.len() >= KEPT {
            self.buckets.retain(|_, bucket| !bucket.wait(bucket.burst(), now).is_zero());
        }
        if let Some((due, held)) = self.waiting.get_mut(&name) {
            *held = origin;
            return due.saturating_duration_since(now);
        }
        let bucket = self.buckets.entry(name.clone()).or_insert_with(|| Bucket::full(REPAIRS, now));
        let wait = bucket.take(REPAIR, now);
        self.waiting.insert(name.clone(), (now + wait, origin));
        self.due.insert((now + wait, name));
        wait
    }

    fn next(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns the manager and the run of an object that is due.
    fn due(&mut self, now: Instant) -> Option<(String, Origin)> {
        if self.next()? > now {
            return None;
        }
        let (_, name) = self.due.pop_first()?;
        let (_, origin) = self.waiting.remove(&name)?;
        Some((name.0, origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        let api_version = "v1".to_owned();
        let kind = "ConfigMap".to_owned();
        let resource = "configmaps".to_owned();
        let namespace = Some("shop".to_owned());
        ("podium/shop/a".to_owned(), ObjectRef { api_version, kind, resource, namespace, name: name.to_owned() })
    }

    #[test]
    fn an_object_is_repaired_three_times_at_once_and_then_every_20_seconds() {
        let mut repairs = Repairs::default();
        let start = Instant::now();
        for number in 0..3 {
            assert!(repairs.add(name("a"), Origin::default(), start).is_zero(), "{number}");
            assert!(repairs.due(start).is_some() && repairs.due(start).is_none());
        }
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(repairs.add(name("a"), Origin::default(), start), Duration::from_secs(20));
        assert_eq!(repairs.add(name("a"), Origin::default(), after(5)), Duration::from_secs(15), "the same repair");
        assert!(repairs.add(name("b"), Origin::default(), start).is_zero(), "another object");
        assert!(repairs.due(start).is_some() && repairs.due(after(19)).is_none() && repairs.due(after(20)).is_some());
        assert_eq!(repairs.add(name("a"), Origin::default(), after(20)), Duration::from_secs(20));
        (0..KEPT).for_each(|number| _ = repairs.add(name(&format!("c{number}")), Origin::default(), after(200)));
        repairs.add(name("d"), Origin::default(), after(300));
        assert_eq!(repairs.buckets.len(), 1);
    }
}
