//! Kubernetes JSON to [`Pod`] and back: the host decodes what the API server sends, tests and the command line render
//! what a guest was given.
//!
//! JSON in the Kubernetes shape cannot carry everything a record can. Left out, because Kubernetes does not tell them
//! apart from an absent field either: `Some` of an empty text, `Some(0)` for `host_port` and `signal`, a creation time
//! of 1970-01-01T00:00:00Z. Not carried at all: a volume kind called "name" and times outside the years -9999 to 9999.
//! [`decode`] never makes such a Pod; [`render`] takes one and what it leaves out is gone. Of a Pod, everything that
//! [`crate::Pod`] does not hold is dropped unread. `apiVersion` and `kind` are not looked at: list items lack them.

mod decode;
mod opaque;
mod render;

pub use decode::{decode, decode_value};
pub use opaque::is_opaque;
pub use render::render;

#[cfg(doc)]
use crate::Pod;
use crate::Timestamp;

/// Why JSON is not a Pod that Podium can keep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, or a field of another type than in the Kubernetes API.
    #[error("malformed Pod JSON: {0}")]
    Malformed(String),
    /// Every object that an API server stores has it.
    #[error("the Pod has no {0}")]
    Missing(&'static str),
    /// The right type, but not a value that the field can have. The value is cut after 64 characters.
    #[error("{field} of the Pod cannot be {value:?}")]
    BadValue { field: &'static str, value: String },
}

/// Reads an RFC 3339 time; fractions of a millisecond are cut off.
#[must_use]
pub fn timestamp(text: &str) -> Option<Timestamp> {
    text.parse::<jiff::Timestamp>().ok().map(|time| Timestamp(time.as_millisecond()))
}

/// RFC 3339 in UTC, to the second, or to the millisecond where that is not zero. What lies outside the years -9999 to
/// 9999 becomes the nearest time within, since a record can claim any number.
#[must_use]
pub fn format_timestamp(time: Timestamp) -> String {
    let nearest = if time.0 < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
    let time = jiff::Timestamp::from_millisecond(time.0).unwrap_or(nearest);
    if time.subsec_millisecond() == 0 { format!("{time:.0}") } else { format!("{time:.3}") }
}
