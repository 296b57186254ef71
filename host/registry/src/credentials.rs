//! Credentials from Secrets of the types `kubernetes.io/dockerconfigjson` and `kubernetes.io/dockercfg`, and from the
//! configuration of docker, which has the same form. Pure: the caller reads the Secret or the file.
//!
//! The entries for a reference are found as the kubelet finds them. `credHelpers` and `credsStore` name programs: a
//! Secret must not choose programs, so they are reported and not used here.

use std::{collections::BTreeMap, fmt};

use base64::{Engine, prelude::BASE64_STANDARD};
use podium_wire::text;
use serde::{Deserialize, de::IgnoredAny};

use crate::{Error, Reference};

/// The most credentials that are tried for one reference.
const MOST: usize = 8;
/// The registry with several names, and the one that serves.
const ALIASES: [&str; 2] = ["index.docker.io", "docker.io"];
const ALIAS_OF: &str = "registry-1.docker.io";

/// The name and the password of a user, or an identity token. None of them is printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    username: String,
    /// The password, or the token.
    password: String,
    is_token: bool,
}

impl Credentials {
    #[must_use]
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self { username: username.into(), password: password.into(), is_token: false }
    }

    /// Returns an identity token, as `az acr login` stores it: a registry's realm exchanges it for an access token.
    #[must_use]
    pub fn identity_token(token: impl Into<String>) -> Self {
        Self { username: String::new(), password: token.into(), is_token: true }
    }

    /// Returns the identity token, if it is one.
    pub(crate) fn token(&self) -> Option<&str> {
        self.is_token.then_some(&self.password)
    }

    pub(crate) fn username(&self) -> &str {
        &self.username
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials")
    }
}

/// The entries of one or several Secrets.
#[derive(Debug, Clone, Default)]
pub struct Keyring {
    entries: Vec<(Pattern, Credentials)>,
    warnings: Vec<String>,
}

/// A key of `auths`.
#[derive(Debug, Clone)]
struct Pattern {
    host: String,
    port: Option<String>,
    path: String,
}

/// Each value may be null, which is the same as nothing.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    auths: Option<Auths>,
    creds_store: Option<String>,
    cred_helpers: Option<BTreeMap<String, IgnoredAny>>,
}

type Auths = BTreeMap<String, Option<Entry>>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

impl Keyring {
    /// Reads the key `.dockerconfigjson` of a Secret, or docker's `config.json`.
    ///
    /// # Errors
    /// Returns an error if the text is not of this form. The message contains nothing of the text.
    pub fn from_docker_config_json(json: &[u8]) -> Result<Self, Error> {
        let config: Option<Config> = serde_json::from_slice(json).map_err(|error| {
            Error::Invalid(format!("the credentials are not of the form {{\"auths\": ..}}{}", place(&error)))
        })?;
        let Config { auths, creds_store, cred_helpers } = config.unwrap_or_default();
        let mut ring = Self::new(auths);
        if creds_store.is_some_and(|name| !name.is_empty()) || cred_helpers.is_some_and(|helpers| !helpers.is_empty()) {
            ring.warnings.push("credsStore and credHelpers are not used: they name programs to run".to_owned());
        }
        Ok(ring)
    }

    /// Reads the key `.dockercfg` of a Secret.
    ///
    /// # Errors
    /// See [`Self::from_docker_config_json`].
    pub fn from_docker_cfg(json: &[u8]) -> Result<Self, Error> {
        let entries = serde_json::from_slice(json).map_err(|error| {
            Error::Invalid(format!("the credentials are not of the form of a .dockercfg{}", place(&error)))
        })?;
        Ok(Self::new(entries))
    }

    fn new(auths: Option<Auths>) -> Self {
        let mut ring = Self::default();
        // More specific keys are later in the order of texts.
        for (key, entry) in auths.unwrap_or_default().into_iter().rev() {
            match entry.unwrap_or_default().credentials() {
                Ok(Some(credentials)) => ring.entries.push((Pattern::new(&key), credentials)),
                Ok(None) => {}
                Err(why) => ring.warnings.push(format!("credentials for {}: {why}", text::bounded(&key, 100))),
            }
        }
        ring
    }

    /// Adds the entries of another Secret, after those that are there.
    pub fn extend(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.warnings.extend(other.warnings);
    }

    /// Returns the credentials to try for a reference, the most specific first.
    #[must_use]
    pub fn matching(&self, reference: &Reference) -> Vec<Credentials> {
        let matching = self.entries.iter().filter(|(pattern, _)| pattern.matches(reference));
        let mut found: Vec<Credentials> = Vec::new();
        for (_, credentials) in matching {
            if found.len() < MOST && !found.contains(credentials) {
                found.push(credentials.clone());
            }
        }
        found
    }

