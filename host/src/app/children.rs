//! Watches the objects that plugins apply, as their accounts, and runs a plugin again when another client has changed
//! one of them.
//!
//! A plugin without an account has no such watch: the host's own account lists nothing for a tenant.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use podium_api::{Api, watch::Counters};
use podium_engine::{
    dispatch::{Dispatch, LoadedPlugin},
    intervals::Intervals,
};
use podium_vocabulary::{ObjectRef, Payer, Tenant, text};
use podium_writeback::{ChangedChild, Child, Origin, Writeback};
use tokio::{
    sync::{mpsc, watch},
    task::coop::consume_budget,
    time::{Instant, sleep, sleep_until},
};

use super::{
    life::Driver,
    spaced::{OfTenant, Pace, Spaced},
    turns::ListTurns,
    watches::Watches,
};
use crate::objects::{Change, ChildKind, ObjectWatch};

/// The most watches of a tenant, and of the host: those of the plugins that were loaded first.
const OF_TENANT: usize = 16;
const OF_HOST: usize = 1_024;
/// The shortest time between two comparisons of the watches with the loaded plugins.
const SETTLE: Duration = Duration::from_secs(1);
/// Capacity of the channel of changes of one watch.
const CHANGES: usize = 4;
/// The repairs of one object. Two clients that both insist on a field would otherwise change it as fast as they can.
const REPAIRS: Pace = Pace { at_once: 3, seconds: 20 };

/// The watches and repairs of all plugins.
pub(super) struct Children {
    api: Api,
    pods: Arc<Counters>,
    dispatch: Arc<Dispatch>,
    writeback: Arc<Writeback>,
    turns: Arc<ListTurns>,
    /// Changes when plugins were loaded or unloaded.
    changed: watch::Receiver<()>,
}

/// A watch: of a kind of objects of a plugin, in a namespace or in all.
type Watched = (ChildKind, Option<Arc<str>>);

impl Children {
    /// Lists again also when the watch of Pods (`pods`) has found that the API server's history was set back.
    pub(super) fn new(api: &Api, pods: &Arc<Counters>, driver: &Driver, writeback: &Arc<Writeback>) -> Self {
        Self {
            api: api.clone(),
            pods: pods.clone(),
            dispatch: driver.dispatch.clone(),
            writeback: writeback.clone(),
            changed: driver.changed(),
            turns: driver.components.inputs.turns.clone(),
        }
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
            never = repair(|| writeback.next_changed_child(), |manager, origin| run(&dispatch, manager, origin)) => {
                match never {}
            }
        }
    }

    /// Keeps a watch for each kind that a loaded plugin may apply.
    async fn watch(&mut self) -> anyhow::Result<()> {
        let mut watches = Watches::new();
        loop {
            watches.keep(&wanted(&self.dispatch.registry.all()), |watched| self.follow(watched));
            sleep(SETTLE).await;
            tokio::select! {
                changed = self.changed.changed() => {
                    changed.map_err(|_| anyhow::anyhow!("the life cycle of plugins ended"))?;
                }
                error = watches.panicked() => return Err(error.into()),
            }
        }
    }

    /// Reports the objects of one kind of a plugin to the memory of applied objects.
    fn follow(&self, (kind, namespace): &Watched) -> impl Future<Output = ()> + use<> {
        let tenant = namespace.clone().map_or(Tenant::Cluster, Tenant::Namespace);
        let namespace = namespace.as_deref().map(str::to_owned);
        let kind = Arc::new(kind.clone());
        let api = self.api.for_tenant(tenant.clone());
        let watch = ObjectWatch::<Child>::new(api, kind.clone(), namespace, self.dispatch.seed);
        let watch = watch.taking(&self.turns.of_tenant(&tenant), &self.turns.of_host).beside(self.pods.clone());
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
    let mut beyond = 0;
    for plugin in plugins {
        let Some(account) = &plugin.sender.impersonate else { continue };
        let count = of_tenants.entry(plugin.spec.tenant()).or_default();
        for kind in &plugin.spec.grants.write.objects {
            if *count >= OF_TENANT || wanted.len() >= OF_HOST {
                beyond += 1;
                continue;
            }
            let manager = plugin.sender.manager.clone();
            let child = ChildKind { kind: kind.clone(), manager, account: account.clone() };
            *count += usize::from(wanted.insert((child, plugin.spec.id.namespace.clone())));
        }
    }
    if beyond > 0 {
        tracing::debug!(beyond, "kinds of applied objects are not watched: they are beyond the bounds");
    }
    wanted
}

