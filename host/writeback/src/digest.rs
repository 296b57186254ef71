//! Digests that stay the same across restarts and releases: the first 128 bits of SHA-256. Names of Events are made of
//! them; the digested text always contains the plugin's own name, so that no plugin can make another one's name.

use sha2::{Digest as _, Sha256};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Digest(u128);

impl Digest {
    /// Returns the digest of the parts, each ended by a byte that is invalid in UTF-8, so that ("a", "bc") differs
    /// from ("ab", "c").
    pub(super) fn new(parts: &[&str]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part.as_bytes());
            hasher.update([0xff]);
        }
        let bytes = hasher.finalize();
        Self(bytes.iter().take(16).fold(0, |digest, byte| digest << 8 | u128::from(*byte)))
    }

    /// Returns 32 hexadecimal digits.
    pub(super) fn hex(self) -> String {
        format!("{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_keeps_its_parts_apart_and_is_stable() {
        assert_ne!(Digest::new(&["a", "bc"]), Digest::new(&["ab", "c"]));
        assert_eq!(Digest::new(&["podium", "shop"]), Digest::new(&["podium", "shop"]));
        assert_eq!(Digest::new(&[]).hex(), "e3b0c44298fc1c149afbf4c8996fb924");
    }
}
