//! The credentials in a pull Secret. They are read with one GET as the plugin's account, and kept nowhere.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use podium_api::Api;
use podium_engine::ports::Sender;
use podium_registry::{Credentials, Error, Keyring, Reference};
use podium_vocabulary::{PullSecret, text};
use serde::Deserialize;

use crate::objects::{FetchFailure, Readable, read_as};

const FIELD: &str = "spec.source.oci.pullSecretName";
const SECRET: Readable =
    Readable { kind: "Secret", resource: "secrets", not_found: "PullSecretNotFound", forbidden: "PullSecretForbidden" };

#[derive(Deserialize)]
struct Secret {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    data: Option<BTreeMap<String, ByteString>>,
}

/// Returns the credentials of a Secret for a reference. The Secret's own account reads it, whatever `sender` is.
///
/// # Errors
/// Returns an error if the Secret cannot be read, and if it has no credentials for the registry. The message contains
/// nothing of them.
pub(crate) async fn credentials(
    api: &Api,
    sender: &Sender,
    secret: &PullSecret,
    reference: &Reference,
) -> Result<Vec<Credentials>, FetchFailure> {
    let PullSecret { account, namespace, name } = secret;
    let sender = Sender { impersonate: Some(account.clone()), ..sender.clone() };
    let invalid = |message: String| FetchFailure::fetching(FIELD, "PullSecretInvalid", &message);
    let Secret { kind, data } = read_as(api, &sender, FIELD, &SECRET, (namespace, name)).await?;
    let mut data = data.unwrap_or_default();
    let mut read =
        |key: &str, parse: fn(&[u8]) -> Result<Keyring, Error>| data.remove(key).map(|ByteString(json)| parse(&json));
    let keyring = match kind.as_str() {
        "kubernetes.io/dockerconfigjson" => read(".dockerconfigjson", Keyring::from_docker_config_json),
        "kubernetes.io/dockercfg" => read(".dockercfg", Keyring::from_docker_cfg),
        other => {
            let message = format!(
                "Secret {namespace}/{name} is of type {}; it must be of kubernetes.io/dockerconfigjson, as kubectl \
                 create secret docker-registry makes it",
                text::name(other)
            );
            return Err(invalid(message));
        }
    };
    let keyring = match keyring {
        Some(Ok(keyring)) => keyring,
        Some(Err(error)) => {
            return Err(invalid(format!("Secret {namespace}/{name}: {error}")));
        }
        None => {
            let message = format!("Secret {namespace}/{name} lacks the key of its type");
            return Err(invalid(message));
        }
    };
    let found = keyring.matching(reference);
    if found.is_empty() {
        let host = reference.host();
        let warnings: String = keyring.warnings().iter().map(|warning| format!("; {warning}")).collect();
        let message = format!(
            "Secret {namespace}/{name} has no credentials for {host}{warnings}; add them, or remove pullSecretName"
        );
        return Err(invalid(message));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::Full;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    async fn read(code: u16, body: String) -> Result<Vec<Credentials>, FetchFailure> {
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/shop/secrets/pull");
            assert_eq!(request.headers()["impersonate-user"], "system:serviceaccount:shop:a");
            let body = Full::new(Bytes::from(body.clone()));
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let sender = Sender { manager: "podium/shop/tidy".to_owned(), impersonate: None };
        let secret = PullSecret {
            account: "system:serviceaccount:shop:a".to_owned(),
            namespace: "shop".to_owned(),
            name: "pull".to_owned(),
        };
        credentials(&api, &sender, &secret, &"registry.example/a:1".parse().unwrap()).await
    }

    fn secret(kind: &str, key: &str, json: &str) -> String {
        json!({ "type": kind, "data": { key: ByteString(json.as_bytes().to_vec()) } }).to_string()
    }

    #[tokio::test]
    async fn credentials_for_the_registry_are_returned_from_both_types() {
        let entry = r#"{"registry.example":{"username":"user","password":"word"},"other.example":{"auth":"YTpi"}}"#;
        let config = secret("kubernetes.io/dockerconfigjson", ".dockerconfigjson", &format!("{{\"auths\":{entry}}}"));
        for body in [config, secret("kubernetes.io/dockercfg", ".dockercfg", entry)] {
            assert_eq!(read(200, body).await.unwrap(), [Credentials::new("user", "word")]);
        }
    }

    #[tokio::test]
    async fn everything_else_is_a_failure_with_advice_and_no_password() {
        let json = "kubernetes.io/dockerconfigjson";
        let other = r#"{"auths":{"other.example":{"username":"user","password":"s3cret"}}}"#;
        let cases = [
            (404, String::new(), "PullSecretNotFound", "create it"),
            (403, String::new(), "PullSecretForbidden", "the verb get on secrets"),
            (500, String::new(), "FetchFailed", "answered 500"),
            (200, "s3cret".to_owned(), "FetchFailed", "malformed"),
            (200, secret("Opaque", "password", "s3cret"), "PullSecretInvalid", "docker-registry"),
            (200, secret(json, "password", "s3cret"), "PullSecretInvalid", "lacks the key"),
            (200, secret(json, ".dockerconfigjson", "\"s3cret"), "PullSecretInvalid", "not of the form"),
            (200, secret(json, ".dockerconfigjson", other), "PullSecretInvalid", "no credentials for registry.example"),
        ];
        for (code, body, reason, advice) in cases {
            let failure = read(code, body).await.unwrap_err();
            assert_eq!((failure.reason, failure.passing), (reason, true), "{failure}");
            assert!(failure.message.contains(advice) && !failure.message.contains("s3cret"), "{failure}");
        }
    }
}
