//! Events that cannot be sent at once, against a fake of the wire and under paused time.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU16, AtomicU64, Ordering::SeqCst},
    },
};

use ::http::Response;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use parking_lot::Mutex;
use podium_vocabulary::{EventType, Grants, Scope, WriteGrants, authz::authorize};
use serde_json::{Value, json};
use tower::service_fn;

use crate::{
    plan::tests::{View, authorised, cached, key, label},
    *,
};

#[derive(Clone)]
struct Wire {
    /// The status of an Event's creation, and of a patch of a Pod.
    create: Arc<AtomicU16>,
    patch: Arc<AtomicU16>,
    /// The response to Events in the namespace `odd`, and its delay.
    odd: Arc<Mutex<(u16, Value, Duration)>>,
    /// Namespace and name.
    made: Arc<Mutex<BTreeSet<(String, String)>>>,
    requests: Arc<Mutex<u32>>,
    began: Instant,
    /// The senders of the loaded plugins.
    loaded: Arc<Mutex<Vec<Sender>>>,
    /// The difference between the time of day and the time since the start.
    set_millis: Arc<AtomicU64>,
}

impl Wire {
    fn new() -> (Self, Writeback) {
        let create = Arc::new(AtomicU16::new(201));
        let patch = Arc::new(AtomicU16::new(200));
        let odd = Arc::new(Mutex::new((201, Value::Null, Duration::ZERO)));
        let (made, requests, set_millis, loaded) = <_>::default();
        let wire = Self { create, patch, odd, made, requests, began: Instant::now(), loaded, set_millis };
        wire.load("podium/shop/a", None);
        let server = wire.clone();
        let service = service_fn(move |request: ::http::Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap_or_default();
                let code = match parts.method.as_str() {
                    "POST" => server.create.load(SeqCst),
                    "PATCH" => server.patch.load(SeqCst),
                    _ => 404,
                };
                if parts.method == "POST" && parts.uri.path().contains("/namespaces/odd/") {
                    let (code, answer, takes) = server.odd.lock().clone();
                    tokio::time::sleep(takes).await;
                    if code != 201 {
                        let answer = Full::new(Bytes::from(answer.to_string()));
                        return Response::builder().status(code).body(answer);
                    }
                }
                if parts.method == "POST" {
                    *server.requests.lock() += 1;
                    if code == 201 {
                        let text = |key: &str| body["metadata"][key].as_str().unwrap().to_owned();
                        server.made.lock().insert((text("namespace"), text("name")));
                    }
                }
                let pod = json!({ "namespace": "shop", "name": "cart-0", "uid": "u1", "resourceVersion": "6" });
                Response::builder().status(code).body(Full::new(Bytes::from(json!({ "metadata": pod }).to_string())))
            }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5)).with_backpressure();
        (wire, Writeback::new(&api, Prune::NOTHING))
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap() + self.set_millis.load(SeqCst)
    }

    /// Loads a plugin, replacing one of that name.
    fn load(&self, manager: &str, account: Option<&str>) {
        self.unload(manager);
        self.loaded.lock().push(Sender { manager: manager.into(), impersonate: account.map(Into::into) });
    }

    fn unload(&self, manager: &str) {
        self.loaded.lock().retain(|sender| sender.manager != manager);
    }

    /// Queues an Event of the plugin.
    async fn delay(&self, writeback: &Writeback, manager: &str, namespace: &str, pod: usize) -> Vec<EventResult> {
        let target = PodKey::new(namespace, &format!("cart-{pod}"), &format!("{namespace}-{pod}"));
        let loaded = self.loaded.lock().iter().find(|sender| sender.manager == manager).cloned();
        let sender = loaded.unwrap_or(Sender { manager: manager.into(), impersonate: None });
        let mut sent = Sent::default();
        let event = event(&target);
        writeback.events.send(&writeback.api, &sender, &[event.get()], false, self.now(), &mut sent).await;
        sent.events
    }

    /// Sends waiting Events for this many seconds. Returns the results of a plugin's Events and their seconds.
    async fn sent(&self, writeback: &Writeback, of: &str, seconds: u64) -> Vec<(EventResult, u64)> {
        let results = Mutex::new(Vec::new());
        let began = Instant::now();
        let sending = writeback.send_waiting_events(
            || self.loaded.lock().clone(),
            |manager, result| {
                if manager == of {
                    results.lock().push((result, began.elapsed().as_secs()));
                }
            },
        );
        let _ = tokio::time::timeout(Duration::from_secs(seconds), sending).await;
        results.into_inner()
    }

    fn made(&self) -> usize {
        self.made.lock().len()
    }

    /// Emits one Event about one of many Pods.
    async fn emit(&self, writeback: &Writeback, pod: usize) -> Vec<EventResult> {
        let target = PodKey::new("shop", &format!("cart-{pod}"), &format!("u{pod}"));
        let staged = Staged { events: vec![event(&target)], ..Staged::default() };
        writeback.deliver(&sender(), &target, &View(Vec::new()), staged, self.now()).await.events
    }

    /// Sends waiting Events for this many seconds. Returns their results.
    async fn wait(&self, writeback: &Writeback, seconds: u64) -> Vec<EventResult> {
        let results = Mutex::new(Vec::new());
        let sending = writeback.send_waiting_events(
            || self.loaded.lock().clone(),
            |manager, result| {
                assert_eq!(manager, "podium/shop/a");
                results.lock().push(result);
            },
        );
        let _ = tokio::time::timeout(Duration::from_secs(seconds), sending).await;
        results.into_inner()
    }
}

