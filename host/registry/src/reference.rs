//! References to manifests: `HOST/REPOSITORY:TAG@DIGEST`.

use std::{fmt, str::FromStr};

use podium_wire::text;

use crate::{Digest, Error};

/// The most bytes of a repository's name, as the registries have it.
const REPOSITORY: usize = 255;
/// The most bytes of a tag, as the specification has it.
const TAG: usize = 128;

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
    pub(crate) fn is(&self, other: &Self, plain_http: bool) -> bool {
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
        let wrong = || Error::Invalid(format!("{} is not a host with an optional port", text::bounded(text, 100)));
        let (name, port) = match text.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => {
                let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
                let port = port.parse().ok().filter(|port| is_number && *port > 0).ok_or_else(wrong)?;
                (name, Some(port))
            }
            _ => (text, None),
        };
        let name = name.to_ascii_lowercase();
        let is_name = |name: &str| {
            let is_label = |label: &str| {
                !label.is_empty()
                    && label.len() <= 63
                    && !label.starts_with('-')
                    && !label.ends_with('-')
                    && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            };
            name.len() <= 253 && name.split('.').all(is_label)
        };
        let is_ipv6 = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok());
        if is_ipv6 || is_name(&name) { Ok(Self { name, port }) } else { Err(wrong()) }
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
        let invalid = |why: &str| Error::Invalid(format!("reference {}: {why}", text::bounded(text, 300)));
        if text.contains("://") {
            return Err(invalid("must not have a scheme; write HOST/REPOSITORY:TAG"));
        }
        let (host, rest) = text.split_once('/').unwrap_or(("", text));
        // As in all clients, a first part without these is a repository of a default registry, and there is none here.
        if !(host.contains(['.', ':']) || host == "localhost") {
            return Err(invalid("must begin with the host of a registry, as in registry.example/team/plugin:1.0"));
        }
        let host: Host = host.parse().map_err(|_| invalid("must begin with a host and an optional port"))?;
        if ["docker.io", "index.docker.io"].contains(&host.name()) {
            return Err(invalid(
                "the host of this registry is registry-1.docker.io, and there is no library/ by default",
            ));
        }
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => {
                let digest =
                    digest.parse().map_err(|_| invalid("the part after @ must be sha256: and 64 hex digits"))?;
                (rest, Some(digest))
            }
            None => (rest, None),
        };
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        if repository.len() > REPOSITORY || !repository.split('/').all(is_part) {
            return Err(invalid("the repository must be lower-case letters, digits and separators between slashes"));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(invalid("the tag must be up to 128 letters, digits, '_', '.' and '-'"));
        }
        if tag.is_none() && digest.is_none() {
            return Err(invalid("a tag or a digest is missing"));
        }
        Ok(Self { host, repository: repository.to_owned(), tag: tag.map(str::to_owned), digest })
    }
}

/// Letters and digits with single separators between them: `.`, `_`, `__` or any number of `-`.
fn is_part(part: &str) -> bool {
    let is_character = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let separators = part.split(|character: char| character.is_ascii_lowercase() || character.is_ascii_digit());
    ends.iter().all(|end| end.is_some_and(|byte| is_character(*byte)))
        && separators
            .into_iter()
            .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= TAG
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
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
