//! The credentials that `docker login`, `oras login` and `podman login` store for a user.
//!
//! Here, unlike in a cluster, a credential helper may be run: the file is the user's own, and the helper is a program
//! on the user's path.

use std::{
    env,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use podium_registry::{Credentials, Keyring, Reference};
use serde::Deserialize;

/// The parts of the file that name helpers.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Helpers {
    creds_store: Option<String>,
    cred_helpers: Option<std::collections::BTreeMap<String, Option<String>>>,
}

/// The answer of a helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// Returns the credentials for a reference in the first file that has some, and warnings.
pub(super) fn credentials(reference: &Reference) -> anyhow::Result<(Vec<Credentials>, Vec<String>)> {
    let mut warnings = Vec::new();
    for file in files() {
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
        };
        let found = in_file(&text, reference, &mut warnings);
        let found = found.with_context(|| format!("credentials in {}", file.display()))?;
        if !found.is_empty() {
            return Ok((found, warnings));
        }
    }
    Ok((Vec::new(), warnings))
}

/// The files of docker, and then of podman.
fn files() -> Vec<PathBuf> {
    let variable = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = variable("HOME");
    let docker = variable("DOCKER_CONFIG").or_else(|| home.as_ref().map(|home| home.join(".docker")));
    let podman = variable("REGISTRY_AUTH_FILE")
        .or_else(|| variable("XDG_RUNTIME_DIR").map(|directory| directory.join("containers/auth.json")));
    docker.map(|directory| directory.join("config.json")).into_iter().chain(podman).collect()
}

fn in_file(text: &[u8], reference: &Reference, warnings: &mut Vec<String>) -> anyhow::Result<Vec<Credentials>> {
    let ring = Keyring::from_docker_config_json(text)?;
    // The ring has read the same text as JSON.
    let Helpers { creds_store, cred_helpers } = serde_json::from_slice(text).unwrap_or_default();
    let host = reference.host().to_string();
    let own = cred_helpers.and_then(|mut helpers| helpers.remove(&host).flatten()).or(creds_store);
    if let Some(name) = own.filter(|name| !name.is_empty())
        && let Some(found) = from_helper(&name, &host)?
    {
        return Ok(vec![found]);
    }
    let found = ring.matching(reference);
    if found.is_empty() {
        warnings.extend(ring.warnings().iter().filter(|warning| warning.contains(&host)).cloned());
    }
    Ok(found)
}

/// Runs `docker-credential-NAME` for the credentials of a host. `None` if it fails.
fn from_helper(name: &str, host: &str) -> anyhow::Result<Option<Credentials>> {
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if !is_name {
        bail!("{name:?} is no name of a credential helper");
    }
    let program = format!("docker-credential-{name}");
    let mut command = Command::new(Path::new(&program));
    let mut child = command
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run the credential helper {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A helper that reads nothing may have ended already.
        let _ = stdin.write_all(host.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("cannot run the credential helper {program}"))?;
    if !output.status.success() {
        return Ok(None);
    }
    let answer: Answer =
        serde_json::from_slice(&output.stdout).map_err(|_| anyhow::anyhow!("{program} answered no credentials"))?;
    // The name that helpers use for an identity token.
    Ok(Some(match answer.username.as_str() {
        "<token>" => Credentials::identity_token(answer.secret),
        _ => Credentials::new(answer.username, answer.secret),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_of_the_file_are_used_and_others_are_not() {
        let text = br#"{"auths":{"registry.example":{"username":"a","password":"b"},"c.example":{"auth":"!"}},
            "credsStore":null,"credHelpers":{"d.example":null}}"#;
        let found = |reference: &str| {
            let mut warnings = Vec::new();
            let found = in_file(text, &reference.parse().unwrap(), &mut warnings).unwrap();
            (found, warnings.len())
        };
        assert_eq!(found("registry.example/a:1"), (vec![Credentials::new("a", "b")], 0));
        assert_eq!(found("other.example/a:1"), (vec![], 0));
        assert_eq!(found("c.example/a:1"), (vec![], 1));
    }

    #[test]
    fn only_a_helper_with_a_plain_name_is_run() {
        for name in ["../sh", "a b", "a/b", "a;b"] {
            assert!(from_helper(name, "registry.example").is_err(), "{name}");
        }
        let error = format!("{:#}", from_helper("podium-has-none", "registry.example").err().unwrap());
        assert!(error.contains("cannot run the credential helper docker-credential-podium-has-none"), "{error}");
    }
}
