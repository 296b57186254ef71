//! Objects of other kinds: server-side apply of the complete object, sent if it differs from the last applied one, and
//! deletion, sent once.
//!
//! Objects are not cached. An applied object is remembered by its digest ([`Applied`]); later, and after a restart,
//! one read shows whether it is still as applied, so an unchanged cluster causes no writes. A deletion is remembered as
//! long. After a lost response, one read determines the result; if it cannot, the next write begins with a read. The
//! digest of the body is in an annotation of the object, one per manager, because an object that contains all of the
//! body may also contain a field that was removed from the body since.
//!
//! An object that the plugin's apply created belongs to the plugin: its next applies are forced, so that another
//! client's edit of a field is undone as its deletion is. The annotation records it, and a forced apply names the
//! uid. Any other object is applied without force, and a field of another manager is a conflict, unless the grant has
//! `force: true`: then the apply is repeated with force, and the fields are reported; the object stays the other
//! client's. Whoever may edit an object can forge the annotation and the manager's name with it, and gains an apply of
//! the plugin, with the rights of its account, that takes fields of this object.
//!
//! Every applied object has a label by which a watch finds those of a plugin (`children`).

use std::collections::{BTreeMap, BTreeSet};

use podium_api::{Api, ApiError};
use podium_engine::ports::{Sender, Sent, Taken};
use podium_vocabulary::{ObjectGrant, ObjectRef, WriteResult, json};
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;

use super::{
    answer::{self, ErrorClass},
    applied::{Applied, DeletionState, Name, ObjectState, Removal, Sending, WriteEnd},
    children::{ChangedChild, Child, Entry, Object, Origin, Seen, Shown, label},
    digest::Digest,
    http,
    owners::Reference,
    plan::Request,
};

/// The text behind the digest in the annotation of an object that the plugin's apply created.
const CREATED: &str = ",created";

pub(super) struct Objects {
    applied: Applied,
}

impl Objects {
    pub(super) fn new() -> Self {
        Self { applied: Applied::default() }
    }

