//! The platform's list of registries, and where each of them may lead.

use std::sync::Arc;

use http::Uri;
use rustls::{ClientConfig, pki_types::CertificateDer};

use crate::{Digest, Error, Proxies, Proxy, error::words, reference::Host, tls};

/// A registry that may be connected to, as the platform configures it.
#[derive(Debug, Clone)]
pub struct Registry {
    pub host: Host,
    /// Without TLS. Never guessed from the name or the address.
    pub plain_http: bool,
    /// Its addresses may be loopback or of a private network. Link-local addresses and metadata services never are.
    pub private_addresses: bool,
    /// The only authorities of its certificate; of the system if empty.
    pub certificates: Vec<CertificateDer<'static>>,
    pub hops: Hops,
}

/// Where a registry may send its client for blobs and for tokens.
#[derive(Debug, Clone)]
pub enum Hops {
    /// To these hosts, under the same rules as the registry itself, and to the blobs of the same repository in all
    /// registries of the list.
    Listed(Vec<Host>),
    /// To every public host over https. For a person's own command line, which has no list.
    Public,
}

impl Registry {
    /// Returns a registry over https at public addresses, which serves blobs and tokens itself.
    #[must_use]
    pub fn new(host: Host) -> Self {
        Self { host, plain_http: false, private_addresses: false, certificates: Vec::new(), hops: Hops::Listed(vec![]) }
    }
}

impl Registry {
    /// Returns the proxy that the registry is reached through.
    #[must_use]
    pub fn proxy<'a>(&self, proxies: &'a Proxies) -> Option<&'a Proxy> {
        proxies.find(self.plain_http, self.host.name(), self.host.port(self.plain_http))
    }
}

/// The registries that may be connected to.
#[derive(Debug, Clone)]
pub struct Allowed {
    entries: Vec<Entry>,
    system: Arc<ClientConfig>,
}

#[derive(Debug, Clone)]
struct Entry {
    registry: Registry,
    tls: Arc<ClientConfig>,
}

/// A host that may be connected to, and how.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) host: Host,
    pub(crate) plain_http: bool,
    pub(crate) private_addresses: bool,
    pub(crate) tls: Arc<ClientConfig>,
}

impl Endpoint {
    pub(crate) fn port(&self) -> u16 {
        self.host.port(self.plain_http)
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.plain_http { "http" } else { "https" }
    }

    /// Returns whether credentials for one may be sent to the other.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.plain_http == other.plain_http && self.host.is(&other.host, self.plain_http)
    }
}

/// Why a registry sends its client to another URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose<'a> {
    /// A redirect of a request about this repository. Without credentials, if the host is another one.
    Redirect(&'a str),
    /// With the user's name and password.
    Token,
}

impl Purpose<'_> {
    /// Returns whether it is a redirect to a path that is that of a blob of the same repository.
    fn is_blob(&self, path: &str) -> bool {
        let Self::Redirect(repository) = self else { return false };
        let blob = path.strip_prefix("/v2/").and_then(|path| path.strip_prefix(repository));
        let digest = blob.and_then(|blob| blob.strip_prefix("/blobs/"));
        digest.is_some_and(|digest| digest.parse::<Digest>().is_ok())
    }
}

impl Allowed {
    /// Returns the list. `system` are the authorities for registries without their own.
    ///
    /// # Errors
    /// Returns an error if a certificate of an entry cannot be used.
    pub fn new(registries: Vec<Registry>, system: Vec<CertificateDer<'static>>) -> Result<Self, Error> {
        let system = tls::trusting_system(system)?;
        let entry = |registry: Registry| {
            let own = !registry.certificates.is_empty();
            let tls = if own { tls::trusting(&registry.certificates)? } else { system.clone() };
            Ok(Entry { registry, tls })
        };
        let entries = registries.into_iter().map(entry).collect::<Result<_, Error>>()?;
        Ok(Self { entries, system })
    }