    /// Returns the parts that are not used, and why.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Where JSON is wrong. serde's own message quotes the text, which may be a password.
fn place(error: &serde_json::Error) -> String {
    format!(": line {}, column {}", error.line(), error.column())
}

impl Entry {
    /// Returns the credentials, `None` of an entry without any, or why they cannot be used.
    fn credentials(self) -> Result<Option<Credentials>, &'static str> {
        let Self { auth, username, password, identitytoken } = self;
        let auth = auth.unwrap_or_default();
        if !auth.is_empty() {
            // The kubelet ignores the other fields then.
            let decoded = BASE64_STANDARD.decode(auth.trim()).map_err(|_| "auth is not base64")?;
            let decoded = String::from_utf8(decoded).map_err(|_| "auth is not text")?;
            let (username, password) = decoded.split_once(':').ok_or("auth has no colon")?;
            if !password.trim_matches('\0').is_empty() {
                return Ok(Some(Credentials::new(username, password.trim_matches('\0'))));
            }
        }
        if let Some(token) = identitytoken.filter(|token| !token.is_empty()) {
            return Ok(Some(Credentials::identity_token(token)));
        }
        let username = username.unwrap_or_default();
        let password = password.unwrap_or_default();
        let is_empty = username.is_empty() && password.is_empty();
        Ok((!is_empty).then(|| Credentials::new(username, password)))
    }
}

impl Pattern {
    fn new(key: &str) -> Self {
        let key = key.strip_prefix("https://").or_else(|| key.strip_prefix("http://")).unwrap_or(key);
        let (host, path) = key.split_once('/').unwrap_or((key, ""));
        let path = format!("{path}/");
        let path = ["v1/", "v2/"].iter().find_map(|version| path.strip_prefix(version)).unwrap_or(&path);
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port.to_owned())),
            _ => (host, None),
        };
        let host = host.to_ascii_lowercase();
        let host = if ALIASES.contains(&host.as_str()) { ALIAS_OF.to_owned() } else { host };
        Self { host, port, path: path.trim_end_matches('/').to_owned() }
    }

    fn matches(&self, reference: &Reference) -> bool {
        let written = reference.host().to_string();
        let (host, port) = match written.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (written.as_str(), None),
        };
        let same_parts = self.host.split('.').count() == host.split('.').count();
        same_parts
            && self.port.as_deref() == port
            && self
                .host
                .split('.')
                .zip(host.split('.'))
                .all(|(pattern, part)| glob(pattern.as_bytes(), part.as_bytes()))
            && reference.repository().starts_with(&self.path)
    }
}

