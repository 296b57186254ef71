//! Requests to registries, with failures in the words of a status.

use std::time::Duration;

use podium_registry::{
    Allowed, Client, Component, Credentials, Digest, Error, Limits, Proxies, Reference, Resolve,
    signature::{Claims, Key, verify},
};
use podium_vocabulary::text;

use crate::objects::{CORRECTED, FetchFailure, Step};

/// The time of one operation: 32 MiB at 4 Mbit/s. A registry that is slower keeps one of few places for that long.
const TIME: Duration = Duration::from_secs(60);
/// The longest wait that a registry may ask for.
const MOST_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

/// The registries that components may come from.
#[derive(Clone)]
pub struct Images {
    client: Client,
}

/// How one plugin reaches its registry.
pub(crate) struct Access<'a> {
    pub(crate) reference: &'a Reference,
    pub(crate) credentials: &'a [Credentials],
    /// The most bytes of a component.
    pub(crate) limit: usize,
}

impl Images {
    /// Returns the registries of a list, and names resolved by `resolver`.
    #[must_use]
    pub fn new(allowed: Allowed, resolver: impl Resolve + 'static) -> Self {
        Self { client: Client::new(allowed, resolver) }
    }

    /// Returns the same registries, reached through these proxies.
    #[must_use]
    pub fn through(self, proxies: Proxies) -> Self {
        Self { client: self.client.through(proxies) }
    }

    /// Returns the digest that a tag names now.
    pub(crate) async fn resolve(&self, access: &Access<'_>) -> Result<Digest, FetchFailure> {
        let found = self.client.resolve(access.reference, access.credentials, &access.limits()).await;
        found.map_err(|error| failure(Step::Fetched, access, error))
    }

    /// Pulls the component of a reference with a digest.
    pub(crate) async fn pull(&self, access: &Access<'_>) -> Result<Component, FetchFailure> {
        let pulled = self.client.pull(access.reference, access.credentials, &access.limits()).await;
        pulled.map_err(|error| failure(Step::Fetched, access, error))
    }

    /// Returns the signatures of a manifest that are of one of the keys; at least one.
    pub(crate) async fn signatures(
        &self,
        access: &Access<'_>,
        manifest: &Digest,
        keys: &[Key],
    ) -> Result<Claims, FetchFailure> {
        let Access { reference, credentials, .. } = access;
        let found = self.client.signatures(reference, manifest, keys, credentials, &access.limits()).await;
        let found = found.map_err(|error| failure(Step::Verified, access, error))?;
        match verify(keys, manifest, &found) {
            Ok(_) => Ok(found.signed_by(keys, manifest)),
            Err(error) => {
                let message = format!(
                    "{error}; sign it with cosign sign --key and a key whose public key is in the platform's policy"
                );
                // It may be signed after it was pushed.
                Err(failed(Step::Verified, "SignatureMissing", true, message))
            }
        }
    }
}

impl Access<'_> {
    fn limits(&self) -> Limits {
        Limits { component: self.limit as u64, time: TIME }
    }
}

/// Returns the failure of a plugin whose host connects to no registry.
pub(crate) fn unlisted() -> FetchFailure {
    let message = "this host connects to no registry; list it in spec.registries of the policy that --policy names";
    failed(Step::Fetched, "RegistryForbidden", false, message.to_owned())
}

fn failed(step: Step, reason: &'static str, passing: bool, message: String) -> FetchFailure {
    let message = text::line(&format!("spec.source.oci: {message}"));
    FetchFailure { step, reason, message, passing, retry_after: None }
}

fn failure(step: Step, access: &Access<'_>, error: Error) -> FetchFailure {
    let host = access.reference.host();
    let (reason, advice) = match &error {
        Error::Forbidden(_) => {
            ("RegistryForbidden", format!("; the platform's policy lists what {host} may lead to, in spec.registries"))
        }
        Error::Denied(_) if step == Step::Verified => {
            let advice = "; the image can be read, so let the same credentials read its signatures too";
            ("RegistryDenied", advice.to_owned())
        }
        Error::Denied(_) if access.credentials.is_empty() => {
            let advice = "; if the image exists, name a Secret with credentials in pullSecretName";
            ("RegistryDenied", advice.to_owned())
        }
        Error::Denied(_) => {
            let advice = "; correct the credentials in the Secret, which is read again within 5 minutes";
            ("RegistryDenied", advice.to_owned())
        }
        Error::NotFound(_) => ("ImageNotFound", "; push it, or correct image".to_owned()),
        Error::Invalid(_) => ("ImageInvalid", String::new()),
        Error::TooLarge(_) => ("TooLarge", String::new()),
        Error::DigestMismatch(_) => ("DigestMismatch", String::new()),
        Error::Busy { .. } => ("RegistryBusy", String::new()),
        Error::Unavailable(message) if message.contains("InvalidContentType") => {
            ("RegistryUnavailable", format!("; {host} may not speak TLS: see plainHttp of the policy"))
        }
        Error::Unavailable(_) => ("RegistryUnavailable", String::new()),
    };
    // Credentials are renewed, images are pushed again, and registries are mended: no answer is for ever.
    let retry_after = match error {
        Error::Busy { retry_after, .. } => retry_after.map(|wait| wait.min(MOST_RETRY_AFTER)),
        _ => Some(CORRECTED).filter(|_| !error.may_succeed_later()),
    };
    FetchFailure { retry_after, ..failed(step, reason, true, format!("{error}{advice}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_of_a_registry_is_asked_for_again_after_seconds_or_minutes() {
        let reference: Reference = "registry.example/a:1".parse().unwrap();
        let access = Access { reference: &reference, credentials: &[], limit: 1 };
        let minute = Some(CORRECTED);
        let busy = |seconds| Error::Busy { message: String::new(), retry_after: Some(Duration::from_secs(seconds)) };
        for (error, expected) in [
            (Error::Denied(String::new()), minute),
            (Error::Forbidden(String::new()), minute),
            (Error::Invalid(String::new()), minute),
            (Error::TooLarge(String::new()), minute),
            (Error::DigestMismatch(String::new()), minute),
            (Error::NotFound(String::new()), None),
            (Error::Unavailable(String::new()), None),
            (busy(7), Some(Duration::from_secs(7))),
            (busy(1 << 40), Some(MOST_RETRY_AFTER)),
        ] {
            for step in [Step::Fetched, Step::Verified] {
                let failure = failure(step, &access, error.clone());
                assert_eq!((failure.passing, failure.retry_after), (true, expected), "{error:?}");
                assert!(!failure.message.contains("change this plugin"), "{failure}");
            }
        }
    }
}
