//! The objects whose plugins may hold finalizers of Pods, and the host's finalizer on them, which is there before the
//! plugin is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use podium_life::Object;
use podium_vocabulary::{PluginId, PluginSpec, Tenant, text};
use tokio::{sync::OnceCell, time::sleep};

use super::{BACKOFF, Components, Driver, LoadFailure, Rules, disk::on_disk};
use crate::{
    config::Policy,
    images::{Held, MOST_HELD_BYTES, Store},
    objects::{finalizing, hold, most_loaded, of_finalizers},
};

/// The most objects of a tenant beside as many as it may have: those that are gone are known until no Pod has a
/// finalizer of their plugins, and each of them costs a file and a share of every look at the tenant's Pods.
const MOST_GONE: usize = 200;
/// After this many failures, about half a minute, a file that cannot be read keeps the records of others no longer.
const MOST_FAILURES: u32 = 5;

/// The objects that have the host's finalizer from the host itself, with their uids: anyone who may write an object may
/// write its finalizers too. An object that is gone is known until no Pod has a finalizer of its plugin.
#[derive(Debug, Default)]
pub(in crate::app) struct Holds {
    all: Mutex<All>,
    /// Tenants with more objects than are known, which the log has named.
    full: Mutex<BTreeSet<Tenant>>,
    recalled: OnceCell<()>,
}

/// By plugin and uid, the part of the spec that is about finalizers.
type All = BTreeMap<(PluginId, String), Arc<PluginSpec>>;

impl Components {
    /// Adds the host's finalizer to an object whose plugin may hold finalizers of Pods, before it can do so.
    pub(super) async fn hold(
        &self,
        rules: &Rules,
        spec: &PluginSpec,
        object: Option<&Object>,
    ) -> Result<(), LoadFailure> {
        let of_object = object.filter(|_| !spec.grants.write.finalizers.is_empty());
        let Some(Object { uid, held, .. }) = of_object else { return Ok(()) };
        let unheld = |error: &dyn std::fmt::Display| LoadFailure::Unheld(text::line(&error.to_string()));
        let most = most_loaded(&spec.tenant(), rules.policy.as_ref()) + MOST_GONE;
        if self.holds.is_full(&spec.id, uid, most) {
            return Err(unheld(&"those of the tenant's earlier plugins are not removed from pods yet"));
        }
        if !held {
            let request = hold(&spec.id, uid).map_err(|error| unheld(&error))?;
            self.api.for_tenant(spec.tenant()).bytes(request).await.map_err(|error| unheld(&error))?;
        }
        self.holds.let_hold(spec, uid);
        Ok(())
    }

    /// Reads once which objects held finalizers when the host was started before, however long the disk takes, and
    /// again after a failure: a record that is written before would replace those that are not known.
    pub(in crate::app) async fn recall(&self) {
        let reading = async || {
            let Some(store) = &self.store else { return };
            let mut failures = 0;
            let held = loop {
                let error = match store.call(Store::held).await {
                    Some(Ok((held, unread))) if unread.is_empty() => break held,
                    Some(Ok((held, unread))) if failures >= MOST_FAILURES => {
                        let files = unread.join("; ");
                        tracing::error!(files, "finalizers that these plugins held are not removed if they are gone");
                        break held;
                    }
                    Some(Ok((_, unread))) => unread.join("; "),
                    Some(Err(error)) => error.to_string(),
                    None => "the call panicked".to_owned(),
                };
                failures += 1;
                let wait = BACKOFF.doubled(failures);
                let seconds = wait.as_secs();
                tracing::warn!(seconds, error, "plugins that held finalizers of pods not read, to be retried");
                sleep(wait).await;
            };
            let mut all = self.holds.all.lock();
            for (id, uid, spec) in held.iter().flat_map(|(id, of)| of.iter().map(move |(uid, spec)| (id, uid, spec))) {
                if let Some(spec) = finalizing(id, &spec.to_string()) {
                    all.entry((id.clone(), uid.clone())).or_insert_with(|| spec.into());
                }
            }
        };
        self.holds.recalled.get_or_init(reading).await;
    }
}

impl Driver {
    /// As [`Self::let_go`], without waiting for the disk.
    pub(in crate::app) fn let_go_later(self: &Arc<Self>, id: PluginId, uid: String) {
        let this = self.clone();
        self.begin_task(async move {
            // Otherwise the file of a host before would bring it back.
            this.components.recall().await;
            this.let_go(&id, &uid).await;
        });
    }

    /// Forgets an object that is gone and without finalizers on Pods, also on disk.
    pub(in crate::app) async fn let_go(self: &Arc<Self>, id: &PluginId, uid: &str) {
        if self.components.holds.all.lock().remove(&(id.clone(), uid.to_owned())).is_none() {
            return;
        }
        let Some(disk) = self.components.store.clone() else { return };
        // Otherwise the file has objects that are not known yet, and this one is let go again after them.
        if !self.components.holds.recalled.initialized() {
            return;
        }
        let this = self.clone();
        let plugin = id.clone();
        let gone = uid.to_owned();
        let keep = move |store: &Store| store.keep_held(&plugin, &gone, || this.components.holds.kept(&plugin));
        if let Some(Err(error)) = on_disk(disk, keep).await {
            // The next start finds no finalizer, and removes it.
            tracing::warn!(plugin = %id, %error, "record of a deleted plugin not removed");
        }
    }
}

