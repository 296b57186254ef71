//! A log of the requests through the API, so that a test can count them. The cluster's own kubelet, scheduler and
//! collector are not logged.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

use crate::request::Verb;

/// The most requests in the log; the oldest are dropped. A demonstration makes several thousand.
const KEPT: usize = 200_000;

/// One request for a resource.
#[derive(Clone, Debug)]
pub struct Logged {
    /// The cluster's time in milliseconds since the epoch.
    pub at_millis: i64,
    pub verb: Verb,
    /// The resource with its group, as in `leases.coordination.k8s.io`.
    pub resource: String,
    /// The subresource; empty for the main resource.
    pub subresource: String,
    pub namespace: Option<String>,
    /// The object's name; empty for lists, watches and creations.
    pub name: String,
    /// The unparsed query.
    pub query: String,
    /// The media type of the body, which determines the kind of a patch.
    pub content_type: String,
    pub user_agent: String,
    /// The user of `Impersonate-User`, if any.
    pub impersonated: Option<String>,
    /// The header `traceparent`, if any.
    pub traceparent: Option<String>,
    /// The status code of the response.
    pub code: u16,
}

impl Logged {
    /// Returns true if it may have changed the cluster, which access reviews do not.
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

    /// Returns all requests, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Logged> {
        self.entries.lock().iter().cloned().collect()
    }

    /// Returns the requests that may have changed the cluster, including refused ones.
    #[must_use]
    pub fn writes(&self) -> Vec<Logged> {
        self.entries.lock().iter().filter(|logged| logged.is_write()).cloned().collect()
    }

    /// Returns the number of requests that match the filter.
    pub fn count(&self, filter: impl Fn(&Logged) -> bool) -> usize {
        self.entries.lock().iter().filter(|logged| filter(logged)).count()
    }

    pub fn clear(&self) {
        self.entries.lock().clear();
    }
}
