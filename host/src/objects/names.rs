//! The objects of one kind by name and age, and which of them [`super::Desired`] has. Pure.
//!
//! Of each tenant it has those within the number of [`super::bounds`], as many of those that were within it or have the
//! host's finalizer, and a few of which the status does not say yet that they are beyond it. All others are known here
//! only, so they cost nothing but this memory, however many a tenant makes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_vocabulary::PluginId;

use super::{
    bounds::{is_reported, most_plugins},
    object::Object,
    publish,
    watch::Change,
};
use crate::config::Policy;

/// The objects of one kind.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<Option<Arc<str>>, OfTenant>);

#[derive(Debug, Default)]
struct OfTenant {
    /// The number of the policy.
    most: usize,
    objects: BTreeMap<PluginId, Name>,
    oldest: BTreeMap<Age, PluginId>,
    /// Those of which the status does not say that they are beyond the number.
    unreported: BTreeSet<Age>,
    /// Those that ran, or may have: the host knows a record or finalizers of them.
    known: BTreeSet<Age>,
    passed: BTreeSet<PluginId>,
}

/// The order in which objects are read: whether it is being deleted, the time of creation, and the uid.
type Age = (bool, Arc<str>, Arc<str>);

#[derive(Debug)]
struct Name {
    age: Age,
    generation: i64,
    revision: Box<str>,
}

impl Names {
    /// Returns the objects of a list, of which it leaves those that are passed on.
    pub(crate) fn listed(objects: &mut Vec<Object>, policy: Option<&Policy>) -> Self {
        let mut tenants: BTreeMap<_, OfTenant> = BTreeMap::new();
        for object in objects.iter() {
            tenants.entry(object.id.namespace.clone()).or_default().put(object, policy);
        }
        tenants.values_mut().for_each(|of_tenant| drop(of_tenant.pass(None)));
        objects.retain(|object| tenants[&object.id.namespace].passed.contains(&object.id));
        Self(tenants)
    }

    /// Records a new object or state of one, and returns the changes to pass on.
    pub(crate) fn applied(&mut self, object: Object, policy: Option<&Policy>) -> Vec<Change> {
        let of_tenant = self.0.entry(object.id.namespace.clone()).or_default();
        of_tenant.put(&object, policy);
        of_tenant.pass(Some(object))
    }

    /// Records that an object is gone, and returns the changes to pass on.
    pub(crate) fn deleted(&mut self, id: &PluginId) -> Vec<Change> {
        let Some(of_tenant) = self.0.get_mut(&id.namespace) else { return Vec::new() };
        of_tenant.forget(id);
        let changes = of_tenant.pass(None);
        if of_tenant.objects.is_empty() {
            self.0.remove(&id.namespace);
        }
        changes
    }

    /// Replaces the policy, and returns the changes to pass on.
    pub(crate) fn set_policy(&mut self, policy: Option<&Policy>) -> Vec<Change> {
        let of_tenant = |of_tenant: &mut OfTenant| {
            if let Some(id) = of_tenant.oldest.values().next() {
                let (_, most) = most_plugins(&id.tenant(), policy);
                // The statuses name the number.
                if std::mem::replace(&mut of_tenant.most, most) != most {
                    of_tenant.unreported.extend(of_tenant.oldest.keys().cloned());
                }
            }
            of_tenant.pass(None)
        };
        self.0.values_mut().flat_map(of_tenant).collect()
    }

    /// Returns true if the object is there.
    pub(crate) fn has(&self, id: &PluginId, uid: &str) -> bool {
        let name = self.0.get(&id.namespace).and_then(|of_tenant| of_tenant.objects.get(id));
        name.is_some_and(|Name { age: (.., of), .. }| &**of == uid)
    }
}

impl OfTenant {
    fn put(&mut self, object: &Object, policy: Option<&Policy>) {
        if self.objects.is_empty() {
            self.most = most_plugins(&object.id.tenant(), policy).1;
        }
        let Object { id, uid, generation, revision, deleting, created, held, .. } = object;
        let before = self.objects.get(id).map(|name| name.age.clone());
        let was_known = before.is_some_and(|age| *age.2 == **uid && self.known.contains(&age));
        self.forget(id);
        let age: Age = (*deleting, created.as_str().into(), uid.as_str().into());
        if was_known || held.is_some() || object.has_held() {
            self.known.insert(age.clone());
        }
        if !is_reported(object, self.most) {
            self.unreported.insert(age.clone());
        }
        self.oldest.insert(age.clone(), id.clone());
        let name = Name { age, generation: *generation, revision: revision.as_str().into() };
        self.objects.insert(id.clone(), name);
    }