impl Holds {
    /// Records an object whose plugin may hold finalizers of Pods. Earlier objects of its name leave theirs to it.
    fn let_hold(&self, spec: &PluginSpec, uid: &str) {
        // Of the spec only this is needed when the object is gone.
        let known = finalizing(&spec.id, &of_finalizers(spec).to_string()).unwrap_or_else(|| spec.clone());
        let own: BTreeSet<_> = known.grants.write.finalizers.iter().map(|pattern| &pattern.0).collect();
        let is_own = |of: &PluginSpec| of.grants.write.finalizers.iter().all(|pattern| own.contains(&pattern.0));
        let mut all = self.all.lock();
        let covered: Vec<_> =
            of_plugin(&all, &spec.id).filter(|(_, of)| is_own(of)).map(|(key, _)| key.clone()).collect();
        covered.iter().for_each(|key| drop(all.remove(key)));
        all.insert((spec.id.clone(), uid.to_owned()), known.into());
    }

    /// Records objects that a host before, or another replica, may have let hold finalizers, as many as a tenant may
    /// have. One that is not there any more leaves its place to another one: the replica that ran it cleans up.
    pub(in crate::app) fn adopt(
        &self,
        held: &[(String, Arc<PluginSpec>)],
        policy: Option<&Policy>,
        is_there: impl Fn(&PluginId, &str) -> bool,
    ) {
        let mut beyond = BTreeSet::new();
        for (uid, spec) in held {
            let tenant = spec.tenant();
            if beyond.contains(&tenant) {
                continue;
            }
            let most = most_loaded(&tenant, policy) + MOST_GONE;
            if self.is_full(&spec.id, uid, most) {
                let gone = self.which(Some(&spec.id.namespace), |id, uid| !is_there(id, uid));
                let mut all = self.all.lock();
                gone.into_iter().for_each(|(id, uid, _)| drop(all.remove(&(id, uid))));
            }
            if self.is_full(&spec.id, uid, most) {
                beyond.insert(tenant);
            } else {
                self.let_hold(spec, uid);
                self.full.lock().remove(&tenant);
            }
        }
        for tenant in beyond {
            // Once, however many objects a tenant has.
            if self.full.lock().insert(tenant.clone()) {
                tracing::warn!(%tenant, "too many plugins with finalizers; those of some stay on their pods");
            }
        }
    }

    /// Returns true if the objects of a tenant, of which `most` are known, leave no place for another one.
    fn is_full(&self, id: &PluginId, uid: &str, most: usize) -> bool {
        // As JSON, with its uid and the names of an account.
        let finalizers =
            |spec: &PluginSpec| spec.grants.write.finalizers.iter().map(|of| of.0.len() + 3).sum::<usize>();
        let all = self.all.lock();
        let others = of_tenant(&all, Some(&id.namespace)).filter(|((_, other), _)| **other != *uid);
        let mut objects = 0;
        let mut bytes = 0;
        for (_, spec) in others {
            objects += 1;
            bytes += 512 + finalizers(spec);
        }
        let is_known = all.contains_key(&(id.clone(), uid.to_owned()));
        bytes >= MOST_HELD_BYTES || objects >= most && !is_known
    }

    /// Returns true if the host has added its finalizer to the object, now or before its start.
    pub(in crate::app) fn has(&self, id: &PluginId, uid: &str) -> bool {
        self.all.lock().contains_key(&(id.clone(), uid.to_owned()))
    }

    /// Returns the objects of a tenant or of all, with the part of their specs that is about finalizers, of which a
    /// condition holds.
    pub(in crate::app) fn which(
        &self,
        namespace: Option<&Option<Arc<str>>>,
        condition: impl Fn(&PluginId, &str) -> bool,
    ) -> Vec<(PluginId, String, Arc<PluginSpec>)> {
        let all = self.all.lock();
        let which = of_tenant(&all, namespace).filter(|((id, uid), _)| condition(id, uid));
        which.map(|((id, uid), spec)| (id.clone(), uid.clone(), spec.clone())).collect()
    }

    /// Returns the objects of a plugin's name, by uid, as a file has them.
    pub(super) fn kept(&self, id: &PluginId) -> Held {
        let all = self.all.lock();
        of_plugin(&all, id).map(|((_, uid), spec)| (uid.clone(), of_finalizers(spec))).collect()
    }
}

type Entry<'a> = (&'a (PluginId, String), &'a Arc<PluginSpec>);

/// The entries of this name, found without a look at others.
fn of_plugin<'a>(all: &'a All, id: &PluginId) -> impl Iterator<Item = Entry<'a>> {
    all.range((id.clone(), String::new())..).take_while(move |((of, _), _)| of == id)
}

