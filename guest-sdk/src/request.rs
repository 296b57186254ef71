//! [`Request`]: the input of one run.

use std::collections::BTreeMap;

use podium_wire::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, value::RawValue};

use crate::{Error, Pod, PodKey, Result, WriteReport};

/// The input of one run. Level triggered: it contains the present state of the Pod and never the event.
#[derive(Debug)]
pub struct Request {
    pub(crate) key: PodKey,
    pub(crate) subject: Subject,
    pub(crate) now: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) config: String,
    pub(crate) unsettled_writes: Vec<WriteReport>,
}

/// The member of the configuration that has the objects of the inputs.
#[derive(serde::Deserialize)]
struct Config {
    #[serde(default)]
    inputs: Option<BTreeMap<String, Box<RawValue>>>,
}

#[derive(Debug)]
pub(crate) enum Subject {
    Present(Pod),
    Deleted(Option<Pod>),
}

impl Request {
    /// Returns the incarnation of the Pod that this run is for.
    #[must_use]
    pub fn key(&self) -> &PodKey {
        &self.key
    }

    /// Returns the present Pod; `None` if it is gone.
    #[must_use]
    pub fn pod(&self) -> Option<&Pod> {
        match &self.subject {
            Subject::Present(pod) => Some(pod),
            Subject::Deleted(_) => None,
        }
    }

    /// Returns the present Pod unless it is being deleted: the one to work for. [`Request::pod`] also returns one that
    /// is being deleted, of which a finalizer is to be removed.
    ///
    /// # Errors
    /// Never because of grants, as the section is always granted.
    pub fn live_pod(&self) -> Result<Option<&Pod>> {
        self.pod().map_or(Ok(None), |pod| Ok((!pod.is_terminating()?).then_some(pod)))
    }

    /// Returns the last known state of a Pod that is gone; `None` if the Pod is present or no state is known. Clean
    /// up here; [`Request::key`] is always available.
    ///
    /// Deletions are delivered at least once. If a Pod is deleted while the host is down, or its deletion was not
    /// delivered before, it is delivered after the restart without a last state, provided that the host has a journal
    /// (`--state-dir`). If the host has none, or may lose its disk, set a finalizer ([`Pod::add_finalizer`]) and
    /// clean up while the Pod [`is_terminating`](Pod::is_terminating).
    #[must_use]
    pub fn deleted(&self) -> Option<&Pod> {
        match &self.subject {
            Subject::Present(_) => None,
            Subject::Deleted(last) => last.as_ref(),
        }
    }

    /// Returns the host's time at the start of the run. A plugin has no other clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns 1 for a first attempt, and one more for each consecutive failure.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Deserializes `spec.config` of the plugin's configuration, `{}` by default. Use `#[serde(deny_unknown_fields)]`
    /// on `T` so that a misspelt field is an error, and `default` so that a missing one is not.
    ///
    /// # Errors
    /// Returns a terminal error that names the field if the configuration is not a `T`.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        let result = if self.config.contains("\"inputs\":") {
            // The member of the inputs is none of `T`.
            let mut config: Map<String, Value> = serde_json::from_str(&self.config).map_err(Error::terminal)?;
            config.remove("inputs");
            serde_path_to_error::deserialize(&Value::from(config))
        } else {
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(&self.config))
        };
        result.map_err(|error| match error.path().to_string().as_str() {
            "." => Error::terminal(format_args!("spec.config: {}", error.inner())),
            path => Error::terminal(format_args!("spec.config.{path}: {}", error.inner())),
        })
    }

    /// Deserializes the object of an input of the plugin's configuration (`spec.inputs`), with the fields that the
    /// configuration names, such as `data` of a ConfigMap; `None` if there is no such object. An input with a selector
    /// is a list of objects, ordered by name, each with `metadata.name` in addition.
    ///
    /// # Errors
    /// Returns a terminal error that names the field if the object is not a `T`, or if the configuration has no inputs.
    /// Returns an error that is retried while the host may not read the object, or it is too large, or if the
    /// configuration has no input with this id.
    pub fn input<T: DeserializeOwned>(&self, id: &str) -> Result<Option<T>> {
        let config: Config = serde_json::from_str(&self.config).map_err(Error::terminal)?;
        let Some(inputs) = config.inputs else {
            return Err(Error::terminal(format_args!("spec.inputs is missing: it names no input {id}")));
        };
        let Some(object) = inputs.get(id) else {
            let message = format!("the input {id} is not available, or spec.inputs does not name it");
            return Err(Error::retry(message));
        };
        let mut json = serde_json::Deserializer::from_str(object.get());
        serde_path_to_error::deserialize(&mut json)
            .map_err(|error| Error::terminal(format_args!("input {id}: {}: {}", error.path(), error.inner())))
    }

    /// Returns writes of the previous run whose result is not applied, unchanged or gone. A run with such a write
    /// counts as failed. May be empty after a restart of the host.
    #[must_use]
    pub fn unsettled_writes(&self) -> &[WriteReport] {
        &self.unsettled_writes
    }
}
