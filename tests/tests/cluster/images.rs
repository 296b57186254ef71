//! Plugins from a registry, as their tenant sets them up: pushed, signed, applied as a user of the namespace, with the
//! RBAC that `podium inspect` prints.

use std::{fs, net::TcpListener, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use kube::{Api, Client};
use podium_registry::Digest;
use podium_tests::{
    controlplane::ControlPlane,
    guests,
    process::{Host, HostOptions, podium_binary},
    registry::{Registry, Signer},
    wait::until,
};
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::{Kubectl, stderr},
    plugins::SEEN,
    workloads::{create, label, pod},
};

const SOON: Duration = Duration::from_secs(60);
/// The host's account in `deploy/`, in the audit log.
const HOST: &str = "system:serviceaccount:podium:podium-host";
/// A user `user` with the password `word`, as `htpasswd -B` writes it.
const USERS: &str = "user:$2a$04$SCYV1x8gDOZIGriKrwbw9um6HdLYA68.gOmjwe375ue5iLDgSv3a6\n";
const USER: &str = "alice";

/// A tenant's namespace with its plugin `tidy`, and its user.
struct Tenant {
    namespace: &'static str,
    kubectl: Kubectl,
    client: Client,
    directory: PathBuf,
}

impl Tenant {
    /// Makes the namespace, and makes the user its administrator.
    async fn new(plane: &ControlPlane, client: &Client, namespace: &'static str, directory: PathBuf) -> Result<Self> {
        crate::workloads::namespace(client, namespace).await?;
        let subject = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": USER});
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"});
        let binding = json!({"metadata": {"name": USER}, "roleRef": role, "subjects": [subject]});
        let path = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings");
        create(client, &path, binding).await?;
        Ok(Self { namespace, kubectl: Kubectl::new(plane), client: client.clone(), directory })
    }

    fn apply(&self, yaml: &[u8]) -> Result<()> {
        let output = self.kubectl.run(USER, &["apply", "-f", "-"], yaml)?;
        ensure!(output.status.success(), "{}", stderr(&output));
        Ok(())
    }

    /// Applies the plugin with this image, and the RBAC that `podium inspect` prints for it.
    fn image(&self, image: &str, secret: &str) -> Result<()> {
        let plugin = json!({
            "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
            "metadata": { "name": "tidy", "namespace": self.namespace },
            "spec": {
                "source": { "oci": { "image": image, "pullSecretName": secret } },
                "serviceAccountName": "tidy",
                "watch": { "sections": ["labels"] },
                "grants": { "read": { "pods": { "sections": ["labels"] } }, "write": { "labels": [SEEN] } },
            },
        });
        let file = self.directory.join(format!("{}.yaml", self.namespace));
        fs::write(&file, plugin.to_string())?;
        let inspected = Command::new(podium_binary()?).arg("inspect").arg(&file).args(["--output", "yaml"]).output()?;
        ensure!(inspected.status.success(), "{}", stderr(&inspected));
        self.apply(&inspected.stdout)?;
        self.apply(plugin.to_string().as_bytes())
    }

    fn secret(&self, name: &str, registry: &Registry, password: &str) -> Result<()> {
        let arguments = ["-n", self.namespace, "create", "secret", "docker-registry", name, "--docker-username=user"];
        let server = format!("--docker-server={}", registry.address());
        let password = format!("--docker-password={password}");
        let output = self.kubectl.run(USER, &[&arguments[..], &[&server, &password]].concat(), b"")?;
        ensure!(output.status.success(), "{}", stderr(&output));
        Ok(())
    }

    /// Waits until the condition, of the present generation, has this status and reason. Returns the object.
    async fn condition(&self, kind: &str, status: &str, reason: &str) -> Result<Value> {
        until(&format!("{kind}={status} {reason}"), 2 * SOON, async || {
            let object = self.kubectl.admin(&["-n", self.namespace, "get", "rp", "tidy", "-o", "json"])?;
            let object: Value = serde_json::from_str(&object)?;
            let conditions = object["status"]["conditions"].as_array().context("no conditions")?;
            let found = conditions.iter().find(|condition| condition["type"] == kind).context("no such condition")?;
            ensure!(found["observedGeneration"] == object["metadata"]["generation"], "of an earlier one: {found}");
            ensure!(found["status"] == status && found["reason"] == reason, "{conditions:#?}");
            Ok(object)
        })
        .await
    }

    /// Waits until `kubectl wait` reports that the plugin is ready, and a new Pod has its label.
    async fn ready(&self, name: &str) -> Result<Value> {
        self.ready_as("Running", name).await
    }

    async fn ready_as(&self, reason: &str, name: &str) -> Result<Value> {
        let object = self.condition("Ready", "True", reason).await?;
        self.kubectl.admin(&["-n", self.namespace, "wait", "--for=condition=Ready", "--timeout=10s", "rp/tidy"])?;
        pod(&self.client, self.namespace, name).await?;
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let labelled = async || label(&api.get(name).await?, SEEN).map(drop).ok_or_else(|| anyhow!("no label"));
        until("the label", SOON, labelled).await?;
        Ok(object)
    }
}

