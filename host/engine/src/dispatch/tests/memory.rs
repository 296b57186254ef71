//! Memory of runs, as the plugins' limits declare it.

use super::*;
use crate::{dispatch::budget::WRITES, queue::Claim};

/// Loads a plugin beside the rig's, with the same code.
fn load(rig: &Rig, namespace: &str, name: &str, memory_bytes: usize) -> Lane {
    load_in(rig, Some(namespace), name, memory_bytes)
}

fn load_in(rig: &Rig, namespace: Option<&str>, name: &str, memory_bytes: usize) -> Lane {
    let of = rig.dispatch.registry.get(rig.lane).unwrap();
    let mut spec = testing::plugin(namespace, name);
    spec.limits.memory_bytes = memory_bytes;
    rig.dispatch.registry.put(spec, of.reconcile.clone(), of.sender.clone(), rig.status.clone(), None, None)
}

fn next(rig: &Rig) -> Option<PodJob> {
    rig.dispatch.queue.next().now_or_never().flatten()
}

#[tokio::test(start_paused = true)]
async fn the_memory_of_a_run_is_released_before_its_writes_are_sent() {
    let queue = Arc::new(std::sync::OnceLock::<Arc<PodQueue>>::new());
    let found = Arc::new(Mutex::new(Vec::new()));
    let look = {
        let queue = queue.clone();
        let found = found.clone();
        move |when: &'static str| {
            let job = queue.get().unwrap().next().now_or_never().flatten();
            found.lock().push((when, job.map(|job| job.lane)));
        }
    };
    let during = look.clone();
    let mut rig = rig(move |request, _| {
        during("run");
        report(Ok(Outcome::Settled), vec![label(&request)])
    });
    queue.set(rig.dispatch.queue.clone()).unwrap();
    *rig.script.sending.lock() = Some(Box::new(move || look("delivery")));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    let neighbour = load(&rig, "shop", "other", spec().limits.memory_bytes);
    rig.add();
    let job = next(&rig).unwrap();
    rig.dispatch.queue.add([(neighbour, ("shop".into(), "cart-0".into()), "u1".into())]);
    assert_eq!(rig.finish(job).await, Next::Settled);
    assert_eq!(*found.lock(), [("run", None), ("delivery", Some(neighbour))]);
}

#[tokio::test(start_paused = true)]
async fn a_key_taken_for_too_little_memory_is_taken_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let mut rig = rig(move |_, _| {
        counted.fetch_add(1, SeqCst);
        report(Ok(Outcome::Settled), Vec::new())
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    let most = spec().limits.memory_bytes;
    load(&rig, "shop", "tidy", most / 2);
    rig.add();
    let job = next(&rig).unwrap();
    load(&rig, "shop", "tidy", most);
    assert_eq!(rig.finish(job).await, Next::Postponed(Duration::ZERO));
    assert_eq!(runs.load(SeqCst), 0);
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!(runs.load(SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_is_a_namespace_or_one_cluster_plugin() {
    use crate::queue::Claims;

    let rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    let registry = &rig.dispatch.registry;
    let neighbour = load(&rig, "shop", "other", 20 << 20);
    let stranger = load(&rig, "bank", "tidy", 8);
    let [own, neighbour, stranger] = [rig.lane, neighbour, stranger].map(|lane| registry.claim(lane));
    assert_eq!((own.bytes, neighbour.bytes, stranger.bytes), (32 << 20, 32 << 20, 4 << 20));
    assert!(own.tenant == neighbour.tenant && own.tenant != stranger.tenant);
    let of_cluster = ["a", "b"].map(|name| registry.claim(load_in(&rig, None, name, 1)).tenant);
    let tenants = [own.tenant, stranger.tenant, of_cluster[0], of_cluster[1]].map(|of| registry.tenants()[&of].clone());
    assert_eq!(tenants, ["shop", "bank", "cluster/a", "cluster/b"]);
    let reconcile = registry.get(rig.lane).unwrap().reconcile.clone();
    registry.remove(&spec().id).unwrap();
    assert_eq!(registry.claim(rig.lane), Claim::default());
    let sender = Sender { manager: "podium/shop/tidy".into(), impersonate: None };
    registry.put(spec(), reconcile, sender, rig.status.clone(), None, None);
    assert_eq!(registry.claim(rig.lane), own, "the plugin and its tenant keep their numbers");
}

#[tokio::test(start_paused = true)]
async fn plugins_and_tenants_that_come_and_go_leave_nothing() {
    let rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    let registry = rig.dispatch.registry.clone();
    let sizes = || (registry.numbered(), registry.tenants().len(), rig.dispatch.queue.tenants().len());
    let before = sizes();
    let mut kept = None;
    for number in 0..100 {
        let lane = load(&rig, &format!("preview-{number}"), "tidy", 1);
        let slot: Slot = ("preview".into(), "cart-0".into());
        rig.dispatch.queue.add([(lane, slot, "u1".into())]);
        let job = next(&rig).unwrap();
        let id = registry.get(lane).unwrap().spec.id.clone();
        registry.remove(&id).unwrap();
        rig.dispatch.forget(lane);
        if number < 90 {
            rig.dispatch.queue.done(&job, Next::Settled);
            continue;
        }
        // One that is loaded again while a job is under way keeps its numbers.
        assert_eq!(load(&rig, &format!("preview-{number}"), "tidy", 1), lane);
        rig.dispatch.queue.done(&job, Next::Settled);
        registry.remove(&id).unwrap();
        kept = Some((id, lane));
    }
    tokio::time::advance(Duration::from_secs(60)).await;
    // The host's own plugin has as much as the others had.
    for _ in 0..100 {
        rig.add();
        rig.dispatch.queue.done(&next(&rig).unwrap(), Next::Settled);
    }
    let (id, lane) = kept.unwrap();
    rig.dispatch.forget(lane);
    let (plugins, tenants, figures) = sizes();
    assert!(plugins <= before.0 + 1 && tenants <= before.1 + 1 && figures <= before.2 + 2, "{:?}", sizes());
    assert_ne!(load(&rig, id.namespace.as_deref().unwrap(), "tidy", 1), lane, "no number is used twice");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_last_plugin_is_loaded_again_keeps_its_debts() {
    let rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    let of = rig.dispatch.registry.get(rig.lane).unwrap();
    let load = || {
        let mut spec = testing::plugin(Some("bank"), "tidy");
        spec.grants.write.labels = vec![KeyPattern("team".into())];
        rig.dispatch.registry.put(spec, of.reconcile.clone(), of.sender.clone(), rig.status.clone(), None, None)
    };
    let add = |lane: Lane| rig.dispatch.queue.add([(lane, ("bank".into(), "cart-0".into()), "u1".into())]);
    let lane = load();
    add(lane);
    let job = next(&rig).unwrap();
    rig.dispatch.queue.spend(&job, WRITES, 100_000);
    rig.dispatch.queue.done(&job, Next::Settled);
    let id = rig.dispatch.registry.get(lane).unwrap().spec.id.clone();
    rig.dispatch.registry.remove(&id).unwrap();
    rig.dispatch.forget(lane);
    add(load());
    assert!(next(&rig).is_none(), "its tenant has no tokens");
}
