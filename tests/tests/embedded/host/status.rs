//! `/debug/reconcile-status` on a host whose plugins are slow, loop, lack a right, and trap.

use std::{net::SocketAddr, time::Duration};

use anyhow::ensure;
use podium_devcluster::{Cluster, Options};
use podium_host::{
    admin::{self, ListenAddress},
    app::{App, Operator},
};
use podium_tests::{embedded, plugins, sandbox, wait::until, wire::Wire};
use podium_vocabulary::{LimitClass, PluginSpec};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const WATCH: &str = "  watch: { selector: { matchLabels: { app: cart } }, sections: [labels] }";
const MINUTE: Duration = Duration::from_secs(60);

fn probe(name: &str, script: &str, more: &str) -> PluginSpec {
    let mut spec = plugins::guest("probe", name, &format!("{WATCH}\n{more}")).unwrap();
    spec.limits.class = LimitClass::Interpreter;
    spec.grants = sandbox::everything();
    spec.config = json!(script).to_string().into();
    spec
}

/// Returns a cluster with Pods `cart-0`, `cart-1` and so on.
fn carts(number: usize) -> Cluster {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    for index in 0..number {
        embedded::create_pod(&cluster, &format!("cart-{index}"), "cart").unwrap();
    }
    cluster
}

fn status(app: &App) -> Value {
    serde_json::to_value(app.reconcile_status()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_waiting_run_is_active_and_the_keys_behind_it_become_stale() {
    let cluster = carts(5);
    // Live reads without an answer, of 5 s each.
    let mut spec = probe("slow", &"live default cart-0\n".repeat(24), "");
    spec.limits.wall = 2 * MINUTE;
    let wire = Wire::with(&cluster, |sent| {
        let is_live = !sent.is_write() && sent.uri.contains("/pods/cart-0");
        Box::pin(async move {
            if is_live {
                std::future::pending().await
            }
        })
    });
    let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();
    until("a run", MINUTE, async || {
        let status = status(&app);
        ensure!(status["tenants"]["items"][0]["waiting"] == 4, "{status:#}");
        Ok(())
    })
    .await
    .unwrap();
    let before = status(&app);
    assert_eq!(before["cache"], json!({"pods": 5, "revision": before["cache"]["revision"], "stale": null}));
    let tenant = json!({
        "tenant": "cluster/slow", "runs": 1, "deliveries": 0, "waiting": 4, "stale": 0, "throttled": 0, "debtMillis": 0,
    });
    assert_eq!(before["tenants"], json!({"total": 1, "leftOut": 0, "items": [tenant]}));
    tokio::time::sleep(Duration::from_secs(32)).await;
    let after = status(&app);
    assert_eq!(after["tenants"]["items"][0]["stale"], 4, "{after:#}");
    let run = &after["activeRuns"]["items"][0];
    assert_eq!((&run["plugin"], after["activeRuns"]["total"].as_u64()), (&json!("slow"), Some(1)), "{after:#}");
    assert!(run["pod"].as_str().unwrap().starts_with("default/cart-") && run["millis"].as_u64().unwrap() > 31_000);
    app.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn loops_missing_rights_and_traps_are_shown_by_name() {
    let cluster = carts(2);
    let account = "  serviceAccountName: registrar\n  serviceAccountNamespace: default";
    let flips = |name: &str| probe(name, &format!("label guests.example/x {name}"), "");
    let refused = probe("refused", "label guests.example/y 1", account);
    let broken = plugins::guest("panics", "broken", WATCH).unwrap();
    let wire = Wire::new(&cluster);
    let specs = vec![flips("left"), flips("right"), refused, broken];
    let app = embedded::host(&cluster, wire.client(), specs).await.unwrap();
    until("all of them", MINUTE, async || {
        let status = status(&app);
        let totals = ["loops", "closedByForbidden", "lastPanics"].map(|list| status[list]["total"].as_u64());
        ensure!(totals == [Some(4), Some(1), Some(1)], "{totals:?}");
        Ok(())
    })
    .await
    .unwrap();
    let status = status(&app);
    let mut loops = Vec::new();
    for entry in status["loops"]["items"].as_array().unwrap() {
        assert!(entry["waitMillis"].as_u64().unwrap() <= 60_000, "{entry}");
        loops.push(["plugin", "pod", "field", "counterpart"].map(|key| entry[key].as_str().unwrap()));
    }
    loops.sort_unstable();
    let field = "label guests.example/x";
    let expected = [("left", "right"), ("right", "left")]
        .into_iter()
        .flat_map(|(one, other)| ["default/cart-0", "default/cart-1"].map(|pod| [one, pod, field, other]));
    assert_eq!(loops, expected.collect::<Vec<_>>());
    let closed = &status["closedByForbidden"]["items"][0];
    let expected = json!({
        "plugin": "refused", "account": "system:serviceaccount:default:registrar", "verb": "patch",
        "resource": "pods", "namespace": "default", "only": null, "waitMillis": closed["waitMillis"],
    });
    assert_eq!(*closed, expected);
    let panic = &status["lastPanics"]["items"][0];
    assert_eq!((&panic["plugin"], &panic["reason"]), (&json!("broken"), &json!("trap")), "{panic}");
    app.shutdown().await;
}

async fn get(address: SocketAddr, host: &str, path: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /debug/{path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_page_is_served_under_loopback_names_only() {
    let cluster = carts(1);
    let metrics = admin::bind(ListenAddress::All(0)).await.unwrap().unwrap();
    let port = metrics.address().port();
    let operator = Operator { metrics: Some(metrics), ..Operator::default() };
    let options = embedded::options(&cluster, Wire::new(&cluster).client());
    let app = App::start_simulated(podium_host::app::Options { operator, ..options }).await.unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    until("the Pod in the cache", MINUTE, async || {
        let answer = get(address, &format!("localhost:{port}"), "reconcile-status").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        ensure!(head.starts_with("HTTP/1.1 200") && head.contains("content-type: application/json"), "{head}");
        let status: Value = serde_json::from_str(body)?;
        ensure!(status["cache"]["pods"] == 1 && status["loops"]["leftOut"] == 0, "{status}");
        Ok(())
    })
    .await
    .unwrap();
    let paths = [
        ("reconcile-status", 200),
        ("pods/default/cart-0", 200),
        ("pods/default/cart-0?plugin=none", 404),
        ("plugins/none", 404),
        ("plugins/shop/none", 404),
        ("pprof/", 200),
        ("pprof/heap", 501),
        ("pprof/profile?seconds=0", 400),
        ("pprof/guest?plugin=shop/none", 404),
    ];
    for (path, code) in paths {
        let answer = get(address, &format!("localhost:{port}"), path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{path}: {answer}");
        let answer = get(address, &format!("rebound.example:{port}"), path).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{path}: {answer}");
    }
    app.shutdown().await;
}
