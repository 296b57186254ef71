//! The objects of one tenant, and the decision about each. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_config::Problem;
use podium_vocabulary::{PluginId, PluginSpec};

use super::{
    bounds::{Beyond, beyond, most_plugins, unread},
    desired::Action,
    finalizers::{Owners, conflicts},
    object::{self, Object, Spec},
};
use crate::config::{self, Policy};

/// The objects of one tenant, and the decision about each.
#[derive(Debug, Clone, Default)]
pub(super) struct OfTenant {
    pub(super) objects: BTreeMap<PluginId, Object>,
    pub(super) decisions: BTreeMap<PluginId, Decision>,
    /// The names of objects that were deleted and created again since the last decision.
    replaced: BTreeSet<PluginId>,
    /// The names of objects that are beyond the bounds and were forgotten since the last decision.
    pub(super) left: BTreeSet<PluginId>,
    /// The first object beyond the bounds, also after its status has said so, while the tenant has no place for it.
    pub(super) beyond: Option<(PluginId, Beyond)>,
    /// By plugin, the spec of the latest object that was read without a mistake.
    last_good: BTreeMap<PluginId, Spec>,
    /// By plugin, a spec with mistakes and what it permits: each change of an object of the tenant decides about all.
    permitted: BTreeMap<PluginId, (Spec, Option<Arc<PluginSpec>>)>,
}

/// The decision about an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    /// The plugin is loaded.
    Run(Arc<PluginSpec>),
    /// The object has mistakes. A version that runs goes on only if these permissions cover it.
    Refused { problems: Arc<[Problem]>, permissions: Option<Arc<PluginSpec>> },
    /// A file defines a plugin of this name, which runs instead.
    NameTaken,
    /// The object is beyond the bounds of its tenant. An object that is being deleted can have this decision too.
    Beyond(Beyond),
}

impl Decision {
    /// Returns true if the plugin is one of the loader's, loaded or refused.
    pub(crate) fn acts(&self) -> bool {
        matches!(self, Self::Run(_) | Self::Refused { .. })
    }

    /// Returns true if the loader may know something of the object: of one beyond the bounds, a record.
    fn is_known(&self) -> bool {
        !matches!(self, Self::NameTaken)
    }
}

impl OfTenant {
    /// Returns true if an object is being deleted and waits for the host, within the bounds.
    pub(super) fn is_removing(&self, object: &Object) -> bool {
        object.deleting && object.held.is_some() && !self.decisions.contains_key(&object.id)
    }

    /// Adds an object, or replaces the one of its name.
    pub(super) fn put(&mut self, mut object: Object) {
        let id = object.id.clone();
        let uid = object.uid.clone();
        self.left.remove(&id);
        self.objects.get(&id).into_iter().for_each(|before| object.share(before));
        if self.objects.insert(id.clone(), object).is_some_and(|before| before.uid != uid) {
            self.replaced.insert(id);
        }
    }

