//! RunReports on a whole host: who answers, about which plugins, how many, and when they are deleted.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures::future::{BoxFuture, ready};
use podium_devcluster::{Cluster, Options};
use podium_host::app::App;
use podium_tests::{
    embedded, plugins,
    process::workspace_dir,
    wire::{Sent, Wire},
};
use podium_vocabulary::{PluginId, PluginSpec};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// A cluster with all kinds but these, and the Pod `cart-0` in two namespaces.
fn cluster(without: &str) -> Cluster {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let kinds = fs::read_to_string(workspace_dir().join("deploy/chart/crds.yaml")).unwrap();
    let kinds: Vec<Value> = serde_saphyr::from_multiple(&kinds).unwrap();
    for kind in kinds.into_iter().filter(|kind| kind["spec"]["names"]["kind"] != without) {
        cluster.create(kind).unwrap();
    }
    cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "bank" } })).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    cluster
}

fn plugin(namespace: Option<&str>, name: &str) -> PluginSpec {
    let mut spec = plugins::guest("registrar", name, "").unwrap();
    spec.id = PluginId { namespace: namespace.map(Into::into), name: name.into() };
    spec
}

async fn host(cluster: &Cluster, wire: &Wire, plugins: Vec<PluginSpec>) -> App {
    let mut app = embedded::host(cluster, wire.client(), plugins).await.unwrap();
    let _started = app.watch_objects(None, &[]);
    embedded::at_rest(cluster, &app).await.unwrap();
    app
}

fn ask(cluster: &Cluster, namespace: &str, name: &str, spec: &Value) {
    let metadata = json!({ "namespace": namespace, "name": name });
    let report =
        json!({ "apiVersion": "podium.dev/v1alpha1", "kind": "RunReport", "metadata": metadata, "spec": spec });
    cluster.create(report).unwrap();
}

fn about(pod: &str) -> Value {
    json!({ "pod": { "name": pod } })
}

/// Returns the objects of a namespace.
fn reports(cluster: &Cluster, namespace: &str) -> Vec<Value> {
    let (_, mut reports) = cluster.list("runreports.podium.dev");
    reports.retain(|report| report["metadata"]["namespace"] == namespace);
    reports
}

/// Returns true for a page of the reports of a namespace.
fn is_page(sent: &Sent) -> bool {
    sent.uri.contains("/namespaces/") && sent.uri.contains("/runreports?limit=")
}

/// Returns the status of an object after 2 s.
async fn answer(cluster: &Cluster, namespace: &str, name: &str) -> Value {
    sleep(2 * SECOND).await;
    let reports = reports(cluster, namespace);
    reports.iter().find(|report| report["metadata"]["name"] == name).unwrap()["status"].clone()
}