    fn forget(&mut self, id: &PluginId) {
        if let Some(Name { age, .. }) = self.objects.remove(id) {
            self.oldest.remove(&age);
            self.unreported.remove(&age);
            self.known.remove(&age);
        }
    }

    /// Decides which objects are passed on, and returns the changes: those that left, those that came, of which only
    /// the name is known, and the one that has changed.
    fn pass(&mut self, changed: Option<Object>) -> Vec<Change> {
        let oldest = |deleting: bool| {
            let all = self.oldest.range((deleting, "".into(), "".into())..);
            all.take_while(move |((of, ..), _)| *of == deleting).take(self.most)
        };
        let within: Vec<_> = oldest(false).chain(oldest(true)).map(|(age, id)| (age.clone(), id.clone())).collect();
        let mut passed: BTreeSet<_> = within.iter().map(|(_, id)| id.clone()).collect();
        self.known.extend(within.into_iter().map(|(age, _)| age));
        let known = self.known.iter().filter_map(|age| self.oldest.get(age)).filter(|id| !passed.contains(*id));
        let known: Vec<_> = known.take(self.most).cloned().collect();
        passed.extend(known);
        let unreported =
            self.unreported.iter().filter_map(|age| self.oldest.get(age)).filter(|id| !passed.contains(*id));
        let unreported: Vec<_> = unreported.take(publish::MOST).cloned().collect();
        passed.extend(unreported);
        let before = std::mem::replace(&mut self.passed, passed);
        let gone = before.difference(&self.passed).cloned().map(|id| match self.objects.contains_key(&id) {
            true => Change::Left(id),
            false => Change::Deleted(id),
        });
        let id = changed.as_ref().map(|object| &object.id);
        let came = self.passed.difference(&before).filter(|of| Some(*of) != id);
        let came = came.filter_map(|id| {
            let Name { age: (deleting, created, uid), generation, revision } = self.objects.get(id)?;
            let object = Object::unread(id, uid, *generation, revision);
            Some(Change::Applied(Object { deleting: *deleting, created: created.to_string(), ..object }.into()))
        });
        let mut changes: Vec<_> = gone.chain(came).collect();
        changes.extend(changed.filter(|object| self.passed.contains(&object.id)).map(|of| Change::Applied(of.into())));
        changes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::{
        super::{
            Action, Decision, Desired, Kind,
            bounds::too_many,
            object::tests::{object, spec},
        },
        *,
    };

    fn at_most(most: usize) -> Policy {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policy.yaml");
        let spec = format!("{{ defaults: {{ maxPlugins: {most} }} }}");
        let text = format!("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {spec}\n");
        std::fs::write(&file, text).unwrap();
        Policy::read(&file).unwrap()
    }

    /// An API server and a host, of which the tenant may have two plugins.
    struct Scene {
        policy: Policy,
        names: Names,
        desired: Desired,
        objects: BTreeMap<PluginId, Object>,
        revision: u64,
    }

    impl Scene {
        fn send(&mut self, id: &PluginId, change: impl FnOnce(&mut Object)) {
            let Some(object) = self.objects.get_mut(id) else { return };
            self.revision += 1;
            object.revision = self.revision.to_string();
            change(object);
            let changes = self.names.applied(object.clone(), Some(&self.policy));
            self.desired.change(Kind::Namespaced, changes);
        }

        fn relist(&mut self) {
            let mut objects = self.objects.values().cloned().collect();
            self.names = Names::listed(&mut objects, Some(&self.policy));
            self.desired.change(Kind::Namespaced, vec![Change::Listed(objects)]);
        }

        /// Stores the statuses of objects that are not read, until all say so. Returns the number of writes.
        fn settle(&mut self) -> usize {
            let mut writes = 0;
            let next = |scene: &Self| {
                scene.desired.decided().find_map(|(object, decision)| {
                    let Decision::Beyond(beyond) = decision else { return None };
                    let status = &scene.objects[&object.id].status;
                    let is_new = status["conditions"][0]["message"] != beyond.message
                        || status["observedGeneration"] != object.generation;
                    is_new.then(|| (object.id.clone(), beyond.message.clone(), object.generation))
                })
            };
            while let Some((id, message, generation)) = next(self) {
                let status = json!({ "observedGeneration": generation, "conditions": [{ "message": message }] });
                self.send(&id, |object| object.status = status.into());
                writes += 1;
            }
            writes
        }
    }

    #[test]
    fn objects_that_ran_or_hold_pods_stay_beyond_the_number_and_others_leave() {
        let of = |name: &str, held: Option<usize>| {
            let mut spec = spec();
            spec["grants"]["write"] = json!({ "finalizers": [format!("shop.example/{name}")] });
            Object { held, created: name.to_owned(), ..object(name, 1, &spec) }
        };
        let mut desired = Desired::beside([], Some(at_most(2)));
        let mut objects = vec![of("a", None), of("b", None), of("c", None), of("d", Some(0))];
        let report = |object: &mut Object, most: usize| {
            let condition = json!({ "message": too_many(most) });
            object.status = json!({ "observedGeneration": 1, "conditions": [condition] }).into();
        };
        objects[2..].iter_mut().for_each(|object| report(object, 2));
        let mut names = Names::listed(&mut objects, Some(&at_most(2)));
        desired.change(Kind::Namespaced, vec![Change::Listed(objects)]);
        let finalizers = |desired: &Desired| {
            let staying = desired.staying().map(|(object, _)| object.id.name.to_string());
            staying.collect::<Vec<_>>()
        };
        assert_eq!(finalizers(&desired), ["a", "b", "d"], "c never had any");

        let one = at_most(1);
        let changes = names.set_policy(Some(&one)).into_iter().map(|change| (Kind::Namespaced, change)).collect();
        let actions = desired.set_policy(Some(one.clone()), changes);
        assert!(matches!(&actions[..], [Action::Exceed(id)] if &*id.name == "b"), "{actions:?}");
        for name in ["b", "c", "d"] {
            let mut object = of(name, (name == "d").then_some(0));
            report(&mut object, 1);
            let changes = names.applied(object, Some(&one));
            assert_eq!(desired.change(Kind::Namespaced, changes), [], "{name}");
        }
        assert_eq!(finalizers(&desired), ["a", "b"], "as many as the number");
        let gone = names.deleted(&of("b", None).id);
        let actions = desired.change(Kind::Namespaced, gone);
        assert!(matches!(&actions[..], [Action::Unload(id)] if &*id.name == "b"), "its record goes: {actions:?}");
    }

    proptest! {
        #[test]
        fn the_oldest_are_read_whatever_changes_and_the_others_are_told_once(
            steps in prop::collection::vec((0..8u8, 0..6u8, 0..4u8), 1..40),
        ) {
            let policy = at_most(2);
            let desired = Desired::beside([], Some(policy.clone()));
            let mut scene =
                Scene { policy, names: Names::default(), desired, objects: BTreeMap::new(), revision: 0 };
            for (step, (name, action, created)) in steps.into_iter().enumerate() {
                let new = object(&format!("p{name}"), 1, &spec());
                let id = new.id.clone();
                match action {
                    0 | 1 => {
                        let uid = format!("u{step}");
                        let created = created.to_string();
                        scene.objects.insert(id.clone(), Object { uid, created, ..new });
                        scene.send(&id, |_| {});
                    }
                    2 => scene.send(&id, |object| object.generation += 1),
                    3 => scene.send(&id, |object| object.deleting = true),
                    4 => scene.relist(),
                    _ if scene.objects.remove(&id).is_some() => {
                        let changes = scene.names.deleted(&id);
                        scene.desired.change(Kind::Namespaced, changes);
                    }
                    _ => {}
                }
                if created > 0 {
                    scene.settle();
                    prop_assert!(scene.settle() == 0);
                    let all = |deleting| scene.objects.values().filter(move |of| of.deleting == deleting);
                    let oldest = |deleting| {
                        let mut oldest: Vec<_> = all(deleting).collect();
                        oldest.sort_by_key(|object| (&object.created, &object.uid));
                        oldest.into_iter().take(2).map(|object| (&object.id, &object.uid)).collect::<BTreeSet<_>>()
                    };
                    let of = |(object, decision)| matches!(decision, &Decision::Run(_)).then_some(object);
                    let runs = scene.desired.decided().filter_map(of);
                    let runs: BTreeSet<_> = runs.map(|object: &Object| (&object.id, &object.uid)).collect();
                    prop_assert_eq!(runs, oldest(false));
                    for object in scene.objects.values() {
                        prop_assert!(scene.names.has(&object.id, &object.uid));
                        let is_read = oldest(object.deleting).contains(&(&object.id, &object.uid));
                        prop_assert!(is_read || is_reported(object, 2), "{object:?}");
                    }
                    let known = scene.desired.decided().count();
                    prop_assert!(known <= 6, "{known}");
                }
            }
        }
    }
}
