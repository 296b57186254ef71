//! Finding the signatures of a manifest in its repository.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{StatusCode, Uri, header};
use serde::Deserialize;
use tokio::time::Instant;

use super::{Claim, Claims, Key, MOST, SIZE, bundle, classic};
use crate::{
    Client, Credentials, Digest, Error, Limits, Reference,
    client::within,
    layout::{Descriptor, IMAGE_INDEX, MANIFEST},
    session::{Outgoing, Session, Target},
};

/// The most bytes of the list of referrers.
const INDEX: u64 = 256 << 10;
/// The most pages of the list that are looked at.
const PAGES: usize = 4;

/// The list of referrers. Its entries are written by whoever pushed last, so they only say where to look.
#[derive(Deserialize)]
struct Index {
    manifests: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    digest: String,
    size: Option<u64>,
    artifact_type: Option<String>,
}

/// The signatures of a manifest that were found so far.
struct Search<'a> {
    keys: &'a [Key],
    of: &'a Digest,
    claims: Claims,
    /// Whether a claim is of one of the keys: nothing more is asked for then.
    is_signed: bool,
    /// Why not everything could be read: the first reason, or the first that may pass.
    failure: Option<Error>,
}

impl Client {
    /// Returns claims that are attached to a manifest, in both forms, and stops at the first that is of one of the
    /// keys. `manifest` is the digest of bytes that were pulled.
    ///
    /// # Errors
    /// Returns an error if no claim is of one of the keys and not all of them could be read. That nothing is attached
    /// is no error.
    pub async fn signatures(
        &self,
        reference: &Reference,
        manifest: &Digest,
        keys: &[Key],
        credentials: &[Credentials],
        limits: &Limits,
    ) -> Result<Claims, Error> {
        within(limits, "the look-up of signatures", async {
            let mut session = Session::new(self, reference.host(), reference.repository(), "pull", credentials)?;
            let claims = Claims::default();
            let is_signed = false;
            let failure = None;
            let mut search = Search { keys, of: manifest, claims, is_signed, failure };
            // The registry's own list, and the tag that clients keep where the registry has none, or had none.
            let lists = [format!("referrers/{manifest}"), format!("manifests/sha256-{}", manifest.hex())];
            let end = Instant::now() + limits.time;
            for (left, place) in [(3, None), (2, Some(&lists[0])), (1, Some(&lists[1]))] {
                // A place that does not answer leaves the others their time.
                let part = Limits { time: end.saturating_duration_since(Instant::now()) / left, ..*limits };
                let look = async {
                    match place {
                        _ if search.is_signed => {}
                        None => session.classic(&mut search).await,
                        Some(list) => session.bundles(list, &part, &mut search).await,
                    }
                    Ok(())
                };
                if let Err(late) = within(&part, "the look-up of signatures", look).await {
                    search.failed(late);
                }
            }
            let Search { claims, is_signed, failure, .. } = search;
            let unread = format!("no signature of {manifest} by a required key was found, and not all could be read");
            failure.filter(|_| !is_signed).map_or(Ok(claims), |failure| Err(failure.after(&unread)))
        })
        .await
    }
}

