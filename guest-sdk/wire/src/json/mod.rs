//! Kubernetes JSON to [`Pod`] and back: the host decodes the API server's responses; tests and the command line
//! render records of guests.
//!
//! Kubernetes JSON cannot represent everything that a record can. Left out, because Kubernetes does not distinguish
//! them from an absent field either: `Some` of an empty text, `Some(0)` for `host_port` and `signal`, a creation time
//! of 1970-01-01T00:00:00Z. Not representable: a volume kind called "name" and times outside the years -9999 to 9999.
//! [`decode`] never returns such a Pod; [`render`] accepts one and leaves these values out. Fields that
//! [`crate::Pod`] does not have are ignored. `apiVersion` and `kind` are not read, because list items lack them.

mod decode;
mod opaque;
mod render;

pub use decode::{decode, decode_value};
pub use opaque::is_opaque;
pub use render::render;

#[cfg(doc)]
use crate::Pod;

/// Why JSON is not a Pod that Podium can store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// Not JSON, or a field of another type than in the Kubernetes API.
    #[error("malformed Pod JSON: {0}")]
    Malformed(String),
    /// A field is missing that every object of an API server has.
    #[error("the Pod has no {0}")]
    Missing(&'static str),
    /// The field has the right type and an invalid value. The value is cut after 64 characters.
    #[error("{field} of the Pod cannot be {value:?}")]
    BadValue { field: &'static str, value: String },
}
