//! The plugins that the objects ask for, and the actions when that changes. Pure.
//!
//! A change decides about the objects of its tenant only, and one of a ClusterReconcilePlugin about all. The decision
//! takes milliseconds for a tenant with many objects, so the caller makes it on a copy, while others may read the
//! objects.

mod ended;
mod order;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_config::Problem;
use podium_vocabulary::{PluginId, PluginSpec, Tenant};

pub(crate) use super::tenant::Decision;
use super::{
    bounds::{Beyond, most_plugins},
    finalizers::Owners,
    object::{Kind, Object},
    tenant::OfTenant,
    watch::Change,
};
use crate::config::Policy;

/// The namespace of a tenant; `None` for the cluster, which is first.
type Namespace = Option<Arc<str>>;

/// The objects, and the decision about each. A copy costs little.
#[derive(Debug, Clone, Default)]
pub(crate) struct Desired {
    rules: Arc<Rules>,
    tenants: BTreeMap<Namespace, Arc<OfTenant>>,
    /// The finalizers of the cluster's plugins, of files and of objects.
    platform: Arc<Owners>,
}

/// The files and the policy, which decide about objects too.
#[derive(Debug, Clone, Default)]
struct Rules {
    /// Plugins that files define, by tenant.
    files: BTreeMap<Namespace, BTreeMap<PluginId, Arc<PluginSpec>>>,
    policy: Option<Policy>,
}

/// A change of the plugins that are loaded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Load(Arc<PluginSpec>),
    Refuse {
        id: PluginId,
        problems: Arc<[Problem]>,
        permissions: Option<Arc<PluginSpec>>,
    },
    Unload(PluginId),
    /// The object is beyond the bounds of its tenant, and its plugin was loaded or refused.
    Exceed(PluginId),
}

/// An object that is being deleted and waits for the host, or that is gone without waiting for it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Removing {
    pub(crate) id: PluginId,
    pub(crate) uid: String,
    /// The position of the host's finalizer, if the object has it.
    pub(crate) position: Option<usize>,
    /// `None` if no Pod has a finalizer of the plugin that is known.
    pub(crate) spec: Option<Arc<PluginSpec>>,
}

