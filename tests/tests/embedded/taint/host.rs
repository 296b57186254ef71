//! The same on the whole host and a cluster in the process: the real watch, cache, dispatch, writeback and live reads.
//! Another tenant's plugin runs beside, logs canaries, fails with canaries, and writes them to its own Pods.

use std::time::Duration;

use podium_devcluster::{Cluster, Options};
use podium_engine::{fixtures::log_to, ports::PLUGIN_TARGET, status::PluginState};
use podium_host::{
    admin::{Check, Readiness},
    app::App,
    telemetry::{CacheFigures, Figures, Metrics},
};
use podium_tests::{
    embedded, guests,
    programs::{Choices, Program, Search},
    wire::{Sent, Wire},
};
use podium_vocabulary::{PluginSpec, Source};
use podium_wire::SectionSet;
use serde_json::{Value, json};

use super::{CANARY, OWN, caller, cases, population::vocabulary, sinks::Lines};

/// Programs of the tenant's plugin in one cluster.
const PODS: usize = 4;

fn cluster() -> Cluster {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    for namespace in [OWN, "bank", "zoo"] {
        cluster.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})).unwrap();
    }
    cluster
}

fn pod(namespace: &str, at: usize, choices: &mut Choices) -> Value {
    let words = vocabulary();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": namespace, "name": format!("cart-{at}"),
            "labels": {"app": choices.one(&words.values), "tier": choices.one(&words.values)},
            "ownerReferences": [{
                "apiVersion": embedded::UNSERVED,
                "kind": "ReplicaSet", "name": "cart", "uid": choices.one(&words.owners),
            }],
        },
        "spec": {
            "nodeName": choices.one(&words.nodes),
            "containers": [{"name": "c", "image": "registry.example/c:1"}],
        },
    })
}

/// A Pod of another tenant, with canaries in its fields.
fn other(at: usize, choices: &mut Choices) -> Value {
    let mut pod = pod(if choices.percent(50) { "bank" } else { "zoo" }, at, choices);
    let canary = |field: &str| Value::from(format!("{CANARY}-{field}-{at}"));
    if choices.percent(50) {
        pod["metadata"]["name"] = canary("name");
    }
    pod["metadata"]["labels"]["secret"] = canary("value");
    pod["metadata"]["annotations"] = json!({"note": canary("note")});
    pod["metadata"]["ownerReferences"][0]["name"] = canary("owner");
    let container = &mut pod["spec"]["containers"][0];
    (container["image"], container["env"]) = (canary("image"), json!([{"name": "SECRET", "value": canary("env")}]));
    pod
}

/// The tenant's plugin, with a random program; it is run again when it has waited a minute.
fn tenant(choices: &mut Choices) -> PluginSpec {
    let mut spec = caller();
    spec.source = Source::File(guests::path("caller").unwrap());
    spec.grants.read.as_mut().unwrap().sections = SectionSet::ALL;
    spec.watch.sections = SectionSet::ALL;
    // The log of all plugins has a rate.
    spec.limits.log_bytes = 256 << 10;
    let mut program = Program::random(choices, &vocabulary());
    program.show_request();
    // At least these in every program.
    program.count(&Search::default());
    program.find(&Search::default(), 500, None);
    program.get("bank", "cart-0");
    program.get("zoo", "cart-0");
    if choices.percent(50) {
        program.requeue(60_000);
    }
    spec.config = program.config().into();
    spec
}

/// The other tenant's plugin of the same name.
fn neighbour() -> PluginSpec {
    let mut spec = caller();
    spec.id.namespace = Some("bank".into());
    spec.source = Source::File(guests::path("caller").unwrap());
    spec.grants.read.as_mut().unwrap().sections = SectionSet::ALL;
    let mut program = Program::default();
    program.find(&Search::default(), 500, None);
    program.log("cnry-log");
    program.put_state("cart-1", "cnry-state");
    program.set_label(None, "guests.example/a", "cnry-label");
    program.emit(None, "Called", "cnry-event");
    program.apply_object(
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"bank","name":"cnry-map"}}"#,
        None,
    );
    program.commit();
    program.retry("cnry-failure");
    spec.config = program.config().into();
    spec
}

/// All that the tenant can see of its plugin and of its namespace.
fn seen(app: &App, cluster: &Cluster, wire: &Wire, lines: &Lines, spec: &PluginSpec) -> Vec<String> {
    let id = spec.id.to_string();
    let of_plugin = |line: &String| line.contains(&format!("plugin={id}"));
    let mut seen: Vec<String> = lines.take().into_iter().filter(of_plugin).collect();
    let status = app.status().plugin(&spec.id);
    seen.push(format!("{status:?} {:?}", status.last_failure()));
    let plugins = app.plugins();
    seen.extend(plugins.iter().filter(|plugin| plugin.id == spec.id).map(|plugin| format!("{plugin:?}")));
    let check =
        |plugin: &PluginState| Check::listed(format!("plugin/{}", plugin.id), plugin.load.reason().map(str::to_owned));
    seen.push(Readiness { checks: plugins.iter().map(check).collect() }.render(true));
    seen.push(metrics(app));
    seen.extend(wire.writes().into_iter().filter(is_of_tenant).map(|sent| format!("{sent:?}")));
    for resource in ["pods", "configmaps", "events.events.k8s.io", "events"] {
        let objects = cluster.list(resource).1.into_iter();
        seen.extend(objects.filter(|object| object["metadata"]["namespace"] == OWN).map(|object| object.to_string()));
    }
    seen
}

