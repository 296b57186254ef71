//! `podium-host` with images in a registry: which of them it runs, also when the registry is away, and what registries
//! that attack it can make it use.

use std::{
    fs,
    io::Write,
    net::Ipv4Addr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use podium_devcluster::{Cluster, Options, Server};
use podium_registry::Digest;
use podium_tests::{
    guests,
    process::{Host, HostOptions},
    registry::{IMAGE, Signer},
    wait::until,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::Fixture;

const SOON: Duration = Duration::from_secs(60);

/// A folder with a kubeconfig, a policy, and two plugins of the namespace `shop`: one of an image, and one that is
/// suspended, without which the host ends when the image is refused.
struct Place {
    directory: tempfile::TempDir,
    _cluster: Cluster,
    _server: Server,
}

impl Place {
    async fn new(policy: &Value) -> Result<Self> {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() })?;
        let server = cluster.listen((Ipv4Addr::LOCALHOST, 0).into()).await?;
        let directory = tempfile::tempdir()?;
        fs::write(directory.path().join("kubeconfig"), server.kubeconfig())?;
        let policy = json!({ "apiVersion": "podium.dev/v1alpha1", "kind": "Policy", "spec": policy });
        fs::write(directory.path().join("policy.yaml"), policy.to_string())?;
        Ok(Self { directory, _cluster: cluster, _server: server })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn image(&self, image: &str) -> Result<()> {
        let sources = [("tidy", json!({ "oci": { "image": image } })), ("idle", json!({ "file": "none.wasm" }))];
        for (name, source) in sources {
            let plugin = json!({
                "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin",
                "metadata": { "name": name, "namespace": "shop" },
                "spec": {
                    "source": source,
                    "suspend": name == "idle",
                    "watch": { "sections": ["labels"] },
                    "grants": {
                        "read": { "pods": { "sections": ["labels"] } },
                        "write": { "labels": ["guests.example/*"] },
                    },
                },
            });
            fs::write(self.path(&format!("{name}.yaml")), plugin.to_string())?;
        }
        Ok(())
    }

    async fn host(&self, plugins: &[&str]) -> Result<Host> {
        let argument = |name: &str| self.path(name).to_string_lossy().into_owned();
        let arguments = ["--policy", &argument("policy.yaml"), "--state-dir", &argument("state")];
        Host::spawn(&HostOptions {
            kubeconfig: self.path("kubeconfig"),
            plugins: plugins.iter().map(|name| self.path(name)).collect(),
            arguments: arguments.map(str::to_owned).into(),
        })
        .await
    }

    /// Starts the host, waits for a line of its log, and ends it.
    async fn logs(&self, line: &str) -> Result<()> {
        let host = self.host(&BOTH).await?;
        until(line, SOON, async || {
            ensure!(host.log().contains(line), "{}", host.log());
            Ok(())
        })
        .await?;
        ensure!(host.terminate().await?.success(), "it failed");
        Ok(())
    }
}

fn listed(host: &str) -> Value {
    json!([{ "host": host, "plainHttp": true, "privateAddresses": true }])
}

const BOTH: [&str; 2] = ["tidy.yaml", "idle.yaml"];
const LOADED: &str = "plugin loaded plugin=shop/tidy";

#[tokio::test]
async fn an_image_runs_from_the_disk_while_its_registry_is_away() -> Result<()> {
    let Some(fixture) = Fixture::new(None).await else { return Ok(()) };
    fs::write(fixture.directory.path().join("good.wasm"), &*guests::component("good")?)?;
    let tag = fixture.reference("team/good:1.0");
    let pinned = fixture.json(&["push", "good.wasm", &tag])["reference"].as_str().context("no reference")?.to_owned();
    let registries = listed(&fixture.registry.address().to_string());
    let images = json!({ "tagsPermitted": true });
    let place = Place::new(&json!({ "registries": registries, "defaults": { "images": images } })).await?;
    place.image(&tag)?;
    place.logs(LOADED).await?;

    // The tag has moved to something that is no component, and is of no use to a host that starts.
    let signer = Signer::new(&fixture.registry, "team/good", None)?;
    let config = signer.blob("application/vnd.oci.image.config.v1+json", "{}").await?;
    let layer = signer.blob("text/plain", "none").await?;
    signer.put("1.0", &json!({ "schemaVersion": 2, "mediaType": IMAGE, "config": config, "layers": [layer] })).await?;
    place.logs(LOADED).await?;

    drop(fixture);
    place.logs(LOADED).await?;
    place.image(&pinned)?;
    place.logs(LOADED).await?;

    // Without the bytes it does not run.
    fs::remove_dir_all(place.path("state").join("components"))?;
    place.logs("plugin not loaded").await?;
    Ok(())
}

#[tokio::test]
async fn a_stored_image_is_verified_with_the_keys_of_the_present_policy() -> Result<()> {
    let Some(fixture) = Fixture::new(None).await else { return Ok(()) };
    fs::write(fixture.directory.path().join("good.wasm"), &*guests::component("good")?)?;
    let pushed = fixture.json(&["push", "good.wasm", &fixture.reference("team/good:1.0")]);
    let manifest: Digest = pushed["manifest"].as_str().context("no digest")?.parse()?;
    let [first, second] = [(); 2].map(|()| Signer::new(&fixture.registry, "team/good", None));
    let (first, second) = (first?, second?);
    let registries = listed(&fixture.registry.address().to_string());
    let policy = |signer: &Signer| -> Result<Value> {
        let images = json!({ "signatureRequired": true, "signatureKeys": [signer.pem()?] });
        Ok(json!({ "registries": registries, "defaults": { "images": images } }))
    };
    let place = Place::new(&policy(&first)?).await?;
    place.image(pushed["reference"].as_str().context("no reference")?)?;
    place.logs("is not signed").await?;
    first.sign_classic(&manifest).await?;
    place.logs(LOADED).await?;

    drop(fixture);
    place.logs(LOADED).await?;
    let revoked = json!({ "apiVersion": "podium.dev/v1alpha1", "kind": "Policy", "spec": policy(&second)? });
    fs::write(place.path("policy.yaml"), revoked.to_string())?;
    place.logs("plugin not loaded").await?;
    Ok(())
}

/// How a registry attacks the host.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// More bytes than the manifest says, without a length.
    Endless,
    /// A length of a terabyte, and bytes for as long as the client reads.
    Length,
    /// As many bytes as the manifest says, and others.
    Others,
    /// A manifest that never ends.
    Manifest,
    /// Heads that never end.
    Head,
    /// A manifest with a hundred thousand layers.
    Layers,
}

