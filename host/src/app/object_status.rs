//! Writes the status of plugin objects: gathers the facts about each plugin, and applies the statuses that changed.
//! `objects` decides about the contents of a status and the time of the write.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use podium_api::Api;
use podium_engine::{
    clock::Clock,
    intervals::Intervals,
    status::{PluginStatus, RunResult, Status},
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
    ActiveVersion, Decision, Facts, Failing, Object, Publisher, Refusal, State, Update, Wanted, status,
};

/// How often the facts are compared with the last writes.
const INTERVAL: Duration = Duration::from_secs(2);
/// A plugin has recovered after so long without a failed run: twice the longest back-off of a key.
const RECOVERED: Duration = Duration::from_secs(600);

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

/// The failed runs of a plugin.
#[derive(Debug, Clone)]
struct Failures {
    counted: u64,
    /// When the number grew last.
    last: Instant,
    failing: Option<Failing>,
}

impl StatusTask {
    /// Never returns. Each write is a task of its own, so a slow one delays only the next write to its object.
    ///
    /// # Errors
    /// Returns an error if a write panicked.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut publisher = Publisher::default();
        let mut failures = BTreeMap::new();
        let mut refused = Intervals::new();
        let mut writes = JoinSet::new();
        let mut looks = interval(INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is at once.
        looks.tick().await;
        loop {
            let ended = tokio::select! {
                biased;
                Some(ended) = writes.join_next() => ended,
                _ = looks.tick() => {
                    for update in self.due(&mut publisher, &mut failures) {
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
            publisher.answered(update, answer, Instant::now());
        }
    }

    fn due(&self, publisher: &mut Publisher, failures: &mut BTreeMap<PluginId, Failures>) -> Vec<Update> {
        let mut closed: BTreeMap<String, Vec<Refusal>> = BTreeMap::new();
        for ClosedKind { manager, account, verb, resource, namespace, .. } in (self.observed.closed)() {
            let write = Refusal { account, verb: verb.to_owned(), resource, namespace };
            closed.entry(manager).or_default().push(write);
        }
        // Asking for the figures of one plugin would create them, and with them its metrics.
        let figures: BTreeMap<PluginId, Arc<PluginStatus>> = self.status.plugins().into_iter().collect();
        // Statuses are made without a lock, which a change of an object would wait for.
        let desired = self.known.lock().desired.clone();
        let (removals, releases) = (self.removals.lock().clone(), self.releases.lock().clone());
        failures.retain(|id, _| desired.object(id).is_some());
        let now = Instant::now();
        let rules = self.driver.rules();
        let mut wanted = Vec::new();
        for (object, decision) in desired.decided() {
            let id = &object.id;
            let mut facts = self.facts(object, decision);
            if decision.acts() {
                facts.failing = figures.get(id).and_then(|figures| self.failing(id, figures, failures, now));
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

    fn facts(&self, object: &Object, decision: &Decision) -> Facts {
        let found = match decision {
            Decision::NameTaken => Some((State::NameTaken, None)),
            Decision::Beyond(beyond) => Some((State::Beyond(beyond.clone()), None)),
            Decision::Run(_) | Decision::Refused { .. } => {
                self.driver.read(&object.id, |plugin| (state(plugin, object), plugin.running().cloned()))
            }
        };
        let (state, active) = found.unwrap_or((State::Loading, None));
        Facts { active: active.as_ref().map(self::active), ..Facts::new(object.generation, state) }
    }

    fn failing(
        &self,
        id: &PluginId,
        figures: &PluginStatus,
        all: &mut BTreeMap<PluginId, Failures>,
        now: Instant,
    ) -> Option<Failing> {
        let counted = figures.runs_by(RunResult::Error);
        let failures = all.entry(id.clone()).or_insert(Failures { counted: 0, last: now, failing: None });
        if counted != failures.counted {
            failures.counted = counted;
            failures.last = now;
            if failures.failing.is_none() && counted > 0 {
                let message = figures.last_failure().unwrap_or_default();
                failures.failing = Some(Failing { since: self.clock.now_millis(), message });
            }
        } else if now >= failures.last + RECOVERED {
            failures.failing = None;
        }
        failures.failing.clone()
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
        Shown::Loading | Shown::Running { is_recorded: false, .. } => State::Loading,
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
        stored: component.stored.clone(),
        grants: granted.map_or(Value::Null, |Granted { grants }| grants),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Method, Request, Response};
    use http_body_util::{BodyExt, Full};
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::{sync::watch, time::sleep};

    use super::{
        super::{Phase, life::tests, objects::Follower, operator::tests::observed},
        *,
    };

    /// An API server with one object, which stores the status that is applied.
    #[derive(Clone)]
    struct Server {
        object: Arc<Mutex<Value>>,
        applied: Arc<Mutex<Vec<Value>>>,
    }

    impl Server {
        async fn answer(self, request: Request<Body>) -> Response<Full<Bytes>> {
            let (parts, body) = request.into_parts();
            let is_watch = parts.uri.query().is_some_and(|query| query.contains("watch=1"));
            let body = match parts.method {
                Method::PATCH => {
                    let patch: Value = serde_json::from_slice(&body.collect().await.unwrap().to_bytes()).unwrap();
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
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_is_written_only_when_it_changes() {
        let source = json!({ "configMap": { "name": "slow", "key": "a", "sha256": "0".repeat(64) } });
        let metadata = json!({ "name": "a", "namespace": "shop", "uid": "u", "generation": 4 });
        let object = json!({ "metadata": metadata, "spec": { "source": source } });
        let server = Server { object: Arc::new(Mutex::new(object)), applied: Arc::default() };
        let answering = server.clone();
        let service = tower::service_fn(move |request| {
            let server = answering.clone();
            async move { Ok::<_, Infallible>(server.answer(request).await) }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let (driver, _observe) = tests::driver().await;
        let (follower, _started) = Follower::new(driver.clone(), &api, Some("shop"), [], 1);
        let (_phase, phase) = watch::channel(Phase::Serving);
        let task = StatusTask {
            api,
            known: follower.known(),
            status: driver.status.clone(),
            observed: Arc::new(observed(driver.status.clone(), phase)),
            removals: Removals::default(),
            releases: Releases::default(),
            driver,
            clock: Clock::starting_at(0),
        };
        tokio::spawn(follower.run());
        tokio::spawn(task.run());

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
