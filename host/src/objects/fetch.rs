//! A component that is not in a file, as bytes whose digest is the configured one.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::Request;
use k8s_openapi::ByteString;
use podium_api::{Api, ApiError, LiveReadOf, plugin_user_agent};
use podium_engine::ports::Sender;
use podium_registry::Digest;
use podium_vocabulary::text;
use serde::Deserialize;

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

/// Gets an object as the plugin's account, or as the host's if the plugin has none.
///
/// # Errors
/// Those of the request. A path that is none of a URL is one that nothing was sent for.
pub(crate) async fn get_as(api: &Api, sender: &Sender, path: &str) -> Result<Bytes, ApiError> {
    let mut request = Request::get(path)
        .extension(LiveReadOf(sender.plugin().to_owned()))
        .header(http::header::USER_AGENT, plugin_user_agent(sender.plugin()));
    if let Some(account) = &sender.impersonate {
        request = request.header("impersonate-user", account);
    }
    let request = request.body(Vec::new());
    let request = request.map_err(|error| ApiError::Transport { sent: false, message: error.to_string() })?;
    api.bytes(request).await
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
    let failure = |reason, passing, message: String| {
        let message = text::line(&format!("{field}: {message}"));
        FetchFailure { reason, message, passing, retry_after: None, step: Step::Fetched }
    };
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let bytes = get_as(api, sender, &path).await.map_err(|error| match error {
        ApiError::Status { code: 404, .. } => {
            failure("ConfigMapNotFound", true, format!("there is no ConfigMap {namespace}/{name}; create it"))
        }
        ApiError::Status { code: 403, .. } => {
            let account = sender.impersonate.as_deref().unwrap_or("the host's account");
            let message = format!(
                "{account} may not get ConfigMap {namespace}/{name}; grant it the verb get on configmaps with this \
                 name, and the host the verb impersonate on the ServiceAccount"
            );
            failure("ConfigMapForbidden", true, message)
        }
        error => failure("FetchFailed", true, format!("ConfigMap {namespace}/{name}: {}", error.for_guests())),
    })?;
    let ConfigMap { data, binary_data } = serde_json::from_slice(&bytes)
        .map_err(|error| failure("FetchFailed", true, format!("the API server's answer is malformed: {error}")))?;
    let binary = binary_data.and_then(|mut entries| entries.remove(key)).map(|ByteString(bytes)| bytes);
    let Some(bytes) = binary.or_else(|| data?.remove(key).map(String::into_bytes)) else {
        let message = format!("ConfigMap {namespace}/{name} has no key {key}; add it under binaryData");
        return Err(failure("KeyNotFound", true, message));
    };
    if bytes.len() > limit {
        let message = format!("{key} has {} bytes; at most {limit} are permitted for its class", bytes.len());
        return Err(FetchFailure { retry_after: Some(CORRECTED), ..failure("TooLarge", true, message) });
    }
    let found = sha256(&bytes);
    if found != expected {
        let message = format!(
            "{key} of ConfigMap {namespace}/{name} has the SHA-256 {found}, and not {expected}; correct sha256, or \
             write the expected bytes into the ConfigMap, which is read again within 5 minutes"
        );
        return Err(FetchFailure { retry_after: Some(CORRECTED), ..failure("DigestMismatch", true, message) });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

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
