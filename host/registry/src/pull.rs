//! Pulling a component.

use bytes::Bytes;
use http::{StatusCode, header};

use crate::{
    Client, Credentials, Digest, Error, Limits, Reference,
    client::within,
    digest::Hasher,
    layout::{ACCEPT, Descriptor, MANIFEST, Manifest},
    session::{Outgoing, Session},
};

/// A component, whose bytes have the digest that its manifest names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    pub bytes: Bytes,
    /// The digest that a signature signs, and the one to pin.
    pub manifest: Digest,
    pub layer: Digest,
    /// The manifest as the registry has it.
    pub manifest_bytes: Bytes,
}

impl Component {
    /// Returns a component from bytes that were pulled before, if they still have their digests.
    ///
    /// # Errors
    /// Returns an error if a byte of the manifest or of the component is another one.
    pub fn stored(manifest: Digest, manifest_bytes: Bytes, bytes: Bytes) -> Result<Self, Error> {
        let mismatch = |what: &str, found: Digest, expected: Digest| {
            Error::DigestMismatch(format!("{what} has the digest {found}, and {expected} was expected"))
        };
        let found = Digest::sha256(&manifest_bytes);
        if found != manifest {
            return Err(mismatch("the manifest", found, manifest));
        }
        let layer = Manifest::parse(&manifest_bytes, None)?.component()?.digest.parse()?;
        let found = Digest::sha256(&bytes);
        if found != layer {
            return Err(mismatch("the component", found, layer));
        }
        Ok(Self { bytes, manifest, layer, manifest_bytes })
    }
}

impl Client {
    /// Pulls a component. The credentials are tried one after another; none are sent unless the registry asks for them.
    ///
    /// # Errors
    /// Returns an error if the platform does not permit the connection, if the registry refuses it, and if what it
    /// sends is not the component of this reference within the limits.
    pub async fn pull(
        &self,
        reference: &Reference,
        credentials: &[Credentials],
        limits: &Limits,
    ) -> Result<Component, Error> {
        within(limits, "the pull", async {
            let mut session = Session::new(self, reference.host(), reference.repository(), "pull", credentials)?;
            let found = session.manifest_of(&reference.selector(), reference.digest(), Manifest::component).await?;
            let (manifest_bytes, manifest, layer) = found;
            let (bytes, layer) = session.blob(&layer, limits.component, "the component").await?;
            Ok(Component { bytes, manifest, layer, manifest_bytes })
        })
        .await
    }

    /// Returns the digest of the manifest that a reference names now, computed from its bytes.
    ///
    /// # Errors
    /// Returns an error if the manifest cannot be read or is not one of a component.
    pub async fn resolve(
        &self,
        reference: &Reference,
        credentials: &[Credentials],
        limits: &Limits,
    ) -> Result<Digest, Error> {
        within(limits, "the look-up of the tag", async {
            let mut session = Session::new(self, reference.host(), reference.repository(), "pull", credentials)?;
            let found = session.manifest_of(&reference.selector(), reference.digest(), Manifest::component).await?;
            Ok(found.1)
        })
        .await
    }
}

impl Session<'_> {
    /// Gets a manifest by tag or digest.
    pub(crate) async fn manifest(&mut self, selector: &str, expected: Option<&Digest>) -> Result<Manifest, Error> {
        Ok(self.manifest_of(selector, expected, Ok).await?.2)
    }

    /// Gets the bytes of a manifest, their digest, and what `read` finds in it. The digest is computed from the bytes,
    /// never read from a header.
    async fn manifest_of<T>(
        &mut self,
        selector: &str,
        expected: Option<&Digest>,
        read: impl FnOnce(Manifest) -> Result<T, Error>,
    ) -> Result<(Bytes, Digest, T), Error> {
        let what = format!("manifest {selector}");
        let target = self.below(&format!("manifests/{selector}"));
        let mut answer = self.send(&target, &Outgoing::get(ACCEPT)).await?;
        if answer.status != StatusCode::OK {
            return Err(answer.refusal(&what).await);
        }
        let bytes = answer.bytes(MANIFEST, &what).await?;
        let digest = Digest::sha256(&bytes);
        // By tag, a header that differs shows at least that something is wrong on the way.
        let announced = answer.headers.get("docker-content-digest").and_then(|digest| digest.to_str().ok());
        let announced = announced.and_then(|digest| digest.parse().ok());
        if let Some(other) = expected.copied().or(announced).filter(|other| *other != digest) {
            let mismatch = format!("{what} has the digest {digest}, and {other} was expected");
            return Err(answer.shown(&what, Error::DigestMismatch(mismatch)));
        }
        let content_type = answer.headers.get(header::CONTENT_TYPE).and_then(|content_type| content_type.to_str().ok());
        let found = Manifest::parse(&bytes, content_type).and_then(read);
        Ok((bytes.into(), digest, found.map_err(|error| answer.shown(&what, error))?))
    }

    /// Gets a blob. No byte of it is returned before all have the digest.
    pub(crate) async fn blob(
        &mut self,
        descriptor: &Descriptor,
        limit: u64,
        what: &str,
    ) -> Result<(Bytes, Digest), Error> {
        let expected: Digest = descriptor.digest.parse()?;
        let size = descriptor.size;
        if size > limit {
            return Err(Error::TooLarge(format!("{what} has {size} bytes, and {limit} are permitted")));
        }
        let target = self.below(&format!("blobs/{expected}"));
        let mut answer = self.send(&target, &Outgoing::get("application/octet-stream, */*")).await?;
        if answer.status != StatusCode::OK {
            return Err(answer.refusal(&format!("{what} {expected}")).await);
        }
        if answer.length().is_some_and(|length| length < size) {
            return Err(Error::Invalid(format!("{what} is shorter than the {size} bytes that the manifest says")));
        }
        let mut hasher = Hasher::new();
        let mut bytes = Vec::new();
        let length = answer.read(size, what, |piece| {
            hasher.update(piece);
            bytes.extend_from_slice(piece);
        });
        let length = length.await?;
        let digest = hasher.finish();
        if length != size || digest != expected {
            let mismatch =
                format!("{what} has {length} bytes and the digest {digest}; {size} bytes and {expected} were expected");
            return Err(answer.shown(what, Error::DigestMismatch(mismatch)));
        }
        Ok((bytes.into(), digest))
    }
}
