//! The replicas of objects of other kinds: the subresource `scale` is read, and patched if it has another number.
//!
//! The patch names the revision that was read, so it changes nothing if another client was faster. After a lost
//! response another read determines the result.

use podium_api::{Api, ApiError};
use podium_engine::ports::{Sender, Sent};
use podium_vocabulary::{ObjectRef, WriteResult};
use serde::Deserialize;
use serde_json::json;

use super::{
    answer::{self, ErrorClass},
    http,
    objects::Objects,
    plan::Request,
};

/// The subresource, as far as it decides.
#[derive(Deserialize)]
struct Scale {
    metadata: Metadata,
    spec: Option<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    resource_version: String,
}

#[derive(Deserialize)]
struct Spec {
    /// Left out for 0; a custom resource may have a number below it.
    replicas: Option<i64>,
}

impl Scale {
    fn has(&self, replicas: u32) -> bool {
        let present = self.spec.as_ref().and_then(|spec| spec.replicas);
        present.unwrap_or_default() == i64::from(replicas)
    }
}

/// Sets the replicas of an object as the plugin's account.
pub(super) async fn send(
    api: &Api,
    sender: &Sender,
    objects: &Objects,
    object: &ObjectRef,
    replicas: u32,
    sent: &mut Sent,
) -> Result<WriteResult, ErrorClass> {
    let resource = format!("{}/scale", object.resource);
    // For messages: without a path the subresource is missing.
    let request = Request::Scale { object: ObjectRef { resource, ..object.clone() }, replicas };
    let path = format!("{}/scale", http::object_path(object));
    let scale = match read(api, sender, object, &path, sent).await {
        Ok(Some(scale)) => scale,
        Ok(None) => {
            let message = format!("the API server's answer is no Scale of {object}; correct apiVersion and resource");
            return Ok(WriteResult::Invalid(message));
        }
        // Of this object only: a custom resource without replicas, for example.
        Err(ApiError::Status { code: 500, reason: Some(reason), retry_after: None, message, .. })
            if reason == "InternalError" =>
        {
            return Ok(WriteResult::Invalid(message));
        }
        Err(error) => {
            return Err(match answer::classify(&request, &error) {
                // A custom resource without the subresource is answered in the same words as one that is absent.
                ErrorClass::Final(WriteResult::Gone, _) if exists(api, sender, object, sent).await => {
                    let message = format!("{object} has no subresource scale; its definition has to have one");
                    return Ok(WriteResult::Invalid(message));
                }
                // Nothing was written.
                ErrorClass::Ambiguous | ErrorClass::Contested => ErrorClass::Unreachable,
                class @ (ErrorClass::Final(..) | ErrorClass::Busy(_) | ErrorClass::Unreachable) => class,
            });
        }
    };
    if scale.has(replicas) {
        return Ok(WriteResult::Unchanged);
    }
    let metadata = json!({ "resourceVersion": scale.metadata.resource_version });
    let body = json!({ "metadata": metadata, "spec": { "replicas": replicas } });
    let wire = match http::merge(&path, &body, sender) {
        Ok(wire) => wire,
        Err(error) => return Ok(WriteResult::Invalid(error.to_string())),
    };
    sent.requests += 1;
    let _sending = objects.scale(sender, object);
    let Err(error) = api.bytes(wire).await else { return Ok(WriteResult::Applied) };
    match answer::classify(&request, &error) {
        ErrorClass::Ambiguous => match read(api, sender, object, &path, sent).await {
            Ok(Some(scale)) if scale.has(replicas) => Ok(WriteResult::Applied),
            _ => Err(ErrorClass::Ambiguous),
        },
        class @ (ErrorClass::Final(..) | ErrorClass::Busy(_) | ErrorClass::Unreachable | ErrorClass::Contested) => {
            Err(class)
        }
    }
}

/// Returns true if the object is there, and the account may get it.
async fn exists(api: &Api, sender: &Sender, object: &ObjectRef, sent: &mut Sent) -> bool {
    let Ok(request) = http::get_metadata(&http::object_path(object), sender) else { return false };
    sent.reads += 1;
    api.bytes(request).await.is_ok()
}

/// Returns the subresource, or `None` if the answer is not that of the object.
async fn read(
    api: &Api,
    sender: &Sender,
    object: &ObjectRef,
    path: &str,
    sent: &mut Sent,
) -> Result<Option<Scale>, ApiError> {
    let Ok(request) = http::get(path, sender) else { return Ok(None) };
    sent.reads += 1;
    let answer = api.bytes(request).await?;
    let scale: Option<Scale> = serde_json::from_slice(&answer).ok();
    Ok(scale.filter(|scale| scale.metadata.name == object.name))
}
