//! The top workload of a Pod, as the owner of applied objects: the end of the chain of controller references, each of
//! which is followed by a GET of the object's metadata as the plugin's account.
//!
//! The owner must be the same for all Pods of a workload, and in every run: an apply with another owner replaces the
//! first one. So a chain that cannot be followed to an object that outlives a rollout is an error, and never ends at
//! the Pod instead.
//!
//! References are data of whoever wrote the Pod or the workload: their names become parts of a path, so they are
//! checked, and the object that the API server returns must have the uid of the reference.

use std::{num::NonZeroUsize, time::Duration};

use parking_lot::Mutex;
use podium_api::{Api, ApiError, resource_path};
use podium_engine::ports::Sender;
use podium_vocabulary::{
    PodKey, WriteResult,
    syntax::{api_version, dns_subdomain, quoted, uid},
    text,
};
use podium_wire::Owner;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    answer::ErrorClass,
    http,
    shares::{OfTenant, Shares},
};

/// How long an object's controller is assumed to be as it was read; it changes when the object is orphaned or adopted.
const TRUSTED: Duration = Duration::from_secs(600);
/// How long an object that could not be read is not read again. Rights and kinds are added by people.
const REFUSED: Duration = Duration::from_secs(30);
/// The most objects that are remembered, of all plugins; 300 bytes to 2 KiB each.
const MAX_OBJECTS: NonZeroUsize = NonZeroUsize::new(8_192).unwrap(); // not 0: the compiler evaluates it
/// The most controllers above a Pod. Kubernetes' own kinds have 2.
const MAX_STEPS: usize = 8;
/// The longest kind, and with it the longest resource; the API server accepts 63 bytes.
const MAX_KIND_BYTES: usize = 63;
/// The most bytes of an object's metadata that are parsed. The API server stores objects of at most 1.5 MiB, and adds
/// managedFields within that.
const MAX_METADATA_BYTES: usize = 4 << 20;
/// The most bytes of a text in a report.
const MAX_TEXT_BYTES: usize = 1 << 10;

/// An object as an owner reference names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Reference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
}

/// The objects that were read, by account, namespace and reference.
pub(super) struct Owners {
    read: Mutex<Shares<Key, (ReadOwner, Instant)>>,
}

type Key = (Option<String>, String, Reference);

/// The namespace of the objects, also if a plugin of the cluster reads them.
impl OfTenant for Key {
    fn tenant(&self) -> &str {
        &self.1
    }
}

/// The result of one read.
#[derive(Debug, Clone, PartialEq)]
enum ReadOwner {
    /// The object exists, with this controller.
    Object(Option<Reference>),
    /// The account may not read it; the API server's message.
    Forbidden(String),
    /// The kind has no such objects in namespaces.
    NotServed,
}

/// The metadata that a chain consists of.
#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: String,
    name: String,
    uid: String,
    deletion_timestamp: Option<String>,
    #[serde(default)]
    owner_references: Vec<WireReference>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireReference {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    #[serde(default)]
    controller: bool,
}

impl Reference {
    pub(super) fn of_pod(pod: &PodKey) -> Self {
        let api_version = "v1".to_owned();
        let kind = "Pod".to_owned();
        Self { api_version, kind, name: pod.name.to_string(), uid: pod.uid.to_string() }
    }

    /// Returns the reference to the controller among the owners.
    pub(super) fn of_controller(owners: Vec<Owner>) -> Option<Self> {
        let controller = owners.into_iter().find(|owner| owner.controller)?;
        let Owner { api_version, kind, name, uid, .. } = controller;
        Some(Self { api_version, kind, name, uid })
    }

    /// # Errors
    /// Returns the reason why the reference cannot be followed.
    fn check(&self) -> Result<(), String> {
        let begins = self.kind.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
        let is_kind = self.kind.len() <= MAX_KIND_BYTES && self.kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let kind = if begins && is_kind { Ok(()) } else { Err("is not a kind") };
        for (part, text, result) in [
            ("apiVersion", &self.api_version, api_version(&self.api_version)),
            ("kind", &self.kind, kind),
            ("name", &self.name, dns_subdomain(&self.name)),
            ("uid", &self.uid, uid(&self.uid)),
        ] {
            result.map_err(|reason| format!("the {part} {} of a controller reference {reason}", quoted(text)))?;
        }
        Ok(())
    }

    fn group(&self) -> &str {
        self.api_version.split_once('/').map_or("", |(group, _)| group)
    }

    /// Returns true for a kind of the cluster's that is the controller of mirror Pods.
    fn is_node(&self) -> bool {
        self.api_version == "v1" && self.kind == "Node"
    }

    /// Returns true for a kind that its controller replaces with each rollout.
    fn is_of_rollouts(&self) -> bool {
        matches!((self.group(), &*self.kind), ("apps" | "extensions", "ReplicaSet") | ("", "ReplicationController"))
    }

    /// Another plural is not found, and never a wrong object, because uids are compared.
    fn resource(&self) -> String {
        text::plural(&self.kind)
    }

    /// Returns the rule of RBAC that a read needs.
    fn rule(&self, namespace: &str) -> String {
        format!("get on {} in API group \"{}\" in the namespace {namespace}", self.resource(), self.group())
    }
}

impl Owners {
    pub(super) fn new() -> Self {
        Self { read: Mutex::new(Shares::new(MAX_OBJECTS)) }
    }

