//! Objects of other kinds: server-side apply of the complete object, sent when it differs from what was applied last.
//!
//! They are not cached. What a plugin applied is remembered by digest for [`TRUSTED_MILLIS`]; afterwards, and after a
//! restart, one read tells whether the object still is as applied, so that an unchanged cluster sees no write. The
//! digest of the body stands in an annotation of the object, one per manager, because a live object that holds all of
//! the body may also hold a field that the body has lost since.

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    api::{Api, ApiError},
    model::{ObjectRef, PodKey, WriteResult},
    seam::Sender,
};

use super::{
    answer::{self, Verdict},
    digest::Digest,
    discovery::{Discovery, PathError},
    http,
    memory::Memory,
    plan::Request,
};

/// How long an object is taken to be as applied without a look: somebody may have deleted or changed it.
const TRUSTED_MILLIS: u64 = 600_000;
/// Objects remembered, of all plugins; some 200 bytes each.
const MAX_OBJECTS: usize = 16_384;

#[derive(Debug, Clone, Copy)]
struct Applied {
    digest: Digest,
    at_millis: u64,
}

pub(super) struct Objects {
    discovery: Discovery,
    applied: Mutex<Memory<(String, ObjectRef), Applied>>,
}

impl Objects {
    pub(super) fn new() -> Self {
        Self { discovery: Discovery::new(), applied: Mutex::new(Memory::new(MAX_OBJECTS)) }
    }

    /// Sends a request of the plan for an object that is no Pod, and takes the body out of it. The flag tells whether a write went out.
    pub(super) async fn send(
        &self,
        api: &Api,
        sender: &Sender,
        request: &mut Request,
        now_millis: u64,
    ) -> (Result<WriteResult, Verdict>, bool) {
        let (Request::Apply { object, .. } | Request::DeleteObject { object, .. }) = &*request else {
            return (Ok(WriteResult::Invalid("not an object of another kind".to_owned())), false);
        };
        let path = match self.discovery.path(api, object, sender).await {
            Ok(path) => path,
            Err(PathError::Unserved(text)) => return (Ok(WriteResult::Invalid(text)), false),
            // A lost answer to a question leaves nothing done.
            Err(PathError::Api(error)) => return (unasked(request, &error), false),
        };
        let remembered = (sender.manager.clone(), object.clone());
        match request {
            Request::DeleteObject { uid, .. } => {
                self.applied.lock().remove(&remembered);
                let wire = match http::delete_object(&path, uid.as_deref(), sender) {
                    Ok(wire) => wire,
                    Err(error) => return (Ok(WriteResult::Invalid(error.to_string())), false),
                };
                let uid = uid.clone();
                let verdict = match api.bytes(wire).await {
                    Ok(_) => Ok(WriteResult::Applied),
                    Err(error) => match (answer::judge(request, &error), uid) {
                        (Verdict::Contested, Some(uid)) => Ok(who(api, sender, &path, &uid).await),
                        (verdict, _) => Err(verdict),
                    },
                };
                (verdict, true)
            }
            Request::Apply { body, owner, .. } => {
                let (body, digest) = complete(std::mem::take(body), owner.as_ref(), sender);
                let held = self.applied.lock().get(&remembered).copied();
                let fresh = held.is_some_and(|held| {
                    held.digest == digest && now_millis.saturating_sub(held.at_millis) < TRUSTED_MILLIS
                });
                if fresh {
                    return (Ok(WriteResult::Unchanged), false);
                }
                let applied = Applied { digest, at_millis: now_millis };
                // What is known to differ needs no look.
                if held.is_none_or(|held| held.digest == digest) && is_live(api, sender, &path, &body).await {
                    *self.applied.lock().entry(&remembered, || applied) = applied;
                    return (Ok(WriteResult::Unchanged), false);
                }
                let wire = match http::apply(&path, &body, sender) {
                    Ok(wire) => wire,
                    Err(error) => return (Ok(WriteResult::Invalid(error.to_string())), false),
                };
                let verdict = match api.json(wire).await {
                    Ok(_) => Ok(WriteResult::Applied),
                    Err(error) => match answer::judge(request, &error) {
                        Verdict::Ambiguous if is_live(api, sender, &path, &body).await => Ok(WriteResult::Applied),
                        verdict => Err(verdict),
                    },
                };
                if verdict == Ok(WriteResult::Applied) {
                    *self.applied.lock().entry(&remembered, || applied) = applied;
                }
                (verdict, true)
            }
            _ => (Ok(WriteResult::Invalid("not an object of another kind".to_owned())), false),
        }
    }
}

fn unasked(request: &Request, error: &ApiError) -> Result<WriteResult, Verdict> {
    match answer::judge(request, error) {
        Verdict::Ambiguous => Ok(WriteResult::NotSent),
        verdict => Err(verdict),
    }
}

/// The body as it is sent: with the owner, and with the digest of all that.
fn complete(mut body: Value, owner: Option<&PodKey>, sender: &Sender) -> (Value, Digest) {
    if let Some(owner) = owner {
        body["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": *owner.name, "uid": *owner.uid,
        }]);
    }
    let digest = Digest::of(&[&sender.manager, &body.to_string()]);
    let annotation = format!("podium.dev/applied-{}", Digest::of(&[&sender.manager]).short());
    if !body["metadata"]["annotations"].is_object() {
        body["metadata"]["annotations"] = json!({});
    }
    body["metadata"]["annotations"][annotation] = json!(digest.short());
    (body, digest)
}

/// The one read after a contested deletion of the object with this uid.
async fn who(api: &Api, sender: &Sender, path: &str, uid: &str) -> WriteResult {
    let Ok(request) = http::get(path, sender) else { return WriteResult::Conflict };
    match api.json(request).await {
        Ok(live) => answer::contested(live["metadata"]["uid"].as_str(), uid),
        Err(ApiError::Status { code: 404, .. }) => WriteResult::Gone,
        Err(_) => WriteResult::Conflict,
    }
}

/// Whether the object is there as the body says; when it cannot be read, it is not known to be.
async fn is_live(api: &Api, sender: &Sender, path: &str, body: &Value) -> bool {
    let Ok(request) = http::get(path, sender) else { return false };
    api.json(request)
        .await
        .is_ok_and(|live| live["metadata"]["deletionTimestamp"].is_null() && answer::holds(&live, body))
}
