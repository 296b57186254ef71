//! Bytes to values and back: bincode in its legacy configuration, with a limit against hostile lengths.
//!
//! bincode 2.0.1 checks the limit before it allocates; without one, ten bytes can request exabytes and abort the
//! process. It accepts trailing bytes silently, so the consumed length is compared here.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use serde::{Serialize, de::DeserializeOwned};

/// The most bytes that decoding one value may claim: above any Pod that etcd accepts (1.5 MiB), with room for the
/// fixed-width lengths of this encoding.
pub const MAX_ENCODED_BYTES: usize = 4 << 20;

const CONFIGURATION: Configuration<LittleEndian, Fixint, Limit<MAX_ENCODED_BYTES>> =
    bincode::config::legacy().with_limit::<MAX_ENCODED_BYTES>();

/// Why bytes are not a value of the requested type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// The bytes are truncated or malformed, or claim more than [`MAX_ENCODED_BYTES`].
    #[error("malformed bytes: {0}")]
    Malformed(String),
    /// Bytes are left after a decoded value.
    #[error("{left} bytes left over after a value of {used} bytes")]
    Trailing { used: usize, left: usize },
    /// The value cannot be encoded.
    #[error("cannot encode: {0}")]
    Encode(String),
}

/// Encodes a value. Types must not use serde's `skip_serializing_if`, `flatten` or `untagged`: this encoding does not
/// describe itself, and they would corrupt it silently.
///
/// # Errors
/// Returns an error if a collection of unknown length is serialised; the types of this crate have none.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    bincode::serde::encode_to_vec(value, CONFIGURATION).map_err(|error| CodecError::Encode(error.to_string()))
}

/// Decodes a value that fills the slice exactly.
///
/// # Errors
/// Returns an error on any other bytes. Hostile bytes never panic and never allocate more than [`MAX_ENCODED_BYTES`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (value, used) = decode_front(bytes)?;
    if used != bytes.len() {
        return Err(CodecError::Trailing { used, left: bytes.len() - used });
    }
    Ok(value)
}

/// Returns the number of entries of an encoded map or list without decoding it. Bytes that are neither have 0 entries,
/// or at most as many as there could be in that number of bytes.
#[must_use]
pub fn entries(bytes: &[u8]) -> usize {
    let count = bytes.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
    usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len())
}

/// Decodes the value at the front of the slice and ignores the bytes after it: fields that a later release appended.
///
/// # Errors
/// See [`decode`]; trailing bytes are not an error.
pub(crate) fn decode_prefix<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    Ok(decode_front(bytes)?.0)
}

/// Returns the value at the front, and its number of bytes.
fn decode_front<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, usize), CodecError> {
    bincode::serde::decode_from_slice(bytes, CONFIGURATION).map_err(|error| CodecError::Malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_length_is_an_error_and_allocates_nothing() {
        let bytes = u64::MAX.to_le_bytes();
        assert!(matches!(decode::<Vec<String>>(&bytes), Err(CodecError::Malformed(_))));
    }

    #[test]
    fn entries_are_counted_without_decoding() {
        let labels = |count: u32| (0..count).map(|at| (at.to_string(), String::new())).collect::<crate::Labels>();
        for count in [0, 1, 300] {
            assert_eq!(entries(&encode(&labels(count)).unwrap()), count as usize);
        }
        assert_eq!((entries(&[]), entries(&[1; 7]), entries(&[255; 9])), (0, 0, 9));
    }

    #[test]
    fn trailing_bytes_are_an_error_unless_a_prefix_is_read() {
        let mut bytes = encode(&"podium".to_owned()).unwrap();
        bytes.push(0);
        assert_eq!(decode::<String>(&bytes), Err(CodecError::Trailing { used: 14, left: 1 }));
        assert_eq!(decode_prefix::<String>(&bytes), Ok("podium".to_owned()));
    }
}
