//! The hash that the Lease's texts have: FNV-1a of 64 bits.

/// Returns FNV-1a-64 of a text.
pub(crate) fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
