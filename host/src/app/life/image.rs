//! A component from a registry: from the disk where it is there, else from the registry, and verified with the keys of
//! the present policy either way.

use bytes::Bytes;
use podium_api::Api;
use podium_engine::ports::Sender;
use podium_registry::{
    Component, Credentials, Digest, Reference,
    signature::{Claims, Key, verify},
};
use podium_runtime::max_component_bytes;
use podium_vocabulary::{PluginId, PluginSpec, PullSecret, Source, Tenant, text};
use podium_writeback::manager_name;

use super::{
    Components, Rules,
    disk::{Disk, on_disk},
};
use crate::{
    images::{Access, Images, Kept, Store, Stored, credentials, unlisted},
    objects::{FetchFailure, Step},
};

/// A component that was fetched.
#[derive(Clone)]
pub(in crate::app) struct Fetched {
    pub(super) bytes: Bytes,
    /// With the digest of its manifest; `None` if the component is not from a registry.
    pub(super) image: Option<Reference>,
    /// The key that signed it, if a signature is required.
    pub(super) signer: Option<Key>,
    /// Why the bytes of the disk are used although their place was asked, if they are. Escaped.
    pub(super) stored: Option<String>,
}

impl Fetched {
    /// Returns a component that is not from a registry.
    pub(super) fn plain(bytes: Bytes) -> Self {
        Self { bytes, image: None, signer: None, stored: None }
    }
}

/// One attempt to fetch an image for a plugin.
struct Attempt<'a> {
    api: &'a Api,
    /// `None` if only the disk is asked.
    images: Option<&'a Images>,
    store: Option<&'a Disk>,
    plugin: PluginId,
    reference: Reference,
    sender: Sender,
    secret: Option<&'a PullSecret>,
    /// `None` if no signature is required.
    keys: Option<Vec<Key>>,
    /// The most bytes of the component.
    limit: usize,
    /// `None` before they are needed.
    credentials: Option<Vec<Credentials>>,
}

/// A component that may run.
struct Verified {
    component: Component,
    /// `None` if no signature is required.
    signer: Option<Key>,
}

impl Rules {
    /// Returns true if images of the plugin must be signed.
    pub(in crate::app) fn requires_signature(&self, spec: &PluginSpec) -> bool {
        matches!(spec.source, Source::Oci { .. }) && self.required_keys(spec).is_some()
    }

    /// Returns true if the signature of this key is enough for an image of the plugin.
    pub(in crate::app) fn trusts(&self, spec: &PluginSpec, signer: Option<&Key>) -> bool {
        let keys = self.required_keys(spec).filter(|_| matches!(spec.source, Source::Oci { .. }));
        keys.is_none_or(|keys| signer.is_some_and(|signer| keys.contains(signer)))
    }

    fn required_keys(&self, spec: &PluginSpec) -> Option<Vec<Key>> {
        self.policy.as_ref()?.required_keys(&spec.tenant())
    }
}

impl Components {
    /// Fetches an image.
    pub(super) async fn image(
        &self,
        rules: &Rules,
        spec: &PluginSpec,
        image: &str,
        secret: Option<&PullSecret>,
    ) -> Result<Fetched, FetchFailure> {
        let images = rules.images.as_ref().ok_or_else(unlisted)?;
        let attempt = self.fetching(rules, spec, image, secret, Some(images))?;
        let reference = attempt.reference.clone();
        let (Verified { component, signer }, stored) = attempt.run().await?;
        let image = Some(reference.with_digest(component.manifest));
        Ok(Fetched { bytes: component.bytes, image, signer, stored })
    }

    /// Returns an image of which the disk has the bytes, and a signature of a present key if one is required.
    pub(super) async fn image_on_disk(
        &self,
        rules: &Rules,
        spec: &PluginSpec,
        image: &str,
        manifest: Digest,
    ) -> Result<Fetched, FetchFailure> {
        let attempt = self.fetching(rules, spec, image, None, None)?;
        let reference = attempt.reference.with_digest(manifest);
        let Some(stored) = attempt.stored(manifest).await else {
            return Err(not_on_disk(format!("{reference} is not on disk any more")));
        };
        match attempt.verified(&stored.component, &stored.claims) {
            Some(Verified { component, signer }) => {
                Ok(Fetched { bytes: component.bytes, image: Some(reference), signer, stored: None })
            }
            None => Err(not_on_disk(format!("no signature of {reference} is of a key of the platform's policy"))),
        }
    }

