//! The plugins that the objects ask for, and the actions when that changes. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_config::Problem;
use podium_pods::model::{PluginId, PluginSpec};

use super::{
    finalizers::conflicts,
    object::{self, Kind, Object, Spec},
};
use crate::config;

/// The objects, and the decision about each.
#[derive(Debug, Default)]
pub(crate) struct Desired {
    /// Plugins that files define.
    files: BTreeMap<PluginId, Arc<PluginSpec>>,
    objects: BTreeMap<PluginId, Object>,
    /// By plugin, the spec of the latest object that was read without a mistake.
    last_good: BTreeMap<PluginId, Spec>,
    /// By plugin, a spec with mistakes and what it permits: each change of any object decides about all of them.
    permitted: BTreeMap<PluginId, (Spec, Option<Arc<PluginSpec>>)>,
    decisions: BTreeMap<PluginId, Decision>,
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
}

/// A change of the plugins that are loaded.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Action {
    Load(Arc<PluginSpec>),
    Refuse { id: PluginId, problems: Arc<[Problem]>, permissions: Option<Arc<PluginSpec>> },
    Unload(PluginId),
}

/// An object that is being deleted and waits for the host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Removing {
    pub(crate) id: PluginId,
    pub(crate) uid: String,
    /// `None` if no Pod has a finalizer of the plugin that is known.
    pub(crate) spec: Option<Arc<PluginSpec>>,
}

