//! A plugin that never returns, beside one that does.

use std::time::Duration;

use podium_devcluster::{Cluster, Options};
use podium_engine::ports::FailureKind;
use podium_host::app::App;
use podium_tests::{embedded, plugins, wait::until, wire::Wire};

const PODS: usize = 20;

/// In real time and on threads, as in production: with the epoch in addition to fuel.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spinning_plugin_is_stopped_and_delays_no_other() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let wire = Wire::new(&cluster);
    let app = App::start(embedded::options(&cluster, wire.client())).await.unwrap();
    let (spin, good) =
        (plugins::guest("spin", "spin", "").unwrap(), plugins::guest("registrar", "registrar", "").unwrap());
    let (spinning, behaving) = (app.status().plugin(&spin.id), app.status().plugin(&good.id));
    app.load(spin).await.unwrap();
    app.load(good).await.unwrap();
    for index in 0..PODS {
        embedded::create_pod(&cluster, &format!("cart-{index}"), "cart").unwrap();
    }
    until("a label on every Pod, and the spinning plugin to be cut", Duration::from_secs(60), async || {
        let (applied, cut) = (behaving.writes_applied(), spinning.failures_by(FailureKind::Cpu));
        anyhow::ensure!(applied == PODS as u64 && cut >= PODS as u64, "{applied} labels, {cut} cut");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(spinning.failures().keys().copied().collect::<Vec<_>>(), [FailureKind::Cpu.name()]);
    assert!(spinning.panics() >= PODS as u64, "a run that did not return counts as a panic");
    assert_eq!((spinning.requests.get(), behaving.failures().len()), (0, 0), "what it staged was not sent");
    assert_eq!(wire.writes().len(), PODS);
    let last = spinning.last_failure().expect("it says why");
    assert!(last.contains("processor time"), "{last}");
    app.shutdown().await;
}
