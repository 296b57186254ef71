//! [`Host`]: the fake host of a test.

use std::{
    cell::{RefCell, RefMut},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use podium_vocabulary::{self as vocabulary, Input, InputObjects, Scope};
use podium_wire::{Pod, Timestamp};
use serde_json::Value;

use super::{
    Run,
    calls::Entered,
    configuration::Configuration,
    fake::{Fake, Name, record},
    pod,
};
use crate::{ObjectRef, Outcome, PodKey, Request, Result, WriteReport, WriteResult, request::Subject};

/// The default time of [`Host`]: 2026-01-01T00:00:00Z.
pub const NOW: Timestamp = Timestamp(1_767_225_600_000);

/// A host in memory. Without a configuration it grants everything in all namespaces, and passes no config.
#[derive(Debug)]
pub struct Host {
    fake: Rc<RefCell<Fake>>,
    /// Pods whose last run failed or left writes unsettled.
    failures: BTreeMap<Name, Failure>,
}

#[derive(Debug, Default)]
struct Failure {
    in_a_row: u32,
    unsettled: Vec<WriteReport>,
}

impl Host {
    /// Returns a host of a cluster with these Pods.
    #[must_use]
    pub fn with_pods(pods: impl IntoIterator<Item = impl Into<Pod>>) -> Self {
        let mut fake = Fake::new();
        for pod in pods {
            fake.put(pod.into());
        }
        Self { fake: Rc::new(RefCell::new(fake)), failures: BTreeMap::new() }
    }

    /// Sets scope, grants, config and the limits of writes and host calls from the plugin's own configuration file, as
    /// in production:
    /// `host.configured_by(include_str!("../plugin.yaml"))`. A file that the host would refuse is refused here too,
    /// except that the component need not exist.
    ///
    /// # Panics
    /// Panics if the text is not the valid configuration of one plugin; the message names every wrong field.
    #[must_use]
    #[track_caller]
    pub fn configured_by(self, yaml: &str) -> Self {
        match Configuration::from_yaml(yaml) {
            Ok(configuration) => self.fake().configuration = configuration,
            #[expect(clippy::panic, reason = "a test's own configuration is wrong")]
            Err(error) => panic!("the plugin's configuration:\n{error}"),
        }
        self
    }

    /// Declares that an object, such as the ReplicaSet of a Pod, has a controller:
    /// `host.controlled("ReplicaSet", "cart-7d4", "Deployment", "cart")`. Kinds and names are those of
    /// [`PodBuilder::owned_by`](super::PodBuilder::owned_by).
    #[must_use]
    pub fn controlled(self, kind: &str, name: &str, controller_kind: &str, controller: &str) -> Self {
        let uid = pod::controller(kind, name).uid;
        self.fake().controllers.insert(uid, pod::controller(controller_kind, controller));
        self
    }

    /// Sets `spec.config`.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "callers write json!({..})")]
    pub fn config(self, config: Value) -> Self {
        self.fake().configuration.config = config.to_string();
        self
    }

    /// Sets the object of an input, as the API server has it; `None` if there is none, as without this call. For an
    /// input with a selector, it is the array of the objects, which runs receive by name. With a configuration, runs
    /// receive the fields that `spec.inputs` names.
    ///
    /// # Panics
    /// Panics if the configuration names no input with this id, or an input of the other form, and for an array of more
    /// than 64 objects or with one without `metadata.name`.
    #[track_caller]
    pub fn set_input(&mut self, id: &str, mut object: Option<Value>) {
        let mut fake = self.fake();
        if fake.configuration.grants.is_some() {
            let input = fake.configuration.inputs.iter().find(|input| input.id == id);
            assert!(input.is_some(), "spec.inputs of the configuration has no {id}");
            let is_listed = input.is_some_and(|input| matches!(input.objects, InputObjects::Labelled(_)));
            let fits = object.as_ref().is_none_or(|object| object.is_array() == is_listed);
            assert!(fits, "input {id}: an array with a selector, and otherwise one object");
        }
        if let Some(Value::Array(objects)) = &mut object {
            assert!(objects.len() <= Input::MOST_OBJECTS, "input {id}: at most {} objects", Input::MOST_OBJECTS);
            let is_named = |object: &Value| object["metadata"]["name"].is_string();
            assert!(objects.iter().all(is_named), "input {id}: an object without metadata.name");
            objects.sort_by_key(|object| object["metadata"]["name"].as_str().map(str::to_owned));
        }
        fake.inputs.insert(id.to_owned(), object);
    }

    /// Creates an object that is not a Pod, or replaces the one of its name: `objects::get` reads it, `objects::scale`
    /// changes its `spec.replicas`, and an apply of the plugin replaces it.
    ///
    /// # Panics
    /// Panics if the object has no apiVersion, kind or metadata.name.
    #[track_caller]
    pub fn set_object(&mut self, object: Value) {
        match vocabulary::ObjectRef::of_body(&object) {
            Ok(name) => drop(self.fake().objects.insert((&name).into(), object)),
            #[expect(clippy::panic, reason = "a test's own object has no name")]
            Err(error) => panic!("{error}"),
        }
    }

    /// Sets the present time.
    #[must_use]
    pub fn now(self, now: Timestamp) -> Self {
        self.fake().now = now;
        self
    }

    /// Advances the time. This wakes no plugin.
    pub fn advance(&mut self, time: Duration) {
        let mut fake = self.fake();
        fake.now = fake.now + time;
    }

    /// Creates a Pod or replaces the one of its name, as the cluster would.
    pub fn put_pod(&mut self, pod: impl Into<Pod>) {
        self.fake().put(pod.into());
    }

    /// Removes a Pod, as the cluster would. A later reconcile is the run on its deletion.
    ///
    /// # Panics
    /// Panics if there is no such Pod.
    #[track_caller]
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        let name = (namespace.to_owned(), name.to_owned());
        if !self.fake().pods.contains_key(&name) {
            unknown(&name, &self.fake());
        }
        self.fake().remove(&name);
    }

    /// Returns the present state of a Pod; `None` if it is gone.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        self.fake().pods.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Returns the present state of an object that the plugin applied, or that [`Host::set_object`] made.
    #[must_use]
    pub fn object(&self, object: &ObjectRef) -> Option<Value> {
        self.fake().objects.get(object).cloned()
    }

    /// Simulates a restart of the host: state, failures and the last states of gone Pods are lost; the cluster is
    /// unchanged. A reconcile of a Pod that was removed before is then a deletion without a last state.
    pub fn restart(&mut self) {
        self.failures.clear();
        self.fake().restart();
    }

    /// Sets the result of every later write, which is then not executed; `None` executes writes again.
    pub fn answer_writes(&mut self, result: Option<WriteResult>) {
        self.fake().answer = result;
    }

    /// Runs a plugin's function for one Pod, as the host would, and executes its staged writes.
    ///
    /// # Panics
    /// Panics if the function panics, or if the host would never run it: for a Pod that never existed, or one in a
    /// namespace outside the plugin's scope.
    #[track_caller]
    pub fn reconcile(&mut self, function: fn(&Request) -> Result<Outcome>, namespace: &str, name: &str) -> Run {
        self.run(function, (namespace.to_owned(), name.to_owned()), None)
    }

    /// Runs the function for a Pod, or for the end of the group of which this was the last state.
    #[track_caller]
    pub(super) fn run(
        &mut self,
        function: fn(&Request) -> Result<Outcome>,
        name: Name,
        ended: Option<Box<Pod>>,
    ) -> Run {
        check_subject(&name, &self.fake());
        let before = self.failures.remove(&name).unwrap_or_default();
        let attempt = before.in_a_row.saturating_add(1);
        let result = self.call(function, &name, ended, before);
        let mut fake = self.fake();
        let result = result.map_err(|error| error.shown(fake.refusal.as_deref()));
        let unsettled: Vec<_> = if result.is_ok() {
            fake.send().into_iter().filter(|report| !report.result.is_settled()).collect()
        } else {
            fake.drop_staged();
            Vec::new()
        };
        let run = Run {
            writes: fake.writes.clone(),
            events: fake.events.clone(),
            reports: fake.reports.clone(),
            logs: fake.logs.clone(),
            pods_read: fake.pods_read,
            result,
        };
        drop(fake);
        if run.result.is_err() || !unsettled.is_empty() {
            self.failures.insert(name, Failure { in_a_row: attempt, unsettled });
        }
        run
    }

    fn call(
        &self,
        function: fn(&Request) -> Result<Outcome>,
        name: &Name,
        ended: Option<Box<Pod>>,
        before: Failure,
    ) -> Result<Outcome> {
        let request = {
            let mut fake = self.fake();
            let sections = fake.configuration.sections();
            let open = |pod: &Pod| crate::Pod::open(record(pod, sections));
            let (uid, subject) = match (fake.pods.get(name), fake.gone.get(name)) {
                _ if ended.is_some() => {
                    let last = ended.as_deref().map(open).transpose()?;
                    (ended.as_deref().map_or("unknown", |last| &last.header.uid), Subject::Deleted(last))
                }
                (Some(pod), _) => (pod.header.uid.as_str(), Subject::Present(open(pod)?)),
                (None, Some(gone)) => (gone.uid.as_str(), Subject::Deleted(gone.last.as_ref().map(open).transpose()?)),
                // Refused before.
                (None, None) => ("unknown", Subject::Deleted(None)),
            };
            let key = PodKey::new(&name.0, &name.1, uid);
            let runs_for_groups = fake.configuration.watch.as_ref().is_some_and(|watch| watch.related.is_some());
            fake.changes.retain(|change| runs_for_groups || change.name != *name);
            fake.begin_run(key.clone());
            Request {
                key,
                subject,
                now: fake.now,
                attempt: before.in_a_row.saturating_add(1),
                config: fake.configuration.with_inputs(&fake.inputs),
                unsettled_writes: before.unsettled,
            }
        };
        let _entered = Entered::new(&self.fake);
        function(&request)
    }

    pub(super) fn fake(&self) -> RefMut<'_, Fake> {
        self.fake.borrow_mut()
    }
}

