//! The sender of a request: its User-Agent, and the user that it impersonates.
//!
//! An API server takes the first `Impersonate-User` of a request and every `Impersonate-Group`. A request in the name
//! of a plugin's ServiceAccount must therefore carry nothing of the user that the kubeconfig impersonates: kube's own
//! client adds the kubeconfig's headers behind those of the request, and the ServiceAccount would be in that user's
//! groups.

use std::convert::Infallible;

use futures::FutureExt;
use http::{HeaderMap, HeaderValue, Request, header::USER_AGENT};
use kube::{client::ConfigExt, config::AuthInfo};
use tower::{Layer, Service, service_fn};

/// The header that impersonates a user. If a request has it, the host adds no identity of its own.
const USER: &str = "impersonate-user";
/// The most bytes of a plugin's name in a User-Agent. An audit log keeps all of it.
const MAX_PLUGIN_BYTES: usize = 128;

/// Returns the User-Agent of the host's own requests: `podium-host/0.1.0 (linux/amd64)`, as client-go writes it.
#[must_use]
pub fn user_agent() -> String {
    // Go's name of the architecture, as audit logs have it for all other clients.
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("podium-host/{} ({}/{architecture})", env!("CARGO_PKG_VERSION"), std::env::consts::OS)
}

/// Returns the User-Agent of requests that the host sends for a plugin: its own, followed by `plugin/` and the
/// plugin's name. Bytes that are invalid in a header become `_`, and a name of more than 128 bytes is cut.
#[must_use]
pub fn plugin_user_agent(plugin: &str) -> String {
    let safe = |byte: u8| if byte.is_ascii_graphic() { char::from(byte) } else { '_' };
    let plugin: String = plugin.bytes().take(MAX_PLUGIN_BYTES).map(safe).collect();
    format!("{} plugin/{plugin}", user_agent())
}

/// The identity headers of requests that have none of their own.
#[derive(Debug, Clone)]
pub(super) struct AccountHeaders {
    user_agent: HeaderValue,
    impersonation: HeaderMap,
}

impl AccountHeaders {
    /// Removes the impersonated user from the configuration and returns it. A client made from the configuration then
    /// adds no headers of impersonation.
    ///
    /// # Errors
    /// Returns an error if a name cannot be in a header.
    pub(super) fn take(config: &mut kube::Config) -> Result<Self, kube::Error> {
        let configured = &mut config.auth_info;
        let mut impersonating = kube::Config::new(config.cluster_url.clone());
        impersonating.auth_info = AuthInfo {
            impersonate: configured.impersonate.take(),
            impersonate_uid: configured.impersonate_uid.take(),
            impersonate_groups: configured.impersonate_groups.take(),
            impersonate_user_extra: configured.impersonate_user_extra.take(),
            ..AuthInfo::default()
        };
        // kube knows how these headers are spelled.
        let echo = service_fn(|request: Request<()>| std::future::ready(Ok::<_, Infallible>(request)));
        let headers = impersonating.extra_headers_layer()?.layer(echo).call(Request::new(())).now_or_never();
        let impersonation = headers.and_then(Result::ok).map(|request| request.into_parts().0.headers);
        let user_agent = HeaderValue::try_from(user_agent()).map_err(|error| kube::Error::HttpError(error.into()))?;
        Ok(Self { user_agent, impersonation: impersonation.unwrap_or_default() })
    }

    /// Adds the headers that the request lacks.
    pub(super) fn complete<B>(&self, mut request: Request<B>) -> Request<B> {
        let headers = request.headers_mut();
        if !headers.contains_key(USER_AGENT) {
            headers.insert(USER_AGENT, self.user_agent.clone());
        }
        if !headers.contains_key(USER) {
            headers.extend(self.impersonation.clone());
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_agent_names_version_and_plugin_and_is_a_valid_header() {
        let own = user_agent();
        assert!(own.starts_with("podium-host/") && own.ends_with(')') && own.contains(" (linux/"), "{own}");
        assert_eq!(plugin_user_agent("shop/hello"), format!("{own} plugin/shop/hello"));
        let hostile = format!("a\r\nimpersonate-group: x\0\u{e4}{}", "z".repeat(10_000));
        let agent = plugin_user_agent(&hostile);
        assert!(agent.len() <= own.len() + " plugin/".len() + MAX_PLUGIN_BYTES, "{agent}");
        assert!(
            HeaderValue::try_from(&agent).is_ok() && agent.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        );
    }

    #[test]
    fn impersonation_is_removed_from_the_configuration() {
        let mut config = kube::Config::new("http://127.0.0.1".parse().unwrap());
        config.auth_info.impersonate = Some("admin@example.com".to_owned());
        config.auth_info.impersonate_groups = Some(vec!["a".to_owned(), "b".to_owned()]);
        config.auth_info.impersonate_user_extra = Some([("x/y".to_owned(), vec!["z".to_owned()])].into());
        let identity = AccountHeaders::take(&mut config).unwrap();
        assert!(config.auth_info.impersonate.is_none() && config.auth_info.impersonate_groups.is_none());
        let headers = identity.complete(Request::new(())).into_parts().0.headers;
        assert_eq!(headers.get_all("impersonate-group").iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            (&headers[USER], &headers["impersonate-extra-x%2fy"]),
            (&"admin@example.com".parse().unwrap(), &"z".parse().unwrap())
        );
    }
}
