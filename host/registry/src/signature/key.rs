//! Public keys of signatures.

use base64::{Engine, prelude::BASE64_STANDARD};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};

use crate::Error;

/// The DER of a public key on P-256, before its point.
const PREFIX: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// The bytes of an uncompressed point.
const POINT: usize = 65;
const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";

/// A public key on the curve P-256, as `cosign generate-key-pair` writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key([u8; POINT]);

impl Key {
    /// Reads one key in PEM.
    ///
    /// # Errors
    /// Returns an error if the text is not exactly one public key on P-256.
    pub fn from_pem(pem: &str) -> Result<Self, Error> {
        let invalid = || Error::Invalid("the key is not one P-256 public key in PEM, as cosign writes it".to_owned());
        let body = pem.trim().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END)).ok_or_else(invalid)?;
        let body: String = body.split_ascii_whitespace().collect();
        let der = BASE64_STANDARD.decode(body).map_err(|_| invalid())?;
        let point = der.strip_prefix(&PREFIX).and_then(|point| <[u8; POINT]>::try_from(point).ok());
        point.filter(|point| point[0] == 4).map(Self).ok_or_else(invalid)
    }

    /// Returns whether the bytes were signed with this key. The signature is DER; a high S is valid, and cosign writes
    /// it.
    pub(super) fn signed(&self, bytes: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0).verify(bytes, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "-----BEGIN PUBLIC KEY-----\n\
        MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEPlDFDYGACj+EvYOSlwQT9aUleMBV\n\
        wHWIcVIOBJTe3AzVIiPxkkLYxw7Nk36x3ZKtSm7fWLFKZ0mtUWTvLXdoMg==\n\
        -----END PUBLIC KEY-----\n";

    #[test]
    fn only_one_key_on_p256_is_a_key() {
        assert!(Key::from_pem(PEM).is_ok());
        for wrong in [
            String::new(),
            PEM.repeat(2),
            PEM.replace("PUBLIC", "PRIVATE"),
            PEM.replace("MFkw", "MFkx"),
            PEM.replace("DQgAE", "DQgAC"),
            PEM.replace("Mg==", ""),
            PEM.replace("Mg==", "MgAA"),
            PEM.replace("EPlD", "!!!!"),
        ] {
            assert!(Key::from_pem(&wrong).is_err(), "{wrong}");
        }
    }
}
