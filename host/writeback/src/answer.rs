//! The meaning of the API server's response to a write. Pure.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use podium_api::{ApiError, unserved};
use podium_engine::ports::{Expectation, Shown};
use podium_pods::pod::CachedPod;
use podium_vocabulary::{PodKey, Revision, WriteResult, text};
use podium_wire::Condition;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::plan::{MetaPatch, Request, Subject};

/// The most bytes of the API server's message about fields of other managers.
const MAX_CONFLICT_BYTES: usize = 768;

/// The meaning of an error for its write.
#[derive(Debug, PartialEq)]
pub(super) enum ErrorClass {
    /// The result, and how long the API server asks to wait before the next attempt.
    Final(WriteResult, Option<Duration>),
    /// Nothing was sent, and nothing more will be sent in this run.
    Unreachable,
    /// The API server is overloaded, rejected the request before executing it, and asks to wait this long.
    Busy(Option<Duration>),
    /// A removal or an apply was refused. Either the target was replaced, or something that the write depends on, such
    /// as a PodDisruptionBudget, has changed meanwhile. A read decides.
    Contested,
    /// The write may have been executed: it is read back and never repeated.
    Ambiguous,
}

/// Returns the meaning of an error. The cases follow the API server's responses, verified with 1.36.
pub(super) fn classify(request: &Request, error: &ApiError) -> ErrorClass {
    let ApiError::Status { code, reason: _, object, message, causes, retry_after } = error else {
        return match error {
            ApiError::Transport { sent: false, .. } => ErrorClass::Unreachable,
            ApiError::Held(wait) => ErrorClass::Busy(Some(*wait)),
            ApiError::Transport { .. }
            | ApiError::Timeout(_)
            | ApiError::TooLong(_)
            | ApiError::Malformed(_)
            | ApiError::Status { .. } => ErrorClass::Ambiguous,
        };
    };
    let shown = || message.clone();
    // The response names no object: the path is missing and not the object. In a built-in group it is a Status too.
    if let Some(written) = request.object().filter(|_| *code == 404 && object.is_none()) {
        return ErrorClass::Final(WriteResult::Invalid(unserved(written)), *retry_after);
    }
    let names_uid = causes.iter().any(|cause| cause.field == "metadata.uid");
    let patch = matches!(request, Request::PatchMeta { .. } | Request::PatchStatus { .. } | Request::Scale { .. });
    let result = match code {
        // The object was replaced, and the body is wanted on that of its name.
        422 if names_uid && matches!(request, Request::Apply { .. }) => return ErrorClass::Contested,
        422 if names_uid => WriteResult::Gone,
        409 if error.has_cause("FieldManagerConflict") => WriteResult::OwnedByOther(owned(message)),
        409 if !patch => return ErrorClass::Contested,
        409 => WriteResult::Conflict,
        // An apply creates the object, so the namespace is missing.
        404 if matches!(request, Request::Apply { .. }) => WriteResult::Invalid(shown()),
        404 => WriteResult::Gone,
        // The server gave up reading the request, or claims so.
        408 => return ErrorClass::Ambiguous,
        429 if error.has_cause("DisruptionBudget") => WriteResult::Blocked(shown()),
        429 if error.is_about_the_object() => WriteResult::Forbidden(shown()),
        429 => return ErrorClass::Busy(*retry_after),
        // The host's own credentials were refused, before anything else was looked at: no right is missing.
        401 if error.is_unauthenticated() => return ErrorClass::Busy(*retry_after),
        401 | 403 => WriteResult::Forbidden(shown()),
        400..=499 => WriteResult::Invalid(shown()),
        // Two budgets match the Pod, or its budget could not be decremented. The API server checks this before it
        // deletes the Pod, and its Status has no cause for it, so only the message distinguishes it.
        500.. if matches!(request, Request::Evict { .. }) && message.contains("PodDisruptionBudget") => {
            WriteResult::Blocked(shown())
        }
        _ => return ErrorClass::Ambiguous,
    };
    ErrorClass::Final(result, *retry_after)
}

/// The next step after the API server's message about fields of other managers.
const OWNED_STEP: &str = "; the host takes such a field only in an object that this plugin's apply created and its \
                          account may get; leave the field out, have its manager release it, or set force: true in \
                          grants.write.objects";

/// Returns the API server's message, which names managers and fields, with the next step.
fn owned(message: &str) -> String {
    text::bounded(message, MAX_CONFLICT_BYTES) + OWNED_STEP
}

/// Returns the API server's message in the text of [`WriteResult::OwnedByOther`].
pub(super) fn without_step(text: &str) -> &str {
    text.strip_suffix(OWNED_STEP).unwrap_or(text)
}

