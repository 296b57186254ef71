//! Proxies by the variables `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`, for registries and for the API server. Pure:
//! the caller reads the variables.
//!
//! They are read as Go's programs read them, and curl: names in upper case before those in lower case, commas and
//! blanks between the entries of `NO_PROXY`, and neither `localhost` nor a loopback address through a proxy. An entry
//! that is none of the forms concerns nothing.

use std::{fmt, net::IpAddr};

use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use crate::{Error, error::words, session::basic};

/// The proxies of a process.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    https: Option<Proxy>,
    http: Option<Proxy>,
    direct: Vec<Direct>,
}

/// A proxy, and the variable that names it.
#[derive(Clone)]
pub struct Proxy {
    uri: Uri,
    variable: &'static str,
}

/// An entry of `NO_PROXY`: targets that are connected to directly.
#[derive(Debug, Clone)]
struct Direct {
    targets: Targets,
    /// Any without one.
    port: Option<u16>,
}

#[derive(Debug, Clone)]
enum Targets {
    All,
    /// The addresses with these first bits.
    Network(IpAddr, u32),
    /// A domain and everything below it.
    Domain(String),
}

impl Proxies {
    /// Reads the variables. `value` returns that of one.
    ///
    /// # Errors
    /// Returns an error that names the variable and its value if it is not the URL of a proxy.
    pub fn new(value: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let value = |names: [&'static str; 2]| {
            let values = names.into_iter().filter_map(|name| Some((name, value(name)?.trim().to_owned())));
            values.into_iter().find(|(_, value)| !value.is_empty())
        };
        let proxy = |names| value(names).map(|(name, value)| Proxy::parse(name, &value)).transpose();
        let direct = value(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default();
        let entries = direct.split(|character: char| character == ',' || character.is_ascii_whitespace());
        Ok(Self {
            https: proxy(["HTTPS_PROXY", "https_proxy"])?,
            http: proxy(["HTTP_PROXY", "http_proxy"])?,
            direct: entries.filter_map(Direct::parse).collect(),
        })
    }

    /// Returns the proxy for a target; `None` for one that is connected to directly.
    #[must_use]
    pub fn find(&self, plain_http: bool, host: &str, port: u16) -> Option<&Proxy> {
        let proxy = if plain_http { &self.http } else { &self.https };
        proxy.as_ref().filter(|_| !self.is_direct(host, port))
    }

    /// Returns the URL of the proxy for a URL.
    #[must_use]
    pub fn of_url(&self, url: &Uri) -> Option<Uri> {
        let plain_http = url.scheme_str() == Some("http");
        let port = url.port_u16().unwrap_or(if plain_http { 80 } else { 443 });
        self.find(plain_http, url.host()?, port).map(|proxy| proxy.uri.clone())
    }

    fn is_direct(&self, host: &str, port: u16) -> bool {
        let host = without_brackets(host).trim_end_matches('.').to_ascii_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        let address = address.map(|address| address.to_canonical());
        host == "localhost"
            || address.is_some_and(|address| address.is_loopback())
            || self.direct.iter().any(|direct| direct.matches(&host, address, port))
    }
}

impl Proxy {
    fn parse(variable: &'static str, value: &str) -> Result<Self, Error> {
        let url = if value.contains("://") { value.to_owned() } else { format!("http://{value}") };
        let uri = url.parse::<Uri>().ok().filter(|uri| uri.host().is_some_and(|host| !host.is_empty()));
        let known = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https" | "socks5"));
        uri.filter(known).map(|uri| Self { uri, variable }).ok_or_else(|| {
            // The part before an at sign may be a password.
            let shown = value.rsplit_once('@').map_or(value, |(_, host)| host);
            let message = "is not the URL of a proxy, such as http://proxy.example:3128";
            Error::Invalid(format!("{variable}: {} {message}", words(shown)))
        })
    }

