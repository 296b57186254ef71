//! Objects of other kinds: server-side apply of the complete object, sent if it differs from the last applied one, and
//! deletion, sent once.
//!
//! Objects are not cached. An applied object is remembered by its digest ([`Applied`]); later, and after a restart,
//! one read shows whether it is still as applied, so an unchanged cluster causes no writes. A deletion is remembered as
//! long. After a lost response, one read determines the result; if it cannot, the next write begins with a read. The
//! digest of the body is in an annotation of the object, one per manager, because an object that contains all of the
//! body may also contain a field that was removed from the body since.

use podium_engine::ports::Sender;
use podium_pods::model::WriteResult;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    answer::{self, ErrorClass},
    applied::{Applied, DeletionState, Name, ObjectState, Removal, WriteEnd},
    digest::Digest,
    http,
    owners::Reference,
    plan::Request,
};
use crate::api::{Api, ApiError};

/// The most bytes of an object that are parsed. The API server stores objects of at most 1.5 MiB, and adds
/// managedFields within that.
const MAX_OBJECT_BYTES: usize = 4 << 20;

pub(super) struct Objects {
    applied: Applied,
}

impl Objects {
    pub(super) fn new() -> Self {
        Self { applied: Applied::default() }
    }

    /// Sends a planned request for an object that is not a Pod, and takes its body. The flag is true if a write was
    /// sent; `reads` counts the reads. An applied object gets `owner`.
    pub(super) async fn send(
        &self,
        api: &Api,
        sender: &Sender,
        request: &mut Request,
        owner: Option<&Reference>,
        reads: &mut u32,
    ) -> (Result<WriteResult, ErrorClass>, bool) {
        let Some(object) = request.object() else {
            return (Ok(WriteResult::Invalid("not an object of another kind".to_owned())), false);
        };
        let target =
            Target { api, sender, path: http::object_path(object), name: (sender.manager.clone(), object.clone()) };
        if let Request::Apply { body, .. } = request {
            let (body, digest) = complete(std::mem::take(body), owner, sender);
            self.apply(&target, request, &body, digest, reads).await
        } else {
            self.delete(&target, request, reads).await
        }
    }

    async fn apply(
        &self,
        target: &Target<'_>,
        request: &Request,
        body: &Value,
        digest: Digest,
        reads: &mut u32,
    ) -> (Result<WriteResult, ErrorClass>, bool) {
        let known = self.applied.known(&target.name, digest, Instant::now());
        if known == ObjectState::Applied {
            return (Ok(WriteResult::Unchanged), false);
        }
        let sending = self.applied.begin(&target.name);
        let began = Instant::now();
        if known != ObjectState::Different {
            match target.live(reads).await {
                Live::Object(live) if is_as(&live, body) => {
                    sending.end(WriteEnd::Applied(digest, began));
                    return (Ok(WriteResult::Unchanged), false);
                }
                Live::Unreadable if known == ObjectState::Lost => return (Err(ErrorClass::Unreachable), false),
                _ => {}
            }
        }
        let wire = match http::apply(&target.path, body, target.sender) {
            Ok(wire) => wire,
            Err(error) => return (Ok(WriteResult::Invalid(error.to_string())), false),
        };
        let (result, end) = match target.api.bytes(wire).await {
            Ok(_) => (Ok(WriteResult::Applied), WriteEnd::Applied(digest, began)),
            Err(error) => match answer::classify(request, &error) {
                ErrorClass::Ambiguous => match target.live(reads).await {
                    Live::Object(live) if is_as(&live, body) => {
                        (Ok(WriteResult::Applied), WriteEnd::Applied(digest, began))
                    }
                    _ => (Err(ErrorClass::Ambiguous), WriteEnd::Lost(Instant::now())),
                },
                class => (Err(class), WriteEnd::Other),
            },
        };
        sending.end(end);
        (result, true)
    }