fn sender() -> Sender {
    Sender { manager: "podium/shop/a".into(), impersonate: None }
}

fn event(target: &PodKey) -> Authorized<Event> {
    let grants = Grants { write: WriteGrants { events: true, ..WriteGrants::default() }, ..Grants::default() };
    let reason = "CrashLoop".into();
    let action = "Diagnose".into();
    let note = "it crashes".into();
    let event = Event { target: target.clone(), event_type: EventType::Warning, reason, action, note };
    authorize(&Scope::Cluster, &grants, event).unwrap()
}

#[tokio::test(start_paused = true)]
async fn events_beyond_the_rate_wait_and_each_is_sent() {
    let (wire, writeback) = Wire::new();
    let mut results = Vec::new();
    for pod in 0..700 {
        results.extend(wire.emit(&writeback, pod).await);
    }
    assert!(results[..500].iter().all(|result| *result == EventResult::Sent));
    assert!(results[500..].iter().all(|result| *result == EventResult::Delayed));
    assert_eq!((wire.made(), writeback.waiting_events()), (500, 200));
    assert_eq!(wire.emit(&writeback, 600).await, [], "it waits already");
    let results = wire.wait(&writeback, 50).await;
    assert!((95..=105).contains(&results.len()), "two a second: {}", results.len());
    let results = wire.wait(&writeback, 60).await.len() + results.len();
    assert_eq!((results, wire.made(), writeback.waiting_events()), (200, 700, 0));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_account_may_not_create_is_sent_once_it_may() {
    let (wire, writeback) = Wire::new();
    wire.create.store(403, SeqCst);
    for pod in 0..20 {
        assert_eq!(wire.emit(&writeback, pod).await, [EventResult::Delayed]);
    }
    assert_eq!(*wire.requests.lock(), 1, "the others wait behind it");
    assert_eq!(wire.wait(&writeback, 1_200).await, []);
    assert!(*wire.requests.lock() < 15, "{}", wire.requests.lock());
    wire.create.store(201, SeqCst);
    assert_eq!(wire.wait(&writeback, 320).await.len(), 20);
    assert_eq!(wire.made(), 20);
}

#[tokio::test(start_paused = true)]
async fn an_event_waits_if_the_api_server_fails_after_its_change() {
    let (wire, writeback) = Wire::new();
    wire.create.store(500, SeqCst);
    let staged = Staged { writes: authorised([label("a", "2")]), events: vec![event(&key())], ..Staged::default() };
    let sent = writeback.deliver(&sender(), &key(), &cached(|_| ()), staged, 0).await;
    assert_eq!((sent.reports[0].result.name(), &*sent.events), ("applied", &[EventResult::Delayed][..]));
    wire.create.store(201, SeqCst);
    assert_eq!(wire.wait(&writeback, 10).await, [EventResult::Sent]);
    assert_eq!(wire.made(), 1);
}

#[tokio::test(start_paused = true)]
async fn events_that_do_not_fit_or_are_refused_are_counted_as_dropped() {
    let (wire, writeback) = Wire::new();
    let mut results = Vec::new();
    for pod in 0..1_600 {
        results.extend(wire.emit(&writeback, pod).await);
    }
    let count = |result| results.iter().filter(|of| **of == result).count();
    let counts = [EventResult::Sent, EventResult::Delayed, EventResult::Dropped].map(count);
    assert_eq!(counts, [500, 1_000, 100]);
    let (wire, writeback) = Wire::new();
    wire.create.store(422, SeqCst);
    assert_eq!(wire.emit(&writeback, 0).await, [EventResult::Dropped]);
    // An Event that has waited for an hour has no readers.
    wire.create.store(403, SeqCst);
    assert_eq!(wire.emit(&writeback, 1).await, [EventResult::Delayed]);
    assert_eq!(wire.wait(&writeback, 4_000).await, [EventResult::Dropped]);
}

#[tokio::test(start_paused = true)]
async fn events_behind_slow_webhooks_do_not_delay_those_of_others() {
    let (wire, writeback) = Wire::new();
    wire.odd.lock().2 = Duration::from_secs(7);
    for plugin in 0..9 {
        let manager = format!("podium/slow/{plugin}");
        wire.load(&manager, None);
        for pod in 0..1_000 {
            wire.delay(&writeback, &manager, "odd", pod).await;
        }
    }
    wire.load("podium/z/b", None);
    wire.delay(&writeback, "podium/z/b", "shop", 0).await;
    let results = wire.sent(&writeback, "podium/z/b", 600).await;
    assert!(matches!(results[..], [(EventResult::Sent, ..60)]), "result and second: {results:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_namespace_does_not_delay_a_plugins_other_events() {
    let (wire, writeback) = Wire::new();
    wire.odd.lock().2 = Duration::from_secs(7);
    wire.load("podium/all", None);
    for pod in 0..900 {
        wire.delay(&writeback, "podium/all", "odd", pod).await;
    }
    wire.delay(&writeback, "podium/all", "shop", 0).await;
    wire.sent(&writeback, "podium/all", 60).await;
    assert!(wire.made.lock().iter().any(|(namespace, _)| namespace == "shop"));
}

#[tokio::test(start_paused = true)]
async fn a_plugin_gets_its_share_of_a_full_event_queue() {
    let (wire, writeback) = Wire::new();
    wire.create.store(503, SeqCst);
    for plugin in 0..10 {
        let manager = format!("podium/loud/{plugin}");
        wire.load(&manager, None);
        for pod in 0..1_000 {
            let result = wire.delay(&writeback, &manager, "shop", pod).await;
            assert_eq!(result, [EventResult::Delayed]);
        }
    }
    for pod in 0..909 {
        assert_eq!(wire.delay(&writeback, "podium/z/b", "shop", pod).await, [EventResult::Delayed], "{pod}");
    }
    assert_eq!(wire.delay(&writeback, "podium/z/b", "shop", 1_000).await, [EventResult::Dropped]);
    assert_eq!(wire.delay(&writeback, "podium/loud/0", "shop", 1_000).await, [EventResult::Dropped]);
    assert_eq!(writeback.waiting_events(), 10_000);
    let dropped = wire.sent(&writeback, "podium/loud/0", 2).await;
    assert!((90..=92).contains(&dropped.len()), "what made room for others is counted: {}", dropped.len());
}

#[tokio::test(start_paused = true)]
async fn events_of_a_held_account_are_sent_after_its_hold() {
    let (wire, writeback) = Wire::new();
    wire.load("podium/a/b", Some("system:serviceaccount:a:b"));
    wire.load("podium/z/b", None);
    let body = json!({ "kind": "Status", "code": 429, "details": { "retryAfterSeconds": 20 } });
    *wire.odd.lock() = (429, body, Duration::ZERO);
    for pod in 0..10 {
        wire.delay(&writeback, "podium/a/b", "odd", pod).await;
    }
    wire.delay(&writeback, "podium/z/b", "shop", 0).await;
    assert_eq!(wire.sent(&writeback, "podium/z/b", 10).await, [(EventResult::Sent, 0)]);
    wire.odd.lock().0 = 201;
    assert_eq!(wire.sent(&writeback, "podium/a/b", 20).await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_one_namespace_holds_up_no_other_events() {
    let (wire, writeback) = Wire::new();
    wire.odd.lock().0 = 403;
    for pod in 0..1_000 {
        wire.delay(&writeback, "podium/shop/a", "odd", pod).await;
    }
    assert_eq!(wire.sent(&writeback, "podium/shop/a", 1_300).await, []);
    assert_eq!(wire.emit(&writeback, 0).await, [EventResult::Sent], "although no other could wait");
    wire.odd.lock().0 = 201;
    assert_eq!(wire.sent(&writeback, "podium/shop/a", 900).await.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn an_event_in_a_namespace_that_is_being_deleted_is_dropped() {
    let (wire, writeback) = Wire::new();
    let causes = json!([{ "reason": "NamespaceTerminating", "message": "m", "field": "metadata.namespace" }]);
    let body = json!({ "kind": "Status", "code": 403, "reason": "Forbidden", "details": { "causes": causes } });
    *wire.odd.lock() = (403, body, Duration::ZERO);
    wire.delay(&writeback, "podium/shop/a", "odd", 0).await;
    assert_eq!(wire.sent(&writeback, "podium/shop/a", 10).await, [(EventResult::Dropped, 0)]);
}

const DAY: u64 = 86_400_000;

#[tokio::test(start_paused = true)]
async fn waiting_events_keep_their_rate_after_the_clock_was_set_back() {
    let (wire, writeback) = Wire::new();
    wire.set_millis.store(10 * DAY, SeqCst);
    for pod in 0..510 {
        wire.emit(&writeback, pod).await;
    }
    wire.create.store(503, SeqCst);
    assert_eq!(wire.wait(&writeback, 2).await, []);
    wire.create.store(201, SeqCst);
    wire.set_millis.store(0, SeqCst);
    assert_eq!(wire.wait(&writeback, 60).await, [EventResult::Sent; 10]);
}

#[tokio::test(start_paused = true)]
async fn events_that_wait_are_sent_after_the_clock_was_set_forward() {
    let (wire, writeback) = Wire::new();
    wire.delay(&writeback, "podium/shop/a", "shop", 0).await;
    wire.set_millis.store(20_000 * DAY, SeqCst);
    assert_eq!(wire.wait(&writeback, 60).await, [EventResult::Sent]);
}

#[tokio::test(start_paused = true)]
async fn waiting_events_are_dropped_with_their_plugin_or_account() {
    let (wire, writeback) = Wire::new();
    for pod in 0..600 {
        wire.emit(&writeback, pod).await;
    }
    wire.unload("podium/shop/a");
    assert_eq!(wire.wait(&writeback, 60).await, [EventResult::Dropped; 100]);
    // Events of a run that was under way when its plugin was unloaded.
    wire.delay(&writeback, "podium/shop/a", "shop", 600).await;
    assert_eq!(wire.wait(&writeback, 60).await, [EventResult::Dropped]);
    wire.load("podium/shop/a", None);
    wire.delay(&writeback, "podium/shop/a", "shop", 601).await;
    wire.load("podium/shop/a", Some("system:serviceaccount:shop:a"));
    assert_eq!(wire.wait(&writeback, 60).await, [EventResult::Dropped]);
    assert_eq!((wire.made(), writeback.waiting_events()), (500, 0));
}
