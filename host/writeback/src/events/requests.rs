//! Requests about one Event, and the meaning of their responses.

use podium_api::{Api, ApiError};
use podium_vocabulary::Event;
use podium_wire::Timestamp;
use serde_json::{Value, json};

use super::event_type;
use crate::{digest::Digest, http, waiting::Entry};

/// The `reportingController` of Events.
const CONTROLLER: &str = "podium.dev/host";

/// Why an Event was not sent.
pub(super) enum Failure {
    /// The account may not create it; this may change.
    Denied(String),
    /// This Event is invalid; others may be accepted.
    Refused(String),
    /// The API server, or a webhook behind it, is unreachable or overloaded.
    Away(String),
    /// Nothing was sent: the API server asked the account to wait.
    Held(String),
}

impl Failure {
    /// Returns true if the next request of the same run would fail as well.
    pub(super) fn is_away(&self) -> bool {
        matches!(self, Self::Away(_) | Self::Held(_))
    }

    pub(super) fn into_message(self) -> String {
        let (Self::Denied(message) | Self::Refused(message) | Self::Away(message) | Self::Held(message)) = self;
        message
    }
}

impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        match error.code() {
            None if matches!(error, ApiError::Held(_)) => Self::Held(error.to_string()),
            // The namespace is being deleted, so no new grant can help.
            Some(403) if error.has_cause("NamespaceTerminating") => Self::Refused(error.to_string()),
            Some(403) => Self::Denied(error.to_string()),
            Some(401) if !error.is_unauthenticated() => Self::Denied(error.to_string()),
            Some(401 | 408 | 429 | 500..) | None => Self::Away(error.to_string()),
            Some(_) => Self::Refused(error.to_string()),
        }
    }
}

impl From<::http::Error> for Failure {
    fn from(error: ::http::Error) -> Self {
        Self::Refused(error.to_string())
    }
}

fn collection(event: &Event) -> String {
    format!("/apis/events.k8s.io/v1/namespaces/{}/events", event.target.namespace)
}

/// Returns the Pod's name, cut so that the result is a valid subdomain, and the digest.
pub(super) fn name(event: &Event, digest: Digest) -> String {
    const MAX_POD_BYTES: usize = 253 - 33;
    let pod: String = event.target.name.chars().take(MAX_POD_BYTES).collect();
    format!("{}.{}", pod.trim_end_matches(['.', '-']), digest.hex())
}

/// Returns the time with microseconds, which the API server requires.
pub(super) fn micro_time(now_millis: u64) -> String {
    let millis = i64::try_from(now_millis).unwrap_or(i64::MAX);
    let second = Timestamp(millis - millis.rem_euclid(1_000)).to_string();
    format!("{}.{:03}000Z", second.trim_end_matches('Z'), millis.rem_euclid(1_000))
}

/// Creates an Event, unless the API server has it: then it answers 409, because the name is the same.
pub(super) async fn create(api: &Api, entry: &Entry) -> Result<(), Failure> {
    let Entry { sender, event, .. } = entry;
    let create = http::create(&collection(event), &body(entry, &name(event, entry.digest)), sender)?;
    match api.bytes(create).await {
        Ok(_) | Err(ApiError::Status { code: 409, .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn body(entry: &Entry, name: &str) -> Value {
    let Entry { sender, event, note, at_millis, .. } = entry;
    let target = &event.target;
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": { "namespace": *target.namespace, "name": name },
        "eventTime": micro_time(*at_millis),
        "type": event_type(event),
        "reason": event.reason,
        "action": event.action,
        "note": note,
        "reportingController": CONTROLLER,
        "reportingInstance": sender.manager,
        "regarding": {
            "apiVersion": "v1", "kind": "Pod",
            "namespace": *target.namespace, "name": *target.name, "uid": *target.uid,
        },
    })
}

/// Updates the count of an Event. Returns false if the API server no longer has it.
pub(super) async fn repeat(api: &Api, entry: &Entry, count: u64) -> Result<bool, Failure> {
    let path = format!("{}/{}", collection(&entry.event), name(&entry.event, entry.digest));
    let series = json!({ "series": { "count": count, "lastObservedTime": micro_time(entry.at_millis) } });
    match api.bytes(http::merge(&path, &series, &entry.sender)?).await {
        Ok(_) => Ok(true),
        Err(ApiError::Status { code: 404, .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
