//! Deliveries beside the workers.

use tokio::sync::Semaphore;

use super::*;
use crate::{dispatch::claims::Claims, queue::Occupancy};

/// Answers no delivery before it is let through.
struct Slow(Arc<Script>, Arc<Semaphore>);

impl Deliver for Slow {
    fn deliver<'a>(
        &'a self,
        sender: &'a Sender,
        subject: &'a PodKey,
        view: &'a dyn PodView,
        staged: Staged,
        now_millis: u64,
    ) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            self.1.acquire().await.unwrap().forget();
            self.0.deliver(sender, subject, view, staged, now_millis).await
        })
    }

    fn held(&self, _: &Sender) -> Option<Duration> {
        None
    }
}

/// One worker of four, and two tenants: `shop`, which writes, and `bank`, which does not.
struct Bench {
    dispatch: Arc<Dispatch>,
    shop: Lane,
    bank: Lane,
    through: Arc<Semaphore>,
    ran: Arc<Mutex<Vec<String>>>,
    script: Arc<Script>,
    writer: Ingested,
}

impl Bench {
    fn new() -> Self {
        let ran = Arc::<Mutex<Vec<String>>>::default();
        let noted = ran.clone();
        let mut rig = rig(move |request, _| {
            noted.lock().push(request.key.name.to_string());
            let writes = if request.key.namespace.as_ref() == "shop" { vec![label(&request)] } else { Vec::new() };
            report(Ok(Outcome::Settled), writes)
        });
        let of = rig.dispatch.registry.get(rig.lane).unwrap();
        let spec = testing::plugin(Some("bank"), "tidy");
        let bank =
            rig.dispatch.registry.put(spec, of.reconcile.clone(), of.sender.clone(), rig.status.clone(), None, None);
        let names = ["cart-0", "cart-1", "cart-2", "cart-3"];
        let pods = names.into_iter().flat_map(|name| ["shop", "bank"].map(|namespace| (namespace, name)));
        rig.writer.apply(pods.map(|(namespace, name)| PodEvent::applied(named(namespace, name))).collect());
        // After a delivery whose end was not seen, a live read decides.
        *rig.server.pod.lock() = Some(named("shop", "cart-0"));
        let through = Arc::new(Semaphore::new(0));
        let registry = rig.dispatch.registry.clone();
        let workers = Occupancy::new(4);
        let queue = Queue::new(Backoff::default(), workers.jobs_of_tenant(), 1).shared(workers);
        let dispatch = Arc::new(Dispatch {
            queue: Arc::new(queue.within(MemoryBudget::new(1 << 30), registry.clone())),
            registry,
            expectations: Arc::default(),
            reader: rig.dispatch.reader.clone(),
            deliver: Arc::new(Slow(rig.script.clone(), through.clone())),
            live: rig.server.clone(),
            tasks: Arc::new(Spawned),
            clock: Clock::starting_at(1_000),
            seed: 1,
            traces: None,
        });
        tokio::spawn(dispatch.clone().work());
        Self { dispatch, shop: rig.lane, bank, through, ran, script: rig.script, writer: rig.writer }
    }

    async fn add(&self, lane: Lane, names: &[&str]) -> Vec<String> {
        let namespace = if lane == self.bank { "bank" } else { "shop" };
        let key = |name: &&str| (lane, (namespace.into(), (*name).into()), named(namespace, name).key.uid.clone());
        self.dispatch.queue.add(names.iter().map(key));
        self.settle().await
    }

    /// Waits until no task can continue, and returns the runs so far.
    async fn settle(&self) -> Vec<String> {
        tokio::time::sleep(Duration::from_millis(1)).await;
        std::mem::take(&mut *self.ran.lock())
    }
}

fn named(namespace: &str, name: &str) -> Arc<CachedPod> {
    named_at(namespace, name, 5)
}

