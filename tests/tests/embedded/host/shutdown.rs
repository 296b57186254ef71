//! Draining at shutdown.

use std::time::Duration;

use podium_devcluster::{Cluster, Options};
use podium_pods::pod::PodView;
use podium_tests::{embedded, plugins, wait::until, wire::Wire};
use tokio::sync::watch;

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_runs_under_way_and_starts_no_other() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let uid = embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let open = watch::Sender::new(false);
    let gate = open.subscribe();
    // Writes wait at a gate.
    let wire = Wire::with(&cluster, move |sent| {
        let (write, mut gate) = (sent.is_write(), gate.clone());
        Box::pin(async move {
            if write {
                gate.wait_for(|open| *open).await.unwrap();
            }
        })
    });
    let spec = plugins::guest("registrar", "registrar", "").unwrap();
    let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();
    let reader = app.reader();
    let a_second = Duration::from_secs(1);
    until("a run under way", a_second, async || {
        anyhow::ensure!(wire.writes().len() == 1);
        Ok(())
    })
    .await
    .unwrap();

    let shutdown = tokio::spawn(app.shutdown());
    tokio::task::yield_now().await;
    embedded::create_pod(&cluster, "cart-1", "cart").unwrap();
    until("the new Pod in the cache", a_second, async || {
        anyhow::ensure!(reader.snapshot().get("default", "cart-1").is_some());
        Ok(())
    })
    .await
    .unwrap();
    assert!(!shutdown.is_finished(), "the run is waited for");
    open.send_replace(true);
    tokio::time::timeout(a_second, shutdown).await.expect("nothing else is waited for").unwrap();

    assert_eq!(embedded::label(&cluster, "cart-0", "guests.example/seen").await.unwrap(), Some(uid));
    assert_eq!(embedded::label(&cluster, "cart-1", "guests.example/seen").await.unwrap(), None);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(wire.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_write_delays_a_shutdown_by_under_10_s() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    let wire = Wire::with(&cluster, |sent| {
        let write = sent.is_write();
        Box::pin(async move {
            if write {
                std::future::pending::<()>().await;
            }
        })
    });
    let spec = plugins::guest("registrar", "registrar", "").unwrap();
    let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();
    until("a run under way", Duration::from_secs(1), async || {
        anyhow::ensure!(wire.writes().len() == 1);
        Ok(())
    })
    .await
    .unwrap();
    tokio::time::timeout(Duration::from_secs(10), app.shutdown()).await.expect("it took longer");
    assert_eq!(embedded::label(&cluster, "cart-0", "guests.example/seen").await.unwrap(), None);
}
