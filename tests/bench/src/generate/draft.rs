//! Drafts: the shared part of the Pods of one owner, derived from a seed.
//!
//! They resemble usual services: web servers, workers, databases, agents and batch jobs, some with sidecars.

use rand::{Rng, rngs::SmallRng};

use super::{
    json::{Json, list, number, object, sorted_texts, text},
    network,
    template::Hole,
    workload::Kind,
};

/// The input of [`super::pod::pod`].
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) prefix: String,
    pub(super) labels: Json,
    pub(super) annotations: Json,
    /// Managers and their annotations, which they write after the network is set up.
    pub(super) network: Vec<(&'static str, Json)>,
    /// Whether Pods and nodes also have an IPv6 address.
    pub(super) dual_stack: bool,
    pub(super) owner: Json,
    /// Containers as the controller wrote them.
    pub(super) containers: Vec<Json>,
    pub(super) init_containers: Vec<Json>,
    pub(super) volumes: Vec<Json>,
    pub(super) service_account: String,
    pub(super) topology_spread: bool,
    pub(super) image_seed: u64,
}

const SERVICES: [&str; 24] = [
    "checkout",
    "cart",
    "catalog",
    "search",
    "payments",
    "ledger",
    "identity",
    "sessions",
    "inventory",
    "shipping",
    "pricing",
    "reviews",
    "notifications",
    "recommendations",
    "media",
    "thumbnails",
    "reports",
    "billing",
    "tax",
    "fraud",
    "audit",
    "geo",
    "feature-flags",
    "webhooks",
];
const ROLES: [&str; 8] = ["api", "worker", "web", "consumer", "scheduler", "gateway", "indexer", "proxy"];
const STORES: [&str; 6] = ["postgres", "redis", "kafka", "etcd", "elasticsearch", "cassandra"];
const AGENTS: [&str; 8] =
    ["node-exporter", "log-agent", "cni-node", "csi-node", "kube-proxy", "dns-cache", "tracing-agent", "gpu-plugin"];
const BATCHES: [&str; 6] = ["report", "backup", "reindex", "settle", "import", "cleanup"];
/// The alphabet of names that Kubernetes generates.
pub(super) const SAFE: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

fn pick<'a>(random: &mut SmallRng, from: &[&'a str]) -> &'a str {
    from[random.random_range(0..from.len())]
}

fn safe(random: &mut SmallRng, length: usize) -> String {
    (0..length).map(|_| char::from(SAFE[random.random_range(0..SAFE.len())])).collect()
}

fn uid(random: &mut SmallRng) -> String {
    let mut uid = String::new();
    super::push_uid(random.random(), random.random(), &mut uid);
    uid
}

/// Returns the labels that the controller of the kind sets.
fn labels_of_the_owner(kind: Kind, name: &str, hash: &str, owner_uid: &str) -> Vec<(&'static str, String)> {
    match kind {
        Kind::Deployment | Kind::Real => vec![("pod-template-hash", hash.to_owned())],
        Kind::StatefulSet => vec![
            ("controller-revision-hash", format!("{name}-{hash}")),
            ("statefulset.kubernetes.io/pod-name", Hole::Name.character().to_string()),
            ("apps.kubernetes.io/pod-index", Hole::Ordinal.character().to_string()),
        ],
        Kind::DaemonSet => {
            vec![("controller-revision-hash", hash.to_owned()), ("pod-template-generation", "3".to_owned())]
        }
        Kind::Job => vec![
            ("batch.kubernetes.io/controller-uid", owner_uid.to_owned()),
            ("batch.kubernetes.io/job-name", name.to_owned()),
            ("controller-uid", owner_uid.to_owned()),
            ("job-name", name.to_owned()),
        ],
    }
}

fn owner(kind: Kind, name: &str, uid: String) -> Json {
    let (api_version, owner_kind) = match kind {
        Kind::Deployment | Kind::Real => ("apps/v1", "ReplicaSet"),
        Kind::StatefulSet => ("apps/v1", "StatefulSet"),
        Kind::DaemonSet => ("apps/v1", "DaemonSet"),
        Kind::Job => ("batch/v1", "Job"),
    };
    object([
        ("apiVersion", text(api_version)),
        ("kind", text(owner_kind)),
        ("name", text(name)),
        ("uid", text(uid)),
        ("controller", Json::Bool(true)),
        ("blockOwnerDeletion", Json::Bool(true)),
    ])
}

