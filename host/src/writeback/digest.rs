//! Digests that stay the same across restarts and releases: FNV-1a of 128 bits. Not against collisions made on purpose;
//! what is digested always holds the plugin's own name, so that a plugin can only deceive itself.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Digest(u128);

impl Digest {
    /// Of the parts, each ended by a byte that UTF-8 does not have, so that ("a", "bc") differs from ("ab", "c").
    pub(super) fn of(parts: &[&str]) -> Self {
        const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
        let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
        Self(bytes.fold(BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME)))
    }

    /// 16 hexadecimal digits.
    pub(super) fn short(self) -> String {
        format!("{:016x}", (self.0 >> 64) as u64 ^ self.0 as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_keeps_its_parts_apart_and_never_changes_between_releases() {
        assert_ne!(Digest::of(&["a", "bc"]), Digest::of(&["ab", "c"]));
        assert_eq!(Digest::of(&["podium", "shop"]), Digest::of(&["podium", "shop"]));
        assert_eq!(Digest::of(&[]).0, 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
    }
}
