//! Writes the status of plugin objects: gathers the facts about each plugin, and applies the statuses that changed.
//! `objects` decides about the contents of a status and the time of the write.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podium_api::{Api, ApiError};
use podium_engine::{
    clock::Clock,
    intervals::Intervals,
    status::{Health, PluginStatus, Status, VersionId},
};
use podium_life::{Plugin, Shown, Version};
use podium_vocabulary::{PluginId, text};
use podium_writeback::{ClosedKind, manager_name};
use serde::Deserialize;
use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{
    cleanup::{Releases, Removals},
    life::{Code, Driver, Host, LoadFailure},
    objects::Shared,
    operator::Observed,
};
use crate::objects::{
    ActiveVersion, Decision, Facts, Key, Object, Publisher, Recorder, Refusal, State, Update, Wanted, failures, status,
};

/// How often the facts are compared with the last writes.
const INTERVAL: Duration = Duration::from_secs(2);

/// Writes statuses.
pub(super) struct StatusTask {
    pub(super) api: Api,
    pub(super) known: Shared,
    pub(super) driver: Arc<Driver>,
    pub(super) status: Arc<Status>,
    pub(super) observed: Arc<Observed>,
    pub(super) removals: Removals,
    pub(super) releases: Releases,
    pub(super) clock: Clock,
}

impl StatusTask {
    /// Never returns. Each write is a task of its own, so a slow one delays only the next write to its object.
    ///
    /// # Errors
    /// Returns an error if a write panicked.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut publisher = Publisher::default();
        let mut refused = Intervals::new();
        let mut writes = JoinSet::new();
        let mut events = JoinSet::new();
        let mut recorder = Recorder::default();
        let mut may_report = true;
        let mut looks = interval(INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once.
        looks.tick().await;
        loop {
            let ended = tokio::select! {
                biased;
                Some(ended) = writes.join_next() => ended,
                Some(ended) = events.join_next() => {
                    let (key, answer): (Key, Result<(), ApiError>) = ended?;
                    match answer {
                        Ok(()) => may_report = true,
                        Err(error) => {
                            recorder.not_sent(&key);
                            report_unsent(&error, &mut may_report);
                        }
                    }
                    continue;
                }
                _ = looks.tick() => {
                    // The replica that runs the plugins writes them.
                    let due = if self.driver.owns() { self.due(&mut publisher) } else { Vec::new() };
                    for update in due {
                        let Ok(request) = update.request() else { continue };
                        let api = self.api.clone();
                        writes.spawn(async move { (update, api.json(request).await) });
                    }
                    continue;
                }
            };
            let (update, answer) = ended?;
            if let Err(error) = &answer
                && !matches!(error.code(), Some(404 | 409))
                && let Some(count) = refused.occurred(Instant::now())
            {
                let error = text::line(&error.to_string());
                tracing::warn!(plugin = %update.id, error, count, "status of the plugin object not written");
            }
            let now = Instant::now();
            for transition in update.transitions.iter().filter(|_| answer.is_ok()).cloned() {
                let of = (&update.id, &*update.uid);
                let Ok(Some((key, request))) = recorder.report(of, transition, self.clock.now_millis(), now) else {
                    continue;
                };
                let api = self.api.clone();
                events.spawn(async move { (key, api.bytes(request).await.map(drop)) });
            }
            publisher.answered(update, answer, now);
        }
    }

    fn due(&self, publisher: &mut Publisher) -> Vec<Update> {
        let mut closed: BTreeMap<String, Vec<Refusal>> = BTreeMap::new();
        for ClosedKind { manager, account, verb, resource, namespace, .. } in (self.observed.closed)() {
            let write = Refusal { account, verb: verb.to_owned(), resource, namespace };
            closed.entry(manager).or_default().push(write);
        }
        // Asking for the figures of one plugin would create them, and with them its metrics.
        let figures: BTreeMap<PluginId, Arc<PluginStatus>> = self.status.plugins().into_iter().collect();
        // Statuses are made without a lock, which a change of an object would wait for.
        let desired = self.known.lock().desired.clone();
        let removals = self.removals.lock().clone();
        let releases = self.releases.lock().clone();
        let now = Instant::now();
        let rules = self.driver.rules();
        let mut wanted = Vec::new();
        for (object, decision) in desired.decided() {
            let id = &object.id;
            let mut facts = self.facts(object, decision, figures.get(id), publisher.shown(object), now);
            if decision.acts() {
                facts.refused = closed.remove(&manager_name(id)).unwrap_or_default();
                facts.refused.sort();
            }
            facts.finalizers = self.finalizers(object);
            facts.released = releases.get(id).map(|(released, _)| released.clone());
            facts.signed = matches!(decision, Decision::Run(spec) if rules.requires_signature(spec));
            wanted.push(self.wanted(object, &facts, publisher));
        }
        for removing in desired.removing() {
            let (Some(object), Some(removal)) = (desired.object(&removing.id), removals.get(&removing.id)) else {
                continue;
            };
            let state = State::Removing { pods: removal.pods, refused: removal.refused.clone() };
            let finalizers = self.finalizers(object);
            wanted.push(self.wanted(object, &Facts { finalizers, ..Facts::new(object.generation, state) }, publisher));
        }
        publisher.due(wanted, now)
    }

    /// Returns the finalizers that the object's plugin may have put on Pods.
    fn finalizers(&self, object: &Object) -> Vec<String> {
        let is_held = self.driver.components.holds.has(&object.id, &object.uid);
        let spec = object.of_finalizers().filter(|_| is_held);
        spec.iter().flat_map(|spec| &spec.grants.write.finalizers).map(|pattern| pattern.0.clone()).collect()
    }