/// The bytes of the component that an attacker's manifest has: the most of its class.
const SIZE: usize = 8 << 20;

/// Serves the attack on a free port. Returns the address, and the number of connections so far.
async fn attacker(attack: Attack, manifest: String) -> Result<(String, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let (address, connections) = (listener.local_addr()?.to_string(), Arc::new(AtomicUsize::new(0)));
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(answer(stream, attack, manifest.clone()));
        }
    });
    Ok((address, connections))
}

async fn answer(mut stream: TcpStream, attack: Attack, manifest: String) -> Result<()> {
    let mut head = vec![0; 16 << 10];
    let length = stream.read(&mut head).await?;
    let is_manifest = String::from_utf8_lossy(&head[..length]).contains("/manifests/");
    let ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
    let piece = vec![b'a'; 64 << 10];
    match (attack, is_manifest) {
        (Attack::Head, _) => {
            stream.write_all(ok.as_bytes()).await?;
            loop {
                stream.write_all(b"X-Filler: ").await?;
                stream.write_all(&piece).await?;
                stream.write_all(b"\r\n").await?;
            }
        }
        (Attack::Manifest, true) => {
            stream.write_all(format!("{ok}\r\n").as_bytes()).await?;
            loop {
                stream.write_all(&piece).await?;
            }
        }
        (_, true) => {
            let head = format!("{ok}Content-Length: {}\r\n\r\n", manifest.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(manifest.as_bytes()).await?;
        }
        (Attack::Others, false) => {
            stream.write_all(format!("{ok}Content-Length: {SIZE}\r\n\r\n").as_bytes()).await?;
            for _ in 0..SIZE / piece.len() {
                stream.write_all(&piece).await?;
            }
        }
        (_, false) => {
            let length = if matches!(attack, Attack::Length) { "Content-Length: 1099511627776\r\n" } else { "" };
            stream.write_all(format!("{ok}{length}\r\n").as_bytes()).await?;
            loop {
                stream.write_all(&piece).await?;
            }
        }
    }
    Ok(())
}

fn manifest(layers: usize) -> String {
    let digest = Digest::sha256(b"never these bytes").to_string();
    let of = |media_type: &str, size: usize| json!({ "mediaType": media_type, "digest": digest, "size": size });
    let layers = vec![of("application/wasm", SIZE); layers];
    json!({ "schemaVersion": 2, "config": of("application/vnd.wasm.config.v0+json", 2), "layers": layers }).to_string()
}

fn memory(pid: u32, figure: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).context("no such figure")?;
    Ok(line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_attacks_takes_little_memory_of_the_host() -> Result<()> {
    let cases = [
        (Attack::Endless, 1, "the component is larger than 8388608 bytes"),
        (Attack::Length, 1, "the component is larger than 8388608 bytes"),
        (Attack::Others, 1, "the component has 8388608 bytes and the digest"),
        (Attack::Manifest, 1, "is larger than 65536 bytes"),
        (Attack::Head, 1, "spec.source.oci: "),
        (Attack::Layers, 100_000, "is larger than 65536 bytes"),
    ];
    for (attack, layers, words) in cases {
        let manifest = manifest(layers);
        let pinned = Digest::sha256(manifest.as_bytes());
        let (address, connections) = attacker(attack, manifest).await?;
        let place = Place::new(&json!({ "registries": listed(&address) })).await?;
        place.image(&format!("{address}/a@{pinned}"))?;
        let before = {
            let host = place.host(&["idle.yaml"]).await?;
            let peak = memory(host.id(), "VmHWM")?;
            host.terminate().await?;
            peak
        };
        let host = place.host(&BOTH).await?;
        until("the refusal", SOON, async || {
            let log = host.log();
            ensure!(log.contains("plugin not loaded") && log.contains(words), "{attack:?}: {log}");
            Ok(())
        })
        .await?;
        let grown = memory(host.id(), "VmHWM")?.saturating_sub(before);
        writeln!(std::io::stderr(), "{attack:?}: {grown} KiB, {} connections", connections.load(Ordering::Relaxed))?;
        // The bytes of the largest component of the class, the buffers they came in, and what a start varies by.
        ensure!(grown < 32 << 10, "{attack:?}: {grown} KiB");
        ensure!(host.terminate().await?.success(), "it failed");
    }
    Ok(())
}

#[tokio::test]
async fn a_registry_that_is_not_listed_gets_no_connection() -> Result<()> {
    let (address, connections) = attacker(Attack::Others, manifest(1)).await?;
    let place = Place::new(&json!({ "registries": listed("registry.example") })).await?;
    place.image(&format!("{address}/a@{}", Digest::sha256(b"")))?;
    place.logs("which is not listed").await?;
    fs::write(place.path("policy.yaml"), "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {}\n")?;
    place.logs("which is not listed").await?;
    ensure!(connections.load(Ordering::Relaxed) == 0, "{connections:?}");
    Ok(())
}
