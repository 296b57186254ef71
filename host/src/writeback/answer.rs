//! What an answer of the API server means for a write. Pure.

use std::{collections::BTreeMap, time::Duration};

use podium_pods::{
    model::{ObjectRef, WriteResult},
    pod::CachedPod,
};
use serde::Deserialize;
use serde_json::Value;

use super::plan::{MetaPatch, Request};
use crate::api::ApiError;

/// What an error says.
#[derive(Debug, PartialEq)]
pub(super) enum Verdict {
    /// With how long the API server asks to wait before the same is tried again.
    Final(WriteResult, Option<Duration>),
    /// Nothing went out, and for the rest of the run nothing will.
    Unreachable,
    /// The API server is overloaded and turned it away before anything was done, and asks to wait so long.
    Busy(Option<Duration>),
    /// A removal was refused. Either the Pod or object is another one by now, or something that the removal depends on,
    /// such as a PodDisruptionBudget, was changed meanwhile: a read decides.
    Contested,
    /// It may have been done: read, never repeat.
    Ambiguous,
}

/// Where the meanings are from: the API server's own answers, tried on 1.36.
pub(super) fn judge(request: &Request, error: &ApiError) -> Verdict {
    let ApiError::Status { code, reason: _, object, message, causes, retry_after } = error else {
        return match error {
            ApiError::Transport { sent: false, .. } => Verdict::Unreachable,
            ApiError::Held(wait) => Verdict::Busy(Some(*wait)),
            _ => Verdict::Ambiguous,
        };
    };
    let shown = || message.clone();
    // An answer that names no object: the path is missing and not the object. In a built-in group it is a Status too.
    if let Some(written) = request.object().filter(|_| *code == 404 && object.is_none()) {
        return Verdict::Final(WriteResult::Invalid(unserved(written)), *retry_after);
    }
    let names_uid = causes.iter().any(|cause| cause.field == "metadata.uid");
    let removal = matches!(request, Request::Delete { .. } | Request::Evict { .. } | Request::DeleteObject { .. });
    let result = match code {
        422 if names_uid => WriteResult::Gone,
        409 if removal => return Verdict::Contested,
        409 if error.has_cause("FieldManagerConflict") => WriteResult::OwnedByOther(shown()),
        409 => WriteResult::Conflict,
        // An apply creates, so what is missing is the namespace.
        404 if matches!(request, Request::Apply { .. }) => WriteResult::Invalid(shown()),
        404 => WriteResult::Gone,
        // The server gave up on reading the request, or so it says.
        408 => return Verdict::Ambiguous,
        429 if error.has_cause("DisruptionBudget") => WriteResult::Blocked(shown()),
        429 if error.is_about_the_object() => WriteResult::Forbidden(shown()),
        429 => return Verdict::Busy(*retry_after),
        401 | 403 => WriteResult::Forbidden(shown()),
        400..=499 => WriteResult::Invalid(shown()),
        // Two budgets for one Pod, or one that could not be counted down: found before the deletion, and no cause says
        // so.
        500.. if matches!(request, Request::Evict { .. }) && message.contains("PodDisruptionBudget") => {
            WriteResult::Blocked(shown())
        }
        _ => return Verdict::Ambiguous,
    };
    Verdict::Final(result, *retry_after)
}

fn unserved(object: &ObjectRef) -> String {
    let ObjectRef { api_version, resource, namespace, .. } = object;
    let with = if namespace.is_some() { "with" } else { "without" };
    format!(
        "{resource} of {api_version} are not served {with} a namespace by this API server; correct apiVersion and \
         resource of the grant, or metadata.namespace of the object"
    )
}

pub(super) type Annotations = BTreeMap<String, String>;

/// The annotations of a Pod as the API server wrote it.
///
/// # Errors
/// When it is no object with annotations.
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

/// The result of a read after a contested removal: `uid` is of the present object, `wanted` of the one to be removed.
pub(super) fn contested(uid: Option<&str>, wanted: &str) -> WriteResult {
    if uid == Some(wanted) { WriteResult::Conflict } else { WriteResult::Gone }
}

/// What a read after a lost answer says of a write to a Pod: `Applied` where the Pod shows it, `Gone` where there is
/// another or none, else it cannot be known. `now` is the Pod of the same name as it is, with its annotations before
/// any were pruned.
pub(super) fn resolve(request: &Request, now: Option<(&CachedPod, &Annotations)>) -> WriteResult {
    let (Request::PatchMeta { key, .. }
    | Request::PatchStatus { key, .. }
    | Request::Delete { key, .. }
    | Request::Evict { key }) = request
    else {
        return WriteResult::Unknown;
    };
    let Some((pod, annotations)) = now.filter(|(pod, _)| pod.key == *key) else { return WriteResult::Gone };
    let shown = match request {
        Request::PatchMeta { patch, .. } => shows(pod, annotations, patch),
        Request::PatchStatus { conditions, .. } => pod.status().is_ok_and(|status| {
            conditions.iter().all(|(condition_type, wanted)| {
                let held = status.conditions.iter().find(|held| held.condition_type == *condition_type);
                match (held, wanted) {
                    (None, None) => true,
                    (Some(held), Some(wanted)) => {
                        let text = |text: &Option<String>| text.clone().unwrap_or_default();
                        held.status == wanted.status
                            && text(&held.reason) == text(&wanted.reason)
                            && text(&held.message) == text(&wanted.message)
                    }
                    _ => false,
                }
            })
        }),
        _ => pod.lifecycle().is_ok_and(|lifecycle| lifecycle.deletion_timestamp.is_some()),
    };
    if shown { WriteResult::Applied } else { WriteResult::Unknown }
}

fn shows(pod: &CachedPod, annotations: &Annotations, patch: &MetaPatch) -> bool {
    let (Ok(labels), Ok(lifecycle)) = (pod.labels(), pod.lifecycle()) else { return false };
    patch.labels.iter().all(|(key, value)| labels.get(key) == value.as_ref())
        && patch.annotations.iter().all(|(key, value)| annotations.get(key) == value.as_ref())
        && patch.add_finalizers.iter().all(|name| lifecycle.finalizers.contains(name))
        && !patch.remove_finalizers.iter().any(|name| lifecycle.finalizers.contains(name))
}

/// True where `live` holds all that `wanted` says: objects by key, lists of the same length entry by entry.
pub(super) fn holds(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, wanted)| live.get(key).is_some_and(|live| holds(live, wanted)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| holds(live, wanted))
        }
        _ => live == wanted,
    }
}