    fn fetching<'a>(
        &'a self,
        rules: &Rules,
        spec: &PluginSpec,
        image: &str,
        secret: Option<&'a PullSecret>,
        images: Option<&'a Images>,
    ) -> Result<Attempt<'a>, FetchFailure> {
        let reference: Reference = image.parse().map_err(|error: podium_registry::Error| FetchFailure {
            step: Step::Fetched,
            reason: "ImageInvalid",
            message: format!("spec.source.oci.image: {error}"),
            passing: false,
            retry_after: None,
        })?;
        Ok(Attempt {
            api: &self.api,
            images,
            store: self.store.as_ref(),
            plugin: spec.id.clone(),
            sender: Sender { manager: manager_name(&spec.id), impersonate: spec.impersonate.clone() },
            secret,
            keys: rules.required_keys(spec),
            limit: max_component_bytes(spec.limits.class),
            credentials: None,
            reference,
        })
    }

    /// Records what the tag of a plugin names, now that its component runs. Only then is it worth running again.
    pub(super) async fn remember(&self, spec: &PluginSpec, image: &Reference) {
        let Source::Oci { image: text, .. } = &spec.source else { return };
        let (Some(store), Ok(tag)) = (self.store.clone(), text.parse()) else { return };
        let tag: Reference = tag;
        if let (None, Some(manifest)) = (tag.digest(), image.digest().copied()) {
            let plugin = spec.id.clone();
            on_disk(store, move |store| store.tag_names(&plugin, &tag, &manifest)).await;
        }
    }
}

/// Returns the failure of a component that the disk should have.
pub(super) fn not_on_disk(message: String) -> FetchFailure {
    let message = text::line(&message);
    FetchFailure { step: Step::Fetched, reason: "NotOnDisk", message, passing: false, retry_after: None }
}

impl Attempt<'_> {
    /// Also returns why the component is not the one that the tag names now, if that is not known.
    async fn run(mut self) -> Result<(Verified, Option<String>), FetchFailure> {
        if let Some(digest) = self.reference.digest().copied() {
            return Ok((self.of_digest(digest).await?, None));
        }
        let failure = match self.of_tag().await {
            Ok(component) => return Ok((component, None)),
            Err(failure) => failure,
        };
        let Some(store) = self.store.cloned() else { return Err(failure) };
        let plugin = self.plugin.clone();
        let tag = self.reference.clone();
        let last = on_disk(store, move |store| store.tagged(&plugin, &tag)).await.flatten();
        let Some(digest) = last else { return Err(failure) };
        let stored = self.stored(digest).await;
        let verified = stored.and_then(|stored| self.verified(&stored.component, &stored.claims));
        let note = || format!("{failure}; {digest} runs, which the tag named before and which is on disk");
        verified.map(|verified| (verified, Some(note()))).ok_or(failure)
    }

    async fn of_tag(&mut self) -> Result<Verified, FetchFailure> {
        let credentials = self.credentials().await?;
        let access = Access { reference: &self.reference, credentials: &credentials, limit: self.limit };
        let digest = self.images()?.resolve(&access).await?;
        self.of_digest(digest).await
    }

    async fn of_digest(&mut self, digest: Digest) -> Result<Verified, FetchFailure> {
        let stored = self.stored(digest).await;
        let verified = stored.as_ref().and_then(|stored| self.verified(&stored.component, &stored.claims));
        if let Some(verified) = verified {
            return Ok(verified);
        }
        let credentials = self.credentials().await?;
        let reference = self.reference.with_digest(digest);
        let access = Access { reference: &reference, credentials: &credentials, limit: self.limit };
        let component = match stored {
            Some(stored) => stored.component,
            None => self.images()?.pull(&access).await?,
        };
        let claims = match &self.keys {
            Some(keys) => self.images()?.signatures(&access, &digest, keys).await?,
            None => Claims::default(),
        };
        let verified = self.verified(&component, &claims).ok_or_else(unlisted)?;
        if let Some(store) = self.store.cloned() {
            let tenant = self.tenant();
            let store_it = move |store: &Store| {
                store.store(Kept { tenant: &tenant, reference: &reference, manifest: &digest }, &component, &claims);
            };
            on_disk(store, store_it).await;
        }
        Ok(verified)
    }

    async fn stored(&self, digest: Digest) -> Option<Stored> {
        let store = self.store?.clone();
        let tenant = self.tenant();
        let reference = self.reference.clone();
        let load = move |store: &Store| store.load(Kept { tenant: &tenant, reference: &reference, manifest: &digest });
        on_disk(store, load).await?
    }

    /// Returns a component with the present key that signed it. A key may have been removed from the policy since the
    /// component was stored.
    fn verified(&self, component: &Component, claims: &Claims) -> Option<Verified> {
        let signer = match &self.keys {
            Some(keys) => Some(keys.get(verify(keys, &component.manifest, claims).ok()?)?.clone()),
            None => None,
        };
        Some(Verified { component: component.clone(), signer })
    }

    fn images(&self) -> Result<&Images, FetchFailure> {
        self.images.ok_or_else(unlisted)
    }

    fn tenant(&self) -> Tenant {
        self.plugin.tenant()
    }

    async fn credentials(&mut self) -> Result<Vec<Credentials>, FetchFailure> {
        if let Some(credentials) = &self.credentials {
            return Ok(credentials.clone());
        }
        let read = match self.secret {
            Some(secret) => credentials(self.api, &self.sender, secret, &self.reference).await?,
            None => Vec::new(),
        };
        self.credentials = Some(read.clone());
        Ok(read)
    }
}