    async fn delete(
        &self,
        target: &Target<'_>,
        request: &Request,
        reads: &mut u32,
    ) -> (Result<WriteResult, ErrorClass>, bool) {
        let uid = match request {
            Request::DeleteObject { uid, .. } => uid.clone(),
            _ => None,
        };
        let known = self.applied.known_deletion(&target.name, uid.as_deref(), Instant::now());
        if let DeletionState::Removed { is_gone } = known {
            return (Ok(if is_gone { WriteResult::Gone } else { WriteResult::Unchanged }), false);
        }
        let sending = self.applied.begin(&target.name);
        let began = Instant::now();
        let removed = |is_gone| WriteEnd::Removed(Removal { uid: uid.clone(), is_gone }, began);
        if known == DeletionState::Lost {
            match removal(&target.live(reads).await, uid.as_deref()) {
                AfterDeletion::Gone => {
                    sending.end(removed(true));
                    return (Ok(WriteResult::Gone), false);
                }
                AfterDeletion::Deleting => {
                    sending.end(removed(false));
                    return (Ok(WriteResult::Unchanged), false);
                }
                AfterDeletion::Nothing => return (Err(ErrorClass::Unreachable), false),
                AfterDeletion::Present | AfterDeletion::Hidden => {}
            }
        }
        let wire = match http::delete_object(&target.path, uid.as_deref(), target.sender) {
            Ok(wire) => wire,
            Err(error) => return (Ok(WriteResult::Invalid(error.to_string())), false),
        };
        let (result, end) = match target.api.bytes(wire).await {
            Ok(_) => (Ok(WriteResult::Applied), removed(false)),
            Err(error) => match (answer::classify(request, &error), &uid) {
                (ErrorClass::Final(WriteResult::Gone, wait), _) => {
                    (Err(ErrorClass::Final(WriteResult::Gone, wait)), removed(true))
                }
                // A refusal without a precondition has another reason than the uid.
                (ErrorClass::Contested, Some(wanted)) => match removal(&target.live(reads).await, Some(wanted)) {
                    AfterDeletion::Gone => (Ok(WriteResult::Gone), removed(true)),
                    _ => (Ok(WriteResult::Conflict), WriteEnd::Other),
                },
                (ErrorClass::Ambiguous, _) => match removal(&target.live(reads).await, uid.as_deref()) {
                    AfterDeletion::Gone => (Ok(WriteResult::Gone), removed(true)),
                    AfterDeletion::Deleting => (Ok(WriteResult::Applied), removed(false)),
                    _ => (Err(ErrorClass::Ambiguous), WriteEnd::Lost(Instant::now())),
                },
                (class, _) => (Err(class), WriteEnd::Other),
            },
        };
        sending.end(end);
        (result, true)
    }
}

/// An object of another kind, and the plugin that writes to it.
struct Target<'a> {
    api: &'a Api,
    sender: &'a Sender,
    path: String,
    name: Name,
}

/// The answer of a read.
enum Live {
    Object(Value),
    Absent,
    /// The account may write to the object and not read it.
    Forbidden,
    /// The API server is unreachable or overloaded, or its answer is no object.
    Unreadable,
}

/// A read after a deletion whose result is not known.
#[derive(PartialEq)]
enum AfterDeletion {
    /// The incarnation no longer exists.
    Gone,
    /// It is being deleted.
    Deleting,
    Present,
    /// The account may not read it.
    Hidden,
    Nothing,
}

impl Target<'_> {
    /// Reads the object as the plugin's account.
    async fn live(&self, reads: &mut u32) -> Live {
        let Ok(request) = http::get(&self.path, self.sender) else { return Live::Unreadable };
        *reads += 1;
        match self.api.bytes(request).await {
            Ok(answer) if answer.len() <= MAX_OBJECT_BYTES => match serde_json::from_slice(&answer) {
                Ok(live @ Value::Object(_)) => Live::Object(live),
                _ => Live::Unreadable,
            },
            Err(ApiError::Status { code: 404, .. }) => Live::Absent,
            Err(ApiError::Status { code: 403, .. }) => Live::Forbidden,
            _ => Live::Unreadable,
        }
    }
}

/// Returns what a read shows of the deletion of the object with this uid, or with any.
fn removal(live: &Live, uid: Option<&str>) -> AfterDeletion {
    let live = match live {
        Live::Object(live) => &live["metadata"],
        Live::Absent => return AfterDeletion::Gone,
        Live::Forbidden => return AfterDeletion::Hidden,
        Live::Unreadable => return AfterDeletion::Nothing,
    };
    match (live["uid"].as_str(), uid) {
        (None, _) => AfterDeletion::Nothing,
        (Some(held), Some(uid)) if held != uid => AfterDeletion::Gone,
        _ if live["deletionTimestamp"].is_null() => AfterDeletion::Present,
        _ => AfterDeletion::Deleting,
    }
}

/// Returns true if the object exists as the body specifies, with the digest in it.
fn is_as(live: &Value, body: &Value) -> bool {
    live["metadata"]["deletionTimestamp"].is_null() && answer::contains(live, body)
}

/// Returns the complete body, with the owner and the digest of both.
fn complete(mut body: Value, owner: Option<&Reference>, sender: &Sender) -> (Value, Digest) {
    if let Some(Reference { api_version, kind, name, uid }) = owner {
        body["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid }]);
    }
    let digest = Digest::of(&[&sender.manager, &body.to_string()]);
    let annotation = format!("podium.dev/applied-{}", Digest::of(&[&sender.manager]).hex());
    if !body["metadata"]["annotations"].is_object() {
        body["metadata"]["annotations"] = json!({});
    }
    body["metadata"]["annotations"][annotation] = json!(digest.hex());
    (body, digest)
}
