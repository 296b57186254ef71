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
use podium_vocabulary::{Phase, PluginId, PluginSpec, text};
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
    status_in,
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
                    for update in self.due(&mut publisher) {
                        let Ok(request) = update.request() else { continue };
                        let api = self.api.for_tenant(update.id.tenant());
                        writes.spawn(async move {
                            let answer = api.bytes(request).await;
                            (update, answer.map(|answer| status_in(&answer)))
                        });
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
                let api = self.api.for_tenant(update.id.tenant());
                events.spawn(async move { (key, api.bytes(request).await.map(drop)) });
            }
            publisher.answered(update, answer, now);
        }
    }

    /// Returns the writes that are due. The replica that runs the plugins writes their statuses.
    fn due(&self, publisher: &mut Publisher) -> Vec<Update> {
        let owned = self.driver.owns();
        if owned.is_empty() {
            // Another replica writes now, so none of these writes is the latest.
            return publisher.due(Vec::new(), Instant::now());
        }
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
        for (object, decision) in desired.decided().filter(|(object, _)| owned.has(&object.id.tenant())) {
            let id = &object.id;
            let mut facts = self.facts(object, decision, figures.get(id), publisher.shown(object), now);
            if decision.acts() {
                facts.refused = closed.remove(&manager_name(id)).unwrap_or_default();
                facts.refused.sort();
            }
            facts.finalizers = self.finalizers(object);
            facts.released = releases.get(id).map(|(released, _)| released.clone());
            let shares = self.observed.leadership.as_ref().is_some_and(|leadership| leadership.shares());
            let is_before = |spec: &PluginSpec| spec.id.namespace.is_none() && spec.phase == Phase::Before;
            facts.unordered = shares && matches!(decision, Decision::Run(spec) if is_before(spec));
            facts.signed = matches!(decision, Decision::Run(spec) if rules.requires_signature(spec));
            wanted.push(self.wanted(object, &facts, publisher));
        }
        for removing in desired.removing().filter(|removing| owned.has(&removing.id.tenant())) {
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
            let inputs = &self.driver.components.inputs;
            facts.missing_inputs = (!version.spec.inputs.is_empty()).then(|| inputs.missing(&version.spec));
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
mod tests;
