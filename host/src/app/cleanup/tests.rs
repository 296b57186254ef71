//! Claims about the removal of finalizers, beside an API server of plugin objects and one of Pods.

mod found;
mod gone;
mod grants;
mod lists;
mod released;
mod standby;

use std::{
    convert::Infallible,
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::client::Body;
use podium_engine::ports::{Deliver, Expectation, Sent, Shown};
use podium_life::Event;
use podium_pods::pod::{CachedPod, Observation, PodEvent, PodView, Staleness};
use podium_vocabulary::{Revision, WriteReport};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    super::{
        life::{
            Rules,
            tests::{driver_on, load},
        },
        objects::Follower,
    },
    *,
};
use crate::config::Policy;

const CLEANUP: &str = "system:serviceaccount:podium:podium-cleanup";
const HOLD: &str = "shop.example/hold";
const HELD: &str = "podium.dev/pod-finalizers";
/// The promise: no Pod has a finalizer so long after its plugin was deleted.
const PROMISED: Duration = Duration::from_secs(30);

fn pod(namespace: &str, name: &str, revision: u64, finalizers: &[&str]) -> Arc<CachedPod> {
    let mut pod = podium_wire::Pod::default();
    let uid = format!("u-{namespace}-{name}");
    pod.header.namespace = namespace.into();
    pod.header.name = name.into();
    pod.header.uid = uid;
    pod.header.resource_version = revision.to_string();
    pod.lifecycle.finalizers = finalizers.iter().map(|name| (*name).to_owned()).collect();
    Arc::new(CachedPod::new(&pod).unwrap())
}

fn id(name: &str) -> PluginId {
    PluginId { namespace: Some("shop".into()), name: name.into() }
}

/// An object without the host's finalizer.
fn object(namespace: Option<&str>, name: &str, finalizers: &[&str]) -> Value {
    let source = json!({ "configMap": { "name": "slow", "key": "a", "sha256": "0".repeat(64) } });
    let grants = json!({ "write": { "finalizers": finalizers } });
    let mut metadata = json!({
        "name": name, "uid": format!("u-{name}"), "generation": 4, "creationTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": [],
    });
    let mut spec = json!({ "source": source, "serviceAccountName": "own", "grants": grants });
    match namespace {
        Some(namespace) => metadata["namespace"] = namespace.into(),
        None => spec["serviceAccountNamespace"] = "podium".into(),
    }
    json!({ "metadata": metadata, "spec": spec })
}

fn held(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!([HELD]);
    object
}

fn deleting(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z".into();
    object
}