impl Session<'_> {
    /// Adds the layers of the manifest under the signature's tag. They are a list: two keys that signed the same
    /// payload have two layers of one digest.
    async fn classic(&mut self, search: &mut Search<'_>) {
        let manifest = match self.manifest(&format!("sha256-{}.sig", search.of.hex()), None).await {
            Ok(manifest) => manifest,
            Err(error) => return search.failed(error),
        };
        search.claims.passed_over += manifest.layers.len().saturating_sub(MOST);
        let mut payloads: BTreeMap<String, Option<Bytes>> = BTreeMap::new();
        for layer in manifest.layers.iter().take(MOST) {
            if search.is_signed {
                return;
            }
            let signature = layer.annotations.as_ref().and_then(|annotations| annotations.get(classic::ANNOTATION));
            let Some(signature) = signature.filter(|_| layer.media_type == classic::LAYER) else {
                search.claims.passed_over += 1;
                continue;
            };
            if !payloads.contains_key(&layer.digest) {
                let payload = match self.blob(layer, SIZE, "the payload of a signature").await {
                    Ok((payload, _)) => Some(payload),
                    Err(error) if error.is_of_the_content() => None,
                    Err(error) => {
                        search.failed(error);
                        None
                    }
                };
                payloads.insert(layer.digest.clone(), payload);
            }
            match payloads.get(&layer.digest) {
                Some(Some(payload)) => {
                    search.add(Claim::Classic { payload: payload.to_vec(), signature: signature.clone() });
                }
                _ => search.claims.passed_over += 1,
            }
        }
    }

    /// Adds the bundles of a list that refer to the manifest.
    async fn bundles(&mut self, list: &str, limits: &Limits, search: &mut Search<'_>) {
        let mut next = Some(self.below(list));
        let mut entries = Vec::new();
        let pages = async {
            for _ in 0..PAGES {
                let Some(target) = next.take() else { break };
                let page;
                (page, next) = self.referrers(&target).await?;
                entries.extend(page);
            }
            Ok(())
        };
        // A page that does not answer leaves the entries of those before their time.
        if let Err(error) = within(&Limits { time: limits.time / 2, ..*limits }, "the list of referrers", pages).await {
            search.failed(error);
        }
        // A type in the list is a hint only, but entries with the type of a bundle are looked at first.
        entries.sort_by_key(|entry| !entry.artifact_type.as_deref().is_some_and(bundle::is_bundle));
        // A page that was not read counts as one.
        search.claims.passed_over += entries.len().saturating_sub(MOST) + usize::from(next.is_some());
        for entry in entries.iter().take(MOST) {
            match self.bundle(search.of, entry).await {
                Ok(Some(json)) => search.add(Claim::Bundle(json.to_vec())),
                Ok(None) => search.claims.passed_over += 1,
                Err(error) => search.failed(error),
            }
            if search.is_signed {
                return;
            }
        }
    }

    /// Returns the entries of a page of a list, and the next page. None are of a registry without such lists, which
    /// answers the path with an error of its choice, or with a page for people.
    async fn referrers(&mut self, target: &Target) -> Result<(Vec<Entry>, Option<Target>), Error> {
        const WHAT: &str = "the list of referrers";
        let answer = self.send(target, &Outgoing::get(IMAGE_INDEX)).await.map_err(|error| error.after(WHAT));
        let mut answer = answer?;
        match answer.status {
            StatusCode::OK => {
                let index = answer.bytes(INDEX, WHAT).await?;
                let next = answer.headers.get(header::LINK).and_then(|link| self.page(link.to_str().ok()?));
                let index = serde_json::from_slice(&index).unwrap_or(Index { manifests: Vec::new() });
                let entries = index.manifests.into_iter().filter_map(|entry| serde_json::from_value(entry).ok());
                Ok((entries.collect(), next))
            }
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS => Err(answer.refusal(WHAT).await),
            status if status.is_client_error() || status == StatusCode::NOT_IMPLEMENTED => Ok((Vec::new(), None)),
            _ => Err(answer.refusal(WHAT).await),
        }
    }

    /// Returns the next page that a header `Link` names, if it is one of the registry's lists for the repository.
    fn page(&self, link: &str) -> Option<Target> {
        let (url, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let url: Uri = url.parse().ok()?;
        let list = url.path_and_query()?.as_str().strip_prefix(self.below("referrers/").path())?;
        (parameters.contains("next") && self.is_own(&url)).then(|| self.below(&format!("referrers/{list}")))
    }

    /// Returns the bundle in a referrer, or `None` if it is something else or refers to another manifest.
    async fn bundle(&mut self, of: &Digest, entry: &Entry) -> Result<Option<Bytes>, Error> {
        let digest: Digest = entry.digest.parse()?;
        if entry.size.is_some_and(|size| size > MANIFEST) {
            return Ok(None);
        }
        let manifest = self.manifest(&digest.to_string(), Some(&digest)).await?;
        let refers = manifest.subject.as_ref().is_some_and(|subject| subject.digest.parse() == Ok(*of));
        let [Descriptor { media_type, .. }] = &manifest.layers[..] else { return Ok(None) };
        if !refers || !bundle::is_bundle(media_type) {
            return Ok(None);
        }
        let (json, _) = self.blob(&manifest.layers[0], SIZE, "a bundle").await?;
        Ok(Some(json))
    }
}

impl Search<'_> {
    fn add(&mut self, claim: Claim) {
        self.is_signed |= self.keys.iter().any(|key| claim.is_of(key, self.of));
        self.claims.claims.push(claim);
    }

    /// Counts an entry that could not be read as it is there; an entry that is not there is none. A failure of the way
    /// to it counts only if no signature is found elsewhere.
    fn failed(&mut self, error: Error) {
        if matches!(error, Error::NotFound(_)) {
            return;
        }
        if error.is_of_the_content() {
            self.claims.passed_over += 1;
        } else if self.failure.as_ref().is_none_or(|first| !first.may_succeed_later() && error.may_succeed_later()) {
            self.failure = Some(error);
        }
    }
}