impl Draft {
    pub(super) fn new(random: &mut SmallRng, kind: Kind, namespace: &str, at: usize) -> Self {
        let service = pick(random, &SERVICES);
        let (name, role) = match kind {
            Kind::StatefulSet => (format!("{service}-{}-{at}", pick(random, &STORES)), "store"),
            Kind::DaemonSet => (format!("{}-{at}", AGENTS[at % AGENTS.len()]), "agent"),
            Kind::Job => (format!("{service}-{}-{}", pick(random, &BATCHES), 29_300_000 + at * 7), "batch"),
            Kind::Deployment | Kind::Real => {
                let role = pick(random, &ROLES);
                (format!("{service}-{role}-{at}"), role)
            }
        };
        let hash = safe(random, 10);
        let owner_uid = uid(random);
        let owner_name = if kind == Kind::Deployment { format!("{name}-{hash}") } else { name.clone() };
        let version = format!("{}.{}.{}", random.random_range(1..9), random.random_range(0..40), at % 13);
        let mut labels = vec![
            ("app.kubernetes.io/name", name.clone()),
            ("app.kubernetes.io/instance", format!("{name}-{namespace}")),
            ("app.kubernetes.io/component", role.to_owned()),
            ("app.kubernetes.io/part-of", service.to_owned()),
            ("app.kubernetes.io/managed-by", "Helm".to_owned()),
            ("app.kubernetes.io/version", version.clone()),
            ("team", format!("team-{}", at % 17)),
        ];
        labels.extend(labels_of_the_owner(kind, &name, &hash, &owner_uid));
        let mut annotations =
            vec![("checksum/config", format!("{:016x}{:016x}", random.random::<u64>(), random.random::<u64>()))];
        if random.random_bool(0.6) {
            annotations.push(("prometheus.io/scrape", "true".to_owned()));
            annotations.push(("prometheus.io/port", "9090".to_owned()));
        }
        if kind == Kind::Deployment && random.random_bool(0.3) {
            annotations.push(("kubectl.kubernetes.io/restartedAt", "2026-03-02T09:14:33Z".to_owned()));
        }
        let owner = owner(kind, &owner_name, owner_uid);
        let mut volumes =
            vec![object([("name", text("config")), ("configMap", named(&format!("{name}-config"), true))])];
        if kind == Kind::StatefulSet {
            let claim = format!("data-{}", Hole::Name.character());
            let claim = object([("claimName", text(claim))]);
            volumes.push(object([("name", text("data")), ("persistentVolumeClaim", claim)]));
        }
        if random.random_bool(0.5) {
            volumes.push(object([("name", text("tmp")), ("emptyDir", object::<String>([]))]));
        }
        let image = format!("registry.example.com/{namespace}/{name}:{version}");
        let mut containers = vec![container(random, role, &image, &name, &volumes, kind != Kind::Job)];
        if kind != Kind::DaemonSet && random.random_bool(0.18) {
            containers.push(container(random, "proxy", "registry.example.com/mesh/proxy:1.27.3", "mesh", &[], true));
        }
        if random.random_bool(0.06) {
            containers.push(container(random, "log-tail", "registry.example.com/obs/tail:3.2.1", "tail", &[], false));
        }
        let mut init_containers = Vec::new();
        if random.random_bool(0.1) {
            init_containers.push(container(random, "migrate", &image, &name, &volumes[..1], false));
        }
        Self {
            kind,
            namespace: namespace.to_owned(),
            prefix: format!("{owner_name}-"),
            labels: sorted_texts(labels),
            annotations: sorted_texts(annotations),
            network: if random.random_bool(0.3) { vec![network::calico()] } else { Vec::new() },
            dual_stack: false,
            owner,
            containers,
            init_containers,
            volumes,
            service_account: if random.random_bool(0.3) { "default".to_owned() } else { name },
            topology_spread: kind == Kind::Deployment && random.random_bool(0.2),
            image_seed: random.random(),
        }
    }

    /// Appends a variable to the first container.
    pub(super) fn set_environment(&mut self, name: &str, value: Json) {
        let first = self.containers.first_mut();
        if let Some(environment) = first.and_then(|container| container.get_mut("env")) {
            environment.push(object([("name", text(name)), ("value", value)]));
        }
    }
}

/// Fields of a container in the order of the API.
pub(super) const CONTAINER_FIELDS: &[&str] = &[
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "ports",
    "env",
    "resources",
    "restartPolicy",
    "volumeMounts",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "tty",
];

