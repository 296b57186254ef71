//! Finding the signatures of a manifest in its repository.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;

use super::{Claim, Claims, MOST, SIZE, bundle, classic};
use crate::{
    Client, Credentials, Digest, Error, Limits, Reference,
    client::within,
    layout::{Descriptor, IMAGE_INDEX, MANIFEST},
    session::{Outgoing, Session},
};

/// The most bytes of the list of referrers.
const INDEX: u64 = 256 << 10;

/// The list of referrers. Its entries are written by whoever pushed last, so they only say where to look.
#[derive(Deserialize)]
struct Index {
    manifests: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    digest: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    artifact_type: String,
}

impl Client {
    /// Returns the claims that are attached to a manifest, in both forms. `manifest` is the digest of bytes that were
    /// pulled.
    ///
    /// # Errors
    /// Returns an error if the attached claims cannot be determined. That nothing is attached is no error.
    pub async fn signatures(
        &self,
        reference: &Reference,
        manifest: &Digest,
        credentials: &[Credentials],
        limits: &Limits,
    ) -> Result<Claims, Error> {
        within(limits, "the look-up of signatures", async {
            let mut session = Session::new(self, reference.host(), reference.repository(), "pull", credentials)?;
            let mut claims = Claims::default();
            session.classic(manifest, &mut claims).await?;
            session.bundles(manifest, &mut claims).await?;
            Ok(claims)
        })
        .await
    }
}

impl Session<'_> {
    /// Adds the layers of the manifest under the signature's tag. They are a list: two keys that signed the same
    /// payload have two layers of one digest.
    async fn classic(&mut self, of: &Digest, claims: &mut Claims) -> Result<(), Error> {
        let manifest = match self.manifest(&format!("sha256-{}.sig", of.hex()), None).await {
            Ok((manifest, _)) => manifest,
            Err(error) => return claims.passed_over(error),
        };
        claims.passed_over += manifest.layers.len().saturating_sub(MOST);
        let mut payloads: BTreeMap<String, Option<Bytes>> = BTreeMap::new();
        for layer in manifest.layers.iter().take(MOST) {
            let signature = layer.annotations.as_ref().and_then(|annotations| annotations.get(classic::ANNOTATION));
            let Some(signature) = signature.filter(|_| layer.media_type == classic::LAYER) else {
                claims.passed_over += 1;
                continue;
            };
            if !payloads.contains_key(&layer.digest) {
                let payload = match self.blob(layer, SIZE, "the payload of a signature").await {
                    Ok((payload, _)) => Some(payload),
                    Err(error) if error.is_of_the_content() => None,
                    Err(error) => return Err(error),
                };
                payloads.insert(layer.digest.clone(), payload);
            }
            match payloads.get(&layer.digest) {
                Some(Some(payload)) => {
                    claims.claims.push(Claim::Classic { payload: payload.to_vec(), signature: signature.clone() });
                }
                _ => claims.passed_over += 1,
            }
        }
        Ok(())
    }

    /// Adds the bundles that refer to the manifest.
    async fn bundles(&mut self, of: &Digest, claims: &mut Claims) -> Result<(), Error> {
        let mut entries = match self.referrers(of).await {
            Ok(entries) => entries,
            Err(error) => return claims.passed_over(error),
        };
        // A type in the list is a hint only, but entries with the type of a bundle are looked at first.
        entries.sort_by_key(|entry| entry.artifact_type != bundle::MEDIA_TYPE);
        claims.passed_over += entries.len().saturating_sub(MOST);
        for entry in entries.iter().take(MOST) {
            match self.bundle(of, entry).await {
                Ok(Some(json)) => claims.claims.push(Claim::Bundle(json.to_vec())),
                Ok(None) => claims.passed_over += 1,
                Err(error) => claims.passed_over(error)?,
            }
        }
        Ok(())
    }

    /// Returns the entries of the registry's list, or of the tag that clients keep where the registry has none.
    async fn referrers(&mut self, of: &Digest) -> Result<Vec<Entry>, Error> {
        let tag = format!("manifests/sha256-{}", of.hex());
        for path in [format!("referrers/{of}"), tag] {
            let target = self.below(&path);
            let mut answer = self.send(&target, &Outgoing::get(IMAGE_INDEX)).await?;
            match answer.status {
                StatusCode::OK => {
                    let index = answer.bytes(INDEX, "the list of referrers").await?;
                    let index: Index = serde_json::from_slice(&index)
                        .map_err(|_| Error::Invalid("the list of referrers is not an index".to_owned()))?;
                    return Ok(index.manifests);
                }
                StatusCode::NOT_FOUND => {}
                _ => return Err(answer.refusal("the list of referrers").await),
            }
        }
        Ok(Vec::new())
    }

    /// Returns the bundle in a referrer, or `None` if it is something else or refers to another manifest.
    async fn bundle(&mut self, of: &Digest, entry: &Entry) -> Result<Option<Bytes>, Error> {
        let digest: Digest = entry.digest.parse()?;
        if entry.size > MANIFEST {
            return Ok(None);
        }
        let (manifest, _) = self.manifest(&digest.to_string(), Some(&digest)).await?;
        let refers = manifest.subject.as_ref().is_some_and(|subject| subject.digest.parse() == Ok(*of));
        let [Descriptor { media_type, .. }] = &manifest.layers[..] else { return Ok(None) };
        if !refers || media_type != bundle::MEDIA_TYPE {
            return Ok(None);
        }
        let (json, _) = self.blob(&manifest.layers[0], SIZE, "a bundle").await?;
        Ok(Some(json))
    }
}

impl Claims {
    /// Counts an entry that could not be read as it is there; an entry that is not there is none. Failures of the way
    /// to it are returned.
    fn passed_over(&mut self, error: Error) -> Result<(), Error> {
        match error {
            Error::NotFound(_) => Ok(()),
            error if error.is_of_the_content() => {
                self.passed_over += 1;
                Ok(())
            }
            error => Err(error),
        }
    }
}