/// Matches one part of a host's name with `*` and `?`. In linear time: only the last star is ever tried again.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let mut at = 0;
    let mut of_pattern = 0;
    let mut star = None;
    while at < text.len() {
        match pattern.get(of_pattern) {
            Some(b'*') => {
                star = Some((of_pattern, at));
                of_pattern += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[at] => {
                at += 1;
                of_pattern += 1;
            }
            _ => {
                let Some((of_star, from)) = star else { return false };
                star = Some((of_star, from + 1));
                of_pattern = of_star + 1;
                at = from + 1;
            }
        }
    }
    pattern[of_pattern..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of the users whose credentials are tried, in order.
    fn users(auths: &str, reference: &str) -> Vec<String> {
        let ring = Keyring::from_docker_config_json(format!(r#"{{"auths":{auths}}}"#).as_bytes()).unwrap();
        let found = ring.matching(&reference.parse().unwrap());
        found.into_iter().map(|credentials| credentials.username).collect()
    }

    fn auths(keys: &[&str]) -> String {
        let entry = |key: &&str| format!(r#""{key}":{{"username":"{key}","password":"p"}}"#);
        format!("{{{}}}", keys.iter().map(entry).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn keys_match_as_the_kubelet_matches_them() {
        for (key, reference, expected) in [
            ("a.example", "a.example/b:1", true),
            ("A.example", "a.example/b:1", true),
            ("https://a.example", "a.example/b:1", true),
            ("https://a.example/v1/", "a.example/b:1", true),
            ("a.example/v2/", "a.example/b:1", true),
            ("a.example/team", "a.example/team/b:1", true),
            ("a.example/team", "a.example/team2/b:1", true),
            ("a.example/team", "a.example/b:1", false),
            ("*.example", "a.example/b:1", true),
            ("*.example", "a.b.example/b:1", false),
            ("*.b.example", "a.b.example/b:1", true),
            ("a?.example", "ab.example/b:1", true),
            ("a?.example", "a.example/b:1", false),
            ("a*b*c.example", "aXbYbc.example/b:1", true),
            ("a.example:5000", "a.example:5000/b:1", true),
            ("a.example:5000", "a.example/b:1", false),
            ("a.example", "a.example:5000/b:1", false),
            ("example", "a.example/b:1", false),
            ("a.example.b", "a.example/b:1", false),
            ("https://index.docker.io/v1/", "registry-1.docker.io/library/b:1", true),
            ("[::1]:5000", "[::1]:5000/b:1", true),
        ] {
            assert_eq!(!users(&auths(&[key]), reference).is_empty(), expected, "{key} for {reference}");
        }
    }

    #[test]
    fn all_matching_entries_are_tried_with_the_more_specific_first() {
        let keys = ["a.example", "*.example", "a.example/team", "a.example/team/b", "c.example"];
        assert_eq!(
            users(&auths(&keys), "a.example/team/b:1"),
            ["a.example/team/b", "a.example/team", "a.example", "*.example"]
        );
    }

    #[test]
    fn auth_is_used_before_a_name_and_a_password() {
        let auth = BASE64_STANDARD.encode("user:pass:word");
        let both = format!(r#"{{"a.example":{{"auth":"{auth}","username":"other","password":"p"}}}}"#);
        let ring = Keyring::from_docker_cfg(both.as_bytes()).unwrap();
        let found = ring.matching(&"a.example/b:1".parse().unwrap());
        assert_eq!(found, [Credentials::new("user", "pass:word")]);
    }

    #[test]
    fn what_cannot_be_used_is_reported_and_nothing_is_run() {
        let json = br#"{"credsStore":"x","credHelpers":{"b":"y"},"auths":{"b.example":{"auth":"!"},"c.example":{}}}"#;
        let ring = Keyring::from_docker_config_json(json).unwrap();
        assert!(ring.entries.is_empty());
        let warnings = ring.warnings().join("\n");
        for part in ["b.example: auth is not base64", "credsStore and credHelpers"] {
            assert!(warnings.contains(part), "{part}: {warnings}");
        }
    }

    #[test]
    fn null_is_the_same_as_nothing() {
        let of_config = |json: &str| Keyring::from_docker_config_json(json.as_bytes()).unwrap();
        for json in [
            "null",
            "{}",
            r#"{"auths":null,"credsStore":null,"credHelpers":null}"#,
            r#"{"auths":{"a.example":null},"credHelpers":{}}"#,
            r#"{"auths":{"a.example":{"auth":null,"username":null,"password":null,"identitytoken":null}}}"#,
        ] {
            let ring = of_config(json);
            assert!(ring.entries.is_empty() && ring.warnings().is_empty(), "{json}: {:?}", ring.warnings());
        }
        let beside = r#"{"auths":{"b.example":null,"a.example":{"auth":null,"username":"u","password":"p"}}}"#;
        let found = of_config(beside).matching(&"a.example/b:1".parse().unwrap());
        assert_eq!(found, [Credentials::new("u", "p")]);
        for json in ["null", r#"{"a.example":null}"#] {
            assert!(Keyring::from_docker_cfg(json.as_bytes()).unwrap().entries.is_empty(), "{json}");
        }
    }

    #[test]
    fn an_identity_token_is_used_where_no_password_is() {
        // As az acr login writes it: a user without a password.
        let auth = BASE64_STANDARD.encode("00000000-0000-0000-0000-000000000000:");
        let entry = |auth: &str| format!(r#"{{"a.example":{{"auth":"{auth}","identitytoken":"t"}}}}"#);
        let found = |auth: &str| {
            let ring = Keyring::from_docker_cfg(entry(auth).as_bytes()).unwrap();
            ring.matching(&"a.example/b:1".parse().unwrap())
        };
        assert_eq!(found(&auth), [Credentials::identity_token("t")]);
        assert_eq!(found(""), [Credentials::identity_token("t")]);
        assert_eq!(found(&BASE64_STANDARD.encode("u:p")), [Credentials::new("u", "p")]);
    }

    #[test]
    fn no_part_of_a_secret_is_in_an_error_or_in_its_debug_form() {
        for json in [&br#"{"auths":"s3cret"}"#[..], br#"{"auths":{"a":{"auth":7,"password":"s3cret"}}}"#, b"s3cret"] {
            let errors = [Keyring::from_docker_config_json(json).err(), Keyring::from_docker_cfg(json).err()];
            assert!(errors.iter().all(|error| !format!("{error:?}").contains("s3cret")), "{errors:?}");
            assert!(errors[0].is_some());
        }
        assert!(!format!("{:?}", Credentials::new("u", "s3cret")).contains("s3cret"));
    }

    #[test]
    fn a_glob_of_many_stars_is_matched_in_linear_time() {
        let pattern = "*a".repeat(10_000);
        assert!(!glob(pattern.as_bytes(), "a".repeat(9_999).as_bytes()));
    }
}