    /// Returns the top workload of a Pod that has this controller. `reads` counts the requests. With `fresh`, nothing
    /// that was read before is trusted.
    ///
    /// # Errors
    /// Returns the result of the write that needs the owner.
    pub(super) async fn workload(
        &self,
        api: &Api,
        sender: &Sender,
        pod: &PodKey,
        controller: Option<&Reference>,
        fresh: bool,
        reads: &mut u32,
    ) -> Result<Reference, ErrorClass> {
        let mut owner: Option<Reference> = None;
        let mut next = controller.cloned().filter(|controller| !controller.is_node());
        let mut steps = 0;
        while let Some(reference) = next {
            steps += 1;
            if steps > MAX_STEPS {
                let text = format!("the Pod has more than {MAX_STEPS} controllers one above the other");
                return Err(invalid(&text));
            }
            let key = (sender.impersonate.clone(), pod.namespace.to_string(), reference.clone());
            if fresh && let Some(of) = self.read.lock().get_mut(&key) {
                of.pop(&key);
            }
            let obstacle = match self.known(api, sender, &pod.namespace, &reference, reads).await? {
                ReadOwner::Object(above) => {
                    owner = Some(reference);
                    next = above.filter(|above| !above.is_node());
                    continue;
                }
                ReadOwner::Forbidden(message) => {
                    let rule = reference.rule(&pod.namespace);
                    let text = format!("an owner of the Pod's workload needs {rule}: {message}");
                    WriteResult::Forbidden(text::bounded(&text, MAX_TEXT_BYTES))
                }
                ReadOwner::NotServed => {
                    let Reference { api_version, kind, .. } = &reference;
                    let resource = reference.resource();
                    let text = format!("{resource} of {api_version} are not served with a namespace, so the {kind}");
                    WriteResult::Invalid(format!("{text} that controls the Pod's workload cannot own an object"))
                }
            };
            // The chain above this object is unknown, so the object is the owner unless a rollout replaces it.
            match owner {
                Some(last) if !last.is_of_rollouts() => return Ok(last),
                _ => return Err(ErrorClass::Final(obstacle, None)),
            }
        }
        Ok(owner.unwrap_or_else(|| Reference::of_pod(pod)))
    }

    /// Returns the result of the last read of an object, or of a read now.
    async fn known(
        &self,
        api: &Api,
        sender: &Sender,
        namespace: &str,
        reference: &Reference,
        reads: &mut u32,
    ) -> Result<ReadOwner, ErrorClass> {
        reference.check().map_err(|reason| invalid(&reason))?;
        let key = (sender.impersonate.clone(), namespace.to_owned(), reference.clone());
        let now = Instant::now();
        let held = self.read.lock().get_mut(&key).and_then(|of| of.get(&key)).cloned();
        if let Some((known, at)) = held {
            let trusted = if matches!(known, ReadOwner::Object(_)) { TRUSTED } else { REFUSED };
            if now.saturating_duration_since(at) < trusted {
                return Ok(known);
            }
        }
        *reads += 1;
        let known = read(api, sender, namespace, reference).await?;
        self.read.lock().with_room(&key).put(key, (known.clone(), now));
        Ok(known)
    }
}

async fn read(api: &Api, sender: &Sender, namespace: &str, reference: &Reference) -> Result<ReadOwner, ErrorClass> {
    let Reference { api_version, name, .. } = reference;
    let path = format!("{}/{name}", resource_path(api_version, Some(namespace), &reference.resource()));
    let request = http::get_metadata(&path, sender).map_err(|error| invalid(&error.to_string()))?;
    let answer = match api.bytes(request).await {
        Ok(answer) => answer,
        Err(ApiError::Status { code: 403, message, .. }) => return Ok(ReadOwner::Forbidden(message)),
        Err(ApiError::Status { code: 404, object: None, .. }) => return Ok(ReadOwner::NotServed),
        Err(ApiError::Status { code: 404, .. }) => return Err(ErrorClass::Final(WriteResult::Gone, None)),
        Err(ApiError::Status { retry_after, .. }) => return Err(ErrorClass::Busy(retry_after)),
        Err(ApiError::Held(wait)) => return Err(ErrorClass::Busy(Some(wait))),
        Err(_) => return Err(ErrorClass::Unreachable),
    };
    let small = Some(&answer).filter(|answer| answer.len() <= MAX_METADATA_BYTES);
    let object = small.and_then(|answer| serde_json::from_slice::<Object>(answer).ok());
    let wrong = || invalid(&format!("the API server's answer is not the {} that was asked for", reference.kind));
    let Object { metadata } = object.ok_or_else(wrong)?;
    if metadata.namespace != namespace || metadata.name != *name {
        return Err(wrong());
    }
    // Another object of the same name, or one whose dependents are deleted too.
    if metadata.uid != reference.uid || metadata.deletion_timestamp.is_some() {
        return Err(ErrorClass::Final(WriteResult::Gone, None));
    }
    let controller = metadata.owner_references.into_iter().find(|owner| owner.controller);
    let controller = controller.map(|WireReference { api_version, kind, name, uid, .. }| {
        let reference = Reference { api_version, kind, name, uid };
        reference.check().map(|()| reference).map_err(|reason| invalid(&reason))
    });
    Ok(ReadOwner::Object(controller.transpose()?))
}

fn invalid(text: &str) -> ErrorClass {
    ErrorClass::Final(WriteResult::Invalid(text::bounded(text, MAX_TEXT_BYTES)), None)
}
