//! Deliveries to plugins while watches are lost and responses are late: in order, once, and of the right Pod.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::api::{Patch, PatchParams};
use podium_devcluster::{Cluster, Logged, Options, Verb};
use podium_host::app::App;
use podium_pods::pod::PodView;
use podium_tests::{
    embedded,
    oracle::converged,
    plugins, sandbox,
    wait::until,
    wire::{Sent, Wire},
};
use podium_vocabulary::{LimitClass, PluginSpec};
use serde_json::{Value, json};
use tokio::sync::watch;

const MINUTE: Duration = Duration::from_secs(60);

fn still() -> Cluster {
    Cluster::start(Options { simulate: false, ..Options::default() }).unwrap()
}

/// Returns the registrar: it labels each Pod with its own uid, and records each deletion on the register.
fn registrar(cluster: &Cluster) -> PluginSpec {
    let register = embedded::create_pod(cluster, "register", "register").unwrap();
    plugins::guest("registrar", "registrar", &format!("  config: {{ register: {register} }}")).unwrap()
}

/// Returns a plugin that runs this script on Pods with the label `app: doomed`.
fn probe(script: &str) -> PluginSpec {
    let watch = "  watch: { selector: { matchLabels: { app: doomed } }, sections: [labels] }";
    let mut spec = plugins::guest("probe", "probe", watch).unwrap();
    spec.limits.class = LimitClass::Interpreter;
    spec.grants = sandbox::everything();
    spec.config = json!(script).to_string().into();
    spec
}

/// Returns an open gate, and a wire whose reads wait at it.
fn gated(cluster: &Cluster) -> (watch::Sender<bool>, Wire) {
    let gate = watch::Sender::new(true);
    let waiting = gate.subscribe();
    let wire = Wire::with(cluster, move |sent| {
        let (read, mut gate) = (!sent.is_write(), waiting.clone());
        Box::pin(async move {
            if read {
                gate.wait_for(|open| *open).await.unwrap();
            }
        })
    });
    (gate, wire)
}

/// Returns a gate, and a wire on which the responses to these requests wait at it.
fn answers_gated(cluster: &Cluster, open: bool, these: fn(&Sent) -> bool) -> (watch::Sender<bool>, Wire) {
    let gate = watch::Sender::new(open);
    let waiting = gate.subscribe();
    let after = move |sent: &Sent| -> futures::future::BoxFuture<'static, ()> {
        let (held, mut gate) = (these(sent), waiting.clone());
        Box::pin(async move {
            if held {
                gate.wait_for(|open| *open).await.unwrap();
            }
        })
    };
    (gate, Wire::around(cluster, |_| Box::pin(std::future::ready(())), after))
}

/// The events of both writes come after the answer to the second.
#[tokio::test(start_paused = true)]
async fn a_status_written_between_a_plan_and_its_patch_is_cached() {
    let cluster = still();
    let gate = Arc::new(watch::Sender::new(true));
    let closing = gate.clone();
    let faults = cluster.faults();
    let theirs = embedded::pods(&cluster, Some("default"));
    let wire = Wire::with(&cluster, move |sent| {
        let write = sent.is_write();
        let closing = closing.clone();
        let faults = faults.clone();
        let theirs = theirs.clone();
        Box::pin(async move {
            if write {
                closing.send_replace(false);
                faults.disconnect_watches();
                let status = Patch::Merge(json!({ "status": { "phase": "Failed" } }));
                theirs.patch_status("cart-0", &PatchParams::default(), &status).await.unwrap();
            } else {
                closing.subscribe().wait_for(|open| *open).await.unwrap();
            }
        })
    });
    let app = embedded::host(&cluster, wire.client(), vec![probe("label guests.example/a x")]).await.unwrap();
    let of_host = |request: &Logged| request.user_agent.starts_with("podium");
    let lists = || cluster.requests().count(|request| request.verb == Verb::List && of_host(request));
    let before = lists();
    embedded::create_pod(&cluster, "cart-0", "doomed").unwrap();
    let label = async || embedded::label(&cluster, "cart-0", "guests.example/a").await;
    until("the label", MINUTE, async || {
        anyhow::ensure!(label().await?.is_some());
        Ok(())
    })
    .await
    .unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let cached = || {
        let pod = app.reader().snapshot().get("default", "cart-0").unwrap();
        (pod.status().unwrap().phase, pod.labels().unwrap().contains_key("guests.example/a"))
    };
    assert!(!cached().1, "the answer is not stored");
    gate.send_replace(true);
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert_eq!(cached(), ("Failed".to_owned(), true));
    // With a list nothing could be missing.
    assert_eq!(lists(), before);
    app.shutdown().await;
}

