//! Signatures of cosign with a P-256 key and without a log, in both of its forms.
//!
//! A signature is of the digest of a manifest. Whoever may push to a repository can attach anything to a manifest, so
//! what does not verify is passed over, in either form, and one valid signature is enough. Without one, a failure to
//! read is an error and never counts as "not signed". There is no time in such a signature: it does not expire, and a
//! key is revoked by removing it from the policy.

mod bundle;
mod classic;
mod fetch;
mod key;

use serde::{Deserialize, Serialize};

use crate::{Digest, Error};

pub use key::Key;

/// The most signatures of each form that are looked at.
pub const MOST: usize = 32;
/// The most bytes of one signature with what it signs.
pub(crate) const SIZE: u64 = 64 << 10;

/// A claim that a key signed a manifest, as it was found. Nothing of it is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Claim {
    /// The payload and its signature, base64 of DER.
    Classic { payload: Vec<u8>, signature: String },
    /// A Sigstore bundle, as JSON.
    Bundle(Vec<u8>),
}

/// The claims that are attached to a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub claims: Vec<Claim>,
    /// Entries beyond the bound, and those that could not be a signature.
    pub passed_over: usize,
}

/// Returns the position of the first key that signed the manifest.
///
/// # Errors
/// Returns [`Error::Denied`] if none did, with the number of claims.
pub fn verify(keys: &[Key], manifest: &Digest, claims: &Claims) -> Result<usize, Error> {
    let signed = |key: &Key| claims.claims.iter().any(|claim| claim.is_of(key, manifest));
    keys.iter().position(signed).ok_or_else(|| {
        let found = claims.claims.len();
        let over = claims.passed_over;
        Error::Denied(match (found, over) {
            (0, 0) => format!("{manifest} is not signed"),
            _ => format!(
                "{manifest} has no signature by a required key; {found} signatures do not verify, and {over} \
                 entries were passed over"
            ),
        })
    })
}

impl Claims {
    /// Removes the claims that are of none of the keys.
    #[must_use]
    pub fn signed_by(mut self, keys: &[Key], manifest: &Digest) -> Self {
        self.claims.retain(|claim| keys.iter().any(|key| claim.is_of(key, manifest)));
        self
    }
}

impl Claim {
    fn is_of(&self, key: &Key, manifest: &Digest) -> bool {
        match self {
            Self::Classic { payload, signature } => classic::is_signed(key, manifest, payload, signature),
            Self::Bundle(json) => bundle::is_signed(key, manifest, json),
        }
    }
}

#[cfg(test)]
mod tests;