impl Desired {
    /// Returns an empty set beside the plugins of files.
    pub(crate) fn beside<'a>(files: impl IntoIterator<Item = &'a PluginSpec>, policy: Option<Policy>) -> Self {
        let mut by_tenant: BTreeMap<Namespace, BTreeMap<_, _>> = BTreeMap::new();
        for spec in files {
            let of_tenant = by_tenant.entry(spec.id.namespace.clone()).or_default();
            of_tenant.insert(spec.id.clone(), Arc::new(spec.clone()));
        }
        let rules = Arc::new(Rules { files: by_tenant, policy });
        let platform = Owners::new(rules.of_tenant(&None).values().map(|spec| &**spec)).into();
        Self { rules, platform, tenants: BTreeMap::new() }
    }

    /// Replaces the policy, records changes of objects, decides about all, and returns the actions.
    pub(crate) fn set_policy(&mut self, policy: Option<Policy>, changes: Vec<(Kind, Change)>) -> Vec<Action> {
        Arc::make_mut(&mut self.rules).policy = policy;
        changes.into_iter().for_each(|(kind, change)| drop(self.changed(kind, change)));
        self.decide(self.tenants.keys().cloned().collect())
    }

    /// Records changes of objects, decides about the objects of the tenants that they are about, and returns the
    /// actions.
    pub(crate) fn change(&mut self, kind: Kind, changes: Vec<Change>) -> Vec<Action> {
        let changed = changes.into_iter().flat_map(|change| self.changed(kind, change)).collect();
        self.decide(changed)
    }

    /// Records a change of objects, and returns the tenants that it is about; none if it decides nothing.
    fn changed(&mut self, kind: Kind, change: Change) -> BTreeSet<Namespace> {
        let mut changed = BTreeSet::new();
        match change {
            Change::Listed(objects) => self.listed(kind, objects, &mut changed),
            Change::Absent => self.listed(kind, Vec::new(), &mut changed),
            Change::Applied(object) => {
                let of_tenant = self.tenant(&object.id.namespace);
                let before = of_tenant.objects.get(&object.id);
                // Other metadata and the status decide nothing.
                let same = |before: &Object| {
                    before.uid == object.uid && before.spec == object.spec && before.deleting == object.deleting
                };
                if !before.is_some_and(same) {
                    changed.insert(object.id.namespace.clone());
                }
                of_tenant.put(*object);
            }
            Change::Deleted(id) => {
                if self.object(&id).is_some() {
                    self.tenant(&id.namespace).objects.remove(&id);
                    changed.insert(id.namespace.clone());
                }
            }
            Change::Left(id) => {
                if self.object(&id).is_some() {
                    let of_tenant = self.tenant(&id.namespace);
                    of_tenant.objects.remove(&id);
                    changed.insert(id.namespace.clone());
                    of_tenant.left.insert(id);
                }
            }
        }
        if changed.contains(&None) {
            // The finalizers of the cluster's plugins are those of no other.
            changed.extend(self.tenants.keys().cloned());
        }
        changed
    }

    /// Replaces all objects of a kind.
    fn listed(&mut self, kind: Kind, objects: Vec<Object>, changed: &mut BTreeSet<Namespace>) {
        let mut listed: BTreeMap<Namespace, BTreeMap<PluginId, Object>> = BTreeMap::new();
        for object in objects {
            listed.entry(object.id.namespace.clone()).or_default().insert(object.id.clone(), object);
        }
        let of_kind = |namespace: &&Namespace| namespace.is_some() == (kind == Kind::Namespaced);
        changed.extend(self.tenants.keys().filter(of_kind).chain(listed.keys()).cloned());
        for namespace in changed.iter() {
            let of_tenant = self.tenant(namespace);
            let objects = listed.remove(namespace).unwrap_or_default();
            of_tenant.objects.retain(|id, _| objects.contains_key(id));
            objects.into_values().for_each(|object| of_tenant.put(object));
        }
    }

    fn tenant(&mut self, namespace: &Namespace) -> &mut OfTenant {
        Arc::make_mut(self.tenants.entry(namespace.clone()).or_default())
    }

    /// Decides about every object of the tenants, of which the cluster is first.
    fn decide(&mut self, tenants: BTreeSet<Namespace>) -> Vec<Action> {
        let mut actions = Vec::new();
        for namespace in tenants {
            let rules = &self.rules;
            let policy = self.rules.policy.as_ref();
            let Some(of_tenant) = self.tenants.get_mut(&namespace).map(Arc::make_mut) else { continue };
            let files = rules.of_tenant(&namespace);
            let mut own = Owners::new(files.values().map(|spec| &**spec));
            if namespace.is_some() {
                actions.extend(of_tenant.decide(files, &self.platform, &mut own, policy));
            } else {
                let all = Owners::new(rules.files.values().flat_map(BTreeMap::values).map(|spec| &**spec));
                actions.extend(of_tenant.decide(files, &all, &mut own, policy));
                self.platform = own.into();
            }
            if of_tenant.objects.is_empty() {
                self.tenants.remove(&namespace);
            }
        }
        actions
    }

    /// Returns the reasons why objects are beyond the bounds, with the first such object of each tenant that had none
    /// before.
    pub(crate) fn newly_beyond(&self, before: &Self) -> Vec<(PluginId, Beyond)> {
        let had = |namespace: &Namespace| before.tenants.get(namespace).is_some_and(|had| had.beyond.is_some());
        self.tenants.iter().filter(|(namespace, _)| !had(namespace)).filter_map(|(_, of)| of.beyond.clone()).collect()
    }

    /// Returns the object of a plugin.
    pub(crate) fn object(&self, id: &PluginId) -> Option<&Object> {
        self.tenants.get(&id.namespace)?.objects.get(id)
    }

    /// Returns the objects with the decisions about them, ordered by namespace, then name. An object that is being
    /// deleted has none, except beyond the bounds of its tenant.
    pub(crate) fn decided(&self) -> impl Iterator<Item = (&Object, &Decision)> {
        self.tenants.values().flat_map(|of_tenant| {
            of_tenant.decisions.iter().filter_map(|(id, decision)| Some((of_tenant.objects.get(id)?, decision)))
        })
    }

    /// Returns the objects without the host's finalizer that are not being deleted and whose plugins may hold
    /// finalizers of Pods.
    pub(crate) fn unheld(&self) -> impl Iterator<Item = &Object> {
        let lacks = |object: &&Object| object.held.is_none() && !object.deleting && object.of_finalizers().is_some();
        self.tenants.values().flat_map(|of_tenant| of_tenant.objects.values()).filter(lacks)
    }

    /// Returns the objects that are not being deleted, and whose plugins may hold finalizers of Pods.
    pub(crate) fn staying(&self) -> impl Iterator<Item = (&Object, Arc<PluginSpec>)> {
        let all = self.tenants.values().flat_map(|of_tenant| of_tenant.objects.values());
        all.filter(|object| !object.deleting).filter_map(|object| Some((object, object.of_finalizers()?)))
    }

    /// Returns the objects of a namespace, or those of the cluster, beside the same files and policy.
    pub(crate) fn part(&self, namespace: &Namespace) -> Self {
        let of_tenant = self.tenants.get_key_value(namespace);
        let tenants = of_tenant.map(|(namespace, of_tenant)| (namespace.clone(), of_tenant.clone())).into_iter();
        Self { rules: self.rules.clone(), tenants: tenants.collect(), platform: self.platform.clone() }
    }

    /// Returns true if a file defines a plugin of this name.
    pub(crate) fn is_of_file(&self, id: &PluginId) -> bool {
        self.rules.of_tenant(&id.namespace).contains_key(id)
    }

    /// Returns the objects that are being deleted and have the host's finalizer. One beyond the bounds of its tenant
    /// waits.
    pub(crate) fn removing(&self) -> impl Iterator<Item = Removing> {
        self.tenants.values().flat_map(|of_tenant| {
            of_tenant.objects.values().filter(|object| of_tenant.is_removing(object)).filter_map(|object| {
                let position = Some(object.held?);
                let spec = object.of_finalizers();
                Some(Removing { id: object.id.clone(), uid: object.uid.clone(), position, spec })
            })
        })
    }
}

/// Returns the most plugins of a tenant that are loaded.
pub(crate) fn most_loaded(tenant: &Tenant, policy: Option<&Policy>) -> usize {
    most_plugins(tenant, policy).1
}

impl Rules {
    fn of_tenant(&self, namespace: &Namespace) -> &BTreeMap<PluginId, Arc<PluginSpec>> {
        static NONE: BTreeMap<PluginId, Arc<PluginSpec>> = BTreeMap::new();
        self.files.get(namespace).unwrap_or(&NONE)
    }
}

#[cfg(test)]
mod tests;