/// A field manager and an object.
type Name = (String, ObjectRef);

impl OfTenant for Name {
    fn tenant(&self) -> Payer {
        let plugin = plugin_of(&self.0);
        match plugin.split_once('/') {
            Some((namespace, _)) => (Tenant::Namespace(namespace.into()), None),
            None => (Tenant::Cluster, Some(plugin.into())),
        }
    }
}

/// Returns the beginning of the plugin's identity that is in a field manager; a namespace is never cut.
fn plugin_of(manager: &str) -> &str {
    manager.strip_prefix("podium/").unwrap_or(manager)
}

/// Runs the plugin with this field manager again, if it is loaded, because of an object that it applied.
async fn run(dispatch: &Dispatch, manager: String, Origin { pod, workload }: Origin) {
    if let Some(plugin) = dispatch.registry.by_manager(&manager) {
        dispatch.child_changed(&plugin, pod.as_ref(), workload.as_ref()).await;
    }
}

/// Runs the plugins again whose objects another client has changed. `next_changed` waits for such an object.
async fn repair<C, R>(next_changed: impl Fn() -> C, run: impl Fn(String, Origin) -> R) -> Infallible
where
    C: Future<Output = ChangedChild>,
    R: Future,
{
    let mut repairs: Spaced<Name, Origin> = Spaced::new(REPAIRS);
    // By tenant: the fight of one hides no other's.
    let mut fights: BTreeMap<Payer, Intervals> = BTreeMap::new();
    loop {
        let next = repairs.next();
        tokio::select! {
            // All changes before the next repair: that of a tenant is behind no more than one of each other tenant.
            biased;
            changed = next_changed() => {
                let ChangedChild { manager, object, origin } = changed;
                let name = (manager, object);
                let wait = repairs.add(name.clone(), origin, Instant::now());
                if !wait.is_zero()
                    && let Some(count) = fights.entry(name.tenant()).or_default().occurred(Instant::now())
                {
                    let plugin = plugin_of(&name.0);
                    let object = text::line(&name.1.to_string());
                    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                    tracing::warn!(
                        plugin, object, wait_ms, count,
                        "another client changes fields that the plugin applies, again and again: the next repair waits"
                    );
                }
                consume_budget().await;
            }
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                if let Some(((manager, _), origin)) = repairs.due(Instant::now()) {
                    run(manager, origin).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use parking_lot::Mutex;
    use tokio::time::timeout;

    use super::*;

    fn change(plugin: &str, number: usize) -> ChangedChild {
        let object = ObjectRef {
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            resource: "configmaps".into(),
            namespace: Some("shop".into()),
            name: number.to_string(),
        };
        ChangedChild { manager: format!("podium/{plugin}"), object, origin: Origin::default() }
    }

    /// In the order of the memory of applied objects, in which a tenant with many changes may be the first one.
    #[tokio::test(start_paused = true)]
    async fn a_repair_is_behind_one_of_each_other_tenant() {
        for when in [0, 1] {
            let (sender, receiver) = mpsc::unbounded_channel();
            (0..100).for_each(|number| sender.send(change("loud/a", number)).unwrap());
            let mut late = Some(change("shop/a", 0));
            if when == 0 {
                sender.send(late.take().unwrap()).unwrap();
            }
            let late = Mutex::new(late);
            let receiver = tokio::sync::Mutex::new(receiver);
            let ran = Mutex::new(Vec::new());
            let run = |manager: String, _| {
                ran.lock().push(manager);
                late.lock().take().into_iter().for_each(|change| sender.send(change).unwrap());
                ready(())
            };
            let next_changed = || async { receiver.lock().await.recv().await.unwrap() };
            assert!(timeout(Duration::from_secs(1), repair(next_changed, run)).await.is_err());
            let ran = ran.into_inner();
            let expected = ["podium/loud/a", "podium/shop/a", "podium/loud/a"];
            assert_eq!((&ran[..3], ran.len()), (&expected.map(str::to_owned)[..], 101), "during repair {when}");
        }
    }
}
