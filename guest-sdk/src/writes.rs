//! Staged writes by key, and their reports. For the Pod of the run use the methods of [`crate::Pod`], which call
//! these functions.
//!
//! A write is authorised at the call, planned against the cache (a write that would change nothing is dropped) and
//! sent in staging order after the run succeeded, or by [`commit`]. A run that panics or returns an error sends none
//! of its staged writes. A write never reaches another incarnation than that of its key's uid, and never creates a
//! Pod.

use std::fmt::Display;

use podium_wire::Condition;
use serde::Serialize;

use crate::{CallError, Error, ObjectOwner, ObjectRef, PodKey, Result, ResultExt, host};

/// Identifies a staged write within its run; numbered from 0 in staging order.
pub type WriteId = u32;

/// The result of one write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteReport {
    /// The id that the staging function returned.
    pub id: WriteId,
    /// A short text for log lines and messages, such as "set label team=web on shop/cart-0".
    pub description: String,
    /// Whether the write took effect, and if not, the reason.
    pub result: WriteResult,
}

/// Whether a write took effect, and if not, the reason. Texts come from the API server, cut to 1 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteResult {
    /// The API server accepted the write.
    Applied,
    /// The object already had the requested state: nothing was sent, or the request changed nothing.
    Unchanged,
    /// The object changed between the read and the write. A run on newer data can succeed.
    Conflict,
    /// Another field manager, which the text names, owns the field. A retry cannot succeed by itself.
    OwnedByOther(String),
    /// A PodDisruptionBudget does not allow the eviction now.
    Blocked(String),
    /// This incarnation of the object no longer exists.
    Gone,
    /// RBAC or admission rejected the write, or RBAC rejected another one of the same kind a moment ago; the text is
    /// the API server's message.
    Forbidden(String),
    /// The API server rejected the write as invalid; the text is its message.
    Invalid(String),
    /// The write was not sent, because an earlier write of the run failed, time ran out, the requests per second of the
    /// plugin or its tenant are used up, or the plugin changed this Pod more than 10 times within a minute.
    NotSent,
    /// The response was lost, so the write may or may not have taken effect. The host determines that with a read and
    /// does not repeat the write.
    Unknown,
}

impl WriteResult {
    /// Returns true if the object has the requested state or is gone, so that no retry is needed.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Applied | Self::Unchanged | Self::Gone)
    }
}

/// Sets one label and leaves the others unchanged. Grant: `write.labels`.
///
/// # Errors
/// Returns an error if the grant is missing, or if the key or value is invalid. The same applies to all functions
/// below.
pub fn set_label(target: &PodKey, key: &str, value: &str) -> Result<WriteId> {
    host::set_label(target, key, value).map_err(refused("set label", key, target))
}

/// Removes one label. Grant: `write.labels`.
///
/// # Errors
/// See [`set_label`].
pub fn remove_label(target: &PodKey, key: &str) -> Result<WriteId> {
    host::remove_label(target, key).map_err(refused("remove label", key, target))
}

/// Sets one annotation. Grant: `write.annotations`.
///
/// # Errors
/// See [`set_label`].
pub fn set_annotation(target: &PodKey, key: &str, value: &str) -> Result<WriteId> {
    host::set_annotation(target, key, value).map_err(refused("set annotation", key, target))
}

/// Removes one annotation. Grant: `write.annotations`.
///
/// # Errors
/// See [`set_label`].
pub fn remove_annotation(target: &PodKey, key: &str) -> Result<WriteId> {
    host::remove_annotation(target, key).map_err(refused("remove annotation", key, target))
}

/// Adds a finalizer. Grant: `write.finalizers`.
///
/// # Errors
/// See [`set_label`]. On a Pod that is being deleted the write's report is [`WriteResult::Invalid`].
pub fn add_finalizer(target: &PodKey, name: &str) -> Result<WriteId> {
    host::add_finalizer(target, name).map_err(refused("add finalizer", name, target))
}

/// Removes a finalizer. The API server removes a Pod that is being deleted with its last finalizer. Grant:
/// `write.finalizers`.
///
/// # Errors
/// See [`set_label`].
pub fn remove_finalizer(target: &PodKey, name: &str) -> Result<WriteId> {
    host::remove_finalizer(target, name).map_err(refused("remove finalizer", name, target))
}

/// Sets one condition in the Pod's status; the host sets its transition time. Grant: `write.conditions`.
///
/// # Errors
/// See [`set_label`].
pub fn set_condition(target: &PodKey, condition: &Condition) -> Result<WriteId> {
    host::set_condition(target, condition).map_err(refused("set condition", &condition.condition_type, target))
}

/// Removes one condition. Grant: `write.conditions`.
///
/// # Errors
/// See [`set_label`].
pub fn remove_condition(target: &PodKey, condition_type: &str) -> Result<WriteId> {
    host::remove_condition(target, condition_type).map_err(refused("remove condition", condition_type, target))
}

/// Deletes the Pod with its own grace period, or with this one. Grant: `write.delete`.
///
/// # Errors
/// See [`set_label`].
pub fn delete(target: &PodKey, grace_period_seconds: Option<u32>) -> Result<WriteId> {
    host::delete_pod(target, grace_period_seconds).map_err(refused("delete", "pod", target))
}

/// Evicts the Pod, respecting disruption budgets. Grant: `write.evict`.
///
/// # Errors
/// See [`set_label`].
pub fn evict(target: &PodKey) -> Result<WriteId> {
    host::evict_pod(target).map_err(refused("evict", "pod", target))
}

/// Applies (server-side) the complete object of a granted kind: a [`Value`](serde_json::Value), or a type of yours with
/// `apiVersion`, `kind` and `metadata`. With `owner`, an owner reference is added, so that the object is deleted with
/// its owner. Grant: `write.objects`.
///
/// # Errors
/// See [`set_label`]. Returns a terminal error for an object that is not JSON, such as one with keys that are no text.
pub fn apply_object(object: &(impl Serialize + ?Sized), owner: Option<ObjectOwner<'_>>) -> Result<WriteId> {
    let object = serde_json::to_value(object).terminal("apply object")?;
    host::apply_object(&object, owner).map_err(|refused| Error::from_refused("apply object", refused))
}

/// Deletes an object of a granted kind; with `uid`, only that incarnation. Grant: `write.objects`.
///
/// # Errors
/// See [`set_label`].
pub fn delete_object(object: &ObjectRef, uid: Option<&str>) -> Result<WriteId> {
    host::delete_object(object, uid).map_err(|refused| Error::from_refused(format_args!("delete {object}"), refused))
}

/// Sends the writes that are staged now, waits, and advances the run's snapshot past these writes. Reports come in
/// staging order; writes that were merged into one request share their result. Committed writes stay, even if the run
/// fails later.
///
/// # Errors
/// Returns an error if the run's budget is used up. A failed write is not an error: its report has the result.
pub fn commit() -> Result<Vec<WriteReport>> {
    host::commit().map_err(|refused| Error::from_refused("commit", refused))
}

fn refused(call: &str, what: &str, target: impl Display) -> impl FnOnce(CallError) -> Error {
    move |refused| Error::from_refused(format_args!("{call} {what} on {target}"), refused)
}
