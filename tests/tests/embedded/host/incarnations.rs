//! A Pod that is deleted and created again under its name is another Pod.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use podium_devcluster::{Cluster, Options, Verb};
use podium_tests::{embedded, plugins, wire::Wire};
use podium_vocabulary::WriteResult;

#[tokio::test(start_paused = true)]
async fn a_write_does_not_reach_the_next_incarnation() {
    let cluster = Arc::new(Cluster::start(Options { simulate: false, ..Options::default() }).unwrap());
    let old = embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
    // While the first patch is under way, its Pod is deleted, and another one gets its name.
    let recreated = Arc::new(AtomicBool::new(false));
    let wire = Wire::with(&cluster, {
        let cluster = cluster.clone();
        move |sent| {
            let first = sent.method == http::Method::PATCH && !recreated.swap(true, SeqCst);
            let cluster = cluster.clone();
            Box::pin(async move {
                if first {
                    embedded::delete_pod(&cluster, "cart-0").await.unwrap();
                    embedded::create_pod(&cluster, "cart-0", "cart").unwrap();
                }
            })
        }
    });
    let spec = plugins::guest("registrar", "registrar", "").unwrap();
    let id = spec.id.clone();
    let app = embedded::host(&cluster, wire.client(), vec![spec]).await.unwrap();
    embedded::at_rest(&cluster, &app).await.unwrap();

    let pods = embedded::pods(&cluster, Some("default"));
    let new = pods.get("cart-0").await.unwrap().metadata.uid.unwrap();
    assert_ne!(new, old);
    // The guest labels each Pod with the uid of its run's Pod.
    assert_eq!(embedded::label(&cluster, "cart-0", "guests.example/seen").await.unwrap(), Some(new.clone()));
    let writes = wire.writes();
    assert_eq!(writes.len(), 2, "{writes:#?}");
    assert!(writes[0].body.contains(&old) && writes[1].body.contains(&new), "{writes:#?}");
    let patches: Vec<_> = cluster.requests().writes().into_iter().filter(|write| write.verb == Verb::Patch).collect();
    assert_eq!(patches.iter().map(|patch| patch.code).collect::<Vec<_>>(), [422, 200]);
    let status = app.status().plugin(&id);
    assert_eq!(status.writes().get(WriteResult::Gone.name()), Some(&1));
    assert_eq!(status.retries.get(), 0, "a write to a deleted Pod has settled");
    app.shutdown().await;
}