/// Waits until the deletion of this Pod, and of no other, is on the register.
async fn until_delivered(cluster: &Cluster, uid: &str) {
    until("the delivery of the deletion", MINUTE, async || {
        anyhow::ensure!(noted(cluster).await == [uid]);
        Ok(())
    })
    .await
    .unwrap();
}

/// Returns the uids of the deletions on the register, without duplicates.
async fn noted(cluster: &Cluster) -> Vec<String> {
    embedded::annotations(cluster, "register").await.unwrap().into_values().collect()
}

/// The states that the registrar received, derived from its writes: for each name the incarnations that it saw present
/// and deleted, in order.
fn delivered(writes: &[Sent]) -> Vec<(&'static str, String)> {
    let mut delivered = Vec::new();
    for write in writes {
        let body: Value = serde_json::from_str(&write.body).unwrap();
        if let Some(uid) = body["metadata"]["labels"]["guests.example/seen"].as_str() {
            delivered.push(("seen", uid.to_owned()));
        }
        for note in body["metadata"]["annotations"].as_object().into_iter().flat_map(|notes| notes.values()) {
            delivered.push(("gone", note.as_str().unwrap().to_owned()));
        }
    }
    delivered
}

#[tokio::test(start_paused = true)]
async fn a_recreated_pods_deletion_is_delivered_before_its_successor() {
    let cluster = still();
    let (gate, wire) = gated(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![registrar(&cluster)]).await.unwrap();
    let create = |round: usize| -> Vec<String> {
        (0..6)
            .map(|index| embedded::create_pod(&cluster, &format!("cart-{index}"), &round.to_string()).unwrap())
            .collect()
    };
    // The incarnations by name, in order.
    let mut lives: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for round in 0..9 {
        for (index, uid) in create(round).into_iter().enumerate() {
            lives.entry(index).or_default().push(uid);
        }
        gate.send_replace(true);
        embedded::at_rest(&cluster, &app).await.unwrap();
        gate.send_replace(false);
        match round % 3 {
            0 => cluster.faults().disconnect_watches(),
            1 => cluster.faults().swallow_watches(),
            _ => {
                cluster.faults().disconnect_watches();
                cluster.faults().next_watch_gone();
            }
        }
        for index in 0..6 {
            embedded::delete_pod(&cluster, &format!("cart-{index}")).await.unwrap();
        }
    }
    gate.send_replace(true);
    embedded::at_rest(&cluster, &app).await.unwrap();

    let delivered = delivered(&wire.writes());
    for uids in lives.values() {
        let expected: Vec<_> = uids.iter().flat_map(|uid| [("seen", uid.clone()), ("gone", uid.clone())]).collect();
        let of_this_name: Vec<_> = delivered.iter().filter(|(_, uid)| uids.contains(uid)).cloned().collect();
        assert_eq!(of_this_name, expected);
    }
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_grace_is_not_lost_by_its_answer() {
    for late in [false, true] {
        let cluster = still();
        let (answers, wire) = answers_gated(&cluster, !late, |sent| sent.method == http::Method::DELETE);
        let specs = vec![registrar(&cluster), probe("delete")];
        let app = embedded::host(&cluster, wire.client(), specs).await.unwrap();
        let uid = embedded::create_pod(&cluster, "cart-0", "doomed").unwrap();
        until_delivered(&cluster, &uid).await;
        answers.send_replace(true);
        embedded::at_rest(&cluster, &app).await.unwrap();
        assert!(app.reader().snapshot().get("default", "cart-0").is_none());
        let deletes = wire.writes().iter().filter(|sent| sent.method == http::Method::DELETE).count();
        assert_eq!((deletes, noted(&cluster).await.len()), (1, 1));
        app.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_response_to_the_last_finalizers_removal_restores_no_pod() {
    for late in [false, true] {
        let cluster = still();
        let specs = vec![registrar(&cluster), probe("unfinalize guests.example/hold")];
        let (answers, wire) = answers_gated(&cluster, !late, |sent| sent.body.contains("deleteFromPrimitiveList"));
        let app = embedded::host(&cluster, wire.client(), Vec::new()).await.unwrap();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "cart-0", "labels": {"app": "doomed"}, "finalizers": ["guests.example/hold"]},
            "spec": {"containers": [{"name": "c", "image": "registry.example/c:1"}]},
        });
        let uid = embedded::uid(&cluster.create(pod).unwrap()).unwrap();
        embedded::delete_pod(&cluster, "cart-0").await.unwrap();
        converged(&cluster, &app, MINUTE).await.unwrap();
        assert!(app.reader().snapshot().get("default", "cart-0").is_some(), "the finalizer holds it");
        for spec in specs {
            app.load(spec).await.unwrap();
        }
        until_delivered(&cluster, &uid).await;
        answers.send_replace(true);
        embedded::at_rest(&cluster, &app).await.unwrap();
        let removals = wire.writes().iter().filter(|sent| sent.body.contains("deleteFromPrimitiveList")).count();
        assert_eq!((removals, app.reader().snapshot().get("default", "cart-0").is_some()), (1, false));
        app.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_to_a_patch_after_the_deletion_restores_no_pod() {
    let cluster = still();
    let (answers, wire) = answers_gated(&cluster, false, |sent| sent.is_write() && sent.uri.contains("/cart-0"));
    let app = embedded::host(&cluster, wire.client(), vec![registrar(&cluster)]).await.unwrap();
    let uid = embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    until("the patch to be done", MINUTE, async || {
        anyhow::ensure!(embedded::label(&cluster, "cart-0", "guests.example/seen").await? == Some(uid.clone()));
        Ok(())
    })
    .await
    .unwrap();
    embedded::delete_pod(&cluster, "cart-0").await.unwrap();
    converged(&cluster, &app, MINUTE).await.unwrap();
    answers.send_replace(true);
    embedded::at_rest(&cluster, &app).await.unwrap();
    assert!(app.reader().snapshot().get("default", "cart-0").is_none());
    assert_eq!(noted(&cluster).await, [uid]);
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_cut_after_the_write_costs_no_second_write() {
    let cluster = still();
    let wire = Wire::new(&cluster);
    let app = embedded::host(&cluster, wire.client(), vec![registrar(&cluster)]).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    cluster.faults().cut_answers(1);
    let before = cluster.requests().writes().len();
    let uid = embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();
    tokio::time::sleep(MINUTE).await;
    assert_eq!(embedded::label(&cluster, "cart-0", "guests.example/seen").await.unwrap(), Some(uid));
    let writes = &cluster.requests().writes()[before..];
    assert_eq!(writes.iter().filter(|write| write.verb == Verb::Patch).count(), 1, "{writes:#?}");
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn workers_with_unanswered_writes_do_not_hold_up_the_cache() {
    let cluster = still();
    let wire = Wire::with(&cluster, |sent| {
        let write = sent.is_write();
        Box::pin(async move {
            if write {
                std::future::pending::<()>().await;
            }
        })
    });
    let app = embedded::host(&cluster, wire.client(), vec![registrar(&cluster)]).await.unwrap();
    for index in 0..200 {
        embedded::create_pod(&cluster, &format!("cart-{index}"), "cart").unwrap();
        converged(&cluster, &app, Duration::from_millis(100)).await.unwrap();
    }
    assert!(!wire.writes().is_empty() && !app.is_idle());
    app.shutdown().await;
}

/// In real time and on threads, as in production.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn plugins_that_spin_on_every_worker_do_not_hold_up_the_cache() {
    let cluster = still();
    let wire = Wire::new(&cluster);
    let options = podium_host::app::Options { workers: 2, ..embedded::options(&cluster, wire.client()) };
    let app = App::start(options).await.unwrap();
    for name in ["spin", "spin-too"] {
        app.load(plugins::guest("spin", name, "").unwrap()).await.unwrap();
    }
    let mut reader = app.reader();
    let mut lags = Vec::new();
    for index in 0..200 {
        let name = format!("cart-{index}");
        let began = tokio::time::Instant::now();
        embedded::create_pod(&cluster, &name, "cart").unwrap();
        let seen = reader.wait_for(|snapshot| snapshot.get("default", &name).is_some());
        tokio::time::timeout(MINUTE, seen).await.expect("the cache stands still").unwrap();
        lags.push(began.elapsed());
    }
    lags.sort();
    let (median, late) = (lags[100], lags[197]);
    println!("from the server's write to the readers: median {median:?}, 99th of 100 {late:?}");
    // The target is 10 ms; a machine that is busy with other suites gets more.
    assert!(late <= Duration::from_millis(250), "median {median:?}, 99th of 100 {late:?}");
    app.shutdown().await;
}
