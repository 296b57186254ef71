//! Stages Events by key, for Pods that the run did not read; otherwise use [`crate::Pod::emit`].

use crate::{Error, Event, PodKey, Result, host};

/// Stages an Event about a Pod. It is sent with the run's writes. The host counts repeats into one Event and limits
/// their rate. Grant: `write.events`.
///
/// # Errors
/// Returns an error if the grant is missing, or if a text is too long or malformed.
pub fn emit(target: &PodKey, event: Event) -> Result<()> {
    host::emit(target, &event)
        .map_err(|refused| Error::from_refused(format_args!("emit {} on {target}", event.reason), refused))
}