/// The entries of this namespace, found without a look at others, or with `None` all. Plugins of the cluster are the
/// first.
fn of_tenant<'a>(all: &'a All, namespace: Option<&Option<Arc<str>>>) -> impl Iterator<Item = Entry<'a>> {
    let first = PluginId { namespace: namespace.cloned().flatten(), name: "".into() };
    let is_of_tenant = move |of: &Entry<'_>| namespace.is_none_or(|namespace| of.0.0.namespace == *namespace);
    all.range((first, String::new())..).take_while(is_of_tenant)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use podium_api::{Api, Permit};
    use podium_pods::testing;
    use podium_runtime::{Engine, EngineOptions};
    use podium_vocabulary::KeyPattern;

    use super::super::super::inputs::InputStates;
    use super::{
        super::{Files, Runners},
        *,
    };

    #[test]
    fn objects_are_those_of_their_tenant_and_end_those_of_their_own_name_only() {
        let holds = Holds::default();
        let let_hold = |namespace, name, uid, finalizer: &str| {
            let mut spec = testing::plugin(namespace, name);
            spec.grants.write.finalizers = vec![KeyPattern(finalizer.to_owned())];
            holds.let_hold(&spec, uid);
        };
        let uids = |namespace: Option<&Option<Arc<str>>>| -> Vec<_> {
            holds.which(namespace, |_, _| true).into_iter().map(|(_, uid, _)| uid).collect()
        };
        let_hold(None, "shop", "1", "x.example/a");
        let_hold(Some("shop"), "a", "2", "x.example/a");
        let_hold(Some("shop"), "b", "3", "x.example/a");
        let_hold(Some("shop-2"), "a", "4", "x.example/a");
        assert_eq!(uids(None), ["1", "2", "3", "4"]);
        assert_eq!(uids(Some(&None)), ["1"]);
        assert_eq!(uids(Some(&Some("shop".into()))), ["2", "3"]);
        let_hold(Some("shop"), "a", "5", "x.example/b");
        assert_eq!(uids(Some(&Some("shop".into()))), ["2", "5", "3"], "the later one may not have the name");
        let_hold(Some("shop"), "a", "6", "x.example/a");
        assert_eq!(uids(None), ["1", "5", "6", "3", "4"]);
    }

    #[tokio::test]
    async fn the_hosts_finalizer_is_added_only_with_the_right_for_the_tenant() {
        for (namespace, expected) in [("shop", 0), ("bank", 1)] {
            let sent = Arc::<Mutex<usize>>::default();
            let received = sent.clone();
            let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
                *received.lock() += 1;
                let answer = http::Response::new(http_body_util::Full::new(bytes::Bytes::from_static(b"{}")));
                std::future::ready(Ok::<_, std::convert::Infallible>(answer))
            });
            // The shard of the other tenant is held.
            let permit = Permit { left: Duration::from_secs(60), term: 1 };
            let is_held = |tenant: &Tenant| *tenant != Tenant::Namespace("shop".into());
            let fence = move |tenant: Option<&Tenant>| tenant.is_none_or(is_held).then_some(permit);
            let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
            let components = Components {
                engine: Engine::new(EngineOptions { tick: None, ..EngineOptions::default() }).unwrap(),
                inputs: Arc::new(InputStates::new(api.clone())),
                api: api.fenced_by(Arc::new(fence)),
                store: None,
                simulated: false,
                files: Files::new(),
                holds: Holds::default(),
                runners: Runners::new(None),
                given: <_>::default(),
            };
            let mut spec = testing::plugin(Some(namespace), "a");
            spec.grants.write.finalizers = vec![KeyPattern("x.example/a".to_owned())];
            let object = Object { uid: "1".into(), generation: 1, spec: "".into(), held: false, ran: false };
            let held = components.hold(&Rules::default(), &spec, Some(&object)).await;
            assert_eq!((held.is_ok(), *sent.lock()), (expected == 1, expected), "{namespace}");
        }
    }

    #[test]
    fn objects_of_a_list_are_known_up_to_a_bound_by_tenant() {
        let holds = Holds::default();
        let of = |namespace, name: usize| {
            let mut spec = testing::plugin(Some(namespace), &format!("{name:04}"));
            spec.grants.write.finalizers = vec![KeyPattern("x.example/a".to_owned())];
            (format!("{namespace}-{name}"), Arc::new(spec))
        };
        let listed: Vec<_> = (0..2_000).map(|name| of("flood", name)).chain([of("shop", 1)]).collect();
        holds.adopt(&listed, None, |_, _| true);
        let count = |namespace: &str| holds.which(Some(&Some(namespace.into())), |_, _| true).len();
        assert_eq!((count("flood"), count("shop")), (100 + MOST_GONE, 1));
        let later = of("flood", 5_000);
        holds.adopt(std::slice::from_ref(&later), None, |_, _| true);
        assert!(!holds.has(&later.1.id, &later.0));
        holds.adopt(std::slice::from_ref(&later), None, |id, _| &*id.name >= "0200");
        assert!(holds.has(&later.1.id, &later.0), "those that are gone leave their places");
        assert_eq!((count("flood"), count("shop")), (100 + 1, 1));
    }
}
