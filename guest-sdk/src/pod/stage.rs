//! Staging writes on a [`Pod`]: each is the function of [`crate::writes`] with this Pod's key.

use podium_wire::Condition;

use super::Pod;
use crate::{Event, Result, WriteId, events, writes};

/// Staging. A write is authorised at the call and sent after the run returned well; what would change nothing is
/// dropped by the host. Staging a key that is not granted is a terminal error.
impl Pod {
    /// Sets one label, leaves the others alone. Grant: `write.labels`.
    ///
    /// # Errors
    /// Where it is not granted, or key or value can never be right; so for all below.
    pub fn set_label(&self, key: &str, value: &str) -> Result<WriteId> {
        writes::set_label(self.key(), key, value)
    }

    /// Removes one label. Grant: `write.labels`.
    ///
    /// # Errors
    /// As [`Pod::set_label`].
    pub fn remove_label(&self, key: &str) -> Result<WriteId> {
        writes::remove_label(self.key(), key)
    }

    /// Sets one annotation. Grant: `write.annotations`.
    ///
    /// # Errors
    /// As [`Pod::set_label`].
    pub fn set_annotation(&self, key: &str, value: &str) -> Result<WriteId> {
        writes::set_annotation(self.key(), key, value)
    }

    /// Removes one annotation. Grant: `write.annotations`.
    ///
    /// # Errors
    /// As [`Pod::set_label`].
    pub fn remove_annotation(&self, key: &str) -> Result<WriteId> {
        writes::remove_annotation(self.key(), key)
    }

    /// Adds a finalizer: the Pod stays until it is removed again. Grant: `write.finalizers`.
    ///
    /// # Errors
    /// As [`Pod::set_label`]. On a Pod that is being deleted the write's report is [`crate::WriteResult::Invalid`].
    pub fn add_finalizer(&self, name: &str) -> Result<WriteId> {
        writes::add_finalizer(self.key(), name)
    }

    /// Removes a finalizer; on the last one of a Pod being deleted, the Pod goes. Grant: `write.finalizers`.
    ///
    /// # Errors
    /// As [`Pod::set_label`].
    pub fn remove_finalizer(&self, name: &str) -> Result<WriteId> {
        writes::remove_finalizer(self.key(), name)
    }

    /// Sets one condition in the Pod's status. The host sets the time of transition, and moves it only when the status
    /// changes. Grant: `write.conditions`.
    ///
    /// # Errors
    /// As [`Pod::set_label`].
    pub fn set_condition(&self, condition: &Condition) -> Result<WriteId> {
        writes::set_condition(self.key(), condition)
    }

    /// Removes one condition. Grant: `write.conditions`.
    ///
    /// # Errors
    /// As [`Pod::set_label`].
    pub fn remove_condition(&self, condition_type: &str) -> Result<WriteId> {
        writes::remove_condition(self.key(), condition_type)
    }

    /// Deletes this incarnation with its own grace period. Grant: `write.delete`.
    ///
    /// # Errors
    /// As [`Pod::set_label`].
    pub fn delete(&self) -> Result<WriteId> {
        writes::delete(self.key(), None)
    }

    /// Evicts this incarnation, respecting disruption budgets. Grant: `write.evict`.
    ///
    /// # Errors
    /// As [`Pod::set_label`].
    pub fn evict(&self) -> Result<WriteId> {
        writes::evict(self.key())
    }

    /// Stages an Event about this Pod; see [`Event`] for when. Grant: `write.events`.
    ///
    /// # Errors
    /// As [`Pod::set_label`].
    pub fn emit(&self, event: Event) -> Result<()> {
        events::emit(self.key(), event)
    }
}
