//! The control plane of a turn: namespaces with Pods of which the oldest are replaced by new ones.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use http::{Request, request::Builder};
use kube::Client;
use podium_tests::{
    controlplane::{Audit, AuditedWrite, ControlPlane, Mark, Options, Proxy},
    wait::until,
};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};

/// The account of the subject in the audit log, of which `tests/controlplane/audit-policy.yaml` knows.
const ACCOUNT: &str = "measured";
const MEASURED: &str = "system:serviceaccount:measured:measured";
/// The account of everything else: it makes Pods, schedules them and lets them run.
const MAKER: &str = "admin";
/// The namespace of which no subject knows.
pub(super) const UNCONCERNED: &str = "unconcerned";
/// Requests under way for new Pods.
const AT_ONCE: usize = 64;
const WITHIN: Duration = Duration::from_secs(600);
/// The last events of Pods reach the subject within this time.
const SETTLES: Duration = Duration::from_secs(2);
/// A subject that writes nothing for so long writes nothing more.
const GIVES_UP: Duration = Duration::from_secs(10);

pub(super) struct Cluster {
    pub(super) plane: ControlPlane,
    pub(super) proxy: Proxy,
    client: Client,
    /// The uid of the object in each namespace that controls its Pods.
    owners: HashMap<String, String>,
    /// The Pods of each namespace, the oldest first.
    pods: HashMap<String, VecDeque<String>>,
    next: usize,
    directory: tempfile::TempDir,
}

/// The writes of a window, by the audit log.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Requests of the subject of any kind.
    pub(super) requests: usize,
    /// Patches of Pods that were done.
    pub(super) patches: usize,
    /// Writes of Pods by anyone, of which each is an event.
    pub(super) events: usize,
    /// From the answer to the creation of a Pod to the reception of its first patch, sorted, in milliseconds.
    pub(super) millis: Vec<f64>,
}

impl Cluster {
    /// Starts a control plane with this number of Pods, divided among the namespaces and [`UNCONCERNED`].
    pub(super) async fn start(namespaces: &[String], pods: usize) -> Result<Self> {
        let nodes = (2 * pods).div_ceil(100).max(3);
        let plane = ControlPlane::start(Options { nodes, ..Options::default() }).await?;
        let plane = plane.context("the control plane is not built")?;
        let client = plane.client().await?;
        make_account(&client).await?;
        let proxy = plane.proxy(&plane.kubeconfig_of(ACCOUNT, ACCOUNT).await?).await?;
        let (owners, pods_of, directory) = (HashMap::new(), HashMap::new(), tempfile::tempdir()?);
        let mut cluster = Self { plane, proxy, client, owners, pods: pods_of, next: 0, directory };
        let all: Vec<String> = namespaces.iter().cloned().chain([UNCONCERNED.to_owned()]).collect();
        for namespace in &all {
            make_namespace(&cluster.client, namespace).await?;
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            let owner = create(&cluster.client, &path, &json!({ "metadata": { "name": "web" } })).await?;
            let uid = owner["metadata"]["uid"].as_str().context("an object without a uid")?;
            cluster.owners.insert(namespace.clone(), uid.to_owned());
        }
        // A quarter more concern no subject.
        cluster.fill(namespaces, pods).await?;
        cluster.fill(&[UNCONCERNED.to_owned()], pods / 4).await?;
        Ok(cluster)
    }