    /// Returns how to connect to a registry.
    pub(crate) fn registry(&self, host: &Host) -> Result<Endpoint, Error> {
        let entry = self
            .entry(host)
            .ok_or_else(|| Error::Forbidden(format!("registry {host} is not in the platform's list of registries")))?;
        Ok(entry.endpoint(entry.registry.host.clone()))
    }

    fn entry(&self, host: &Host) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.registry.host.is(host, entry.registry.plain_http))
    }

    /// Returns how to connect to a URL that `from` names, in an answer to a request to `registry`.
    pub(crate) fn hop(
        &self,
        registry: &Host,
        from: &Endpoint,
        to: &Uri,
        purpose: Purpose<'_>,
    ) -> Result<Endpoint, Error> {
        let what = match purpose {
            Purpose::Redirect(_) => "redirect",
            Purpose::Token => "token realm",
        };
        let shown = to.authority().map_or_else(String::new, |authority| words(authority.as_str()));
        let refused = |why: &str| Error::Forbidden(format!("{what} of registry {registry} to {shown}: {why}"));
        let plain_http = match to.scheme_str() {
            Some("https") => false,
            Some("http") => true,
            _ => return Err(refused("the scheme is neither https nor http")),
        };
        if plain_http && !from.plain_http {
            return Err(refused("it leads from https to http"));
        }
        let authority = to.authority().ok_or_else(|| refused("there is no host"))?;
        let host: Host = authority.as_str().parse().map_err(|_| refused("the host has no valid name"))?;
        let own = self.entry(registry).ok_or_else(|| refused("the registry is not listed"))?;
        let endpoint = match &own.registry.hops {
            _ if own.registry.host.is(&host, plain_http) => own.endpoint(host),
            Hops::Listed(hosts) if hosts.iter().any(|listed| listed.is(&host, plain_http)) => own.endpoint(host),
            Hops::Public => Endpoint { host, plain_http: false, private_addresses: false, tls: self.system.clone() },
            Hops::Listed(_) => match self.entry(&host) {
                // Credentials for one registry are none of another's business, and a registry of a tenant's choice is
                // no way to ask others whatever it likes.
                Some(entry) if purpose.is_blob(to.path()) => entry.endpoint(host),
                Some(_) => return Err(refused("another registry, without redirectHosts, only for the same blobs")),
                None => return Err(refused("the host is not listed for this registry")),
            },
        };
        if endpoint.plain_http != plain_http {
            return Err(refused("the scheme is not the one of the list"));
        }
        Ok(endpoint)
    }
}

