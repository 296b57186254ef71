//! Kubeconfigs of the control plane, each with a token, and clients made of them.

use std::{net::SocketAddr, path::Path};

use anyhow::{Context, Result};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::json;

const ADMIN_TOKEN: &str = "admin-of-a-throw-away-cluster";
/// Longer than the longest test; by default it is an hour.
const LIFETIME_SECONDS: i64 = 48 * 3_600;
/// `--token-auth-file`: token, user, uid, groups.
pub(super) const TOKEN_FILE: &str = "admin-of-a-throw-away-cluster,admin,admin,system:masters\n";
/// Created by the API server itself; the file also contains its authority.
pub(super) const CERTIFICATE: &str = "certificates/apiserver.crt";

pub(super) fn admin(address: SocketAddr, certificate: &Path) -> String {
    with_token(address, certificate, "default", ADMIN_TOKEN)
}

/// Returns a kubeconfig as JSON, which is YAML.
pub(super) fn with_token(address: SocketAddr, certificate: &Path, namespace: &str, token: &str) -> String {
    let cluster = json!({ "server": format!("https://{address}"), "certificate-authority": certificate });
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "suite", "cluster": cluster }],
        "users": [{ "name": "user", "user": { "token": token } }],
        "contexts": [{ "name": "suite", "context": { "cluster": "suite", "namespace": namespace, "user": "user" } }],
        "current-context": "suite",
    })
    .to_string()
}

/// Returns a token of a ServiceAccount.
pub(crate) async fn token(client: Client, namespace: &str, account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let spec = TokenRequestSpec { expiration_seconds: Some(LIFETIME_SECONDS), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    answer.status.and_then(|status| status.token).context("a TokenRequest without a token")
}

/// Returns a client of a kubeconfig, without retries and proxies.
///
/// # Errors
/// Returns an error if the file or the certificate that it names cannot be read.
pub async fn client_of(kubeconfig: &Path) -> Result<Client> {
    // One provider for the whole process; for a second caller it is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}
