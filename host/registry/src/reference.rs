//! References to manifests: `HOST/REPOSITORY:TAG@DIGEST`.

use std::{fmt, str::FromStr};

use podium_wire::{
    image::{self, Image},
    text,
};

use crate::{Digest, Error};

/// A host with an optional port, in lower case. An IPv6 address is in brackets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    name: String,
    port: Option<u16>,
}

impl Host {
    /// Returns the name without brackets and port.
    pub(crate) fn name(&self) -> &str {
        self.name.trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn port(&self, plain_http: bool) -> u16 {
        self.port.unwrap_or(if plain_http { 80 } else { 443 })
    }

    /// Returns whether both are the same endpoint, where a missing port is the scheme's.
    #[must_use]
    pub fn is(&self, other: &Self, plain_http: bool) -> bool {
        self.name == other.name && self.port(plain_http) == other.port(plain_http)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(formatter, "{}:{port}", self.name),
            None => formatter.write_str(&self.name),
        }
    }
}

impl FromStr for Host {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, port) = image::registry_host(text)
            .map_err(|_| Error::Invalid(format!("{} is not a host with an optional port", text::bounded(text, 100))))?;
        Ok(Self { name: name.to_ascii_lowercase(), port })
    }
}

/// A reference to one manifest. The host is always explicit; there is no default registry and no default tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    host: Host,
    repository: String,
    tag: Option<String>,
    digest: Option<Digest>,
}

impl Reference {
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    #[must_use]
    pub fn repository(&self) -> &str {
        &self.repository
    }

    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    #[must_use]
    pub fn digest(&self) -> Option<&Digest> {
        self.digest.as_ref()
    }

    /// Returns the same reference with a digest, which decides from then on.
    #[must_use]
    pub fn with_digest(&self, digest: Digest) -> Self {
        Self { digest: Some(digest), ..self.clone() }
    }

    /// Returns the last part of a manifest's path. The digest decides where there is one.
    pub(crate) fn selector(&self) -> String {
        self.digest.map_or_else(|| self.tag.clone().unwrap_or_default(), |digest| digest.to_string())
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.host, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(formatter, ":{tag}")?;
        }
        self.digest.map_or(Ok(()), |digest| write!(formatter, "@{digest}"))
    }
}

impl FromStr for Reference {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Image { host, repository, tag, digest } = image::image(text)
            .map_err(|why| Error::Invalid(format!("reference {} {why}", text::bounded(text, 300))))?;
        Ok(Self {
            host: host.parse()?,
            repository: repository.to_owned(),
            tag: tag.map(str::to_owned),
            digest: digest.map(str::parse).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_reference_is_printed_as_it_was_written() {
        for text in [
            "registry.example/plugin:1.0",
            "registry.example:5000/team/a_b/c__d/e--f.g:v1.0_x-y",
            "localhost/plugin:latest",
            "[::1]:5000/plugin:1",
            "127.0.0.1:5000/plugin:1",
            &format!("registry.example/plugin@{DIGEST}"),
            &format!("registry.example/plugin:1.0@{DIGEST}"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_complete_reference_is_refused() {
        for text in [
            "",
            "hello",
            "hello:1.0",
            "team/hello:1.0",
            "docker.io/library/hello:1",
            "https://registry.example/plugin:1",
            "registry.example/plugin",
            "registry.example/:1",
            "registry.example//a:1",
            "registry.example/Plugin:1",
            "registry.example/a/../b:1",
            "registry.example/a%2fb:1",
            "registry.example/a?b:1",
            "registry.example/a:1/b",
            "registry.example/a: 1",
            "registry.example/a:.1",
            "registry.example:0/a:1",
            "registry.example:99999/a:1",
            "registry.example:+1/a:1",
            "user@registry.example/a:1",
            "registry.example/a@sha256:abc",
            "registry.example/a:1@sha512:abc",
            "[::1/a:1",
            "-a.example/a:1",
            "a..example/a:1",
            "registry.example/a:1\r\nx",
        ] {
            assert!(text.parse::<Reference>().is_err(), "{text}");
        }
        assert!(format!("registry.example/a:{}", "1".repeat(129)).parse::<Reference>().is_err());
        assert!(format!("registry.example/{}:1", "a".repeat(256)).parse::<Reference>().is_err());
    }

    #[test]
    fn the_digest_selects_where_a_tag_is_written_too() {
        let reference: Reference = format!("registry.example/plugin:1.0@{DIGEST}").parse().unwrap();
        assert_eq!(reference.selector(), DIGEST);
        assert_eq!("registry.example/plugin:1.0".parse::<Reference>().unwrap().selector(), "1.0");
    }

    #[test]
    fn a_missing_port_is_the_one_of_the_scheme() {
        let host = |text: &str| text.parse::<Host>().unwrap();
        assert!(host("A.example").is(&host("a.example:443"), false));
        assert!(!host("a.example").is(&host("a.example:443"), true));
        assert!(host("a.example").is(&host("a.example:80"), true));
        assert!(!host("a.example").is(&host("a.example.b"), false));
    }
}
