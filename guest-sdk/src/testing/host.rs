//! [`Host`]: the stand-in as tests hold it.

use std::{
    cell::{RefCell, RefMut},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use podium_wire::{Pod, Timestamp};
use serde_json::Value;

use super::{
    Run,
    calls::Entered,
    configuration::Configuration,
    fake::{Fake, Name, record},
};
use crate::{ObjectRef, Outcome, PodKey, Request, Result, WriteReport, WriteResult, request::Subject};

/// The default present of [`Host`]: 2026-01-01T00:00:00Z.
pub const NOW: Timestamp = Timestamp(1_767_225_600_000);

/// A host in memory. Without a configuration it grants everything, everywhere, and passes no config.
#[derive(Debug)]
pub struct Host {
    fake: Rc<RefCell<Fake>>,
    /// Of Pods whose last run failed or left writes unsettled.
    failures: BTreeMap<Name, Failure>,
}

#[derive(Debug, Default)]
struct Failure {
    in_a_row: u32,
    unsettled: Vec<WriteReport>,
}

impl Host {
    /// A host of a cluster with these Pods.
    #[must_use]
    pub fn with_pods(pods: impl IntoIterator<Item = impl Into<Pod>>) -> Self {
        let mut fake = Fake::new();
        for pod in pods {
            fake.put(pod.into());
        }
        Self { fake: Rc::new(RefCell::new(fake)), failures: BTreeMap::new() }
    }

    /// Scope, grants, config and limit of writes from the plugin's own configuration file, as in production:
    /// `host.configured_by(include_str!("../plugin.yaml"))`. What the host would refuse in the file is refused here,
    /// except that the component is not looked for.
    ///
    /// # Panics
    /// Where the text is not the valid configuration of one plugin; the message names every field that is wrong.
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

    /// Another `spec.config`.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "callers write json!({..})")]
    pub fn config(self, config: Value) -> Self {
        self.fake().configuration.config = config.to_string();
        self
    }

    /// Another present.
    #[must_use]
    pub fn now(self, now: Timestamp) -> Self {
        self.fake().now = now;
        self
    }

    /// Lets time pass. Nothing is woken by it.
    pub fn advance(&mut self, time: Duration) {
        let mut fake = self.fake();
        fake.now = fake.now + time;
    }

    /// Creates a Pod or replaces the one of its name, as the cluster would.
    pub fn put_pod(&mut self, pod: impl Into<Pod>) {
        self.fake().put(pod.into());
    }

    /// Removes a Pod, as the cluster would. Reconciling it then is the run for its deletion.
    ///
    /// # Panics
    /// Where there is no such Pod.
    #[track_caller]
    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        let name = (namespace.to_owned(), name.to_owned());
        if !self.fake().pods.contains_key(&name) {
            unknown(&name, &self.fake());
        }
        self.fake().remove(&name);
    }

    /// What has become of a Pod; none when it is gone.
    #[must_use]
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        self.fake().pods.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// What has become of an object that the plugin applied.
    #[must_use]
    pub fn object(&self, object: &ObjectRef) -> Option<Value> {
        self.fake().objects.get(object).cloned()
    }

    /// A restart of the host: state, what it knew of failures and the last states of Pods that are gone are lost; the
    /// cluster is as it was. Reconciling a Pod that was removed before is then a deletion without a last state.
    pub fn restart(&mut self) {
        self.failures.clear();
        self.fake().restart();
    }

    /// From now on no write is done, and this becomes of each instead; with none they are done again.
    pub fn answer_writes(&mut self, result: Option<WriteResult>) {
        self.fake().answer = result;
    }

    /// Runs a plugin's function for one Pod, as the host would, and does what it staged.
    ///
    /// # Panics
    /// Where the function panics; and where the host would never run it: for a Pod that neither is there nor was, or of
    /// a namespace that is not the plugin's.
    #[track_caller]
    pub fn reconcile(&mut self, function: fn(&Request) -> Result<Outcome>, namespace: &str, name: &str) -> Run {
        let name = (namespace.to_owned(), name.to_owned());
        check_subject(&name, &self.fake());
        let before = self.failures.remove(&name).unwrap_or_default();
        let attempt = before.in_a_row.saturating_add(1);
        let result = self.call(function, &name, before);
        let mut fake = self.fake();
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

    fn call(&self, function: fn(&Request) -> Result<Outcome>, name: &Name, before: Failure) -> Result<Outcome> {
        let request = {
            let mut fake = self.fake();
            let sections = fake.configuration.sections();
            let open = |pod: &Pod| crate::Pod::open(record(pod, sections));
            let (uid, subject) = match (fake.pods.get(name), fake.gone.get(name)) {
                (Some(pod), _) => (pod.header.uid.as_str(), Subject::Present(open(pod)?)),
                (None, Some(gone)) => (gone.uid.as_str(), Subject::Deleted(gone.last.as_ref().map(open).transpose()?)),
                // Refused before.
                (None, None) => ("unknown", Subject::Deleted(None)),
            };
            let key = PodKey::new(&name.0, &name.1, uid);
            fake.begin_run(key.clone());
            Request {
                key,
                subject,
                now: fake.now,
                attempt: before.in_a_row.saturating_add(1),
                config: fake.configuration.config.clone(),
                unsettled_writes: before.unsettled,
            }
        };
        let _entered = Entered::new(&self.fake);
        function(&request)
    }

    fn fake(&self) -> RefMut<'_, Fake> {
        self.fake.borrow_mut()
    }
}

/// # Panics
/// Where the host would never run the plugin on this Pod.
#[track_caller]
fn check_subject(name: &Name, fake: &Fake) {
    if let Some(own) = fake.configuration.namespace.as_deref().filter(|own| *own != name.0) {
        #[expect(clippy::panic, reason = "a test asks for a run that no host would begin")]
        {
            panic!(
                "{}/{} is not in the namespace {own} of this ReconcilePlugin: the host would never run the plugin on it",
                name.0, name.1
            );
        }
    }
    if !fake.pods.contains_key(name) && !fake.gone.contains_key(name) {
        unknown(name, fake);
    }
}

/// # Panics
/// Always: a misspelt name would be a run for a deletion, in which most plugins do nothing.
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
