//! Many tenants with many plugin objects each, every plugin with an account and a label of its own: the start of the
//! host, its requests, its memory, and the time from an event to a write while all of them are loaded.
//!
//! `just figures-plugins` does it with 500 plugins of 50 tenants and a release build.

use std::{
    collections::{BTreeMap, HashMap},
    env,
    io::Write,
    process::Command,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Pod},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    core::PartialObjectMeta,
    runtime::{WatchStreamExt, watcher, watcher::watcher as watch},
};
use podium_tests::{
    bombs,
    controlplane::{ControlPlane, Mark},
    guests,
    process::{Host, HostOptions},
    wait::until,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    exclusive,
    kubectl::Kubectl,
    objects::{HOST, digest},
    workloads::{account, create, namespace, pod},
};

const WITHIN: Duration = Duration::from_secs(300);
/// Requests of the test at the same time.
const CONCURRENT: usize = 16;
/// The pause between two new Pods.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Copy)]
struct Size {
    tenants: usize,
    /// Plugins of each tenant.
    each: usize,
    /// Pods that are created while all plugins are loaded.
    new_pods: usize,
}

impl Size {
    fn plugins(self) -> usize {
        self.tenants * self.each
    }

    fn names(self) -> impl Iterator<Item = String> {
        (0..self.tenants).map(|tenant| format!("team-{tenant:02}"))
    }
}

