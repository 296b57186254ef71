//! Staging writes on a [`Pod`]: each is the function of [`crate::writes`] with this Pod's key.

use podium_wire::Condition;

use super::Pod;
use crate::{Event, Result, WriteId, events, writes};

/// Staging. A write is authorised at the call and sent after the run succeeded; the host drops a write that would
/// change nothing. Staging a key that is not granted is a terminal error.
impl Pod {
    /// Sets one label and leaves the others unchanged. Grant: `write.labels`.
    ///
    /// # Errors
    /// Returns an error if the grant is missing, or if the key or value is invalid. The same applies to all methods
    /// below.
    pub fn set_label(&self, key: &str, value: &str) -> Result<WriteId> {
        writes::set_label(self.key(), key, value)
    }

    /// Removes one label. Grant: `write.labels`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn remove_label(&self, key: &str) -> Result<WriteId> {
        writes::remove_label(self.key(), key)
    }

    /// Sets one label, or removes it if there is no value. Grant: `write.labels`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn label_to(&self, key: &str, value: Option<&str>) -> Result<WriteId> {
        value.map_or_else(|| self.remove_label(key), |value| self.set_label(key, value))
    }

    /// Sets one annotation. Grant: `write.annotations`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn set_annotation(&self, key: &str, value: &str) -> Result<WriteId> {
        writes::set_annotation(self.key(), key, value)
    }

    /// Removes one annotation. Grant: `write.annotations`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn remove_annotation(&self, key: &str) -> Result<WriteId> {
        writes::remove_annotation(self.key(), key)
    }

    /// Sets one annotation, or removes it if there is no value. Grant: `write.annotations`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn annotation_to(&self, key: &str, value: Option<&str>) -> Result<WriteId> {
        value.map_or_else(|| self.remove_annotation(key), |value| self.set_annotation(key, value))
    }

    /// Adds a finalizer: the Pod stays until it is removed again. Grant: `write.finalizers`.
    ///
    /// # Errors
    /// See [`Pod::set_label`]. On a Pod that is being deleted the write's report is [`crate::WriteResult::Invalid`].
    pub fn add_finalizer(&self, name: &str) -> Result<WriteId> {
        writes::add_finalizer(self.key(), name)
    }

    /// Removes a finalizer. The API server removes a Pod that is being deleted with its last finalizer. Grant:
    /// `write.finalizers`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn remove_finalizer(&self, name: &str) -> Result<WriteId> {
        writes::remove_finalizer(self.key(), name)
    }

    /// Sets one condition in the Pod's status. The host sets the transition time, and changes it only with the
    /// status. Grant: `write.conditions`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn set_condition(&self, condition: &Condition) -> Result<WriteId> {
        writes::set_condition(self.key(), condition)
    }

    /// Sets one condition, and stages an Event about it unless the Pod has the condition already: an Event for each
    /// change, also after a restart of the host. Grants: `write.conditions` and `write.events`; reads the status.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn report(&self, condition: &Condition, event: Event) -> Result<()> {
        if !self.has_condition(condition)? {
            self.set_condition(condition)?;
            self.emit(event)?;
        }
        Ok(())
    }

    /// Removes one condition. Grant: `write.conditions`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn remove_condition(&self, condition_type: &str) -> Result<WriteId> {
        writes::remove_condition(self.key(), condition_type)
    }

    /// Deletes this incarnation with its own grace period. Grant: `write.delete`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn delete(&self) -> Result<WriteId> {
        writes::delete(self.key(), None)
    }

    /// Evicts this incarnation, respecting disruption budgets. Grant: `write.evict`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn evict(&self) -> Result<WriteId> {
        writes::evict(self.key())
    }

    /// Stages an Event about this Pod; see [`Event`] for when. Grant: `write.events`.
    ///
    /// # Errors
    /// See [`Pod::set_label`].
    pub fn emit(&self, event: Event) -> Result<()> {
        events::emit(self.key(), event)
    }
}
