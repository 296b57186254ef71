//! When a status is written, and its failures over new objects, components and restarts.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use parking_lot::Mutex;
use podium_engine::{
    fixtures::{Warnings, log_to},
    ports::{self, Failure, FailureKind, Outcome, Reconcile, RunReport, Staged, Usage, World},
};
use podium_life::Event;
use podium_pods::pod::{CachedPod, Observation, PodEvent};
use podium_vocabulary::Shards;
use serde_json::json;
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use super::{
    super::{Phase, life::tests, objects::Follower, operator::tests::observed},
    *,
};

/// An API server with one object, which stores the status that is applied.
#[derive(Clone, Default)]
struct Server {
    object: Arc<Mutex<Value>>,
    applied: Arc<Mutex<Vec<Value>>>,
    events: Arc<Mutex<Vec<Value>>>,
    refuses_events: Arc<AtomicBool>,
}

impl Server {
    async fn answer(self, request: Request<Body>) -> Response<Full<Bytes>> {
        let (parts, body) = request.into_parts();
        let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch=1"));
        let body = async || -> Value { serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap() };
        if parts.uri.path().contains("/events") {
            let code = if self.refuses_events.load(SeqCst) { 403 } else { 201 };
            let event = body().await;
            self.events.lock().push(event);
            return Response::builder().status(code).body(Full::new("{}".into())).unwrap();
        }
        let body = match parts.method {
            Method::PATCH => {
                let patch = body().await;
                self.applied.lock().push(patch["status"].clone());
                self.object.lock()["status"] = patch["status"].clone();
                self.object.lock().to_string()
            }
            _ if is_watch => {
                // The head of the answer must come within 5 s.
                sleep(Duration::from_secs(4)).await;
                json!({ "type": "MODIFIED", "object": *self.object.lock() }).to_string() + "\n"
            }
            _ => json!({ "metadata": { "resourceVersion": "1" }, "items": [*self.object.lock()] }).to_string(),
        };
        Response::new(Full::new(body.into()))
    }