fn plugins_of(answer: &Value) -> Vec<&str> {
    let plugins = answer["report"]["plugins"]["items"].as_array().unwrap();
    plugins.iter().map(|of| of["plugin"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_answer_has_only_plugins_of_its_namespace() {
    let cluster = cluster("");
    let all = vec![plugin(Some("default"), "mark"), plugin(Some("bank"), "secret"), plugin(None, "audit")];
    let app = host(&cluster, &Wire::new(&cluster), all).await;
    ask(&cluster, "default", "all", &about("cart-0"));
    let all = answer(&cluster, "default", "all").await;
    assert_eq!((plugins_of(&all), &all["report"]["plugins"]["total"]), (vec!["default/mark"], &json!(1)), "{all:#}");
    assert_eq!(all["report"]["pod"], "default/cart-0");
    assert!(all["report"]["uid"].is_string() && all["answeredAt"].is_string(), "{all:#}");
    let of_mark = &all["report"]["plugins"]["items"][0];
    assert!(!of_mark["runs"].as_array().unwrap().is_empty(), "{all:#}");

    // Names that lead elsewhere, also where the definition would let them pass.
    for (at, (spec, error)) in [
        (json!({ "pod": { "name": "cart-0" }, "plugin": "secret" }), "no ReconcilePlugin default/secret is configured"),
        (json!({ "pod": { "name": "cart-0" }, "plugin": "audit" }), "no ReconcilePlugin default/audit is configured"),
    ]
    .into_iter()
    .enumerate()
    {
        ask(&cluster, "default", &format!("odd{at}"), &spec);
        let odd = answer(&cluster, "default", &format!("odd{at}")).await;
        assert_eq!((&odd["error"], &odd["report"]), (&json!(error), &Value::Null));
    }

    // A Pod of another namespace is another Pod, and one that is gone has the records of its runs.
    ask(&cluster, "bank", "none", &about("cart-0"));
    let none = answer(&cluster, "bank", "none").await;
    assert_eq!((plugins_of(&none), &none["report"]["uid"]), (vec!["bank/secret"], &Value::Null), "{none:#}");
    assert_eq!(none["report"]["plugins"]["items"][0]["reasons"][0]["reason"], "PodUnknown");
    embedded::delete_pod(&cluster, "cart-0").await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    ask(&cluster, "default", "gone", &about("cart-0"));
    let gone = answer(&cluster, "default", "gone").await;
    let of_mark = &gone["report"]["plugins"]["items"][0];
    assert_eq!((&gone["report"]["uid"], &of_mark["reasons"][0]["reason"]), (&Value::Null, &json!("PodUnknown")));
    assert!(!of_mark["runs"].as_array().unwrap().is_empty(), "{gone:#}");
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_report_is_deleted_60_s_after_it_was_made() {
    let cluster = cluster("");
    let app = host(&cluster, &Wire::new(&cluster), vec![plugin(Some("default"), "mark")]).await;
    let made = Instant::now();
    ask(&cluster, "default", "a", &about("cart-0"));
    sleep(59 * SECOND).await;
    assert!(!reports(&cluster, "default")[0]["status"].is_null());
    while !reports(&cluster, "default").is_empty() {
        sleep(SECOND / 10).await;
        assert!(made.elapsed() < 62 * SECOND, "it is there");
    }
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn two_hundred_reports_of_one_tenant_delay_no_neighbours() {
    let cluster = cluster("");
    let wire = Wire::new(&cluster);
    let app = host(&cluster, &wire, vec![plugin(Some("default"), "mark"), plugin(Some("bank"), "mark")]).await;
    (0..200).for_each(|at| ask(&cluster, "default", &format!("r{at:03}"), &about("cart-0")));
    ask(&cluster, "bank", "mine", &about("cart-0"));
    let before = wire.writes().len();
    let mine = answer(&cluster, "bank", "mine").await;
    assert_eq!(plugins_of(&mine), ["bank/mark"]);
    let answers = |from: usize| {
        let sent = wire.writes();
        let of_noisy = |uri: &str| uri.contains("/namespaces/default/runreports/") && uri.contains("/status");
        sent[from..].iter().filter(|sent| of_noisy(&sent.uri)).count()
    };
    assert!((1..=3).contains(&answers(before)), "{} answers in 2 s", answers(before));
    sleep(8 * SECOND).await;
    // Eight waited, and one or two more when the first had been answered.
    assert!((8..=10).contains(&answers(before)), "{} answers in 10 s", answers(before));
    let left = reports(&cluster, "default");
    assert!(left.len() <= 10, "{} are left", left.len());
    // After the flood the tenant is answered again.
    ask(&cluster, "default", "later", &about("cart-0"));
    assert_eq!(plugins_of(&answer(&cluster, "default", "later").await), ["default/mark"]);
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn reports_are_listed_a_page_at_a_time_past_those_that_a_tenant_keeps() {
    let cluster = cluster("");
    /// Requests for pages.
    #[derive(Default)]
    struct Pages {
        open: AtomicUsize,
        most: AtomicUsize,
        all: AtomicUsize,
    }
    let pages = Arc::<Pages>::default();
    let begun = pages.clone();
    let before = move |sent: &Sent| {
        if is_page(sent) {
            begun.most.fetch_max(begun.open.fetch_add(1, Relaxed) + 1, Relaxed);
            begun.all.fetch_add(1, Relaxed);
        }
        Box::pin(ready(())) as BoxFuture<'static, ()>
    };
    let of_end = pages.clone();
    let after = move |sent: &Sent| {
        // The host has the time to begin another.
        let pages = of_end.clone();
        let ended = usize::from(is_page(sent));
        Box::pin(async move {
            sleep(SECOND / 5).await;
            pages.open.fetch_sub(ended, Relaxed);
        }) as BoxFuture<'static, ()>
    };
    let wire = Wire::around(&cluster, before, after);
    // Without the admission policy.
    let client = Wire::new(&cluster).client();
    for at in 0..300 {
        let name = format!("a{at:03}");
        let metadata = json!({ "namespace": "default", "name": name, "finalizers": ["a.example/keep"] });
        let report = json!({
            "apiVersion": "podium.dev/v1alpha1", "kind": "RunReport", "metadata": metadata, "spec": about("cart-0"),
        });
        cluster.create(report).unwrap();
        let uri = format!("/apis/podium.dev/v1alpha1/namespaces/default/runreports/{name}");
        let _: Value = client.request(http::Request::delete(uri).body(Vec::new()).unwrap()).await.unwrap();
    }
    let app = host(&cluster, &wire, vec![plugin(Some("default"), "mark")]).await;
    for namespace in ["default", "bank"] {
        (0..60).for_each(|at| ask(&cluster, namespace, &format!("z{at:02}"), &about("cart-0")));
    }
    sleep(60 * SECOND).await;
    let left = |namespace| reports(&cluster, namespace).len();
    assert!(left("bank") <= 10 && left("default") <= 310, "{} and {}", left("bank"), left("default"));
    assert_eq!(pages.most.load(Relaxed), 1);
    let all = pages.all.load(Relaxed);
    assert!((12..40).contains(&all), "{all} pages");
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_answers_nothing_until_it_runs_the_plugins() {
    let cluster = cluster("");
    let mut replicas = Vec::new();
    for holder in ["one", "two"] {
        let wire = Wire::new(&cluster);
        let lease = embedded::lease(wire.client(), "podium", holder);
        let options = embedded::options(&cluster, wire.client());
        let options = podium_host::app::Options { lease: Some(lease), ..options };
        let mut app = App::start_simulated(options).await.unwrap();
        app.load(plugin(Some("default"), "mark")).await.unwrap();
        let _started = app.watch_objects(None, &[]);
        app.started();
        sleep(60 * SECOND).await;
        replicas.push((app, wire));
    }
    let answers = |wire: &Wire| wire.writes().iter().filter(|sent| sent.uri.contains("/runreports/")).count();
    ask(&cluster, "default", "a", &about("cart-0"));
    let of_first = answer(&cluster, "default", "a").await;
    assert_eq!(of_first["report"]["plugins"]["items"][0]["state"], "loaded", "{of_first:#}");
    assert_eq!((answers(&replicas[0].1), answers(&replicas[1].1)), (1, 0));
    let (first, _) = replicas.remove(0);
    first.shutdown().await;
    sleep(60 * SECOND).await;
    ask(&cluster, "default", "b", &about("cart-0"));
    assert_eq!(plugins_of(&answer(&cluster, "default", "b").await), ["default/mark"]);
    for (app, _) in replicas {
        app.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_questions_there_is_one_watch_and_an_older_cluster_is_served() {
    for (without, most) in [("", 12), ("RunReport", 70)] {
        let cluster = cluster(without);
        let lists = Arc::<AtomicUsize>::default();
        let watches = Arc::<AtomicUsize>::default();
        let listed = lists.clone();
        let watched = watches.clone();
        let wire = Wire::with(&cluster, move |sent| {
            if sent.uri.contains("/runreports") {
                if sent.is_watch() { &watched } else { &listed }.fetch_add(1, Relaxed);
            }
            Box::pin(std::future::ready(()))
        });
        let app = host(&cluster, &wire, vec![plugin(Some("default"), "mark")]).await;
        sleep(10 * 60 * SECOND).await;
        let lists = lists.load(Relaxed);
        let watches = watches.load(Relaxed);
        assert!(lists + watches <= most, "{lists} lists and {watches} watches in 10 min");
        assert!(lists == 1 || without == "RunReport", "{lists} lists");
        assert!(app.unready().is_none());
        app.shutdown().await;
    }
}
