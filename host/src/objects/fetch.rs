//! A component that is not in a file, as bytes whose digest is the configured one.

use std::{collections::BTreeMap, time::Duration};

use http::Request;
use k8s_openapi::ByteString;
use podium_api::{Api, ApiError, LiveReadOf, plugin_user_agent};
use podium_engine::ports::Sender;
use podium_registry::Digest;
use podium_vocabulary::text;
use serde::{Deserialize, de::DeserializeOwned};

use super::Step;

/// Why a component was not fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FetchFailure {
    /// The reason of the condition `Fetched`, in CamelCase.
    pub reason: &'static str,
    /// The failure, and how to correct it.
    pub message: String,
    /// Another attempt may succeed.
    pub passing: bool,
    /// The shortest pause before another attempt: as a registry asked, or [`CORRECTED`].
    pub retry_after: Option<Duration>,
    /// The step that failed.
    pub(crate) step: Step,
}

/// The shortest pause before another attempt after a failure that has to be corrected elsewhere: credentials that
/// expired, an image or a ConfigMap that does not have the right bytes yet. Attempts in a row have longer ones.
pub(crate) const CORRECTED: Duration = Duration::from_secs(60);

/// A key of a ConfigMap, and the digest of its value.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConfigMapKey<'a> {
    /// The field of the configuration.
    pub(crate) field: &'static str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) key: &'a str,
    /// In hexadecimal digits.
    pub(crate) sha256: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigMap {
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
    #[serde(default)]
    binary_data: Option<BTreeMap<String, ByteString>>,
}

/// Returns the SHA-256 in hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Digest::sha256(bytes).hex()
}

impl FetchFailure {
    /// Returns a failure that may pass, to fetch the object that a field names.
    pub(crate) fn fetching(field: &str, reason: &'static str, message: &str) -> Self {
        let message = text::line(&format!("{field}: {message}"));
        Self { reason, message, passing: true, retry_after: None, step: Step::Fetched }
    }
}

/// A kind of objects that are read as a plugin's account.
pub(crate) struct Readable {
    pub(crate) kind: &'static str,
    pub(crate) resource: &'static str,
    /// The reasons of the failures.
    pub(crate) not_found: &'static str,
    pub(crate) forbidden: &'static str,
}

const CONFIG_MAP: Readable = Readable {
    kind: "ConfigMap",
    resource: "configmaps",
    not_found: "ConfigMapNotFound",
    forbidden: "ConfigMapForbidden",
};

/// Reads an object that a field names, as the account of a plugin.
pub(crate) async fn read_as<T: DeserializeOwned>(
    api: &Api,
    sender: &Sender,
    field: &str,
    readable: &Readable,
    (namespace, name): (&str, &str),
) -> Result<T, FetchFailure> {
    let Readable { kind, resource, not_found, forbidden } = readable;
    let account = sender.impersonate.as_deref();
    let mut request = Request::get(format!("/api/v1/namespaces/{namespace}/{resource}/{name}"))
        .extension(LiveReadOf(sender.plugin().to_owned()))
        .header(http::header::USER_AGENT, plugin_user_agent(sender.plugin()));
    if let Some(account) = account {
        request = request.header("impersonate-user", account);
    }
    let failed = |message: String| FetchFailure::fetching(field, "FetchFailed", &message);
    let request = request.body(Vec::new()).map_err(|error| failed(error.to_string()))?;
    let bytes = api.bytes(request).await.map_err(|error| match error {
        ApiError::Status { code: 404, .. } => {
            FetchFailure::fetching(field, not_found, &format!("there is no {kind} {namespace}/{name}; create it"))
        }
        ApiError::Status { code: 403, .. } => {
            let account = account.unwrap_or("the host's account");
            let message = format!(
                "{account} may not get {kind} {namespace}/{name}; grant it the verb get on {resource} with this name, \
                 and the host the verb impersonate on the ServiceAccount"
            );
            FetchFailure::fetching(field, forbidden, &message)
        }
        error => failed(format!("{kind} {namespace}/{name}: {}", error.for_guests())),
    })?;
    // An error of the parser would show values of a Secret.
    serde_json::from_slice(&bytes).map_err(|_| failed("the API server's answer is malformed".to_owned()))
}