/// Pushes a component with `podium push`, and returns the reference with its digest.
fn push(directory: &std::path::Path, tag: &str, version: &str) -> Result<String> {
    let mut command = Command::new(podium_binary()?);
    command.current_dir(directory).env("PODIUM_REGISTRY_PASSWORD", "word").env("DOCKER_CONFIG", directory);
    command.args(["push", "good.wasm", tag, "--plain-http", "--username", "user", "--output", "json"]);
    let output = command.args(["--component-version", version]).output()?;
    ensure!(output.status.success(), "{}", stderr(&output));
    let printed: Value = serde_json::from_slice(&output.stdout)?;
    Ok(printed["spec"]["source"]["oci"]["image"].as_str().context("no image")?.to_owned())
}

fn manifest(image: &str) -> Result<Digest> {
    Ok(image.split_once('@').context("no digest")?.1.parse()?)
}

/// Each mistake of a tenant is a condition that says what to do.
async fn each_mistake_is_a_condition(strict: &Tenant, registry: &Registry, pinned: &str) -> Result<()> {
    until("the user's rights", SOON, async || strict.image(pinned, "wrong")).await?;
    strict.condition("Fetched", "False", "PullSecretNotFound").await?;
    strict.secret("wrong", registry, "s3cret")?;
    let denied = strict.condition("Fetched", "False", "RegistryDenied").await?;
    ensure!(!denied.to_string().contains("s3cret"), "{denied}");
    // The Secret is renewed, as by an operator of a cloud: found within a minute, without a change of the object.
    strict.kubectl.admin(&["-n", strict.namespace, "delete", "secret", "wrong"])?;
    strict.secret("wrong", registry, "word")?;
    strict.condition("Verified", "False", "SignatureMissing").await?;
    strict.secret("pull", registry, "word")?;
    strict.image(pinned, "pull")?;
    let unsigned = strict.condition("Verified", "False", "SignatureMissing").await?;
    ensure!(unsigned.to_string().contains("cosign sign"), "{unsigned}");
    Ok(())
}

async fn a_tag_is_the_digest_that_it_named(
    lax: &Tenant,
    registry: &Registry,
    tag: &str,
    pinned: &str,
) -> Result<String> {
    lax.secret("pull", registry, "word")?;
    lax.image(tag, "pull")?;
    let ready = lax.ready("a").await?;
    ensure!(ready["status"]["active"]["image"] == pinned, "{}", ready["status"]);
    lax.condition("Verified", "True", "NotRequired").await?;
    let moved = push(&lax.directory, tag, "2.0.0")?;
    ensure!(moved != pinned, "{moved}");
    let ready = lax.ready("b").await?;
    ensure!(ready["status"]["active"]["image"] == pinned, "{}", ready["status"]);
    Ok(moved)
}

async fn the_version_before_needs_a_present_key(
    strict: &Tenant,
    options: &HostOptions,
    pinned: &str,
    [policy, other_key]: [&Value; 2],
) -> Result<()> {
    let file = strict.directory.join("policy.yaml");
    let host = Host::spawn(options).await?;
    let away = strict.condition("Fetched", "False", "RegistryUnavailable").await?;
    ensure!(away["status"]["active"]["image"] == pinned, "{}", away["status"]);
    ensure!(host.terminate().await?.success(), "it failed");
    fs::write(&file, other_key.to_string())?;
    let host = Host::spawn(options).await?;
    until("the end of the version", SOON, async || {
        let away = strict.condition("Fetched", "False", "RegistryUnavailable").await?;
        ensure!(away["status"]["active"].is_null(), "{}", away["status"]);
        Ok(())
    })
    .await?;
    ensure!(host.log().contains("no signature of"), "{}", host.log());
    ensure!(host.terminate().await?.success(), "it failed");
    fs::write(&file, policy.to_string())?;
    Ok(())
}