/// The start of a host until every object is ready.
#[derive(Debug)]
struct Start {
    /// Until `/readyz`.
    ready: Duration,
    /// Until the status of every object.
    shown: Duration,
    /// Requests that it sent meanwhile, as `verb resource`, with `own` before those of its own account.
    requests: BTreeMap<String, usize>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_plugins_of_ten_tenants_cost_one_request_and_one_status_each() -> Result<()> {
    measured(Size { tenants: 10, each: 5, new_pods: 20 }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "minutes, and its figures are of interest with a release build"]
async fn five_hundred_plugins_of_fifty_tenants() -> Result<()> {
    measured(Size { tenants: 50, each: 10, new_pods: 300 }).await
}

async fn measured(size: Size) -> Result<()> {
    let Some((plane, client, _turn)) = exclusive(<_>::default()).await? else { return Ok(()) };
    let kubectl = Kubectl::new(&plane);
    kubectl.install(&["namespace.yaml", "rbac.yaml", "crds.yaml"])?;
    account(&client, "podium", "default").await?;
    until("the kind", WITHIN, async || objects(&client).await.map(drop)).await?;
    let component = guests::component("registrar")?;
    let tenants = size.names().enumerate().map(|(number, name)| {
        let component = bombs::marked(&component, &number.to_string());
        tenant(&client, name, component, size.each)
    });
    stream::iter(tenants).buffer_unordered(CONCURRENT).try_collect::<()>().await?;

    let state = tempfile::tempdir()?;
    let mut arguments: Vec<_> = ["--watch-plugins", "--require-service-account"].map(str::to_owned).into();
    arguments.extend(["--state-dir".to_owned(), state.path().to_string_lossy().into_owned()]);
    let kubeconfig = plane.kubeconfig_of("podium", "podium-host").await?;
    let options = HostOptions { kubeconfig, plugins: Vec::new(), arguments };

    let (host, cold) = start(&plane, &client, size, &options).await?;
    report(size, "compiled", &cold)?;
    memory_and_series(size, &host).await?;
    waits(&plane, size).await?;
    memory_and_series(size, &host).await?;
    let quiet = plane.audit().now()?;
    // A real wait, because the host is another process: five times the interval at which it compares statuses.
    sleep(Duration::from_secs(10)).await;
    ensure!(requests(&plane, quiet)?.is_empty(), "{:?}", requests(&plane, quiet)?);
    ensure!(host.terminate().await?.success(), "it failed");

    let (host, warm) = start(&plane, &client, size, &options).await?;
    report(size, "from the cache", &warm)?;
    memory_and_series(size, &host).await?;
    // Each component is read once, and each status is written when the plugin is loaded, and again if its first run
    // ends after that.
    let plugins = size.plugins();
    for (start, statuses) in [(&cold, plugins..=2 * plugins), (&warm, 0..=0)] {
        let count = |request: &str| start.requests.get(request).copied().unwrap_or_default();
        ensure!(count("get configmaps") == plugins, "{:?}", start.requests);
        ensure!(statuses.contains(&count("own patch reconcileplugins/status")), "{:?}", start.requests);
    }
    ensure!(host.terminate().await?.success(), "it failed");
    Ok(())
}

/// Creates a namespace with a component, with accounts that may label Pods and that the host may use, with a Pod, and
/// with the objects.
async fn tenant(client: &Client, name: String, component: Vec<u8>, each: usize) -> Result<()> {
    namespace(client, &name).await?;
    let plugins: Vec<_> = (0..each).map(|number| format!("plugin-{number}")).collect();
    for plugin in &plugins {
        account(client, &name, plugin).await?;
    }
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{name}");
    let group = "rbac.authorization.k8s.io";
    let subject = |name: &str, of: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": of });
    let own = json!([
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["patch"] },
        { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["registrar"], "verbs": ["get"] },
    ]);
    let host = json!([
        { "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": plugins, "verbs": ["impersonate"] },
    ]);
    let accounts: Vec<_> = plugins.iter().map(|plugin| subject(plugin, &name)).collect();
    for (role, rules, subjects) in
        [("plugins", own, json!(accounts)), ("host", host, json!([subject("podium-host", "podium")]))]
    {
        let metadata = json!({ "name": role });
        create(client, &format!("{rbac}/roles"), json!({ "metadata": metadata, "rules": rules })).await?;
        let role = json!({ "apiGroup": group, "kind": "Role", "name": role });
        let binding = json!({ "metadata": metadata, "roleRef": role, "subjects": subjects });
        create(client, &format!("{rbac}/rolebindings"), binding).await?;
    }
    let sha256 = digest(&component);
    let config_map = ConfigMap {
        metadata: ObjectMeta { name: Some("registrar".to_owned()), ..ObjectMeta::default() },
        binary_data: Some([("plugin.wasm".to_owned(), ByteString(component))].into()),
        ..ConfigMap::default()
    };
    Api::namespaced(client.clone(), &name).create(&PostParams::default(), &config_map).await?;
    pod(client, &name, "a").await?;
    for plugin in plugins {
        let label = format!("guests.example/{plugin}");
        let object = json!({
            "apiVersion": "podium.dev/v1alpha1", "kind": "ReconcilePlugin", "metadata": { "name": plugin },
            "spec": {
                "source": { "configMap": { "name": "registrar", "key": "plugin.wasm", "sha256": sha256 } },
                "serviceAccountName": plugin,
                "watch": { "sections": ["labels"] },
                "grants": {
                    "read": { "pods": { "sections": ["labels"] } },
                    "write": { "labels": [label], "annotations": ["guests.example/*"] },
                },
                "config": { "label": label },
            },
        });
        create(client, &format!("/apis/podium.dev/v1alpha1/namespaces/{name}/reconcileplugins"), object).await?;
    }
    Ok(())
}

async fn objects(client: &Client) -> Result<Vec<Value>> {
    let request = Request::get("/apis/podium.dev/v1alpha1/reconcileplugins").body(Vec::new())?;
    let list: Value = client.request(request).await?;
    Ok(list["items"].as_array().context("no items")?.clone())
}

/// Starts the host of this build, or the one that `PODIUM_OBJECTS_HOST` names.
pub(crate) async fn host(options: &HostOptions) -> Result<Host> {
    match env::var_os("PODIUM_OBJECTS_HOST") {
        Some(program) => Host::spawn_by(Command::new(program), options).await,
        None => Host::spawn(options).await,
    }
}

/// Starts the host and waits until the status of every object is that of this start.
async fn start(plane: &ControlPlane, client: &Client, size: Size, options: &HostOptions) -> Result<(Host, Start)> {
    let (mark, began) = (plane.audit().now()?, Instant::now());
    let host = host(options).await?;
    let ready = began.elapsed();
    until("every object to be ready and healthy", WITHIN, async || {
        let all = objects(client).await?;
        let is_ready = |object: &&Value| {
            let conditions = object["status"]["conditions"].as_array();
            let holds =
                |name: &str| conditions.into_iter().flatten().any(|of| of["type"] == name && of["status"] == "True");
            holds("Ready") && holds("Healthy")
        };
        let ready = all.iter().filter(is_ready).count();
        ensure!(all.len() == size.plugins() && ready == all.len(), "{ready} of {}", all.len());
        Ok(())
    })
    .await?;
    let start = Start { ready, shown: began.elapsed(), requests: requests(plane, mark)? };
    Ok((host, start))
}

fn requests(plane: &ControlPlane, mark: Mark) -> Result<BTreeMap<String, usize>> {
    let mut requests = BTreeMap::new();
    for request in plane.audit().requests_of(HOST, mark)? {
        // The watches are renewed every few minutes.
        if ["list", "watch"].contains(&request.verb.as_str()) {
            continue;
        }
        let own = if request.impersonated.is_none() { "own " } else { "" };
        *requests.entry(format!("{own}{} {}", request.verb, request.resource)).or_default() += 1;
    }
    Ok(requests)
}

fn report(size: Size, what: &str, start: &Start) -> Result<()> {
    let Start { ready, shown, requests } = start;
    let plugins = size.plugins();
    let line = format!("{plugins} plugins of {} tenants, {what}: ready in {ready:.1?}", size.tenants);
    writeln!(std::io::stderr(), "objects: {line}, all statuses written in {shown:.1?}; {requests:?}")?;
    Ok(())
}

async fn memory_and_series(size: Size, host: &Host) -> Result<()> {
    let (resident, anonymous) = (memory(host.id(), "VmRSS:")?, memory(host.id(), "RssAnon:")?);
    let peak = memory(host.id(), "VmHWM:")?;
    let metrics = host.get("/metrics").await?;
    let of_plugins = metrics.lines().filter(|line| line.contains("controller=\"team-")).count();
    let each = of_plugins / size.plugins();
    let line = format!("{resident:.1} MiB resident, {anonymous:.1} anonymous, {peak:.1} at most");
    let series = format!("{each} series for a plugin, {} bytes of metrics", metrics.len());
    writeln!(std::io::stderr(), "objects: {line}; {series}")?;
    Ok(())
}

/// When the watch of the test showed a Pod, and each of its labels.
#[derive(Debug)]
struct Seen {
    appeared: Instant,
    labelled: BTreeMap<String, Instant>,
}

/// Creates Pods one after the other, and reports how long their labels took.
async fn waits(plane: &ControlPlane, size: Size) -> Result<()> {
    let seen: Arc<Mutex<HashMap<String, Seen>>> = Arc::default();
    let following = tokio::spawn(follow(plane.client().await?, seen.clone()));
    let complete = async |pods: usize| {
        until("the labels of all plugins", WITHIN, async || {
            let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            let complete = seen.values().filter(|pod| pod.labelled.len() == size.each).count();
            ensure!(complete == pods, "{complete} of {pods}");
            Ok(())
        })
        .await
    };
    complete(size.tenants).await?;
    let began = Instant::now();
    let client = plane.client().await?;
    for (number, name) in (0..size.new_pods).zip(size.names().collect::<Vec<_>>().iter().cycle()) {
        pod(&client, name, &format!("new-{number}")).await?;
        sleep(PAUSE).await;
    }
    complete(size.tenants + size.new_pods).await?;
    following.abort();
    let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let new = seen.values().filter(|pod| pod.appeared > began);
    let waits = new.flat_map(|pod| pod.labelled.values().map(|at| at.duration_since(pod.appeared)));
    let mut waits: Vec<_> = waits.collect();
    waits.sort_unstable();
    ensure!(waits.len() == size.new_pods * size.each, "{} labels", waits.len());
    let at = |percent: usize| waits[waits.len() * percent / 100];
    let (p50, p99, count) = (at(50), at(99), waits.len());
    writeln!(std::io::stderr(), "objects: {count} writes, event to write p50 {p50:.1?}, p99 {p99:.1?}")?;
    Ok(())
}

/// Follows the metadata of all Pods until it is dropped.
async fn follow(client: Client, seen: Arc<Mutex<HashMap<String, Seen>>>) {
    let pods: Api<PartialObjectMeta<Pod>> = Api::all(client);
    let mut events = watch(pods, watcher::Config::default()).default_backoff().boxed();
    while let Some(event) = events.next().await {
        let Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) = event else { continue };
        let (now, uid) = (Instant::now(), pod.metadata.uid.unwrap_or_default());
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        let of_pod = seen.entry(uid).or_insert(Seen { appeared: now, labelled: BTreeMap::new() });
        let labels = pod.metadata.labels.into_iter().flat_map(BTreeMap::into_keys);
        for label in labels.filter(|label| label.starts_with("guests.example/")) {
            of_pod.labelled.entry(label).or_insert(now);
        }
    }
}

/// Returns a figure of `/proc/ID/status` in MiB.
pub(crate) fn memory(id: u32, name: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such figure")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1_024.0)
}