impl Entry {
    fn endpoint(&self, host: Host) -> Endpoint {
        let Registry { plain_http, private_addresses, .. } = self.registry;
        Endpoint { host, plain_http, private_addresses, tls: self.tls.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    /// A registry with a host for blobs and tokens, another registry, and one over plain http.
    fn allowed() -> Allowed {
        let first =
            Registry { hops: Hops::Listed(vec![host("blobs.example")]), ..Registry::new(host("first.example")) };
        let plain = Registry { plain_http: true, private_addresses: true, ..Registry::new(host("plain.example:5000")) };
        Allowed::new(vec![first, Registry::new(host("second.example")), plain], Vec::new()).unwrap()
    }

    fn hop(from: &str, to: &str, purpose: Purpose<'_>) -> Result<Endpoint, Error> {
        let allowed = allowed();
        let endpoint = allowed.registry(&host(from)).unwrap();
        allowed.hop(&host(from), &endpoint, &to.parse().unwrap(), purpose)
    }

    #[test]
    fn nothing_is_allowed_by_default() {
        let none = Allowed::new(Vec::new(), Vec::new()).unwrap();
        assert!(matches!(none.registry(&host("first.example")), Err(Error::Forbidden(_))));
        assert!(matches!(allowed().registry(&host("first.example:8443")), Err(Error::Forbidden(_))));
        assert!(matches!(allowed().registry(&host("plain.example")), Err(Error::Forbidden(_))));
        assert!(allowed().registry(&host("first.example:443")).is_ok());
    }

    #[test]
    fn a_redirect_leads_to_listed_hosts_only() {
        const BLOB: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let of_second = |path: &str| format!("https://second.example{path}");
        for (from, to) in [
            ("first.example", "https://first.example/x"),
            ("first.example", "https://blobs.example/x?y"),
            ("first.example", &of_second(&format!("/v2/team/plugin/blobs/{BLOB}"))),
            ("plain.example:5000", "http://plain.example:5000/x"),
            ("plain.example:5000", &of_second(&format!("/v2/team/plugin/blobs/{BLOB}?x=y"))),
        ] {
            assert!(hop(from, to, Purpose::Redirect("team/plugin")).is_ok(), "{from} to {to}");
        }
        for path in [
            "/",
            "/x",
            "/v2/team/plugin/manifests/1.0",
            "/v2/team/plugin/blobs/",
            "/v2/team/plugin/blobs/uploads/",
            &format!("/v2/team/plugin/manifests/{BLOB}"),
            &format!("/v2/team/other/blobs/{BLOB}"),
            &format!("/v2/team/plugin2/blobs/{BLOB}"),
            &format!("/v2/team/plugin/../other/blobs/{BLOB}"),
            &format!("/v2/team/plugin/blobs/../../other/blobs/{BLOB}"),
            &format!("/v2/team/plugin/blobs/{BLOB}/../../manifests/1.0"),
            &format!("/v2/team/plugin/blobs/{BLOB}%2f.."),
            &format!("//v2/team/plugin/blobs/{BLOB}"),
            &format!("/x/v2/team/plugin/blobs/{BLOB}"),
        ] {
            for from in ["first.example", "plain.example:5000"] {
                let hop = hop(from, &of_second(path), Purpose::Redirect("team/plugin"));
                assert!(matches!(hop, Err(Error::Forbidden(_))), "{from} to {path}");
            }
        }
        for (from, to) in [
            ("first.example", "https://other.example/x"),
            ("first.example", "https://blobs.example:444/x"),
            ("first.example", "http://first.example/x"),
            ("first.example", "http://plain.example:5000/x"),
            ("first.example", "https://plain.example:5000/x"),
            ("first.example", "https://user@first.example/x"),
            ("first.example", "ftp://first.example/x"),
            ("first.example", "/x"),
            ("first.example", "https://127.0.0.1/x"),
            ("second.example", "https://blobs.example/x"),
            ("plain.example:5000", "http://second.example/x"),
        ] {
            assert!(
                matches!(hop(from, to, Purpose::Redirect("team/plugin")), Err(Error::Forbidden(_))),
                "{from} to {to}"
            );
        }
    }

    #[test]
    fn a_realm_is_of_the_registry_or_listed_for_it() {
        assert!(hop("first.example", "https://first.example/token", Purpose::Token).is_ok());
        assert!(hop("first.example", "https://blobs.example/token", Purpose::Token).is_ok());
        for to in ["https://second.example/t", "https://other.example/t", "http://first.example/t"] {
            assert!(matches!(hop("first.example", to, Purpose::Token), Err(Error::Forbidden(_))), "{to}");
        }
    }

    #[test]
    fn a_persons_own_client_follows_https_and_trusts_no_private_address() {
        let own =
            Registry { plain_http: true, private_addresses: true, hops: Hops::Public, ..Registry::new(host("a:1")) };
        let allowed = Allowed::new(vec![own], Vec::new()).unwrap();
        let endpoint = allowed.registry(&host("a:1")).unwrap();
        let to = |uri: &str| allowed.hop(&host("a:1"), &endpoint, &uri.parse().unwrap(), Purpose::Redirect("a"));
        assert!(!to("https://b.example/x").unwrap().private_addresses);
        assert!(to("http://b.example/x").is_err() && to("http://a:1/x").is_ok());
    }
}