impl Desired {
    /// Returns an empty set beside the plugins of files.
    pub(crate) fn beside<'a>(files: impl IntoIterator<Item = &'a PluginSpec>) -> Self {
        let files = files.into_iter().map(|spec| (spec.id.clone(), Arc::new(spec.clone()))).collect();
        Self { files, ..Self::default() }
    }

    /// Replaces all objects of a kind, and returns the actions.
    pub(crate) fn listed(&mut self, kind: Kind, objects: Vec<Object>) -> Vec<Action> {
        let replaced = objects.iter().filter(|object| self.replaces(object)).map(|object| object.id.clone()).collect();
        self.objects.retain(|id, _| Kind::of(id) != kind);
        self.objects.extend(objects.into_iter().map(|object| (object.id.clone(), object)));
        self.decide(&replaced)
    }

    /// Returns true if an object has the name of another one, which was deleted.
    fn replaces(&self, object: &Object) -> bool {
        self.objects.get(&object.id).is_some_and(|before| before.uid != object.uid)
    }

    /// Adds an object, or replaces the one of its name, and returns the actions.
    pub(crate) fn applied(&mut self, object: Object) -> Vec<Action> {
        let replaced = self.replaces(&object).then(|| object.id.clone()).into_iter().collect();
        let before = self.objects.insert(object.id.clone(), object.clone());
        // Other metadata and the status decide nothing.
        let same = |before: &Object| {
            before.uid == object.uid && before.spec == object.spec && before.deleting == object.deleting
        };
        if before.as_ref().is_some_and(same) { Vec::new() } else { self.decide(&replaced) }
    }

    /// Removes an object, and returns the actions.
    pub(crate) fn deleted(&mut self, id: &PluginId) -> Vec<Action> {
        if self.objects.remove(id).is_none() {
            return Vec::new();
        }
        self.decide(&BTreeSet::new())
    }

    /// Returns the object of a plugin.
    pub(crate) fn object(&self, id: &PluginId) -> Option<&Object> {
        self.objects.get(id)
    }

    /// Returns the objects with the decisions about them, ordered by namespace, then name. An object that is being
    /// deleted has none.
    pub(crate) fn decided(&self) -> impl Iterator<Item = (&Object, &Decision)> {
        self.decisions.iter().filter_map(|(id, decision)| Some((self.objects.get(id)?, decision)))
    }

    /// Returns the objects that are being deleted and have the host's finalizer. The plugin of a file keeps its
    /// finalizers.
    pub(crate) fn removing(&self) -> impl Iterator<Item = Removing> {
        let removing = self.objects.values().filter(|object| object.deleting && object.held);
        removing.map(|object| {
            let spec = if self.files.contains_key(&object.id) { None } else { object.of_finalizers() };
            Removing { id: object.id.clone(), uid: object.uid.clone(), spec }
        })
    }

    /// Returns the objects without the host's finalizer that are not being deleted and whose plugins may hold
    /// finalizers of Pods.
    pub(crate) fn unheld(&self) -> impl Iterator<Item = &Object> {
        let lacks = |object: &&Object| !object.held && !object.deleting && object.of_finalizers().is_some();
        self.objects.values().filter(lacks)
    }

    /// Returns the other plugins that have their finalizers before the plugin of an object has.
    pub(crate) fn before(&self, id: &PluginId) -> Vec<Arc<PluginSpec>> {
        let Some(object) = self.objects.get(id) else { return Vec::new() };
        let earlier = self.objects.values().filter(|other| other.precedence() < object.precedence());
        self.files.values().cloned().chain(earlier.filter_map(Object::of_finalizers)).collect()
    }

    /// Decides about every object, and returns the differences from the decisions before. Objects that were replaced
    /// are new, whatever their specs say.
    fn decide(&mut self, replaced: &BTreeSet<PluginId>) -> Vec<Action> {
        let wanted: Vec<&Object> = self.objects.values().filter(|object| !object.deleting).collect();
        let mut mistakes = self.cycles(&wanted);
        mistakes.extend(conflicts(&self.files, self.objects.values()));
        let mut decisions = BTreeMap::new();
        for object in wanted {
            let id = &object.id;
            let decision = match &object.plugin {
                _ if self.files.contains_key(id) => Decision::NameTaken,
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
        let before = std::mem::replace(&mut self.decisions, decisions);
        differences(&before, &self.decisions, replaced)
    }

    /// Returns the mistake of each plugin that runs after itself.
    fn cycles(&self, wanted: &[&Object]) -> BTreeMap<PluginId, Problem> {
        let of_object = |object: &&Object| {
            let plugin = object.plugin.as_ref().ok()?;
            (!self.files.contains_key(&object.id)).then(|| (object.id.clone(), plugin.after.clone()))
        };
        let of_files = self.files.iter().map(|(id, spec)| (id.clone(), spec.after.clone()));
        config::cycles(wanted.iter().filter_map(of_object).chain(of_files))
    }
}

/// Removals come first, so that a name can be used again by the same step.
fn differences(
    before: &BTreeMap<PluginId, Decision>,
    now: &BTreeMap<PluginId, Decision>,
    replaced: &BTreeSet<PluginId>,
) -> Vec<Action> {
    let acts = |decision: &&Decision| !matches!(decision, Decision::NameTaken);
    let gone: BTreeSet<&PluginId> = before.iter().filter(|(_, decision)| acts(decision)).map(|(id, _)| id).collect();
    let unload = gone.into_iter().filter(|id| !now.get(*id).is_some_and(|decision| acts(&decision)));
    let mut actions: Vec<Action> = unload.cloned().map(Action::Unload).collect();
    let changed = |(id, decision): &(&PluginId, &Decision)| before.get(id) != Some(*decision) || replaced.contains(id);
    for (id, decision) in now.iter().filter(changed) {
        match decision {
            Decision::Run(spec) => actions.push(Action::Load(spec.clone())),
            Decision::Refused { problems, permissions } => actions.push(Action::Refuse {
                id: id.clone(),
                problems: problems.clone(),
                permissions: permissions.clone(),
            }),
            Decision::NameTaken => {}
        }
    }
    actions
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::object::tests::{object, spec},
        *,
    };

    fn described(actions: &[Action]) -> Vec<String> {
        let described = |action: &Action| match action {
            Action::Load(spec) => format!("load {}", spec.id.name),
            Action::Refuse { id, permissions, .. } => {
                format!("refuse {}{}", id.name, if permissions.is_some() { ", permitted" } else { "" })
            }
            Action::Unload(id) => format!("unload {}", id.name),
        };
        actions.iter().map(described).collect()
    }

    fn with(field: &str, value: Value) -> Value {
        let mut spec = spec();
        spec[field] = value;
        spec
    }

    #[test]
    fn only_a_change_of_the_spec_loads_a_plugin_again() {
        let mut desired = Desired::default();
        assert_eq!(described(&desired.applied(object("a", 1, &spec()))), ["load a"]);
        let labelled = Object { revision: "9".into(), status: json!({ "x": 1 }).into(), ..object("a", 1, &spec()) };
        assert!(desired.applied(labelled).is_empty());
        assert!(desired.listed(Kind::Namespaced, vec![object("a", 1, &spec())]).is_empty(), "a relist");
        let changed = with("config", json!({ "x": 1 }));
        assert_eq!(described(&desired.applied(object("a", 2, &changed))), ["load a"]);
    }

    #[test]
    fn an_object_that_is_missing_in_a_list_is_unloaded() {
        let mut desired = Desired::default();
        let two = vec![object("a", 1, &spec()), object("b", 1, &spec())];
        assert_eq!(described(&desired.listed(Kind::Namespaced, two)), ["load a", "load b"]);
        assert!(desired.listed(Kind::Cluster, Vec::new()).is_empty(), "of the other kind");
        let one = vec![object("b", 1, &spec())];
        assert_eq!(described(&desired.listed(Kind::Namespaced, one)), ["unload a"]);
        assert_eq!(described(&desired.deleted(&object("b", 1, &spec()).id)), ["unload b"]);
        assert!(desired.deleted(&object("b", 1, &spec()).id).is_empty());
    }

    #[test]
    fn an_object_that_is_being_deleted_is_unloaded_before_its_finalizer_goes() {
        let mut desired = Desired::default();
        assert_eq!(desired.applied(object("a", 1, &spec())).len(), 1);
        let deleting = Object { deleting: true, ..object("a", 1, &spec()) };
        assert_eq!(described(&desired.applied(deleting)), ["unload a"]);
        assert_eq!(desired.decided().count(), 0);
    }

    #[test]
    fn an_object_with_the_hosts_finalizer_is_removed_when_it_is_being_deleted() {
        let mut finalizing = spec();
        finalizing["grants"]["write"]["finalizers"] = json!(["shop.example/hold"]);
        let mut desired = Desired::default();
        let held = Object { held: true, ..object("a", 1, &finalizing) };
        desired.applied(held.clone());
        assert_eq!(desired.removing().count(), 0);
        desired.applied(Object { deleting: true, ..held.clone() });
        let removing: Vec<_> = desired.removing().collect();
        let finalizers = &removing[0].spec.as_ref().unwrap().grants.write.finalizers;
        assert_eq!((removing.len(), &*finalizers[0].0), (1, "shop.example/hold"));
        // A mistake elsewhere hides no finalizer.
        finalizing["watch"] = json!(7);
        desired.applied(Object { deleting: true, held: true, ..object("a", 2, &finalizing) });
        assert!(desired.removing().next().unwrap().spec.is_some());
        desired.applied(Object { deleting: true, held: false, ..held });
        assert_eq!(desired.removing().count(), 0, "nothing is left to do");
    }

    #[test]
    fn an_object_that_was_deleted_and_created_again_is_loaded_again() {
        let again = |uid: &str| Object { uid: uid.to_owned(), ..object("a", 1, &spec()) };
        let mut desired = Desired::default();
        assert_eq!(described(&desired.listed(Kind::Namespaced, vec![again("u-1"), object("b", 1, &spec())])).len(), 2);
        let two = vec![again("u-2"), object("b", 1, &spec())];
        assert_eq!(described(&desired.listed(Kind::Namespaced, two.clone())), ["load a"]);
        assert!(desired.listed(Kind::Namespaced, two).is_empty(), "the same");
        assert_eq!(described(&desired.applied(again("u-3"))), ["load a"]);
        assert!(desired.applied(again("u-3")).is_empty(), "the same");
        let deleting = Object { deleting: true, ..again("u-4") };
        assert_eq!(described(&desired.applied(deleting)), ["unload a"]);
    }

    #[test]
    fn an_object_lacks_the_hosts_finalizer_while_its_plugin_may_hold_some() {
        let mut finalizing = spec();
        finalizing["grants"]["write"]["finalizers"] = json!(["shop.example/hold"]);
        let mut desired = Desired::default();
        let unheld = |desired: &Desired| desired.unheld().count();
        desired.applied(object("a", 1, &spec()));
        assert_eq!(unheld(&desired), 0, "it may hold none");
        desired.applied(object("a", 2, &finalizing));
        assert_eq!(unheld(&desired), 1);
        desired.applied(Object { held: true, ..object("a", 2, &finalizing) });
        assert_eq!(unheld(&desired), 0);
        finalizing["watch"] = json!(7);
        assert_eq!(described(&desired.applied(object("a", 3, &finalizing))), ["refuse a, permitted"]);
        assert_eq!(unheld(&desired), 1, "pods may have it already");
        desired.applied(Object { deleting: true, ..object("a", 3, &finalizing) });
        assert_eq!(unheld(&desired), 0, "it is too late");
    }

    #[test]
    fn a_name_that_a_file_has_is_taken() {
        let file = object("a", 1, &spec()).plugin.unwrap();
        let mut desired = Desired::beside([&*file]);
        assert!(desired.applied(object("a", 1, &spec())).is_empty());
        assert_eq!(desired.decided().map(|(_, decision)| decision).collect::<Vec<_>>(), [&Decision::NameTaken]);
        assert!(desired.deleted(&file.id).is_empty(), "the file's plugin stays");
    }

    #[test]
    fn a_mistake_refuses_and_says_whether_the_permissions_are_known() {
        let mut desired = Desired::default();
        let wrong = with("watch", json!(7));
        assert_eq!(described(&desired.applied(object("a", 1, &wrong))), ["refuse a"], "nothing is known of it");
        assert_eq!(described(&desired.applied(object("a", 2, &spec()))), ["load a"]);
        assert_eq!(described(&desired.applied(object("a", 3, &wrong))), ["refuse a, permitted"]);
        let unknown = with("grants", json!(7));
        assert_eq!(described(&desired.applied(object("a", 4, &unknown))), ["refuse a"]);
        assert_eq!(described(&desired.applied(object("a", 5, &spec()))), ["load a"]);
    }

    #[test]
    fn a_spec_with_mistakes_is_judged_once_and_not_at_each_change_of_others() {
        let permissions = |desired: &Desired| match desired.decided().next() {
            Some((_, Decision::Refused { permissions: Some(permissions), .. })) => permissions.clone(),
            other => unreachable!("{other:?}"),
        };
        let mut desired = Desired::default();
        desired.applied(object("a", 1, &spec()));
        desired.applied(object("a", 2, &with("watch", json!(7))));
        let judged = permissions(&desired);
        desired.applied(object("b", 1, &spec()));
        assert!(Arc::ptr_eq(&judged, &permissions(&desired)));
        desired.applied(object("a", 3, &with("config", json!({ "x": 1 }))));
        desired.applied(object("a", 4, &with("watch", json!(7))));
        assert!(!Arc::ptr_eq(&judged, &permissions(&desired)), "the last spec without mistakes is another");
    }

    #[test]
    fn a_cycle_refuses_its_plugins_until_one_of_them_leaves_it() {
        let after = |name: &str| with("after", json!([name]));
        let mut desired = Desired::default();
        assert_eq!(described(&desired.applied(object("a", 1, &after("b")))), ["load a"]);
        let closed = desired.applied(object("b", 1, &after("a")));
        assert_eq!(described(&closed), ["refuse a, permitted", "refuse b, permitted"]);
        let Action::Refuse { problems, .. } = &closed[0] else { unreachable!("it is refused") };
        assert_eq!(problems[0].field, "spec.after");
        assert_eq!(described(&desired.applied(object("b", 2, &spec()))), ["load a", "load b"]);
    }
}