/// # Panics
/// Panics if the host would never run the plugin on this Pod.
#[track_caller]
fn check_subject(name: &Name, fake: &Fake) {
    if let Scope::Namespace(own) = &fake.configuration.scope
        && **own != *name.0
    {
        #[expect(clippy::panic, reason = "a test asks for a run that no host would begin")]
        {
            panic!(
                "{}/{} is not in the namespace {own} of this ReconcilePlugin: the host never runs the plugin on it",
                name.0, name.1
            );
        }
    }
    if !fake.pods.contains_key(name) && !fake.gone.contains_key(name) {
        unknown(name, fake);
    }
}

/// # Panics
/// Panics always: a misspelt name would otherwise be a run on a deletion, in which most plugins do nothing.
#[track_caller]
fn unknown(name: &Name, fake: &Fake) -> ! {
    let listed = |names: Vec<&Name>| match names.as_slice() {
        [] => "none".to_owned(),
        names => names.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect::<Vec<_>>().join(", "),
    };
    #[expect(clippy::panic, reason = "a test names a Pod that it never added")]
    {
        panic!(
            "there is no Pod {}/{}. Pods: {}; removed: {}. For the run of a deletion, add the Pod and call remove_pod",
            name.0,
            name.1,
            listed(fake.pods.keys().collect()),
            listed(fake.gone.keys().filter(|name| !fake.pods.contains_key(*name)).collect())
        );
    }
}