    /// Returns the host and the port for requests to registries, which go through proxies over http only.
    pub(crate) fn address(&self) -> Result<(&str, u16), Error> {
        match (self.uri.scheme_str(), self.uri.host()) {
            (Some("http"), Some(host)) => Ok((without_brackets(host), self.uri.port_u16().unwrap_or(80))),
            _ => Err(Error::Forbidden(format!(
                "{self}: registries are reached through proxies with http:// only; name the registry in NO_PROXY to \
                 connect to it directly"
            ))),
        }
    }

    /// Returns the header Proxy-Authorization, if the URL has credentials.
    pub(crate) fn authorization(&self) -> Result<Option<HeaderValue>, Error> {
        let user = self.uri.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        user.map(|(user, _)| basic(percent_decode_str(user).collect::<Vec<u8>>())).transpose()
    }
}

/// Without the user and the password.
impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.uri.scheme_str().unwrap_or_default();
        write!(formatter, "{}={scheme}://{}", self.variable, self.uri.host().unwrap_or_default())?;
        self.uri.port().map_or(Ok(()), |port| write!(formatter, ":{port}"))
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

impl Direct {
    fn parse(entry: &str) -> Option<Self> {
        let any_port = |targets| Some(Self { targets, port: None });
        if let Some((address, bits)) = entry.split_once('/') {
            let address = address.parse::<IpAddr>().ok()?;
            let bits = bits.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            return any_port(Targets::Network(address, bits)).filter(|_| bits <= most);
        }
        let address = |text: &str| without_brackets(text).parse::<IpAddr>().ok().map(|address| address.to_canonical());
        if let Some(address) = address(entry) {
            return any_port(Targets::one(address));
        }
        let with_port = entry.rsplit_once(':').and_then(|(name, port)| Some((name, Some(port.parse().ok()?))));
        let (name, port) = with_port.unwrap_or((entry, None));
        let domain = name.strip_prefix('*').unwrap_or(name).trim_matches('.').to_ascii_lowercase();
        let targets = match address(name) {
            Some(address) => Targets::one(address),
            None if name == "*" => Targets::All,
            None => Targets::Domain(Some(domain).filter(|domain| !domain.is_empty())?),
        };
        Some(Self { targets, port })
    }

    fn matches(&self, host: &str, address: Option<IpAddr>, port: u16) -> bool {
        let is_target = match (&self.targets, address) {
            (Targets::All, _) => true,
            (Targets::Network(IpAddr::V4(network), bits), Some(IpAddr::V4(address))) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= *bits
            }
            (Targets::Network(IpAddr::V6(network), bits), Some(IpAddr::V6(address))) => {
                (network.to_bits() ^ address.to_bits()).leading_zeros() >= *bits
            }
            (Targets::Network(..), _) => false,
            (Targets::Domain(domain), _) => {
                host.strip_suffix(domain.as_str()).is_some_and(|above| above.is_empty() || above.ends_with('.'))
            }
        };
        is_target && self.port.is_none_or(|of| of == port)
    }
}

impl Targets {
    fn one(address: IpAddr) -> Self {
        Self::Network(address, if address.is_ipv4() { 32 } else { 128 })
    }
}

fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, Error> {
        let found =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Proxies::new(found)
    }

    #[test]
    fn no_proxy_is_compared_with_the_target_in_every_form() {
        for (no_proxy, direct, proxied) in [
            ("", "", "a.example 10.0.0.1"),
            ("*", "a.example 10.0.0.1 [fd00::1]", ""),
            ("a.example", "a.example x.a.example A.EXAMPLE a.example.", "b.example aa.example a.example.b"),
            (".a.example", "a.example x.a.example", "aa.example"),
            ("*.a.example", "x.a.example y.x.a.example", "b.example"),
            (".svc,.cluster.local", "kubernetes.default.svc a.b.svc.cluster.local", "svc.example"),
            ("10.0.0.0/8", "10.0.0.1 10.255.1.1 ::ffff:10.1.2.3", "11.0.0.1 a.example 10.example"),
            ("10.96.0.1", "10.96.0.1", "10.96.0.2 110.96.0.1"),
            ("0.0.0.0/0", "1.1.1.1", "a.example [fd00::1]"),
            ("fd00::/8", "fd12::1 [fd12::1]", "fe00::1 10.0.0.1"),
            ("[fd00::1]", "fd00::1", "fd00::2"),
            ("a.example:8443", "a.example:8443 x.a.example:8443", "a.example"),
            ("10.0.0.1:8443 [fd00::1]:8443", "10.0.0.1:8443 [fd00::1]:8443", "10.0.0.1 [fd00::1]"),
            ("*:8443", "a.example:8443", "a.example"),
            // Other separators, and empty entries.
            ("127.0.0.1,b.example,", "b.example", "a.example"),
            (" b.example   c.example\t, ,10.0.0.0/8 ", "b.example c.example 10.0.0.1", "a.example"),
            (",", "", "a.example"),
            // An entry of another form concerns nothing, and not everything.
            ("10.0.0.0/33,x/y,.,*.,http://b.example/", "", "a.example 10.0.0.1 b.example"),
        ] {
            let proxies = proxies(&[("HTTPS_PROXY", "http://proxy.example:3128"), ("NO_PROXY", no_proxy)]).unwrap();
            let is_proxied = |target: &str| {
                let (host, port) = match target.split_once(":8443") {
                    Some((host, _)) => (host, 8443),
                    None => (target, 443),
                };
                proxies.find(false, host, port).is_some()
            };
            for target in direct.split_whitespace() {
                assert!(!is_proxied(target), "{no_proxy:?}: {target}");
            }
            for target in proxied.split_whitespace() {
                assert!(is_proxied(target), "{no_proxy:?}: {target}");
            }
            // Whatever it says.
            for target in ["localhost", "127.0.0.1", "127.8.8.8", "[::1]", "::1", "LOCALHOST."] {
                assert!(!is_proxied(target), "{no_proxy:?}: {target}");
            }
        }
    }

    #[test]
    fn the_scheme_of_the_target_chooses_the_variable_and_upper_case_is_first() {
        let all = proxies(&[
            ("HTTPS_PROXY", "http://a:1"),
            ("https_proxy", "http://b:1"),
            ("HTTP_PROXY", " "),
            ("http_proxy", "http://c"),
            ("no_proxy", "direct.example"),
        ]);
        let all = all.unwrap();
        let of = |url: &str| all.of_url(&url.parse().unwrap()).map(|proxy| proxy.to_string());
        assert_eq!(of("https://x.example"), Some("http://a:1/".to_owned()));
        assert_eq!(of("http://x.example"), Some("http://c/".to_owned()));
        assert_eq!((of("https://direct.example:6443/x"), of("https://[::1]:6443")), (None, None));
        assert!(proxies(&[]).unwrap().find(false, "x.example", 443).is_none());
    }

    #[test]
    fn a_value_that_is_no_proxy_is_named_without_a_password() {
        for value in ["http://", "://x", "a b", "ftp://x", "http://u:s3cret@ a", "u:s3cret@"] {
            for name in ["HTTPS_PROXY", "http_proxy"] {
                let error = proxies(&[(name, value)]).unwrap_err().to_string();
                assert!(error.contains(name) && !error.contains("s3cret"), "{error}");
            }
        }
        let shown = proxies(&[("HTTPS_PROXY", "u:s3cret@proxy.example:3128")]).unwrap();
        let shown = shown.find(false, "x.example", 443).unwrap();
        assert_eq!(format!("{shown} {shown:?}").matches("s3cret").count(), 0);
        assert_eq!(shown.to_string(), "HTTPS_PROXY=http://proxy.example:3128");
        assert_eq!(shown.authorization().unwrap().unwrap(), "Basic dTpzM2NyZXQ=");
    }
}
