//! How often all Pods are looked at.

use super::*;

/// Ten objects of the cluster that are being deleted.
fn cluster(finalizer: impl Fn(usize) -> Vec<String>) -> Vec<Value> {
    let one = |at: usize| {
        let finalizers = finalizer(at);
        let finalizers: Vec<&str> = finalizers.iter().map(String::as_str).collect();
        deleting(held(object(None, &format!("c-{at}"), &finalizers)))
    };
    (0..10).map(one).collect()
}

#[tokio::test(start_paused = true)]
async fn plugins_of_the_cluster_share_the_looks_at_all_pods() {
    let rig = Rig::started(cluster(|at| vec![format!("c{at}.example/hold")]), refuses).await;
    for at in 0..10 {
        rig.hold(&format!("shop-{at}"), 2, &format!("c{at}.example/hold")).await;
    }
    sleep(Duration::from_secs(30)).await;
    assert_eq!(rig.removals.lock().values().map(|removal| removal.pods).sum::<usize>(), 20);
    // It is asked before and after a look.
    let looks = rig.decoding.load(Relaxed) / 2;
    assert!((9..=12).contains(&looks), "{looks}");
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_looked_at_for_objects_that_hold_no_finalizer() {
    let rig = Rig::started(cluster(|_| Vec::new()), refuses).await;
    rig.gone("c-0").await;
    sleep(SCAN).await;
    assert_eq!((rig.objects.all.lock().len(), rig.decoding.load(Relaxed)), (0, 0));
}
