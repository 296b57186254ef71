//! `podium push` and `podium pull` against a real registry, and signatures that are stored in it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod host;

use std::{
    fs,
    process::{Command, Output},
    time::Duration,
};

use podium_registry::{Allowed, Client, Digest, Error, Limits, Reference, SystemResolver, signature::verify};
use podium_tests::{
    guests,
    process::podium_binary,
    registry::{Registry, SIGNATURE, Signer},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A user `user` with the password `word`, as `htpasswd -B` writes it.
pub(crate) const USERS: &str = "user:$2a$04$SCYV1x8gDOZIGriKrwbw9um6HdLYA68.gOmjwe375ue5iLDgSv3a6\n";

/// A folder with a component, and a registry.
pub(crate) struct Fixture {
    pub(crate) registry: Registry,
    pub(crate) directory: TempDir,
}

impl Fixture {
    /// Returns `None` if the suite is skipped.
    pub(crate) async fn new(users: Option<&str>) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("users");
        fs::write(&file, users.unwrap_or_default()).unwrap();
        let registry = Registry::start(users.map(|_| &*file)).await.unwrap()?;
        fs::write(directory.path().join("registrar.wasm"), guests::component("registrar").unwrap()).unwrap();
        Some(Self { registry, directory })
    }

    pub(crate) fn reference(&self, rest: &str) -> String {
        format!("{}/{rest}", self.registry.address())
    }

    /// Returns the command with an empty configuration of docker.
    pub(crate) fn podium(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(podium_binary().unwrap());
        command.current_dir(self.directory.path()).args(arguments).env("DOCKER_CONFIG", self.directory.path());
        for variable in ["REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"] {
            command.env_remove(variable);
        }
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.podium(&[arguments, &["--plain-http"]].concat()).output().unwrap()
    }

    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--output", "json"]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test]
async fn a_component_that_was_pushed_is_pulled_byte_for_byte() {
    let Some(fixture) = Fixture::new(None).await else { return };
    let reference = fixture.reference("team/registrar:1.0");
    let pushed = fixture.json(&["push", "registrar.wasm", &reference]);
    let pinned = pushed["reference"].as_str().unwrap();
    assert_eq!(pinned, format!("{reference}@{}", pushed["manifest"].as_str().unwrap()));
    assert_eq!(pushed["spec"]["source"]["oci"]["image"], pinned);

    let by_digest = fixture.reference(&format!("team/registrar@{}", pushed["manifest"].as_str().unwrap()));
    for wanted in [&*reference, pinned, &by_digest] {
        let pulled = fixture.json(&["pull", wanted, "-o", "pulled.wasm"]);
        assert_eq!((&pulled["manifest"], &pulled["layer"]), (&pushed["manifest"], &pushed["layer"]));
        let file = |name: &str| fs::read(fixture.directory.path().join(name)).unwrap();
        assert!(file("pulled.wasm") == file("registrar.wasm"), "{wanted}");
    }

    // The same file has the same digest, at another time and under another tag.
    let again = fixture.json(&["push", "registrar.wasm", &fixture.reference("team/registrar:latest")]);
    assert_eq!(again["manifest"], pushed["manifest"]);
    let version = fixture.json(&["push", "registrar.wasm", &reference, "--component-version", "1.0.0"]);
    assert_ne!(version["manifest"], pushed["manifest"]);
    // The digest decides, whatever the tag is now.
    assert_eq!(fixture.json(&["pull", pinned])["manifest"], pushed["manifest"]);
    assert!(fixture.directory.path().join("registrar.wasm").is_file());
}

#[tokio::test]
async fn what_push_prints_can_be_pasted() {
    let Some(fixture) = Fixture::new(None).await else { return };
    let reference = fixture.reference("registrar:1.0");
    let output = fixture.run(&["push", "registrar.wasm", &reference]);
    let printed = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let (pinned, yaml) = printed.split_once("\n\n").unwrap();
    let yaml: Value = serde_saphyr::from_str(yaml).unwrap();
    assert_eq!(yaml, json!({ "spec": { "source": { "oci": { "image": pinned } } } }), "{printed}");
    assert!(output.stderr.is_empty(), "no progress within two seconds: {}", stderr(&output));
}

#[tokio::test]
async fn an_absent_tag_and_plain_http_are_errors_with_advice() {
    let Some(fixture) = Fixture::new(None).await else { return };
    let absent = fixture.run(&["pull", &fixture.reference("registrar:none")]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(stderr(&absent).contains("404") && stderr(&absent).contains("MANIFEST_UNKNOWN"), "{}", stderr(&absent));
    let secure = fixture.podium(&["pull", &fixture.reference("registrar:1")]).output().unwrap();
    assert!(stderr(&secure).contains("use --plain-http"), "{}", stderr(&secure));
    assert!(!fixture.directory.path().join("none.wasm").exists());
}

#[tokio::test]
async fn credentials_come_from_docker_login_or_from_flags() {
    let Some(fixture) = Fixture::new(Some(USERS)).await else { return };
    let reference = fixture.reference("team/registrar:1.0");
    let push = ["push", "registrar.wasm", &reference];
    let refused = fixture.run(&push);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("run docker login"), "{}", stderr(&refused));

    let named = |password: &str| {
        let mut command = fixture.podium(&[&push[..], &["--plain-http", "--username", "user"]].concat());
        command.env("PODIUM_REGISTRY_PASSWORD", password).output().unwrap()
    };
    let wrong = named("s3cret");
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("were refused") && !stderr(&wrong).contains("s3cret"), "{}", stderr(&wrong));
    assert!(named("word").status.success());

    // As docker stores them: base64 of user:word.
    let host = fixture.registry.address().to_string();
    let config = json!({ "auths": { host: { "auth": "dXNlcjp3b3Jk" } } });
    fs::write(fixture.directory.path().join("config.json"), config.to_string()).unwrap();
    assert!(fixture.run(&["pull", &reference, "-o", "pulled.wasm"]).status.success());
}