    /// Begins a patch of an object's replicas. It is not remembered any more as the plugin applied it, because its
    /// watch would show the patch as the change of another client.
    pub(super) fn scale(&self, sender: &Sender, object: &ObjectRef) -> Sending<'_> {
        self.applied.begin(&(sender.manager.clone(), object.clone()), None, Origin::default())
    }

    /// Records what a watch shows of an object of a plugin: its metadata, or that it was deleted.
    pub(super) fn see(&self, manager: &str, kind: &ObjectGrant, child: &Child, deleted: bool) {
        let seen = if deleted { child.deleted() } else { child.present() };
        self.applied.see(&child.name_of(manager, kind), seen);
    }

    /// Records that a list has these objects of a plugin, and no others of the kind if it is complete.
    pub(super) fn see_all(&self, manager: &str, kind: &ObjectGrant, children: &[Child]) {
        let mut end = None;
        let mut listed = BTreeSet::new();
        for child in children {
            match child.list_end() {
                Some(revision) => end = Some(revision),
                None => {
                    let name = child.name_of(manager, kind);
                    self.applied.see(&name, child.present());
                    listed.insert(name);
                }
            }
        }
        let Some(revision) = end else { return };
        let is_kind = |object: &ObjectRef| object.api_version == kind.api_version && object.kind == kind.kind;
        for name in self.applied.names(manager, is_kind) {
            if !listed.contains(&name) {
                self.applied.see(&name, Seen::Deleted(revision));
            }
        }
    }

    /// Returns true if another client has changed the object since the plugin applied it.
    pub(super) fn is_changed(&self, sender: &Sender, request: &Request) -> bool {
        let name = request.object().map(|object| (sender.manager.clone(), object.clone()));
        name.is_some_and(|name| self.applied.is_changed(&name))
    }

    /// See [`Applied::next_changed`].
    pub(super) async fn next_changed(&self) -> ChangedChild {
        self.applied.next_changed().await
    }

    /// Sends a planned request for an object that is not a Pod, and takes its body. `sent` counts the writes and reads.
    pub(super) async fn send(
        &self,
        api: &Api,
        sender: &Sender,
        way: Way,
        request: &mut Request,
        sent: &mut Sent,
    ) -> Result<WriteResult, ErrorClass> {
        let Some(object) = request.object() else {
            return Ok(WriteResult::Invalid("not an object of another kind".to_owned()));
        };
        let target = Target {
            api,
            sender,
            path: http::object_path(object),
            name: (sender.manager.clone(), object.clone()),
            mark: format!("podium.dev/applied-{}", Digest::new(&[&sender.manager]).hex()),
            takes: way.takes,
        };
        if let Request::Apply { body, .. } = request {
            let (body, digest) = complete(std::mem::take(body), way.owner.as_ref(), sender);
            self.apply(&target, request, body, digest, way.origin, sent).await
        } else {
            self.delete(&target, request, sent).await
        }
    }

    async fn apply(
        &self,
        target: &Target<'_>,
        request: &Request,
        mut body: Value,
        digest: Digest,
        origin: Origin,
        sent: &mut Sent,
    ) -> Result<WriteResult, ErrorClass> {
        let known = self.applied.known(&target.name, digest, &origin, Instant::now());
        if known == ObjectState::Applied {
            return Ok(WriteResult::Unchanged);
        }
        let sending = self.applied.begin(&target.name, Some(digest), origin);
        let remembered = matches!(known, ObjectState::Different(_));
        let (mut result, mut end) = target.apply(request, &mut body, digest, known, sent).await;
        // The incarnation that was remembered is gone, and a read shows which one has its name now.
        if remembered && result == Err(ErrorClass::Contested) {
            (result, end) = target.apply(request, &mut body, digest, ObjectState::Unknown, sent).await;
        }
        if let WriteEnd::Adopted(at) = end {
            (result, end) = target.apply(request, &mut body, digest, ObjectState::Different(None), sent).await;
            if !matches!(end, WriteEnd::Applied { .. }) {
                end = WriteEnd::Adopted(at);
            }
        }
        sending.end(end);
        result
    }

    async fn delete(&self, target: &Target<'_>, request: &Request, sent: &mut Sent) -> Result<WriteResult, ErrorClass> {
        let uid = if let Request::DeleteObject { uid, .. } = request { uid.clone() } else { None };
        let known = self.applied.known_deletion(&target.name, uid.as_deref(), Instant::now());
        if let DeletionState::Removed { is_gone } = known {
            return Ok(if is_gone { WriteResult::Gone } else { WriteResult::Unchanged });
        }
        let sending = self.applied.begin(&target.name, None, Origin::default());
        let began = Instant::now();
        let removed = |is_gone| WriteEnd::Removed(Removal { uid: uid.clone(), is_gone }, began);
        if known == DeletionState::Lost {
            match removal(&target.live(sent).await, uid.as_deref()) {
                AfterDeletion::Gone => {
                    sending.end(removed(true));
                    return Ok(WriteResult::Gone);
                }
                AfterDeletion::Deleting => {
                    sending.end(removed(false));
                    return Ok(WriteResult::Unchanged);
                }
                AfterDeletion::Nothing => return Err(ErrorClass::Unreachable),
                AfterDeletion::Present | AfterDeletion::Hidden => {}
            }
        }
        let wire = match http::delete_object(&target.path, uid.as_deref(), target.sender) {
            Ok(wire) => wire,
            Err(error) => return Ok(WriteResult::Invalid(error.to_string())),
        };
        sent.requests += 1;
        let (result, end) = match target.api.bytes(wire).await {
            Ok(_) => (Ok(WriteResult::Applied), removed(false)),
            Err(error) => match (answer::classify(request, &error), &uid) {
                (ErrorClass::Final(WriteResult::Gone, wait), _) => {
                    (Err(ErrorClass::Final(WriteResult::Gone, wait)), removed(true))
                }
                // A refusal without a precondition has another reason than the uid.
                (ErrorClass::Contested, Some(wanted)) => match removal(&target.live(sent).await, Some(wanted)) {
                    AfterDeletion::Gone => (Ok(WriteResult::Gone), removed(true)),
                    AfterDeletion::Deleting
                    | AfterDeletion::Present
                    | AfterDeletion::Hidden
                    | AfterDeletion::Nothing => (Ok(WriteResult::Conflict), WriteEnd::Other),
                },
                (ErrorClass::Ambiguous, _) => match removal(&target.live(sent).await, uid.as_deref()) {
                    AfterDeletion::Gone => (Ok(WriteResult::Gone), removed(true)),
                    AfterDeletion::Deleting => (Ok(WriteResult::Applied), removed(false)),
                    AfterDeletion::Present | AfterDeletion::Hidden | AfterDeletion::Nothing => {
                        (Err(ErrorClass::Ambiguous), WriteEnd::Lost(Instant::now()))
                    }
                },
                (class, _) => (Err(class), WriteEnd::Other),
            },
        };
        sending.end(end);
        result
    }
}

