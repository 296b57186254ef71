//! A log of the requests that came in through the API, so that a test can count them. What the cluster's own kubelet,
//! scheduler and collector do is not in it.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use crate::request::Verb;

/// Requests kept; the oldest are forgotten. A demonstration makes some thousands.
const KEPT: usize = 200_000;

/// One request for a resource.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Milliseconds since the epoch by the cluster's clock.
    pub at_millis: i64,
    pub verb: Verb,
    /// With its group, as in `leases.coordination.k8s.io`.
    pub resource: String,
    /// Empty for the main resource.
    pub subresource: String,
    pub namespace: Option<String>,
    /// Empty for lists, watches and creations.
    pub name: String,
    /// The query part as it came.
    pub query: String,
    /// Media type of the body, which determines the kind of a patch.
    pub content_type: String,
    pub user_agent: String,
    /// The user of `Impersonate-User`, if any.
    pub impersonated: Option<String>,
    /// Status code of the answer.
    pub code: u16,
}

impl Logged {
    /// Whether it may have changed the cluster: reviews of access do not.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.verb.is_write() && !self.resource.starts_with("selfsubject")
    }
}

/// All requests since the start or the last [`clear`](Self::clear). Clones share one log.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct RequestLog {
    entries: Arc<Mutex<VecDeque<Logged>>>,
}

impl RequestLog {
    pub(crate) fn push(&self, logged: Logged) {
        let mut entries = self.entries.lock();
        if entries.len() == KEPT {
            entries.pop_front();
        }
        entries.push_back(logged);
    }

    /// Everything, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Logged> {
        self.entries.lock().iter().cloned().collect()
    }

    /// The requests that may have changed the cluster, refused ones among them.
    #[must_use]
    pub fn writes(&self) -> Vec<Logged> {
        self.entries.lock().iter().filter(|logged| logged.is_write()).cloned().collect()
    }

    /// How many the filter takes.
    pub fn count(&self, filter: impl Fn(&Logged) -> bool) -> usize {
        self.entries.lock().iter().filter(|logged| filter(logged)).count()
    }

    pub fn clear(&self) {
        self.entries.lock().clear();
    }
}