    /// Decides about every object, and returns the differences from the decisions before. `files` are the plugins of
    /// the tenant that files define, `earlier` the finalizers of plugins of others that go before the tenant's, and
    /// `own` those of `files`, to which the tenant's are added.
    pub(super) fn decide(
        &mut self,
        files: &BTreeMap<PluginId, Arc<PluginSpec>>,
        earlier: &Owners,
        own: &mut Owners,
        policy: Option<&Policy>,
    ) -> Vec<Action> {
        let Some((first, _)) = self.objects.first_key_value() else {
            (self.last_good, self.permitted) = <_>::default();
            self.replaced.clear();
            let before = std::mem::take(&mut self.decisions);
            let left = std::mem::take(&mut self.left);
            return differences(&before, &self.decisions, &self.replaced, &left);
        };
        for id in &self.replaced {
            self.last_good.remove(id);
            self.permitted.remove(id);
        }
        let tenant = first.tenant();
        let mut beyond = beyond(&tenant, self.objects.values(), policy);
        for (id, object) in &mut self.objects {
            if beyond.contains_key(id) {
                object.forget_spec();
            } else if object.is_forgotten() {
                beyond.insert(id.clone(), unread(object));
            }
        }
        let is_full = self.objects.len() >= most_plugins(&tenant, policy).1;
        let first = beyond.first_key_value().map(|(id, beyond)| (id.clone(), beyond.clone()));
        self.beyond = first.or(self.beyond.take().filter(|_| is_full));
        let read = || self.objects.values().filter(|object| !beyond.contains_key(&object.id));
        let of_objects = || read().filter(|object| !files.contains_key(&object.id));
        let after_of = |object: &Object| {
            let plugin = object.plugin.as_ref().ok().filter(|_| !object.deleting)?;
            Some((object.id.clone(), plugin.after.clone()))
        };
        let of_files = files.iter().map(|(id, spec)| (id.clone(), spec.after.clone()));
        let mut mistakes = config::cycles(of_objects().filter_map(after_of).chain(of_files));
        mistakes.extend(conflicts(earlier, own, of_objects()));
        let mut decisions: BTreeMap<_, _> = BTreeMap::new();
        for object in read().filter(|object| !object.deleting) {
            let id = &object.id;
            let decision = match &object.plugin {
                _ if files.contains_key(id) => Decision::NameTaken,
                Ok(spec) => {
                    self.last_good.insert(id.clone(), object.spec.clone());
                    self.permitted.remove(id);
                    match mistakes.get(id) {
                        Some(problem) => {
                            let permissions = Some(spec.clone());
                            Decision::Refused { problems: [problem.clone()].into(), permissions }
                        }
                        None => Decision::Run(spec.clone()),
                    }
                }
                Err(problems) => {
                    let permissions = match self.permitted.get(id) {
                        Some((spec, permissions)) if *spec == object.spec => permissions.clone(),
                        _ => {
                            let of = |last: &Spec| object::permissions(id, &object.spec.value(), &last.value());
                            let permissions = self.last_good.get(id).and_then(of).map(Arc::new);
                            self.permitted.insert(id.clone(), (object.spec.clone(), permissions.clone()));
                            permissions
                        }
                    };
                    Decision::Refused { problems: problems.clone(), permissions }
                }
            };
            decisions.insert(id.clone(), decision);
        }
        self.last_good.retain(|id, _| decisions.contains_key(id));
        self.permitted.retain(|id, _| decisions.contains_key(id));
        decisions.extend(beyond.into_iter().map(|(id, beyond)| (id, Decision::Beyond(beyond))));
        let before = std::mem::replace(&mut self.decisions, decisions);
        let replaced = std::mem::take(&mut self.replaced);
        let left = std::mem::take(&mut self.left);
        differences(&before, &self.decisions, &replaced, &left)
    }
}

/// Removals come first, so that a name can be used again by the same step. Objects that were replaced are new, whatever
/// their specs say. Those that `left` are beyond the bounds.
fn differences(
    before: &BTreeMap<PluginId, Decision>,
    now: &BTreeMap<PluginId, Decision>,
    replaced: &BTreeSet<PluginId>,
    left: &BTreeSet<PluginId>,
) -> Vec<Action> {
    let known = before.iter().filter(|(_, decision)| decision.is_known());
    let ends = known.filter_map(|(id, decision)| match now.get(id).filter(|_| !replaced.contains(id)) {
        None if left.contains(id) => decision.acts().then(|| Action::Exceed(id.clone())),
        None | Some(Decision::NameTaken) => Some(Action::Unload(id.clone())),
        Some(Decision::Beyond(_)) => decision.acts().then(|| Action::Exceed(id.clone())),
        Some(Decision::Run(_) | Decision::Refused { .. }) => None,
    });
    let mut actions: Vec<Action> = ends.collect();
    let changed = |(id, decision): &(&PluginId, &Decision)| before.get(id) != Some(*decision) || replaced.contains(id);
    for (id, decision) in now.iter().filter(changed) {
        match decision {
            Decision::Run(spec) => actions.push(Action::Load(spec.clone())),
            Decision::Refused { problems, permissions } => actions.push(Action::Refuse {
                id: id.clone(),
                problems: problems.clone(),
                permissions: permissions.clone(),
            }),
            Decision::NameTaken | Decision::Beyond(_) => {}
        }
    }
    actions
}