/// How a write to an object is sent.
pub(super) struct Way {
    /// The owner that an applied object gets.
    pub(super) owner: Option<Reference>,
    /// The run.
    pub(super) origin: Origin,
    /// An apply takes fields of other managers.
    pub(super) takes: bool,
}

/// An object of another kind, and the plugin that writes to it.
struct Target<'a> {
    api: &'a Api,
    sender: &'a Sender,
    path: String,
    name: Name,
    /// The annotation of this plugin's applies.
    mark: String,
    /// The plugin takes fields of other managers.
    takes: bool,
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
    async fn live(&self, sent: &mut Sent) -> Live {
        let Ok(request) = http::get(&self.path, self.sender) else { return Live::Unreadable };
        sent.reads += 1;
        match self.api.bytes(request).await {
            Ok(answer) => self.read(&answer).map_or(Live::Unreadable, Live::Object),
            Err(ApiError::Status { code: 404, .. }) => Live::Absent,
            Err(ApiError::Status { code: 403, .. }) => Live::Forbidden,
            _ => Live::Unreadable,
        }
    }

    /// Returns the object in an answer. One whose values would take much memory has only the metadata that decides
    /// about force and about changes by others, so that it is as no body specifies.
    fn read(&self, answer: &[u8]) -> Option<Value> {
        match json::value(answer) {
            Err(error) if error.is_data() => self.reduced(answer),
            object => object.ok().filter(Value::is_object),
        }
    }

    fn reduced(&self, answer: &[u8]) -> Option<Value> {
        let Object { metadata } = serde_json::from_slice(answer).ok()?;
        let annotations = metadata.annotations.map_or("{}", RawValue::get);
        let annotations: BTreeMap<String, String> = serde_json::from_str(annotations).ok()?;
        let entry = |entry: &RawValue| {
            let Entry { manager, .. } = serde_json::from_str(entry.get()).ok()?;
            let own = (manager == self.sender.manager).then(|| json::value(entry.get().as_bytes()).ok());
            Some(own.flatten().unwrap_or_else(|| json!({ "manager": manager })))
        };
        let entries: Vec<Value> = metadata.managed_fields.into_iter().filter_map(entry).collect();
        Some(json!({ "metadata": {
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
            "deletionTimestamp": metadata.deletion_timestamp,
            "annotations": { &self.mark: annotations.get(&self.mark) },
            "managedFields": entries,
        } }))
    }

    /// Sends an apply unless a read shows the object as `body` specifies. With force if the plugin created it.
    async fn apply(
        &self,
        request: &Request,
        body: &mut Value,
        digest: Digest,
        known: ObjectState,
        sent: &mut Sent,
    ) -> (Result<WriteResult, ErrorClass>, WriteEnd) {
        let began = Instant::now();
        let mut creates = false;
        let mut created = None;
        match known {
            ObjectState::Different(remembered) => created = remembered,
            ObjectState::Applied | ObjectState::Changed | ObjectState::Lost | ObjectState::Unknown => match self
                .live(sent)
                .await
            {
                Live::Object(live) => {
                    created = self.created(&live);
                    // The annotation decides about a write, and only its proof about force.
                    self.mark(body, digest, self.says_created(&live), None);
                    // The values may be right again and the fields another client's.
                    if known != ObjectState::Changed && is_as(&live, body) {
                        let shown = self.shown(&live);
                        return (Ok(WriteResult::Unchanged), WriteEnd::Applied { digest, created, shown, at: began });
                    }
                }
                Live::Absent => creates = true,
                // An apply without the end of the annotation would abandon the object.
                Live::Unreadable => return (Err(ErrorClass::Unreachable), WriteEnd::Other),
                Live::Forbidden => {}
            },
        }
        self.mark(body, digest, creates || created.is_some(), created.as_deref());
        let mut answered = self.patch(request, body, created.is_some(), sent).await;
        if let Err(ErrorClass::Final(WriteResult::OwnedByOther(message), _)) = &answered
            && self.takes
        {
            let message = answer::without_step(message).to_owned();
            // The object is another client's, and stays it.
            self.mark(body, digest, false, None);
            answered = self.patch(request, body, true, sent).await;
            let taken = Taken { object: self.name.1.clone(), message };
            let may_have_taken = matches!(answered, Ok(_) | Err(ErrorClass::Ambiguous));
            sent.taken.extend(may_have_taken.then_some(taken));
        }
        let live = match answered {
            Ok(live) => live,
            Err(ErrorClass::Ambiguous) => return (Err(ErrorClass::Ambiguous), WriteEnd::Lost(Instant::now())),
            Err(class) => return (Err(class), WriteEnd::Other),
        };
        let end = if creates && self.has_other_managers(&live) {
            WriteEnd::Adopted(began)
        } else {
            let shown = self.shown(&live);
            WriteEnd::Applied { digest, created: self.created(&live), shown, at: began }
        };
        (Ok(WriteResult::Applied), end)
    }

    /// Sends an apply, and returns the object of the response, or of a read after a lost one.
    async fn patch(&self, request: &Request, body: &Value, force: bool, sent: &mut Sent) -> Result<Value, ErrorClass> {
        let wire = http::apply(&self.path, body, force, self.sender)
            .map_err(|error| ErrorClass::Final(WriteResult::Invalid(error.to_string()), None))?;
        sent.requests += 1;
        let class = match self.api.bytes(wire).await {
            Ok(answer) => return Ok(self.read(&answer).unwrap_or_default()),
            Err(error) => answer::classify(request, &error),
        };
        if class == ErrorClass::Ambiguous
            && let Live::Object(live) = self.live(sent).await
            && is_as(&live, body)
        {
            return Ok(live);
        }
        Err(class)
    }

    /// Returns true if another client owns fields of the object: after an apply that was meant to create it, this
    /// client created it first.
    fn has_other_managers(&self, live: &Value) -> bool {
        let managers = live["metadata"]["managedFields"].as_array().into_iter().flatten();
        managers.into_iter().any(|entry| entry["manager"] != self.sender.manager)
    }

    fn shown(&self, live: &Value) -> Shown {
        Shown::new(&live["metadata"], &self.sender.manager)
    }

    /// Sets the label of the plugin, the annotation, which says whether the plugin created the object, and the
    /// incarnation to which the body may be applied, or any.
    fn mark(&self, body: &mut Value, digest: Digest, created: bool, uid: Option<&str>) {
        let metadata = &mut body["metadata"];
        for field in ["labels", "annotations"] {
            if !metadata[field].is_object() {
                metadata[field] = json!({});
            }
        }
        metadata["labels"][label(&self.sender.manager)] = json!("");
        metadata["annotations"][&self.mark] = json!(digest.hex() + if created { CREATED } else { "" });
        match (uid, metadata.as_object_mut()) {
            (Some(uid), _) => metadata["uid"] = json!(uid),
            (None, Some(metadata)) => drop(metadata.remove("uid")),
            (None, None) => {}
        }
    }

    /// Returns the uid of an object that an apply of this plugin created. Proof is the annotation, as long as it is
    /// the plugin's own field: a copy of the object, or an edit of the annotation, is by another field manager.
    fn created(&self, live: &Value) -> Option<String> {
        let metadata = &live["metadata"];
        let field = format!("f:{}", self.mark);
        let is_own = metadata["managedFields"].as_array().into_iter().flatten().any(|entry| {
            entry["manager"] == self.sender.manager
                && entry["operation"] == "Apply"
                && !entry["fieldsV1"]["f:metadata"]["f:annotations"][&field].is_null()
        });
        Some(metadata["uid"].as_str()?.to_owned()).filter(|_| is_own && self.says_created(live))
    }

    fn says_created(&self, live: &Value) -> bool {
        live["metadata"]["annotations"][&self.mark].as_str().is_some_and(|mark| mark.ends_with(CREATED))
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

/// Returns the body with the owner, and the digest of both.
fn complete(mut body: Value, owner: Option<&Reference>, sender: &Sender) -> (Value, Digest) {
    if let Some(Reference { api_version, kind, name, uid }) = owner {
        body["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": uid }]);
    }
    let digest = Digest::new(&[&sender.manager, &body.to_string()]);
    (body, digest)
}
