//! Objects of other kinds: server-side apply of the complete object, sent if it differs from the last applied one.
//!
//! Objects are not cached. An applied object is remembered by its digest ([`Applied`]); later, and after a restart,
//! one read shows whether it is still as applied, so an unchanged cluster causes no writes. The digest of the body is
//! in an annotation of the object, one per manager, because an object that contains all of the body may also contain
//! a field that was removed from the body since.

use podium_engine::ports::Sender;
use podium_pods::model::WriteResult;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    answer::{self, ErrorClass},
    applied::{Applied, End, ObjectState},
    digest::Digest,
    http,
    owners::Reference,
    plan::Request,
};
use crate::api::{Api, ApiError};

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
        let (Request::Apply { object, .. } | Request::DeleteObject { object, .. }) = &*request else {
            return (Ok(WriteResult::Invalid("not an object of another kind".to_owned())), false);
        };
        let path = http::object_path(object);
        let name = (sender.manager.clone(), object.clone());
        match request {
            Request::DeleteObject { uid, .. } => {
                let wire = match http::delete_object(&path, uid.as_deref(), sender) {
                    Ok(wire) => wire,
                    Err(error) => return (Ok(WriteResult::Invalid(error.to_string())), false),
                };
                let uid = uid.clone();
                let sending = self.applied.begin(&name);
                let answer = api.bytes(wire).await;
                let class = answer.as_ref().err().map(|error| answer::classify(request, error));
                sending.end(if class == Some(ErrorClass::Ambiguous) { End::Lost(Instant::now()) } else { End::Other });
                let result = match (class, uid) {
                    (None, _) => Ok(WriteResult::Applied),
                    (Some(ErrorClass::Contested), Some(uid)) => {
                        *reads += 1;
                        Ok(check_uid(api, sender, &path, &uid).await)
                    }
                    (Some(class), _) => Err(class),
                };
                (result, true)
            }
            Request::Apply { body, .. } => {
                let (body, digest) = complete(std::mem::take(body), owner, sender);
                let known = self.applied.known(&name, digest, Instant::now());
                if known == ObjectState::Applied {
                    return (Ok(WriteResult::Unchanged), false);
                }
                let sending = self.applied.begin(&name);
                let began = Instant::now();
                *reads += u32::from(known == ObjectState::Unknown);
                if known == ObjectState::Unknown && is_live(api, sender, &path, &body).await {
                    sending.end(End::Applied(digest, began));
                    return (Ok(WriteResult::Unchanged), false);
                }
                let wire = match http::apply(&path, &body, sender) {
                    Ok(wire) => wire,
                    Err(error) => return (Ok(WriteResult::Invalid(error.to_string())), false),
                };
                let answer = api.bytes(wire).await;
                let (result, end) = match answer {
                    Ok(_) => (Ok(WriteResult::Applied), End::Applied(digest, began)),
                    Err(error) => match answer::classify(request, &error) {
                        ErrorClass::Ambiguous => {
                            *reads += 1;
                            if is_live(api, sender, &path, &body).await {
                                (Ok(WriteResult::Applied), End::Applied(digest, began))
                            } else {
                                (Err(ErrorClass::Ambiguous), End::Lost(Instant::now()))
                            }
                        }
                        class => (Err(class), End::Other),
                    },
                };
                sending.end(end);
                (result, true)
            }
            _ => (Ok(WriteResult::Invalid("not an object of another kind".to_owned())), false),
        }
    }
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

/// The read after a contested deletion of the object with this uid.
async fn check_uid(api: &Api, sender: &Sender, path: &str, uid: &str) -> WriteResult {
    let Ok(request) = http::get(path, sender) else { return WriteResult::Conflict };
    match api.json(request).await {
        Ok(live) => answer::contested(live["metadata"]["uid"].as_str(), uid),
        Err(ApiError::Status { code: 404, .. }) => WriteResult::Gone,
        Err(_) => WriteResult::Conflict,
    }
}

/// Returns true if the object exists as the body specifies, and false if it cannot be read.
async fn is_live(api: &Api, sender: &Sender, path: &str, body: &Value) -> bool {
    let Ok(request) = http::get(path, sender) else { return false };
    api.json(request)
        .await
        .is_ok_and(|live| live["metadata"]["deletionTimestamp"].is_null() && answer::holds(&live, body))
}
