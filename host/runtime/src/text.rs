//! Bounds and escapes for text that comes from a guest.

use podium_vocabulary::Refused;
pub(super) use podium_vocabulary::text::{bounded, cut, escape, for_people, line};

/// # Errors
/// [`Refused::Invalid`] when the argument `name` is longer than `limit` bytes.
pub(super) fn check_argument_length(name: &str, value: &str, limit: usize) -> Result<(), Refused> {
    if value.len() > limit {
        return Err(Refused::Invalid(format!("{name}: {} bytes, at most {limit}", value.len())));
    }
    Ok(())
}