    fn wanted<'a>(&self, object: &'a Object, facts: &Facts, publisher: &Publisher) -> Wanted<'a> {
        let status = status(facts, publisher.shown(object), self.clock.now_millis());
        Wanted { object, status, is_provisional: facts.state == State::Loading }
    }

    fn facts(
        &self,
        object: &Object,
        decision: &Decision,
        figures: Option<&Arc<PluginStatus>>,
        shown: &Value,
        now: Instant,
    ) -> Facts {
        let (state, active) = match decision {
            Decision::NameTaken => (State::NameTaken, None),
            Decision::Beyond(beyond) => (State::Beyond(beyond.clone()), None),
            Decision::Run(_) | Decision::Refused { .. } => {
                // The health is of the version that is read: both are replaced under the lock of this.
                let read = |plugin: &Plugin<Host>| {
                    let health = figures.map(|figures| (figures.health(), figures.runs()));
                    (state(plugin, object), plugin.running().cloned().map(|version| (version, health)))
                };
                self.driver.read(&object.id, read).unwrap_or((State::Loading, None))
            }
        };
        let mut facts = Facts::new(object.generation, state);
        if let Some((version, health)) = active {
            facts.active = Some(self::active(&version));
            if let Some((health, runs)) = health {
                note_failures(&mut facts, object, &health, runs, shown, now);
            }
        }
        facts
    }
}

/// Logs that an Event was not sent; for want of the right only once, because each transition would be another line.
fn report_unsent(error: &ApiError, may_report: &mut bool) {
    let is_denied = error.code() == Some(403) && !error.has_cause("NamespaceTerminating");
    if is_denied && std::mem::take(may_report) {
        let error = text::line(&error.to_string());
        tracing::warn!(
            error,
            "Events about plugins are not sent; the host's account needs create and patch on events.k8s.io/events"
        );
    } else {
        tracing::debug!(error = text::line(&error.to_string()), "Event about a plugin object not sent");
    }
}

/// Adds the failures of the version that runs. Those that the status shows, from before the host's start, are taken
/// over if they are of the same component; the status of an object is of no other object.
fn note_failures(facts: &mut Facts, object: &Object, health: &Health, runs: u64, shown: &Value, now: Instant) {
    let Some(active) = &facts.active else { return };
    let version = VersionId { uid: object.uid.clone(), sha256: active.sha256.clone() };
    if *health.version() == version {
        let is_same = shown["active"]["digest"].as_str() == Some(&*active.digest());
        health.restore(|| if is_same { failures(shown) } else { Vec::new() }, now);
        facts.failing = health.failing(now);
        facts.has_run = runs > 0;
    }
}

/// Returns the result of the spec of an object: that of an earlier generation, or of an earlier object of its name,
/// says nothing of it.
fn state(plugin: &Plugin<Host>, object: &Object) -> State {
    let failed = |failure: &LoadFailure, retried| {
        let (step, reason) = failure.step();
        State::Failed { step, reason, message: text::line(&failure.to_string()), retried }
    };
    match plugin.shown() {
        _ if !plugin.is_about(&object.uid, object.generation) => State::Loading,
        // A restart has to find the version that the status names.
        Shown::Loading | Shown::Standby | Shown::Running { is_recorded: false, .. } => State::Loading,
        Shown::Running { unprobed, .. } => State::Running { unprobed },
        Shown::Suspended => State::Suspended,
        Shown::Waiting(failure, _) => failed(failure, true),
        Shown::Refused(failure) => failed(failure, false),
    }
}

fn active(Version { code, ran, .. }: &Version<Code>) -> ActiveVersion {
    #[derive(Deserialize)]
    struct Granted {
        #[serde(default)]
        grants: Value,
    }
    let granted = ran.as_ref().and_then(|ran| serde_json::from_str(&ran.spec).ok());
    let component = &code.component;
    ActiveVersion {
        generation: ran.as_ref().map(|ran| ran.generation),
        sha256: component.sha256.clone(),
        imports: component.imports.clone(),
        image: component.image.as_ref().map(ToString::to_string),
        runner: component.runner.clone(),
        stored: component.stored.clone(),
        grants: granted.map_or(Value::Null, |Granted { grants }| grants),
    }
}

#[cfg(test)]
mod tests {
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
        let (name, uid) = (format!("web-{number}"), format!("uid-{number}"));
        (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), name, uid);
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
        assert_eq!(
            (&server.status()["active"], &server.status()["observedGeneration"]),
            (&before["active"], &json!(4))
        );
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
            let (server, team) = (Server::default(), Team::default());
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
        driver.feed(Event::Owned(false));
        install(&driver, "ab", &team);
        pod(&observe, 1).await;
        sleep(Duration::from_secs(3_600)).await;
        assert_eq!((server.applied.lock().len(), server.reasons().len()), (0, 0));
        driver.feed(Event::Owned(true));
        sleep(Duration::from_secs(60)).await;
        let written = server.applied.lock().len();
        assert_eq!((&server.status()["conditions"][4]["reason"], written > 0), (&json!("Running"), true));
        // Another replica goes on, and then this one again.
        for _ in 0..3 {
            driver.feed(Event::Owned(false));
            sleep(Duration::from_secs(600)).await;
            driver.feed(Event::Owned(true));
            sleep(Duration::from_secs(600)).await;
        }
        assert_eq!(server.applied.lock().len(), written, "{:#?}", server.applied.lock());
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
}
