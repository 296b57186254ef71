//! SHA-256 digests of manifests and blobs.

use std::{fmt, str::FromStr};

use crate::Error;

/// The prefix of the only algorithm that is accepted.
const ALGORITHM: &str = "sha256:";

/// A SHA-256 digest, written as `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of bytes.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Returns the 64 digits, without the name of the algorithm.
    #[must_use]
    pub fn hex(&self) -> String {
        self.0
            .iter()
            .flat_map(|byte| [byte >> 4, byte & 15])
            .filter_map(|half| char::from_digit(half.into(), 16))
            .collect()
    }

    /// Reads 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text.bytes().map(half).collect::<Option<_>>()?;
        let (pairs, []) = digits.as_chunks::<2>() else { return None };
        let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
        bytes.try_into().ok().map(Self)
    }
}

/// Upper-case digits are refused: the same digest has one text.
fn half(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{ALGORITHM}{}", self.hex())
    }
}

impl FromStr for Digest {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.strip_prefix(ALGORITHM).and_then(Self::from_hex).ok_or_else(|| {
            let text = podium_wire::text::bounded(text, 100);
            Error::Invalid(format!("{text} is not a digest of the form sha256:<64 hexadecimal digits>"))
        })
    }
}

/// A digest of bytes that come one after another.
pub(crate) struct Hasher(ring::digest::Context);

impl Hasher {
    pub(crate) fn new() -> Self {
        Self(ring::digest::Context::new(&ring::digest::SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(self.0.finish().as_ref()).for_each(|(to, from)| *to = *from);
        Digest(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_text() {
        let digest = Digest::sha256(b"");
        assert_eq!(digest.to_string(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        for wrong in [
            digest.hex(),
            digest.to_string().to_uppercase(),
            format!("sha256:{}", digest.hex().to_uppercase()),
            format!("{digest}0"),
            format!("sha256:{}", &digest.hex()[1..]),
            format!("sha512:{}", digest.hex().repeat(2)),
            String::new(),
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