fn named_at(namespace: &str, name: &str, revision: u64) -> Arc<CachedPod> {
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = namespace.into();
    pod.header.name = name.into();
    pod.header.uid = format!("{namespace}-{name}");
    pod.header.resource_version = revision.to_string();
    Arc::new(CachedPod::new(&pod).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_delivery_holds_no_worker_and_keeps_its_key_from_being_run() {
    let bench = Bench::new();
    assert_eq!(bench.add(bench.shop, &["cart-0"]).await, ["cart-0"]);
    assert_eq!(bench.add(bench.bank, &["cart-1", "cart-2"]).await, ["cart-1", "cart-2"], "the worker is free");
    assert!(bench.add(bench.shop, &["cart-0"]).await.is_empty(), "its writes are being sent");
    assert!(!bench.dispatch.queue.is_idle());
    bench.through.add_permits(1);
    assert_eq!(bench.settle().await, ["cart-0"], "an event during the delivery");
    bench.through.add_permits(1);
    bench.settle().await;
    assert_eq!((bench.script.sent.lock().len(), bench.dispatch.queue.is_idle()), (2, true));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_unanswered_deliveries_delays_no_other() {
    let bench = Bench::new();
    let ran = bench.add(bench.shop, &["cart-0", "cart-1", "cart-2", "cart-3"]).await;
    assert_eq!(ran, ["cart-0", "cart-1"], "as many jobs as twice its runs");
    let tenants = bench.dispatch.queue.tenants();
    let names = bench.dispatch.registry.tenants();
    let of_shop = tenants.iter().find(|(number, _)| names[number] == "shop").unwrap().1;
    assert_eq!((of_shop.runs, of_shop.deliveries, of_shop.waiting), (0, 2, 2));
    assert_eq!(bench.add(bench.bank, &["cart-0", "cart-1", "cart-2"]).await.len(), 3);
    bench.through.add_permits(1);
    assert_eq!(bench.settle().await, ["cart-2"]);
    bench.through.add_permits(3);
    assert_eq!(bench.settle().await, ["cart-3"]);
}

/// The event comes before the response, after it, or never.
#[tokio::test(start_paused = true)]
async fn a_key_waits_for_the_event_of_its_write_and_its_tenant_does_not() {
    for event in [Some(false), Some(true), None] {
        let mut bench = Bench::new();
        let seen = |bench: &mut Bench| {
            bench.writer.apply(vec![PodEvent::applied(named_at("shop", "cart-0", 9))]);
            bench.dispatch.expectations.seen.up_to(Revision(9));
        };
        *bench.script.shown.lock() = Some(Shown::Revision(Revision(9)));
        assert_eq!(bench.add(bench.shop, &["cart-0", "cart-1", "cart-2"]).await, ["cart-0", "cart-1"]);
        if event == Some(false) {
            seen(&mut bench);
        }
        bench.through.add_permits(2);
        assert_eq!(bench.settle().await, ["cart-2"], "both places are free");
        let again = bench.add(bench.shop, &["cart-0"]).await;
        match event {
            Some(false) => assert_eq!(again, ["cart-0"]),
            Some(true) => {
                assert!(again.is_empty());
                seen(&mut bench);
                assert_eq!(bench.settle().await, ["cart-0"]);
            }
            None => {
                assert!(again.is_empty());
                tokio::time::sleep(SEE_WRITES).await;
                assert!(bench.settle().await.is_empty(), "its plugin has not seen the write");
            }
        }
        assert_eq!(bench.script.sent.lock().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_panics_is_a_failure_and_its_key_is_run_again() {
    let bench = Bench::new();
    *bench.script.sending.lock() = Some(Box::new(|| panic!("a bug")));
    bench.through.add_permits(2);
    assert_eq!(bench.add(bench.shop, &["cart-0"]).await, ["cart-0"]);
    *bench.script.sending.lock() = None;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.settle().await, ["cart-0"]);
    assert!(bench.dispatch.queue.is_idle());
}

/// Writes to each of these Pods.
fn staged(names: &[&str]) -> Staged {
    let keys = names.iter().map(|name| named("shop", name).key.clone());
    let unlabel = |target| Action::RemoveLabel { target, key: "team".into() };
    report(Ok(Outcome::Settled), keys.map(unlabel).collect()).staged
}

#[tokio::test(start_paused = true)]
async fn deliveries_to_one_pod_are_sent_one_after_the_other() {
    let claims = Claims::default();
    let [both, second, other] = [&["cart-0", "cart-1"][..], &["cart-1"], &["cart-2"]].map(staged);
    let first = claims.claim(Lane(0), &both).await;
    let mut waiting = std::pin::pin!(claims.claim(Lane(0), &second));
    assert!(futures::poll!(waiting.as_mut()).is_pending(), "the first delivery writes to it");
    drop(claims.claim(Lane(0), &other).await);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    drop(claims.claim(Lane(1), &second).await);
    drop(first);
    let waited = tokio::time::timeout(Duration::from_secs(1), waiting).await.expect("it is free");
    drop(waited);
    assert!(tokio::time::timeout(Duration::ZERO, claims.claim(Lane(0), &both)).await.is_ok(), "nothing is left");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_to_two_pods_is_not_passed_for_ever_by_deliveries_to_one() {
    let claims = Claims::default();
    let [both, first, second, other] = [&["cart-0", "cart-1"][..], &["cart-0"], &["cart-1"], &["cart-2"]].map(staged);
    let held = claims.claim(Lane(0), &first).await;
    let mut waiting = std::pin::pin!(claims.claim(Lane(0), &both));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    // Its second Pod is free, but it was there before.
    let mut later = std::pin::pin!(claims.claim(Lane(0), &second));
    assert!(futures::poll!(later.as_mut()).is_pending());
    assert!(futures::poll!(std::pin::pin!(claims.claim(Lane(0), &other))).is_ready(), "no other wants it");
    assert!(futures::poll!(std::pin::pin!(claims.claim(Lane(1), &second))).is_ready(), "another plugin's");
    drop(held);
    let waited = tokio::time::timeout(Duration::from_secs(1), waiting).await.expect("both are free");
    assert!(futures::poll!(later.as_mut()).is_pending());
    drop(waited);
    drop(tokio::time::timeout(Duration::from_secs(1), later).await.expect("it is free"));
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_does_not_wait_any_more_holds_up_none() {
    let claims = Claims::default();
    let [both, first, second] = [&["cart-0", "cart-1"][..], &["cart-0"], &["cart-1"]].map(staged);
    let _held = claims.claim(Lane(0), &first).await;
    let mut ended = Box::pin(claims.claim(Lane(0), &both));
    assert!(futures::poll!(ended.as_mut()).is_pending());
    let mut waiting = std::pin::pin!(claims.claim(Lane(0), &second));
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    drop(ended);
    drop(tokio::time::timeout(Duration::from_secs(1), waiting).await.expect("it is free"));
}