    /// Starts a host with an object of this source.
    async fn host(&self, source: Value) -> (Arc<Driver>, mpsc::Sender<Observation>) {
        let metadata = json!({ "name": "tidy", "namespace": "shop", "uid": "u", "generation": 4 });
        let status = self.object.lock()["status"].take();
        *self.object.lock() = json!({ "metadata": metadata, "spec": { "source": source }, "status": status });
        let answering = self.clone();
        let service = tower::service_fn(move |request| {
            let server = answering.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let (driver, observe) = tests::driver().await;
        tokio::spawn(driver.dispatch.clone().work());
        let (follower, _started) = Follower::new(driver.clone(), &api, Some("shop"), [], 1);
        let (_phase, phase) = watch::channel(Phase::Serving);
        let task = StatusTask {
            api,
            known: follower.known(),
            status: driver.status.clone(),
            observed: Arc::new(observed(driver.status.clone(), phase)),
            removals: Removals::default(),
            releases: Releases::default(),
            driver: driver.clone(),
            clock: Clock::starting_at(0),
        };
        tokio::spawn(follower.run());
        tokio::spawn(task.run());
        (driver, observe)
    }

    /// Starts a host whose plugin is this code.
    async fn running(&self, code: &Team) -> (Arc<Driver>, mpsc::Sender<Observation>) {
        let (driver, observe) = self.host(source("tidy")).await;
        install(&driver, "ab", code);
        sleep(Duration::from_secs(60)).await;
        (driver, observe)
    }

    fn reasons(&self) -> Vec<String> {
        self.events.lock().iter().map(|event| event["reason"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn status(&self) -> Value {
        self.applied.lock().last().unwrap().clone()
    }
}

fn source(name: &str) -> Value {
    json!({ "configMap": { "name": name, "key": "a", "sha256": "0".repeat(64) } })
}

/// Has the plugin's component be this code from now on.
fn install(driver: &Driver, sha256: &str, code: &Team) {
    let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
    tests::give_as(driver, &id, sha256, code.clone());
}

/// Fails with the name of a team; not if it is empty.
#[derive(Clone, Default)]
struct Team(Arc<Mutex<&'static str>>);

impl Reconcile for Team {
    fn reconcile(&self, request: ports::Request, _: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        let team = *self.0.lock();
        let message = format!("no team {team} for {}", request.key.name);
        let failure = Failure { kind: FailureKind::Terminal, message };
        let result = if team.is_empty() { Ok(Outcome::Settled) } else { Err(failure) };
        Box::pin(std::future::ready(RunReport { result, staged: Staged::default(), usage: Usage::default() }))
    }
}

/// Has the plugin run on a Pod that is new or has changed.
async fn pod(observe: &mpsc::Sender<Observation>, number: u64) {
    let mut pod = podium_wire::Pod::default();
    let name = format!("web-{number}");
    let uid = format!("uid-{number}");
    pod.header.namespace = "shop".into();
    pod.header.name = name;
    pod.header.uid = uid;
    pod.header.resource_version = (number + 6).to_string();
    let event = PodEvent::applied(Arc::new(CachedPod::new(&pod).unwrap()));
    observe.send(Observation::Events(vec![event])).await.unwrap();
}

fn condition(status: &Value, field: &str) -> String {
    status["conditions"][5][field].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_load_that_does_not_end_is_shown_once_after_a_minute() {
    let server = Server::default();
    let team = Team::default();
    let (driver, _observe) = server.running(&team).await;
    let written = |generation: i64| {
        server.object.lock()["spec"]["config"] = json!({ "is": generation });
        server.object.lock()["metadata"]["generation"] = generation.into();
    };
    let before = server.status();
    let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
    // Its compilation never ends.
    driver.components.given.lock().insert(id, None);
    written(5);
    sleep(Duration::from_secs(55)).await;
    assert_eq!(server.status(), before, "most loads end before");
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(server.applied.lock().len(), 2, "{:#?}", server.applied.lock());
    let ready = server.status()["conditions"][4].clone();
    assert_eq!((&ready["reason"], &ready["observedGeneration"]), (&json!("Loading"), &json!(5)));
    assert!(ready["message"].as_str().unwrap().ends_with("the version of generation 4 goes on"), "{ready}");
    assert_eq!((&server.status()["active"], &server.status()["observedGeneration"]), (&before["active"], &json!(4)));
    server.object.lock()["spec"]["suspend"] = true.into();
    written(6);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(server.status()["conditions"][4]["reason"], "Suspended");
    assert_eq!(server.reasons(), ["Loaded"], "a load under way is no Event");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_failing_pods_with_two_messages_are_two_writes() {
    let server = Server::default();
    let team = Team::default();
    let (_driver, observe) = server.running(&team).await;
    let before = server.applied.lock().len();
    assert_eq!((condition(&server.status(), "status"), before), ("True".to_owned(), 1));
    for number in 0..1_000 {
        *team.0.lock() = if number < 300 || number % 2 == 0 { "red" } else { "blue" };
        pod(&observe, number).await;
        sleep(Duration::from_millis(600)).await;
    }
    let applied = server.applied.lock()[before..].to_vec();
    assert_eq!(applied.len(), 2, "{applied:#?}");
    let failures = &applied[1]["failures"];
    assert_eq!((&failures[0]["message"], &failures[0]["pod"]), (&json!("no team red for *"), &json!("shop/web-0")));
    assert_eq!(
        (&failures[1]["message"], &failures[1]["since"]),
        (&json!("no team blue for *"), &json!("1970-01-01T00:04:00Z"))
    );
    assert_eq!(
        (condition(&applied[0], "status"), condition(&applied[0], "reason")),
        ("False".into(), "RunsFail".into())
    );
    sleep(Duration::from_secs(620)).await;
    assert_eq!(
        (condition(&server.status(), "status"), &server.status()["failures"]),
        ("True".to_owned(), &Value::Null)
    );
    assert_eq!(server.reasons(), ["Loaded", "Failing", "Recovered"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_object_or_component_has_none_of_the_failures_before() {
    let server = Server::default();
    let team = Team::default();
    let (driver, observe) = server.running(&team).await;
    *team.0.lock() = "red";
    pod(&observe, 1).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(condition(&server.status(), "status"), "False");
    *team.0.lock() = "";

    install(&driver, "cd", &team);
    server.object.lock()["spec"]["config"] = json!({ "is": 2 });
    server.object.lock()["metadata"]["generation"] = 5.into();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(
        (&server.status()["active"]["digest"], &server.status()["failures"]),
        (&json!("sha256:cd"), &Value::Null)
    );
    assert_eq!(condition(&server.status(), "status"), "True");
    assert_eq!(server.reasons(), ["Loaded", "Failing", "Swapped"]);

    *team.0.lock() = "red";
    pod(&observe, 2).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(condition(&server.status(), "status"), "False");
    // As quick as a deletion and a creation between two looks at it.
    *team.0.lock() = "";
    server.object.lock()["metadata"]["uid"] = "u2".into();
    server.object.lock()["status"] = Value::Null;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(
        (condition(&server.status(), "status"), &server.status()["failures"]),
        ("True".to_owned(), &Value::Null)
    );
    *team.0.lock() = "blue";
    pod(&observe, 3).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(server.status()["failures"][0]["message"], "no team blue for *");
}

#[tokio::test(start_paused = true)]
async fn failures_before_a_restart_are_marked_until_they_occur_again() {
    let since = "2026-01-01T00:00:00Z";
    let failure = json!({ "reason": "terminal", "message": "no team red for *", "pod": "shop/a", "since": since });
    for (digest, is_kept) in [("sha256:ab", true), ("sha256:cd", false)] {
        let server = Server::default();
        let team = Team::default();
        *server.object.lock() = json!({ "status": { "active": { "digest": digest }, "failures": [failure] } });
        let (_driver, observe) = server.running(&team).await;
        let mut marked = failure.clone();
        marked["beforeRestart"] = true.into();
        let expected = if is_kept { json!([marked]) } else { Value::Null };
        assert_eq!(server.status()["failures"], expected);
        *team.0.lock() = "red";
        pod(&observe, 1).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!(server.status()["failures"][0]["beforeRestart"], Value::Null);
        assert_eq!(server.status()["failures"][0] == failure, is_kept, "{}", server.status());
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_events_one_line_is_logged() {
    let warnings = Warnings::default();
    let _logged = log_to(warnings.clone());
    let server = Server::default();
    let team = Team::default();
    server.refuses_events.store(true, SeqCst);
    let (_driver, observe) = server.running(&team).await;
    let before = warnings.count();
    for number in 0..20 {
        *team.0.lock() = if number % 2 == 0 { "red" } else { "" };
        pod(&observe, number).await;
        sleep(Duration::from_secs(610)).await;
    }
    assert!(server.reasons().len() > 20, "{:?}", server.reasons());
    let failed_runs = 10;
    assert_eq!((before, warnings.count() - before), (1, failed_runs));
}

#[tokio::test(start_paused = true)]
async fn a_standby_writes_no_status_and_the_next_holder_none_again() {
    let server = Server::default();
    let team = Team::default();
    let (driver, observe) = server.host(source("tidy")).await;
    driver.feed(Event::Owned(Shards::NONE));
    install(&driver, "ab", &team);
    pod(&observe, 1).await;
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!((server.applied.lock().len(), server.reasons().len()), (0, 0));
    driver.feed(Event::Owned(Shards::ALL));
    sleep(Duration::from_secs(60)).await;
    let written = server.applied.lock().len();
    assert_eq!((&server.status()["conditions"][4]["reason"], written > 0), (&json!("Running"), true));
    // Another replica goes on, and then this one again.
    for _ in 0..3 {
        driver.feed(Event::Owned(Shards::NONE));
        sleep(Duration::from_secs(600)).await;
        driver.feed(Event::Owned(Shards::ALL));
        sleep(Duration::from_secs(600)).await;
    }
    assert_eq!(server.applied.lock().len(), written, "{:#?}", server.applied.lock());
}

#[tokio::test(start_paused = true)]
async fn a_status_that_another_replica_wrote_meanwhile_is_the_one_before() {
    let server = Server::default();
    let team = Team::default();
    let (driver, _observe) = server.running(&team).await;
    let before = server.applied.lock().len();
    assert_eq!(server.reasons(), ["Loaded"]);
    // The other replica ran the next version, and its Event was sent.
    driver.feed(Event::Owned(Shards::NONE));
    install(&driver, "cd", &team);
    let mut status = server.status();
    status["active"]["digest"] = "sha256:cd".into();
    status["active"]["generation"] = 5.into();
    status["observedGeneration"] = 5.into();
    {
        let mut object = server.object.lock();
        object["spec"]["config"] = json!({ "is": 5 });
        object["metadata"]["generation"] = 5.into();
        object["status"] = status;
    }
    sleep(Duration::from_secs(20)).await;
    driver.feed(Event::Owned(Shards::ALL));
    sleep(Duration::from_secs(7)).await;
    assert!(server.applied.lock().len() <= before + 1, "{:#?}", server.applied.lock());
    assert_eq!((&server.status()["active"]["digest"], server.reasons().len()), (&json!("sha256:cd"), 1));

    // The other replica wrote a status that this one does not want, and this one wrote it before.
    let written = server.applied.lock().len();
    driver.feed(Event::Owned(Shards::NONE));
    server.object.lock()["status"]["conditions"][5]["message"] = "another replica wrote it".into();
    sleep(Duration::from_secs(20)).await;
    driver.feed(Event::Owned(Shards::ALL));
    sleep(Duration::from_secs(7)).await;
    assert_eq!(server.applied.lock().len(), written + 1);
    assert_eq!(server.reasons(), ["Loaded"]);
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_only_when_it_changes() {
    let server = Server::default();
    let (_driver, _observe) = server.host(source("slow")).await;

    // The ConfigMap does not exist, which the API server answers after 3 s. It is asked again and again.
    let ready = |status: &Value| status["conditions"][4]["reason"].as_str().unwrap().to_owned();
    let reasons = || server.applied.lock().iter().map(ready).collect::<Vec<_>>();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(reasons(), ["ConfigMapNotFound"]);
    sleep(Duration::from_secs(3_600)).await;
    assert_eq!(reasons().len(), 1, "{:?}", server.applied.lock());

    // The same in other words is of a new generation, and is not loaded again.
    server.object.lock()["spec"]["suspend"] = false.into();
    server.object.lock()["metadata"]["generation"] = 5.into();
    sleep(Duration::from_secs(30)).await;
    assert_eq!(server.applied.lock().last().unwrap()["observedGeneration"], 5);
    server.object.lock()["spec"]["suspend"] = true.into();
    server.object.lock()["metadata"]["generation"] = 6.into();
    // Another client's edit of a status is corrected within minutes.
    sleep(Duration::from_secs(30)).await;
    server.object.lock()["status"] = json!({});
    sleep(Duration::from_secs(310)).await;
    let expected = ["ConfigMapNotFound", "ConfigMapNotFound", "Suspended", "Suspended"];
    assert_eq!(reasons(), expected);
}