async fn images_that_the_policy_forbids_are_not_requested(
    strict: &Tenant,
    address: &str,
    tag: &str,
    pinned: &str,
) -> Result<()> {
    strict.image(tag, "pull")?;
    let refused = strict.condition("Granted", "False", "PolicyForbids").await?;
    ensure!(refused.to_string().contains("spec.defaults.images.tagsPermitted"), "{refused}");
    ensure!(refused["status"]["active"]["image"] == pinned, "the version before goes on: {}", refused["status"]);
    let elsewhere = TcpListener::bind("127.0.0.1:0")?;
    elsewhere.set_nonblocking(true)?;
    strict.image(&pinned.replace(address, &elsewhere.local_addr()?.to_string()), "pull")?;
    let refused = strict.condition("Granted", "False", "PolicyForbids").await?;
    ensure!(refused.to_string().contains("which is not listed"), "{refused}");
    ensure!(elsewhere.accept().is_err(), "the host has connected to a registry that is not listed");
    strict.image(pinned, "pull")?;
    strict.ready("b").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_image_that_its_tenant_pushed_is_pulled_verified_and_run() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name);
    fs::write(path("users"), USERS)?;
    let Some(registry) = Registry::start(Some(&path("users"))).await? else { return Ok(()) };
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    fs::write(path("good.wasm"), &*guests::component("good")?)?;
    let address = registry.address().to_string();
    let tag = format!("{address}/team/tidy:1.0");
    let pinned = push(directory.path(), &tag, "1.0.0")?;
    let signer = Signer::new(&registry, "team/tidy", Some("user:word"))?;
    let other = Signer::new(&registry, "team/tidy", Some("user:word"))?;

    let images = json!({ "signatureRequired": true, "signatureKeys": [signer.pem()?] });
    let policy = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "Policy",
        "spec": {
            "registries": [{ "host": address, "plainHttp": true, "privateAddresses": true }],
            "defaults": { "images": images },
            "namespaces": { "lax": { "images": { "signatureRequired": false, "tagsPermitted": true } } },
        },
    });
    fs::write(path("policy.yaml"), policy.to_string())?;
    Kubectl::new(&plane).install(&["namespace.yaml", "rbac.yaml", "roles.yaml", "crds.yaml"])?;
    let argument = |name: &str| path(name).to_string_lossy().into_owned();
    let options = HostOptions {
        kubeconfig: plane.kubeconfig_of("podium", "podium-host").await?,
        plugins: Vec::new(),
        arguments: vec![
            "--watch-plugins".to_owned(),
            "--require-service-account".to_owned(),
            "--policy".to_owned(),
            argument("policy.yaml"),
            "--state-dir".to_owned(),
            argument("state"),
        ],
    };
    let strict = Tenant::new(&plane, &client, "strict", directory.path().to_owned()).await?;
    let lax = Tenant::new(&plane, &client, "lax", directory.path().to_owned()).await?;
    let mark = plane.audit().now()?;
    let host = Host::spawn(&options).await?;

    each_mistake_is_a_condition(&strict, &registry, &pinned).await?;

    // Signed, it is run without another change.
    signer.sign_classic(&manifest(&pinned)?).await?;
    let ready = strict.ready("a").await?;
    ensure!(ready["status"]["active"]["image"] == pinned, "{}", ready["status"]);
    strict.condition("Verified", "True", "Verified").await?;

    images_that_the_policy_forbids_are_not_requested(&strict, &address, &tag, &pinned).await?;

    // A tag is the digest that it named, until the plugin or the host is started again.
    let moved = a_tag_is_the_digest_that_it_named(&lax, &registry, &tag, &pinned).await?;
    ensure!(host.terminate().await?.success(), "it failed");
    let host = Host::spawn(&options).await?;
    until("the digest that the tag names", SOON, async || {
        let ready = lax.condition("Ready", "True", "Running").await?;
        ensure!(ready["status"]["active"]["image"] == moved, "{}", ready["status"]);
        Ok(())
    })
    .await?;
    ensure!(host.terminate().await?.success(), "it failed");

    // The registry is away: both run what they ran.
    drop(registry);
    let host = Host::spawn(&options).await?;
    strict.ready("c").await?;
    let stored = lax.condition("Fetched", "True", "Stored").await?;
    ensure!(stored["status"]["active"]["image"] == moved, "{}", stored["status"]);
    lax.ready_as("Stored", "c").await?;
    ensure!(host.terminate().await?.success(), "it failed");

    // Of an image that cannot be pulled the version before runs, also after a restart, if a key of the present policy
    // has signed it.
    strict.image(&format!("{}@sha256:{}", tag, "0".repeat(64)), "pull")?;
    let mut other_key = policy.clone();
    other_key["spec"]["defaults"]["images"]["signatureKeys"] = json!([other.pem()?]);
    the_version_before_needs_a_present_key(&strict, &options, &pinned, [&policy, &other_key]).await?;

    // Without the bytes nothing runs, and the status says so.
    fs::remove_dir_all(path("state").join("components"))?;
    let host = Host::spawn(&options).await?;
    for tenant in [&strict, &lax] {
        let away = tenant.condition("Fetched", "False", "RegistryUnavailable").await?;
        ensure!(away["status"]["active"].is_null(), "{}", away["status"]);
    }
    ensure!(host.terminate().await?.success(), "it failed");

    // Secrets were read one by one, and each as the plugin's account.
    let requests = plane.audit().requests_of(HOST, mark)?;
    let secrets: Vec<_> = requests.iter().filter(|request| request.resource == "secrets").collect();
    ensure!(!secrets.is_empty() && secrets.iter().all(|request| request.verb == "get"), "{secrets:?}");
    ensure!(secrets.iter().all(|request| request.impersonated.is_some()), "{secrets:?}");
    Ok(())
}