fn named(name: &str, mode: bool) -> Json {
    let mut reference = object([("name", text(name))]);
    if mode {
        reference.set("defaultMode", number(420));
    }
    reference
}

/// Builds a container with fields in the order of the API. The mount of the token is added where the API server adds
/// it.
fn container(random: &mut SmallRng, name: &str, image: &str, app: &str, volumes: &[Json], probed: bool) -> Json {
    let mut container = object([("name", text(name)), ("image", text(image))]);
    if random.random_bool(0.5) {
        let args = [format!("--config=/etc/{app}/config.yaml"), "--log-format=json".to_owned()];
        container.set("args", list(args.map(text)));
    }
    if probed {
        let port = |name: &str, port: i64| {
            object([("name", text(name)), ("containerPort", number(port)), ("protocol", text("TCP"))])
        };
        container.set("ports", list([port("http", 8080)]));
    }
    container.set("env", environment(random, app));
    let amounts =
        |cpu: i64, memory: i64| object([("cpu", text(format!("{cpu}m"))), ("memory", text(format!("{memory}Mi")))]);
    let (cpu, memory) = (50 * random.random_range(1..20), 64 * random.random_range(1..24));
    container.set("resources", object([("limits", amounts(cpu * 4, memory * 2)), ("requests", amounts(cpu, memory))]));
    let mounts = volumes.iter().filter_map(|volume| {
        let name = volume.get("name")?.as_text()?;
        let mut mount = object([("name", text(name))]);
        if name == "config" {
            mount.set("readOnly", Json::Bool(true));
        }
        mount.set("mountPath", text(if name == "config" { format!("/etc/{app}") } else { format!("/{name}") }));
        Some(mount)
    });
    container.set("volumeMounts", list(mounts));
    if probed {
        if random.random_bool(0.5) {
            container.set("livenessProbe", probe("/livez", 15));
        }
        container.set("readinessProbe", probe("/readyz", 5));
    }
    container.set("terminationMessagePath", text("/dev/termination-log"));
    container.set("terminationMessagePolicy", text("File"));
    container.set("imagePullPolicy", text("IfNotPresent"));
    if random.random_bool(0.5) {
        return container;
    }
    let security = object([
        ("capabilities", object([("drop", list([text("ALL")]))])),
        ("runAsNonRoot", Json::Bool(true)),
        ("readOnlyRootFilesystem", Json::Bool(true)),
        ("allowPrivilegeEscalation", Json::Bool(false)),
    ]);
    container.set("securityContext", security);
    container
}

fn environment(random: &mut SmallRng, app: &str) -> Json {
    let from = |name: &str, path: &str| {
        let field = object([("apiVersion", text("v1")), ("fieldPath", text(path))]);
        object([("name", text(name)), ("valueFrom", object([("fieldRef", field)]))])
    };
    let plain = |name: &str, value: String| object([("name", text(name)), ("value", text(value))]);
    let secret = |name: &str, key: &str| {
        let key = object([("name", text(format!("{app}-secrets"))), ("key", text(key))]);
        object([("name", text(name)), ("valueFrom", object([("secretKeyRef", key)]))])
    };
    let mut all = vec![
        from("POD_NAME", "metadata.name"),
        from("POD_NAMESPACE", "metadata.namespace"),
        from("POD_IP", "status.podIP"),
        from("NODE_NAME", "spec.nodeName"),
        plain("LOG_LEVEL", "info".to_owned()),
        plain("OTEL_SERVICE_NAME", app.to_owned()),
        plain("OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel-collector.observability.svc:4317".to_owned()),
        plain("DATABASE_URL", format!("postgres://{app}@{app}-postgres.svc.cluster.local:5432/{app}?sslmode=require")),
        secret("DATABASE_PASSWORD", "password"),
        secret("API_TOKEN", "token"),
        plain("GOMAXPROCS", "2".to_owned()),
        plain("FEATURES", "a,b<c&d".to_owned()),
    ];
    let keep = random.random_range(1..=all.len() / 2);
    all.truncate(keep);
    list(all)
}

fn probe(path: &str, period: i64) -> Json {
    object([
        ("httpGet", object([("path", text(path)), ("port", text("http")), ("scheme", text("HTTP"))])),
        ("initialDelaySeconds", number(5)),
        ("timeoutSeconds", number(1)),
        ("periodSeconds", number(period)),
        ("successThreshold", number(1)),
        ("failureThreshold", number(3)),
    ])
}