/// An API server of plugin objects.
#[derive(Clone, Default)]
struct Objects {
    all: Arc<Mutex<Vec<Value>>>,
    /// Names of the objects of which finalizers were changed, with the finalizers.
    patched: Arc<Mutex<Vec<(String, Value)>>>,
    /// Patches are refused.
    refusing: Arc<Mutex<bool>>,
    /// Another field manager owns the host's finalizers too.
    foreign: Arc<Mutex<bool>>,
    /// The status code of lists whose path has this text.
    failing: Arc<Mutex<Option<(&'static str, u16)>>>,
    /// The metadata of every namespace; `None` if the host may not see it.
    namespace: Arc<Mutex<Option<Value>>>,
    /// The namespaces that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Objects {
    fn put(&self, object: Value) {
        let mut all = self.all.lock();
        all.retain(|other| other["metadata"]["name"] != object["metadata"]["name"]);
        all.push(object);
    }

    fn has(&self, name: &str) -> bool {
        self.all.lock().iter().any(|object| object["metadata"]["name"] == name)
    }

    fn patched(&self) -> Vec<(String, Value)> {
        self.patched.lock().clone()
    }

    /// Returns the objects of a kind by their names.
    fn of_path(&self, path: &str) -> BTreeMap<String, Value> {
        let is_cluster = path.contains("/clusterreconcileplugins");
        let all = self.all.lock();
        let of_kind = all.iter().filter(|object| object["metadata"]["namespace"].is_null() == is_cluster);
        of_kind.map(|object| (object["metadata"]["name"].to_string(), object.clone())).collect()
    }

    /// Applies an apply patch, or a JSON patch of tests and removals.
    fn patch(&self, path: &str, patch: &Value) -> u16 {
        let name = path.rsplit('/').next().unwrap();
        let mut all = self.all.lock();
        let at = all.iter().position(|object| object["metadata"]["name"] == name).unwrap();
        let mut changed = all[at].clone();
        let refusal = match patch.as_array() {
            Some(operations) => {
                let done = operations.iter().all(|operation| {
                    let path = operation["path"].as_str().unwrap();
                    let (parent, index) = path.rsplit_once('/').unwrap();
                    match operation["op"].as_str() {
                        Some("test") => changed.pointer(path) == Some(&operation["value"]),
                        Some("remove") => {
                            let list = changed.pointer_mut(parent).unwrap().as_array_mut().unwrap();
                            list.remove(index.parse().unwrap());
                            true
                        }
                        _ => false,
                    }
                });
                (!done).then_some(422)
            }
            None => {
                let metadata = &patch["metadata"];
                // An apply removes only fields that no other manager owns.
                if metadata["finalizers"] != json!([]) || !*self.foreign.lock() {
                    changed["metadata"]["finalizers"] = metadata["finalizers"].clone();
                }
                (metadata["uid"] != changed["metadata"]["uid"]).then_some(409)
            }
        };
        let refusal = refusal.or(self.refusing.lock().then_some(403));
        let finalizers = changed["metadata"]["finalizers"].clone();
        self.patched.lock().push((name.to_owned(), finalizers.clone()));
        if let Some(code) = refusal {
            return code;
        }
        all[at] = changed;
        if all[at]["metadata"]["deletionTimestamp"].is_string() && finalizers == json!([]) {
            all.remove(at);
        }
        200
    }

    async fn answer(self, request: Request<Body>) -> Response<UnsyncBoxBody<Bytes, Infallible>> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        if parts.method == Method::PATCH {
            let patch = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
            let response = Response::builder().status(self.patch(&path, &patch));
            return response.body(Full::new(Bytes::from("{}")).boxed_unsync()).unwrap();
        }
        if let Some(name) = path.strip_prefix("/api/v1/namespaces/").filter(|name| !name.contains('/')) {
            self.asked.lock().push(name.to_owned());
            if name.starts_with("hangs") {
                std::future::pending::<()>().await;
            }
            let metadata = self.namespace.lock().clone();
            let body = Bytes::from(json!({ "metadata": metadata }).to_string());
            let response = Response::builder().status(if metadata.is_some() { 200 } else { 403 });
            return response.body(Full::new(body).boxed_unsync()).unwrap();
        }
        if !parts.uri.query().is_some_and(|query| query.contains("watch=1")) {
            if let Some((_, code)) = self.failing.lock().filter(|(of, _)| path.ends_with(of)) {
                return Response::builder().status(code).body(Full::new(Bytes::new()).boxed_unsync()).unwrap();
            }
            let items: Vec<_> = self.of_path(&path).into_values().collect();
            let list = json!({ "metadata": { "resourceVersion": "1" }, "items": items });
            return Response::new(Full::new(Bytes::from(list.to_string())).boxed_unsync());
        }
        let lines = stream::unfold(BTreeMap::new(), move |before| {
            let objects = self.clone();
            let path = path.clone();
            async move {
                sleep(Duration::from_millis(250)).await;
                let now = objects.of_path(&path);
                let line = |kind: &str, object: &Value| json!({ "type": kind, "object": object }).to_string() + "\n";
                let changed = now.iter().filter(|(name, object)| before.get(*name) != Some(*object));
                let gone = before.iter().filter(|(name, _)| !now.contains_key(*name));
                let lines = changed.map(|(_, object)| line("MODIFIED", object));
                let lines: String = lines.chain(gone.map(|(_, object)| line("DELETED", object))).collect();
                Some((Ok::<_, Infallible>(Frame::data(Bytes::from(lines))), now))
            }
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

/// The answer to a write to a Pod as [`CLEANUP`].
#[derive(Clone, Copy)]
enum Answer {
    Freed,
    Gone,
    Refused,
    Never,
}

/// An API server of Pods, which permits writes of [`CLEANUP`] only.
struct Pods {
    answer: fn(&PodKey) -> Answer,
    /// The accounts of the writes, with the Pods and the descriptions.
    sent: Mutex<Vec<(String, PodKey, String)>>,
    observe: mpsc::Sender<Observation>,
    revision: Arc<AtomicU64>,
}

impl Pods {
    fn count(&self, namespace: &str) -> usize {
        self.sent.lock().iter().filter(|(account, pod, _)| account == CLEANUP && &*pod.namespace == namespace).count()
    }
}

impl Deliver for Pods {
    fn deliver<'a>(
        &'a self,
        sender: &'a Sender,
        subject: &'a PodKey,
        _: &'a dyn PodView,
        staged: Staged,
        _: u64,
    ) -> BoxFuture<'a, Sent> {
        let description = staged.writes[0].get().action.describe();
        let account = sender.impersonate.clone().unwrap_or_default();
        let mut all = self.sent.lock();
        all.push((account.clone(), subject.clone(), description.clone()));
        let mut sent = Sent::default();
        let mut result = WriteResult::Forbidden("no right".to_owned());
        if account == CLEANUP {
            match (self.answer)(subject) {
                Answer::Freed => {
                    let revision = self.revision.fetch_add(1, Relaxed) + 1;
                    let freed = pod(&subject.namespace, &subject.name, revision, &["bank.example/other"]);
                    let shown = Shown::Revision(Revision(revision));
                    sent.expected.push(Expectation { key: subject.clone(), shown });
                    let events = Observation::Events(vec![PodEvent::applied(freed)]);
                    let observe = self.observe.clone();
                    tokio::spawn(async move { observe.send(events).await });
                    result = WriteResult::Applied;
                }
                Answer::Gone => result = WriteResult::Gone,
                Answer::Refused => {}
                Answer::Never => return Box::pin(std::future::pending()),
            }
        }
        sent.reports.push(WriteReport { id: 0, description, result });
        Box::pin(std::future::ready(sent))
    }

    fn held(&self, _: &Sender) -> Option<Duration> {
        None
    }
}

/// A cleanup beside the API servers.
struct Rig {
    objects: Objects,
    pods: Arc<Pods>,
    removals: Removals,
    releases: Releases,
    /// RBAC refuses plugins to change Pods.
    forbidden: Arc<Mutex<bool>>,
    driver: Arc<Driver>,
    observe: mpsc::Sender<Observation>,
    /// The namespace with Pods that cannot be decoded.
    undecoded: Arc<Mutex<Option<&'static str>>>,
    /// How often it was asked whether there are some.
    decoding: Arc<AtomicU64>,
    /// The revision of the latest event.
    revision: Arc<AtomicU64>,
}

impl Rig {
    async fn started(objects: Vec<Value>, answer: fn(&PodKey) -> Answer) -> Self {
        Self::with(objects, answer, Some(CLEANUP), Rules::default(), Vec::new()).await
    }

    async fn with(
        objects: Vec<Value>,
        answer: fn(&PodKey) -> Answer,
        account: Option<&str>,
        rules: Rules,
        files: Vec<PluginSpec>,
    ) -> Self {
        Self::on(None, objects, answer, account, rules, files).await
    }

    async fn on(
        state: Option<&Path>,
        objects: Vec<Value>,
        answer: fn(&PodKey) -> Answer,
        account: Option<&str>,
        rules: Rules,
        files: Vec<PluginSpec>,
    ) -> Self {
        let (driver, observe) = driver_on(rules, state).await;
        let served = Objects { all: Arc::new(Mutex::new(objects)), ..Objects::default() };
        let answering = served.clone();
        let service = tower::service_fn(move |request| {
            let answering = answering.clone();
            async move { Ok::<_, Infallible>(answering.answer(request).await) }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let (follower, _started) = Follower::new(driver.clone(), &api, None, &files, 1);
        let revision = Arc::new(AtomicU64::new(5));
        let pods =
            Arc::new(Pods { answer, sent: Mutex::default(), observe: observe.clone(), revision: revision.clone() });
        let of_driver = &driver.dispatch;
        let dispatch = Arc::new(Dispatch {
            queue: of_driver.queue.clone(),
            registry: of_driver.registry.clone(),
            expectations: of_driver.expectations.clone(),
            reader: of_driver.reader.clone(),
            deliver: pods.clone(),
            live: of_driver.live.clone(),
            tasks: of_driver.tasks.clone(),
            clock: of_driver.clock.clone(),
            seed: 1,
            traces: None,
        });
        let removals = Removals::default();
        let undecoded = Arc::<Mutex<Option<&str>>>::default();
        let releases = Releases::default();
        let forbidden = Arc::<Mutex<bool>>::default();
        let of_decoding = undecoded.clone();
        let decoding = Arc::<AtomicU64>::default();
        let asked = decoding.clone();
        let flag = forbidden.clone();
        let cleanup = Cleanup {
            api,
            known: follower.known(),
            driver: driver.clone(),
            dispatch,
            account: account.map(str::to_owned),
            undecoded: Box::new(move |namespace| {
                asked.fetch_add(1, Relaxed);
                of_decoding.lock().is_some_and(|of| namespace.is_none_or(|namespace| namespace == of))
            }),
            turn: Semaphore::new(1),
            removals: removals.clone(),
            holding: Holding::default(),
            releases: releases.clone(),
            forbidden: Box::new(move || {
                let of = flag.lock().then(|| (manager_name(&id("a")), BTreeSet::from(["shop".to_owned()])));
                of.into_iter().collect()
            }),
        };
        tokio::spawn(follower.run());
        tokio::spawn(cleanup.run());
        observe.send(Observation::Live).await.unwrap();
        Self { objects: served, pods, removals, releases, forbidden, driver, observe, undecoded, decoding, revision }
    }

    /// Adds Pods with a finalizer of others and this one.
    async fn hold(&self, namespace: &str, count: usize, finalizer: &str) {
        self.hold_all(namespace, count, &["bank.example/other", finalizer]).await;
    }

    async fn hold_all(&self, namespace: &str, count: usize, finalizers: &[&str]) {
        let held = |index: usize| {
            let revision = self.revision.fetch_add(1, Relaxed) + 1;
            PodEvent::applied(pod(namespace, &format!("cart-{index}"), revision, finalizers))
        };
        self.observe.send(Observation::Events((0..count).map(held).collect())).await.unwrap();
    }

    fn removal(&self, name: &str) -> Option<Removal> {
        self.removals.lock().iter().find(|(id, _)| &*id.name == name).map(|(_, removal)| removal.clone())
    }

    /// Waits until an object is gone, and returns how long that took.
    async fn gone(&self, name: &str) -> Duration {
        let began = Instant::now();
        while self.objects.has(name) {
            sleep(INTERVAL).await;
            assert!(began.elapsed() < Duration::from_secs(3_600), "{name} is there: {:?}", self.removals.lock());
        }
        began.elapsed()
    }
}

fn frees(_: &PodKey) -> Answer {
    Answer::Freed
}

fn refuses(_: &PodKey) -> Answer {
    Answer::Refused
}

/// The object `a` of `shop`, which is being deleted.
fn shop() -> Vec<Value> {
    vec![deleting(held(object(Some("shop"), "a", &[HOLD])))]
}

#[tokio::test(start_paused = true)]
async fn another_account_removes_finalizers_if_the_plugins_own_is_refused() {
    let rig = Rig::started(shop(), frees).await;
    rig.hold("shop", 2, HOLD).await;
    sleep(Duration::from_secs(6)).await;
    let sent = rig.pods.sent.lock().clone();
    assert!(sent.len() >= 3 && sent[0].0 == "system:serviceaccount:shop:own", "{sent:?}");
    assert_eq!(rig.pods.count("shop"), 2, "{sent:?}");
    assert!(sent.iter().all(|(.., write)| write.contains(HOLD)), "{sent:?}");
    assert_eq!(rig.removal("a").unwrap().pods, 0);
    assert!(rig.objects.patched().is_empty(), "a write of a run may still arrive");
    sleep(LATE_WRITES + SCAN).await;
    assert_eq!(rig.objects.patched(), [("a".to_owned(), json!([]))]);
}

#[tokio::test(start_paused = true)]
async fn an_object_stays_while_a_pod_has_a_finalizer_of_its_plugin() {
    let rig = Rig::with(shop(), frees, None, Rules::default(), Vec::new()).await;
    rig.hold("shop", 2, HOLD).await;
    sleep(Duration::from_secs(600)).await;
    assert!(rig.objects.patched().is_empty());
    let refused = Removal { pods: 2, refused: Some("no right".to_owned()) };
    assert_eq!(rig.removal("a"), Some(refused));
    let sent = rig.pods.sent.lock().len();
    assert!((5..=15).contains(&sent), "with back-off: {sent}");
}

/// Tenants with this number of Pods each that cannot be freed delay another tenant's removal by no more than promised.
async fn promised(tenants: usize, plugins: usize, pods: usize, answer: fn(&PodKey) -> Answer) -> Rig {
    let of_tenant = |tenant: usize| {
        let plugin = move |plugin: usize| {
            let name = format!("p-{tenant}-{plugin}");
            deleting(held(object(Some(&format!("aaa-{tenant}")), &name, &[&format!("a{plugin}.example/hold")])))
        };
        (0..plugins).map(plugin)
    };
    let mut objects: Vec<_> = (0..tenants).flat_map(of_tenant).collect();
    objects.push(deleting(held(object(Some("zzz"), "victim", &[HOLD]))));
    let rig = Rig::started(objects, answer).await;
    let all: Vec<_> = (0..plugins).map(|plugin| format!("a{plugin}.example/hold")).collect();
    let all: Vec<&str> = all.iter().map(|name| &**name).collect();
    for tenant in 0..tenants {
        rig.hold_all(&format!("aaa-{tenant}"), pods, &all).await;
    }
    rig.hold("zzz", 150, HOLD).await;
    sleep(PROMISED).await;
    assert_eq!(rig.pods.count("zzz"), 150, "{:?}", rig.removal("victim"));
    rig.gone("victim").await;
    rig
}

fn refuses_but_zzz(pod: &PodKey) -> Answer {
    if &*pod.namespace == "zzz" { Answer::Freed } else { Answer::Refused }
}

#[tokio::test(start_paused = true)]
async fn tenants_whose_removal_is_refused_delay_no_other_tenant() {
    for (tenants, pods) in [(1, 150), (40, 20)] {
        let rig = promised(tenants, 1, pods, refuses_but_zzz).await;
        let before = rig.pods.sent.lock().len();
        sleep(Duration::from_secs(120)).await;
        let sent = rig.pods.sent.lock().len() - before;
        // Both accounts.
        assert!((2 * tenants..=8 * tenants).contains(&sent), "with back-off: {sent} of {tenants} tenants");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenants_many_plugins_do_not_add_up_against_other_tenants() {
    promised(12, 25, 8, refuses_but_zzz).await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_gets_no_answers_delays_no_other_tenant() {
    fn never(pod: &PodKey) -> Answer {
        if &*pod.namespace == "zzz" { Answer::Freed } else { Answer::Never }
    }
    promised(20, 1, 20, never).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_refused_delay_none_of_the_same_plugin_for_long() {
    // The first ones in order.
    fn most(pod: &PodKey) -> Answer {
        if ["cart-0", "cart-1", "cart-10"].contains(&&*pod.name) { Answer::Refused } else { Answer::Freed }
    }
    let rig = Rig::started(shop(), most).await;
    rig.hold("shop", 100, HOLD).await;
    sleep(PROMISED).await;
    let removal = rig.removal("a").unwrap();
    assert_eq!(removal, Removal { pods: 3, refused: Some("no right".to_owned()) });
}

#[tokio::test(start_paused = true)]
async fn the_hosts_finalizer_is_put_back_when_it_was_taken_off() {
    let rig = Rig::started(vec![held(object(Some("shop"), "a", &[HOLD]))], frees).await;
    rig.hold("shop", 2, HOLD).await;
    sleep(Duration::from_secs(10)).await;
    assert!(rig.objects.patched().is_empty(), "it is there");
    // kubectl replace with the manifest as its author has it.
    rig.objects.put(object(Some("shop"), "a", &[HOLD]));
    sleep(Duration::from_secs(3)).await;
    assert_eq!(rig.objects.patched(), [("a".to_owned(), json!([HELD]))]);
    sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.objects.patched().len(), 1, "it is there");
    // Also of one that is refused or suspended since.
    for (field, value) in [("watch", json!(7)), ("suspend", json!(true))] {
        let mut changed = object(Some("shop"), "a", &[HOLD]);
        changed["spec"][field] = value;
        rig.objects.patched.lock().clear();
        rig.objects.put(changed);
        sleep(Duration::from_secs(3)).await;
        assert_eq!(rig.objects.patched(), [("a".to_owned(), json!([HELD]))], "{field}");
    }
    rig.objects.put(deleting(held(object(Some("shop"), "a", &[HOLD]))));
    rig.gone("a").await;
    assert_eq!(rig.pods.count("shop"), 2, "the finalizers of its pods are removed before");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_another_field_manager_owns_too_is_released() {
    let rig = Rig::started(shop(), frees).await;
    *rig.objects.foreign.lock() = true;
    rig.hold("shop", 2, HOLD).await;
    assert!(rig.gone("a").await < Duration::from_secs(30));
    // Among others, of which one comes while the request is under way.
    let others = |names: &[&str]| {
        let mut object = deleting(held(object(Some("shop"), "b", &[HOLD])));
        object["metadata"]["finalizers"] = json!(names);
        object
    };
    let rig = Rig::started(vec![others(&["one.example/a", HELD, "two.example/b"])], frees).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.objects.all.lock()[0]["metadata"]["finalizers"], json!(["one.example/a", "two.example/b"]));
    let request = release(&id("b"), "u-b", 1).unwrap();
    let patch = serde_json::from_slice(request.body()).unwrap();
    for (names, uid, code) in [
        (["one.example/a", "two.example/b"], "u-b", 422),
        ([HELD, "one.example/a"], "u-b", 422),
        (["one.example/a", HELD], "u-again", 422),
        (["one.example/a", HELD], "u-b", 200),
    ] {
        let mut object = others(&names);
        object["metadata"]["uid"] = uid.into();
        rig.objects.put(object);
        assert_eq!(rig.objects.patch(request.uri().path(), &patch), code, "{names:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_cannot_be_put_back_is_tried_with_back_off() {
    let rig = Rig::started(vec![held(object(Some("shop"), "a", &[HOLD]))], frees).await;
    sleep(Duration::from_secs(1)).await;
    *rig.objects.refusing.lock() = true;
    rig.objects.put(object(Some("shop"), "a", &[HOLD]));
    sleep(Duration::from_secs(600)).await;
    let tried = rig.objects.patched().len();
    assert!((5..=12).contains(&tried), "{tried}");
    *rig.objects.refusing.lock() = false;
    sleep(Duration::from_secs(301)).await;
    assert_eq!(rig.objects.all.lock()[0]["metadata"]["finalizers"], json!([HELD]));
}