/// Returns the state of a Pod that the cache has to show after a patch. `answer` is the API server's response: the
/// whole Pod or only its metadata, of which nothing else is used. Another client may have changed the Pod between the
/// plan and the patch, so a part of it must not be stored.
pub(super) fn expected(answer: &[u8], key: &PodKey) -> Expectation {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow)]
        uid: Cow<'a, str>,
        #[serde(borrow)]
        resource_version: Cow<'a, str>,
        deletion_timestamp: Option<IgnoredAny>,
        deletion_grace_period_seconds: Option<i64>,
        finalizers: Option<Vec<IgnoredAny>>,
    }
    let answer = serde_json::from_slice(answer).ok();
    let shown = answer.filter(|Answer { metadata }| metadata.uid == *key.uid).and_then(|Answer { metadata: pod }| {
        let is_held = pod.finalizers.is_some_and(|finalizers| !finalizers.is_empty());
        // The API server removes it with this patch, and this response has the revision from before.
        let is_gone =
            pod.deletion_timestamp.is_some() && pod.deletion_grace_period_seconds.unwrap_or_default() == 0 && !is_held;
        if is_gone { Some(Shown::Gone) } else { Revision::parse(&pod.resource_version).ok().map(Shown::Revision) }
    });
    Expectation { key: key.clone(), shown: shown.unwrap_or(Shown::Unknown) }
}

pub(super) type Annotations = BTreeMap<String, String>;

/// Returns the annotations of a Pod in the API server's response.
///
/// # Errors
/// Returns an error if the JSON is not an object with annotations.
pub(super) fn annotations(pod: &[u8]) -> serde_json::Result<Annotations> {
    #[derive(Deserialize)]
    struct Pod {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        annotations: Option<Annotations>,
    }
    serde_json::from_slice::<Pod>(pod).map(|pod| pod.metadata.annotations.unwrap_or_default())
}

/// Returns the result after a contested removal: `uid` is that of the present object, `wanted` that of the removed
/// one.
pub(super) fn after_contested_removal(uid: Option<&str>, wanted: &str) -> WriteResult {
    if uid == Some(wanted) { WriteResult::Conflict } else { WriteResult::Gone }
}

/// Returns the result of a write to a Pod after its response was lost: `Applied` if the Pod shows it, `Gone` if the
/// Pod is gone or was replaced, otherwise unknown. `now` is the present Pod of that name, with its annotations before
/// pruning.
pub(super) fn resolve(request: &Request, now: Option<(&CachedPod, &Annotations)>) -> WriteResult {
    let Subject::Pod(key) = request.subject() else { return WriteResult::Unknown };
    let Some((pod, annotations)) = now.filter(|(pod, _)| pod.key == key) else { return WriteResult::Gone };
    let shown = match request {
        Request::PatchMeta { patch, .. } => shows(pod, annotations, patch),
        Request::PatchStatus { conditions, .. } => shows_conditions(pod, conditions),
        Request::Delete { .. }
        | Request::Evict { .. }
        | Request::Apply { .. }
        | Request::DeleteObject { .. }
        | Request::Scale { .. } => pod.lifecycle().is_ok_and(|lifecycle| lifecycle.deletion_timestamp.is_some()),
    };
    if shown { WriteResult::Applied } else { WriteResult::Unknown }
}

fn shows_conditions(pod: &CachedPod, conditions: &BTreeMap<String, Option<Condition>>) -> bool {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    pod.status().is_ok_and(|status| {
        conditions.iter().all(|(condition_type, wanted)| {
            let held = status.conditions.iter().find(|held| held.condition_type == *condition_type);
            let (Some(held), Some(wanted)) = (held, wanted) else { return held.is_none() && wanted.is_none() };
            held.status == wanted.status
                && text(&held.reason) == text(&wanted.reason)
                && text(&held.message) == text(&wanted.message)
        })
    })
}

fn shows(pod: &CachedPod, annotations: &Annotations, patch: &MetaPatch) -> bool {
    let (Ok(held), Ok(lifecycle)) = (pod.labels(), pod.lifecycle()) else { return false };
    let MetaPatch { labels, annotations: wanted, add_finalizers, remove_finalizers } = patch;
    labels.iter().all(|(key, value)| held.get(key) == value.as_ref())
        && wanted.iter().all(|(key, value)| annotations.get(key) == value.as_ref())
        && add_finalizers.iter().all(|name| lifecycle.finalizers.contains(name))
        && !remove_finalizers.iter().any(|name| lifecycle.finalizers.contains(name))
}

/// Returns true if `live` contains all of `wanted`: objects by key, lists of the same length entry by entry.
pub(super) fn contains(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| live.get(key).is_some_and(|live| contains(live, wanted)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| contains(live, wanted))
        }
        _ => live == wanted,
    }
}
