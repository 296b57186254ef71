//! [`Request`]: what one run is given.

use podium_wire::Timestamp;
use serde::de::DeserializeOwned;

use crate::{Error, Pod, PodKey, Result, WriteReport};

/// The input of one run. Level triggered: it has the present state of the Pod and never the event.
#[derive(Debug)]
pub struct Request {
    pub(crate) key: PodKey,
    pub(crate) subject: Subject,
    pub(crate) now: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) config: String,
    pub(crate) unsettled_writes: Vec<WriteReport>,
}

#[derive(Debug)]
pub(crate) enum Subject {
    Present(Pod),
    Deleted(Option<Pod>),
}

impl Request {
    /// The incarnation of the Pod that this run is for.
    #[must_use]
    pub fn key(&self) -> &PodKey {
        &self.key
    }

    /// The Pod as it is now; none when it is gone.
    #[must_use]
    pub fn pod(&self) -> Option<&Pod> {
        match &self.subject {
            Subject::Present(pod) => Some(pod),
            Subject::Deleted(_) => None,
        }
    }

    /// The last known state of a Pod that is gone; none when it is present, or when nothing of it is known. This is the
    /// place to tidy up; [`Request::key`] is always there.
    ///
    /// Deletions are delivered at least once. One that happens while the host is down, or that it had still to deliver
    /// when it went down, is delivered after its restart without a last state, where the host keeps a journal
    /// (`--state-dir`). Where it does not, or its disk may go with it, set a finalizer ([`Pod::add_finalizer`]) and
    /// tidy up while the Pod [`is_terminating`](Pod::is_terminating).
    #[must_use]
    pub fn deleted(&self) -> Option<&Pod> {
        match &self.subject {
            Subject::Present(_) => None,
            Subject::Deleted(last) => last.as_ref(),
        }
    }

    /// The host's clock when the run began: the only clock that a plugin has.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// 1 for a first attempt, and one more for each failure in a row.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// `spec.config` of the plugin's configuration, `{}` where there is none. Give `T` `#[serde(deny_unknown_fields)]`,
    /// so that a misspelt field is an error, and `default`, so that a missing one is not.
    ///
    /// # Errors
    /// Where the configuration is not a `T`; terminal, and the message names the field.
    pub fn config<T: DeserializeOwned>(&self) -> Result<T> {
        let mut json = serde_json::Deserializer::from_str(&self.config);
        serde_path_to_error::deserialize(&mut json).map_err(|error| match error.path().to_string().as_str() {
            "." => Error::terminal(format_args!("spec.config: {}", error.inner())),
            path => Error::terminal(format_args!("spec.config.{path}: {}", error.inner())),
        })
    }

    /// Writes sent after the previous run returned whose result is not applied, unchanged or gone. A run with such a
    /// write counts as failed. May be empty after a restart of the host.
    #[must_use]
    pub fn unsettled_writes(&self) -> &[WriteReport] {
        &self.unsettled_writes
    }
}