/// Reads a key of a ConfigMap with one GET as the plugin's account, or as the host's if the plugin has none. The
/// API server limits a ConfigMap to 1 MiB; at most `limit` bytes are accepted.
///
/// # Errors
/// Returns an error if it cannot be read, or if its digest is another one. A value of another digest is not returned:
/// whoever may edit the ConfigMap could otherwise replace the code that has the plugin's grants.
pub(crate) async fn config_map(
    api: &Api,
    sender: &Sender,
    source: ConfigMapKey<'_>,
    limit: usize,
) -> Result<Vec<u8>, FetchFailure> {
    let ConfigMapKey { field, namespace, name, key, sha256: expected } = source;
    let failure = |reason, message: String| FetchFailure::fetching(field, reason, &message);
    let ConfigMap { data, binary_data } = read_as(api, sender, field, &CONFIG_MAP, (namespace, name)).await?;
    let binary = binary_data.and_then(|mut entries| entries.remove(key)).map(|ByteString(bytes)| bytes);
    let Some(bytes) = binary.or_else(|| data?.remove(key).map(String::into_bytes)) else {
        let message = format!("ConfigMap {namespace}/{name} has no key {key}; add it under binaryData");
        return Err(failure("KeyNotFound", message));
    };
    if bytes.len() > limit {
        let message =
            format!("{key} has {} bytes; at most {limit} are permitted, by its class or for a script", bytes.len());
        return Err(FetchFailure { retry_after: Some(CORRECTED), ..failure("TooLarge", message) });
    }
    let found = sha256(&bytes);
    if found != expected {
        let message = format!(
            "{key} of ConfigMap {namespace}/{name} has the SHA-256 {found}, and not {expected}; correct sha256, or \
             write the expected bytes into the ConfigMap, which is read again within 5 minutes"
        );
        return Err(FetchFailure { retry_after: Some(CORRECTED), ..failure("DigestMismatch", message) });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use bytes::Bytes;
    use http::Response;
    use http_body_util::Full;
    use kube::client::Body;

    use super::*;

    const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    async fn fetched(status: u16, body: &'static str, limit: usize) -> Result<Vec<u8>, FetchFailure> {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/shop/configmaps/tidy");
            assert_eq!(request.headers()["impersonate-user"], "system:serviceaccount:shop:a");
            let body = Full::new(Bytes::from_static(body.as_bytes()));
            Ok::<_, Infallible>(Response::builder().status(status).body(body).unwrap())
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let account = Some("system:serviceaccount:shop:a".to_owned());
        let sender = Sender { manager: "podium/shop/tidy".to_owned(), impersonate: account };
        let field = "spec.source.configMap";
        let source = ConfigMapKey { field, namespace: "shop", name: "tidy", key: "a.wasm", sha256: DIGEST };
        config_map(&api, &sender, source, limit).await
    }

    #[tokio::test]
    async fn the_bytes_of_a_key_are_returned_if_their_digest_is_the_configured_one() {
        for body in [r#"{"binaryData":{"a.wasm":"YWJj"}}"#, r#"{"data":{"a.wasm":"abc"},"binaryData":null}"#] {
            assert_eq!(fetched(200, body, 3).await.unwrap(), b"abc");
        }
    }

    #[tokio::test]
    async fn everything_else_is_a_failure_that_says_what_to_do() {
        let other = r#"{"binaryData":{"a.wasm":"YWJk"}}"#;
        let right = r#"{"binaryData":{"a.wasm":"YWJj"}}"#;
        let cases = [
            (404, "", 3, "ConfigMapNotFound", true, "create it"),
            (403, "", 3, "ConfigMapForbidden", true, "the verb get on configmaps"),
            (500, "", 3, "FetchFailed", true, "answered 500"),
            (200, "no json", 3, "FetchFailed", true, "malformed"),
            (200, r#"{"binaryData":{"a.wasm":"***"}}"#, 3, "FetchFailed", true, "malformed"),
            (200, r#"{"data":{"b":"abc"}}"#, 3, "KeyNotFound", true, "under binaryData"),
            (200, right, 2, "TooLarge", true, "at most 2"),
            (200, other, 3, "DigestMismatch", true, "correct sha256"),
        ];
        for (status, body, limit, reason, passing, advice) in cases {
            let failure = fetched(status, body, limit).await.unwrap_err();
            assert_eq!((failure.reason, failure.passing), (reason, passing), "{failure}");
            assert!(failure.message.contains(advice), "{failure}");
        }
    }
}