fn is_of_tenant(sent: &Sent) -> bool {
    sent.uri.contains(&format!("/namespaces/{OWN}/"))
}

fn metrics(app: &App) -> String {
    let reader = app.reader();
    let status = app.status();
    let figures = move || {
        let cache = CacheFigures { pods: reader.snapshot().len(), ..CacheFigures::default() };
        Figures { status: status.clone(), cache, most_runs: 1, ..Figures::default() }
    };
    Metrics::new(figures).render().unwrap()
}

fn simulated<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(work)
}

#[test]
fn no_canary_is_in_any_output_of_the_host_for_the_tenant() {
    for seed in 0..cases(8) {
        let lines = Lines::default();
        let logged = log_to(lines.clone());
        let seen = simulated(async {
            let mut choices = Choices::new(seed);
            let cluster = cluster();
            for at in 0..PODS {
                cluster.create(pod(OWN, at, &mut choices)).unwrap();
                cluster.create(other(at, &mut choices)).unwrap();
                cluster.create(other(at + PODS, &mut choices)).unwrap();
            }
            let spec = tenant(&mut choices);
            let wire = Wire::new(&cluster);
            let specs = vec![spec.clone(), neighbour()];
            let app = embedded::host(&cluster, wire.client(), specs).await.unwrap();
            embedded::at_rest(&cluster, &app).await.unwrap();
            tokio::time::sleep(Duration::from_secs(90)).await;
            let seen = seen(&app, &cluster, &wire, &lines, &spec);
            assert!(app.status().plugin(&spec.id).runs() >= PODS as u64);
            assert!(app.status().plugin(&neighbour().id).runs() > 0);
            app.shutdown().await;
            seen
        });
        drop(logged);
        assert!(seen.iter().any(|line| line.contains(PLUGIN_TARGET)), "seed {seed}: the plugin logs");
        for line in seen {
            assert!(!line.contains(CANARY), "seed {seed}: {line}");
        }
    }
}

/// The log lines of the tenant's plugin, its requests, and the number of its runs.
type Outcome = (Vec<String>, Vec<String>, u64);

/// Runs the tenant's plugin in a cluster in which each object of other tenants is a Pod, or a ConfigMap. So revisions
/// of all other objects are the same.
fn outcome(seed: u64, others_are_pods: bool) -> Outcome {
    let lines = Lines::default();
    let _logged = log_to(lines.clone());
    simulated(async {
        let mut choices = Choices::new(seed);
        let cluster = cluster();
        for at in 0..PODS {
            cluster.create(pod(OWN, at, &mut choices)).unwrap();
            let mut other = other(at, &mut choices);
            if !others_are_pods {
                (other["kind"], other["spec"]) = ("ConfigMap".into(), Value::Null);
                other.as_object_mut().unwrap().remove("spec");
            }
            cluster.create(other).unwrap();
        }
        let spec = tenant(&mut choices);
        let wire = Wire::new(&cluster);
        let app = embedded::host(&cluster, wire.client(), vec![spec.clone()]).await.unwrap();
        embedded::at_rest(&cluster, &app).await.unwrap();
        // A change of another tenant's object wakes only those who may see it.
        cluster.create(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})).unwrap();
        let other = json!({"apiVersion": "v1", "kind": if others_are_pods { "Pod" } else { "ConfigMap" },
                "metadata": {"namespace": "bank", "name": "late", "labels": {"app": "cart"}}});
        let mut other = other;
        if others_are_pods {
            other["spec"] = json!({"containers": [{"name": "c", "image": "registry.example/c:1"}]});
        }
        cluster.create(other).unwrap();
        tokio::time::sleep(Duration::from_secs(90)).await;
        let is_of_plugin = |line: &String| line.contains(&format!("plugin={}", spec.id));
        let logged = lines.take().into_iter().filter(is_of_plugin);
        // Times of runs are in none of the lines that are compared.
        let logged = logged.filter(|line| line.contains(PLUGIN_TARGET)).collect();
        let sent = wire.writes().into_iter().map(|sent| format!("{sent:?}")).collect();
        let runs = app.status().plugin(&spec.id).runs();
        app.shutdown().await;
        (logged, sent, runs)
    })
}

#[test]
fn other_tenants_pods_change_no_log_line_request_or_run() {
    let mut sent = 0;
    for seed in 0..cases(8) {
        let (with, without) = (outcome(seed, true), outcome(seed, false));
        assert_eq!(with, without, "seed {seed}");
        sent += with.1.len();
    }
    assert!(sent > 0, "no program wrote");
}