#[tokio::test]
async fn signatures_of_both_forms_are_found_in_a_registry() {
    let Some(fixture) = Fixture::new(None).await else { return };
    let reference: Reference = fixture.reference("registrar:1.0").parse().unwrap();
    let pushed = fixture.json(&["push", "registrar.wasm", &reference.to_string()]);
    let digest: Digest = pushed["manifest"].as_str().unwrap().parse().unwrap();
    let own = podium_registry::Registry {
        plain_http: true,
        private_addresses: true,
        ..podium_registry::Registry::new(reference.host().clone())
    };
    let client = Client::new(Allowed::new(vec![own], Vec::new()).unwrap(), SystemResolver);
    let limits = Limits { component: 1 << 20, time: Duration::from_secs(60) };
    let check = async |signers: &[&Signer]| {
        let keys: Vec<_> = signers.iter().map(|signer| signer.key().unwrap()).collect();
        let claims = client.signatures(&reference, &digest, &keys, &[], &limits).await.unwrap();
        verify(&keys, &digest, &claims)
    };
    let [first, second, stranger] = [(); 3].map(|()| Signer::new(&fixture.registry, "registrar", None).unwrap());
    assert!(matches!(check(&[&first]).await, Err(Error::Denied(message)) if message.contains("is not signed")));

    first.attach(&digest, "https://cosign.sigstore.dev/attestation/v1").await.unwrap();
    assert!(matches!(check(&[&first]).await, Err(Error::Denied(message)) if message.contains("1 signatures")));
    first.attach(&digest, SIGNATURE).await.unwrap();
    assert_eq!(check(&[&first]).await, Ok(0));

    // Another's bundle does not hide the classic signature.
    stranger.attach(&digest, SIGNATURE).await.unwrap();
    assert!(check(&[&second]).await.is_err());
    second.sign_classic(&digest).await.unwrap();
    assert_eq!(check(&[&first, &second]).await, Ok(1));
}