    /// Returns a folder for the files of a subject.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn audit(&self) -> Audit {
        self.plane.audit()
    }

    async fn fill(&mut self, namespaces: &[String], pods: usize) -> Result<()> {
        self.make(namespaces, 500, pods, false).await?;
        self.all_run().await
    }

    /// Makes new Pods at this rate per second, each in place of the oldest of its namespace, and waits until they run.
    /// Returns their number per second.
    pub(super) async fn renew(&mut self, namespaces: &[String], rate: u32, pods: usize) -> Result<f64> {
        let took = self.make(namespaces, rate, pods, true).await?;
        self.all_run().await?;
        Ok(pods as f64 / took.as_secs_f64())
    }

    async fn make(&mut self, namespaces: &[String], rate: u32, pods: usize, replaces: bool) -> Result<Duration> {
        let begun = Instant::now();
        let mut ticks = interval(Duration::from_secs(1) / rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let permits = Arc::new(Semaphore::new(AT_ONCE));
        let mut tasks = JoinSet::new();
        for namespace in namespaces.iter().cycle().take(pods) {
            ticks.tick().await;
            let permit = Arc::clone(&permits).acquire_owned().await?;
            let name = format!("web-{}", self.next);
            self.next += 1;
            let of_namespace = self.pods.entry(namespace.clone()).or_default();
            let oldest = if replaces { of_namespace.pop_front() } else { None };
            of_namespace.push_back(name.clone());
            let (path, client) = (format!("/api/v1/namespaces/{namespace}/pods"), self.client.clone());
            let pod = pod(&name, &self.owners[namespace]);
            tasks.spawn(async move {
                create(&client, &path, &pod).await?;
                if let Some(oldest) = oldest {
                    ask(&client, Request::delete(format!("{path}/{oldest}")), &Value::Null).await?;
                }
                drop(permit);
                anyhow::Ok(())
            });
            while let Some(done) = tasks.try_join_next() {
                done??;
            }
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(begun.elapsed())
    }

    async fn all_run(&mut self) -> Result<()> {
        until("all Pods to run", WITHIN, async || {
            self.plane.check_running()?;
            // The list itself should cost little.
            sleep(Duration::from_millis(500)).await;
            let path = "/api/v1/pods?fieldSelector=status.phase%3DPending&limit=1&resourceVersion=0";
            let pending = ask(&self.client, Request::get(path), &Value::Null).await?;
            ensure!(pending["items"].as_array().is_some_and(Vec::is_empty), "one is pending");
            Ok(())
        })
        .await
    }

    /// Waits until the subject has labelled this number of different Pods, or writes nothing more.
    pub(super) async fn all_labelled(&self, since: Mark, pods: usize) -> Result<()> {
        let (mut seen, mut changed) = (0, Instant::now());
        loop {
            let labelled = names(&self.audit().requests_of(MEASURED, since)?).len();
            if labelled >= pods || changed.elapsed() > GIVES_UP {
                break;
            }
            if labelled > seen {
                (seen, changed) = (labelled, Instant::now());
            }
            sleep(Duration::from_millis(500)).await;
        }
        sleep(SETTLES).await;
        Ok(())
    }

    pub(super) fn written(&self, since: Mark) -> Result<Written> {
        let requests = self.audit().requests_of(MEASURED, since)?;
        let others = self.audit().writes_of(MAKER, since)?;
        let is_done = |write: &&AuditedWrite| write.resource.starts_with("pods") && write.code < 300;
        let made = others.iter().filter(|write| write.verb == "create" && write.resource == "pods");
        let mut answered: HashMap<&str, _> = made.map(|write| (write.name.as_str(), write.answered)).collect();
        let mut millis: Vec<f64> = (requests.iter().filter(|write| is_label(write)))
            .filter_map(|write| Some(write.received.duration_since(answered.remove(write.name.as_str())?)))
            .map(|wait| (wait.as_secs_f64() * 1e3).max(0.0))
            .collect();
        millis.sort_by(f64::total_cmp);
        let patches = requests.iter().filter(|write| is_label(write)).count();
        let events = patches + others.iter().filter(is_done).count();
        Ok(Written { requests: requests.len(), patches, events, millis })
    }
}

fn is_label(write: &AuditedWrite) -> bool {
    write.verb == "patch" && write.resource == "pods" && write.code < 300
}

fn names(writes: &[AuditedWrite]) -> HashSet<&str> {
    writes.iter().filter(|write| is_label(write)).map(|write| write.name.as_str()).collect()
}

fn pod(name: &str, owner: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": { "app": "web" },
            // Its kind has no controller, so nothing else changes the Pods.
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": owner, "controller": true },
            ],
        },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "main",
                "image": "registry.example/app:1.2.3",
                "resources": { "limits": { "memory": "64Mi" } },
            }],
        },
    })
}

/// Makes the account of the subjects, with the rights that each of them needs.
async fn make_account(client: &Client) -> Result<()> {
    make_namespace(client, ACCOUNT).await?;
    let account = json!({ "metadata": { "name": ACCOUNT } });
    create(client, &format!("/api/v1/namespaces/{ACCOUNT}/serviceaccounts"), &account).await?;
    let rules = [
        rule("", "pods", &["get", "list", "watch", "patch", "delete"]),
        rule("", "events", &["create", "patch"]),
        rule("events.k8s.io", "events", &["create", "patch"]),
        rule("coordination.k8s.io", "leases", &["get", "create", "update", "patch"]),
    ];
    let role = json!({ "metadata": { "name": ACCOUNT }, "rules": rules });
    let binding = json!({
        "metadata": { "name": ACCOUNT },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ACCOUNT },
        "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": ACCOUNT }],
    });
    create(client, "/apis/rbac.authorization.k8s.io/v1/clusterroles", &role).await?;
    create(client, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await?;
    Ok(())
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}

/// Makes a namespace with the ServiceAccount without which no Pod is admitted.
async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    create(client, "/api/v1/namespaces", &json!({ "metadata": { "name": name } })).await?;
    let path = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
    let found = async || ask(client, Request::get(&path), &Value::Null).await;
    until("the default ServiceAccount", WITHIN, found).await.map(drop)
}

async fn create(client: &Client, path: &str, object: &Value) -> Result<Value> {
    ask(client, Request::post(path), object).await
}

async fn ask(client: &Client, request: Builder, body: &Value) -> Result<Value> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = request.body(body)?;
    let said = format!("{} {}", request.method(), request.uri());
    client.request(request).await.context(said)
}
