//! The status of a plugin object, from what the host knows of the plugin. Pure: the time is an argument.
//!
//! It has nothing that changes while all is well, so that a quiet cluster sees no write: counters are metrics.

use std::sync::Arc;

use podium_config::status::{Active, Condition, Failure, Finalizers, RETRIED, RefusedWrite, Runner, Status};
use podium_engine::status::Failing;
use podium_vocabulary::text;
use podium_wire::Timestamp;
use serde_json::Value;

use super::{Beyond, Released, Step};

/// The most refused kinds of writes that are listed.
const MAX_REFUSED: usize = 16;
/// The most imports that are listed; an interpreter imports every function of its world.
const MAX_IMPORTS: usize = 64;
/// The most bytes of a text of a failure.
const MAX_FAILURE_BYTES: usize = 512;

/// The most bytes of the reasons of all inputs that runs do not receive. A message has 2 KiB, also with their ids.
const MAX_MISSING_BYTES: usize = 1_400;
/// The shortest time for which inputs are shown as not received, in milliseconds.
const MISSING_MILLIS: u64 = 60_000;

/// The facts about a plugin that its status shows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    /// The generation that the other facts are about.
    pub(crate) generation: i64,
    pub(crate) state: State,
    /// The version that runs.
    pub(crate) active: Option<ActiveVersion>,
    /// The failures of the version that runs, the first that occurred first.
    pub(crate) failing: Vec<Failing>,
    /// The plugin has run since the host's start.
    pub(crate) has_run: bool,
    /// The writes that RBAC refuses.
    pub(crate) refused: Vec<Refusal>,
    /// The component must be signed.
    pub(crate) signed: bool,
    /// The finalizers of Pods that the host takes away when the object is deleted.
    pub(crate) finalizers: Vec<String>,
    pub(crate) released: Option<Released>,
    /// The plugin is of phase `before` and the plugins that are to follow it may be run by another replica.
    pub(crate) unordered: bool,
    /// The inputs that runs do not receive, with the reason of each; `None` if the version that runs has no inputs.
    pub(crate) missing_inputs: Option<Vec<(String, Arc<str>)>>,
}

impl Facts {
    /// Returns the facts of a plugin of which no version runs.
    pub(crate) fn new(generation: i64, state: State) -> Self {
        Self {
            generation,
            state,
            active: None,
            failing: Vec::new(),
            has_run: false,
            refused: Vec::new(),
            signed: false,
            finalizers: Vec::new(),
            released: None,
            unordered: false,
            missing_inputs: None,
        }
    }
}

/// The result of the object's spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// The first attempt has not ended.
    Loading,
    Running {
        /// The version replaced another one, and no Pod was there to try it on before.
        unprobed: bool,
    },
    Suspended,
    /// The object is being deleted, and this number of Pods have a finalizer of the plugin.
    Removing {
        pods: usize,
        /// Escaped.
        refused: Option<String>,
    },
    NameTaken,
    Beyond(Beyond),
    Failed {
        step: Step,
        reason: &'static str,
        /// Escaped.
        message: String,
        /// It is tried again with back-off.
        retried: bool,
    },
}

/// A version that runs.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ActiveVersion {
    /// `None` if it is not known of which generation it is.
    pub(crate) generation: Option<i64>,
    /// In hexadecimal digits.
    pub(crate) sha256: String,
    pub(crate) imports: Vec<String>,
    /// The image with its digest; `None` if the component is not from a registry.
    pub(crate) image: Option<String>,
    /// `None` for a component.
    pub(crate) runner: Option<Runner>,
    /// Why the tag of the image was not looked up, if it was not. Escaped.
    pub(crate) stored: Option<String>,
    /// `spec.grants` as the object had it.
    pub(crate) grants: Value,
}

impl ActiveVersion {
    /// Returns the digest as the status has it.
    pub(crate) fn digest(&self) -> String {
        format!("sha256:{}", self.sha256)
    }
}

/// A kind of writes that RBAC refuses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Refusal {
    /// `None` for the host's own.
    pub(crate) account: Option<String>,
    pub(crate) verb: String,
    /// With subresource and group.
    pub(crate) resource: String,
    /// `None` for objects without a namespace.
    pub(crate) namespace: Option<String>,
}

/// A condition without its times.
pub(super) struct Judged {
    /// The type.
    pub(super) kind: &'static str,
    /// `None` for Unknown.
    pub(super) holds: Option<bool>,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Returns the status for an object whose status is `shown`, from which the times of conditions that did not change
/// are taken. While an object that has a status is loaded again, all but its condition Ready is of the spec before.
pub(crate) fn status(facts: &Facts, shown: &Value, now_millis: u64) -> Option<Value> {
    if facts.state == State::Loading && shown["conditions"].is_array() {
        return still_loading(facts, shown, now_millis);
    }
    let released = facts.released.as_ref().map(Released::judged);
    let unordered = facts.unordered.then(|| Judged {
        kind: "OrderNotGuaranteed",
        holds: Some(true),
        reason: "ReplicasShareNamespaces",
        message:
            "other replicas run the plugins of namespaces that are to follow this one of phase before, and do not \
            wait for it; have them depend on what it writes"
                .to_owned(),
    });
    let all = conditions(facts).into_iter().chain([healthy(facts, shown)]).chain(released).chain(unordered);
    let of_spec = all.map(|judged| condition(judged, facts.generation, shown, now_millis));
    // Of the version that runs.
    let generation = facts.active.as_ref().and_then(|active| active.generation).unwrap_or(facts.generation);
    let inputs = facts.missing_inputs.as_deref().map(|missing| inputs_ready(missing, shown, now_millis));
    let inputs = inputs.map(|judged| condition(judged, generation, shown, now_millis));
    let conditions = of_spec.chain(inputs).collect();
    let status = Status {
        observed_generation: facts.generation,
        conditions,
        active: facts.active.as_ref().map(active),
        failures: facts.failing.iter().map(failure).collect(),
        finalizers: (!facts.finalizers.is_empty()).then(|| finalizers(facts, shown, now_millis)),
        refused_writes: facts.refused.iter().take(MAX_REFUSED).map(refused).collect(),
    };
    // A tree of texts and numbers always becomes JSON.
    serde_json::to_value(status).ok()
}

/// Returns whether runs receive all inputs. One that comes and goes changes the status once in a minute.
fn inputs_ready(missing: &[(String, Arc<str>)], shown: &Value, now_millis: u64) -> Judged {
    let judged = |holds, reason, message| Judged { kind: "InputsReady", holds: Some(holds), reason, message };
    let most = MAX_MISSING_BYTES / missing.len().max(1);
    let message = missing.iter().map(|(id, reason)| format!("{id}: {}", text::bounded(reason, most)));
    let message = message.collect::<Vec<_>>().join("; ");
    let before = shown["conditions"].as_array().into_iter().flatten().find(|shown| shown["type"] == "InputsReady");
    let lost = before.filter(|before| before["status"] == "False");
    let since = lost.and_then(|lost| lost["lastTransitionTime"].as_str()?.parse::<Timestamp>().ok());
    let is_recent = since.is_some_and(|Timestamp(since)| now_millis < since.unsigned_abs() + MISSING_MILLIS);
    match lost.filter(|_| is_recent).and_then(|lost| lost["message"].as_str()) {
        Some(message) => judged(false, "NotReceived", message.to_owned()),
        None if missing.is_empty() => judged(true, "Received", message),
        None => judged(false, "NotReceived", message),
    }
}

fn still_loading(facts: &Facts, shown: &Value, now_millis: u64) -> Option<Value> {
    let message = format!("the load of this spec has not ended{}", going_on(facts));
    let ready = Judged { kind: "Ready", holds: None, reason: "Loading", message };
    let mut status = shown.clone();
    let mut conditions = status["conditions"].as_array_mut()?.iter_mut();
    let place = conditions.find(|of| matches!(of["type"].as_str(), Some("Ready" | "Suspended")))?;
    *place = serde_json::to_value(condition(ready, facts.generation, shown, now_millis)).ok()?;
    Some(status)
}

/// Returns which version runs beside a spec that does not.
fn going_on(facts: &Facts) -> String {
    match &facts.active {
        Some(ActiveVersion { generation: Some(generation), .. }) => {
            format!("; the version of generation {generation} goes on")
        }
        Some(_) => "; an earlier version goes on".to_owned(),
        None => "; no version runs".to_owned(),
    }
}

pub(crate) fn time(millis: u64) -> String {
    Timestamp(i64::try_from(millis / 1_000 * 1_000).unwrap_or(i64::MAX)).to_string()
}

fn active(version: &ActiveVersion) -> Active {
    let ActiveVersion { generation, sha256: _, imports, image, runner, stored: _, grants } = version;
    Active {
        digest: version.digest(),
        image: image.clone(),
        runner: runner.clone(),
        generation: *generation,
        imports: imports.iter().take(MAX_IMPORTS).map(|import| text::name(import)).collect(),
        grants: grants.is_object().then(|| grants.clone()),
    }
}

fn finalizers(facts: &Facts, shown: &Value, now_millis: u64) -> Finalizers {
    let since = shown["finalizers"]["since"].as_str().map(str::to_owned);
    // Whole: a host that starts reads them back.
    let names = facts.finalizers.iter().map(|name| text::escape(name)).collect();
    Finalizers { names, since: since.unwrap_or_else(|| time(now_millis)) }
}

fn failure(of: &Failing) -> Failure {
    let Failing { reason, message, pod, since, is_of_before } = of;
    let [reason, message, pod, since] = [reason, message, pod, since].map(|of| text::bounded(of, MAX_FAILURE_BYTES));
    Failure { reason, message, pod, since, before_restart: *is_of_before }
}

/// Returns the failures that a status shows, for a host that starts.
pub(crate) fn failures(shown: &Value) -> Vec<Failing> {
    let text = |of: &Value, field: &str| text::bounded(of[field].as_str().unwrap_or_default(), MAX_FAILURE_BYTES);
    let failing = |of: &Value| Failing {
        reason: text(of, "reason"),
        message: text(of, "message"),
        pod: text(of, "pod"),
        since: text(of, "since"),
        is_of_before: true,
    };
    shown["failures"].as_array().into_iter().flatten().map(failing).collect()
}

fn refused(write: &Refusal) -> RefusedWrite {
    let Refusal { account, verb, resource, namespace } = write;
    let whose = account.as_deref().unwrap_or("the host's account");
    let wherein =
        namespace.as_ref().map_or_else(|| "in a ClusterRole".to_owned(), |name| format!("in namespace {name}"));
    RefusedWrite {
        account: account.clone(),
        verb: verb.clone(),
        resource: text::name(resource),
        namespace: namespace.clone(),
        message: text::line(&format!("{whose} needs the verb {verb} on {resource} {wherein}")),
    }
}

fn condition(judged: Judged, generation: i64, shown: &Value, now_millis: u64) -> Condition {
    let Judged { kind, holds, reason, message } = judged;
    let status = holds.map_or("Unknown", |holds| if holds { "True" } else { "False" });
    let before = shown["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == kind);
    let same = before.filter(|before| before["status"] == status);
    let since = same.and_then(|before| before["lastTransitionTime"].as_str()).map(str::to_owned);
    Condition {
        r#type: kind,
        status,
        reason,
        message: text::line(&message),
        observed_generation: generation,
        last_transition_time: since.unwrap_or_else(|| time(now_millis)),
    }
}

/// Returns whether the plugin achieves anything. Tools that wait until an object is settled know no condition of this
/// name, so a plugin that fails on one Pod does not stop a deployment.
fn healthy(facts: &Facts, shown: &Value) -> Judged {
    let mut shown = shown["conditions"].as_array().into_iter().flatten();
    let was_known = shown.any(|shown| shown["type"] == "Healthy" && shown["status"] != "Unknown");
    let (holds, reason, message) = match facts.failing.as_slice() {
        _ if facts.active.is_none() => (None, "NotRunning", String::new()),
        [] if facts.has_run || was_known => (Some(true), "NoFailures", String::new()),
        [] => (None, "NotRun", "the plugin has not run on a pod".to_owned()),
        [Failing { reason, message, pod, .. }, others @ ..] => {
            let others = match others.len() {
                0 => String::new(),
                others => format!("; {others} more in status.failures"),
            };
            let kind = if is_of_write(reason) { "WritesRefused" } else { "RunsFail" };
            let [failed, pod, message] = [reason, pod, message].map(|of| text::bounded(of, MAX_FAILURE_BYTES));
            (Some(false), kind, format!("{failed} on pod {pod}: {message}; {}{others}", next_step(reason)))
        }
    };
    Judged { kind: "Healthy", holds, reason, message }
}

/// Returns true for the reason of a write.
pub(super) fn is_of_write(reason: &str) -> bool {
    matches!(reason, "forbidden" | "invalid" | "owned_by_other" | "blocked")
}

fn next_step(reason: &str) -> &'static str {
    match reason {
        "forbidden" => "grant the plugin's account the right (podium inspect prints the rights that it needs)",
        "owned_by_other" => "have the other manager leave the field, or have the plugin not write it",
        "invalid" => "correct the value that the plugin writes",
        "blocked" => "see the message for the rule that forbids it now",
        "cpu" | "deadline" | "memory" => "have a run do less, or raise the limit in spec.limits",
        "host" => "this is a fault of the host, see its log",
        "trap" => "correct the component",
        _ => "the message is the plugin's own; correct its cause, or the component",
    }
}

fn judged(step: Step, holds: Option<bool>, reason: &'static str, message: &str) -> Judged {
    Judged { kind: step.name(), holds, reason, message: message.to_owned() }
}

fn ready(holds: Option<bool>, reason: &'static str, message: &str) -> Judged {
    judged(Step::Ready, holds, reason, message)
}

/// The steps before Ready, with the result of each.
fn steps(of: impl Fn(Step) -> Judged, ready: Judged) -> [Judged; 5] {
    [of(Step::Fetched), of(Step::Verified), of(Step::Compiled), of(Step::Granted), ready]
}

fn unknown(step: Step) -> Judged {
    judged(step, None, "NotAttempted", "")
}

fn met(step: Step, facts: &Facts) -> Judged {
    match step {
        Step::Verified if facts.signed => {
            judged(step, Some(true), "Verified", "signed by a key of the platform's policy")
        }
        Step::Verified => judged(step, Some(true), "NotRequired", "no signature is required"),
        Step::Fetched | Step::Compiled | Step::Granted | Step::Ready => judged(step, Some(true), step.name(), ""),
    }
}

fn conditions(facts: &Facts) -> [Judged; 5] {
    let none = |ready| steps(unknown, ready);
    match &facts.state {
        State::Loading => none(ready(None, "Loading", "the component is fetched and compiled")),
        // Without Ready: tools that wait until an object is settled (kstatus, and so Flux) wait while Ready is False or
        // Unknown, and a plugin that does not run is not ready. A Job has the same condition.
        State::Suspended => {
            let message = "spec.suspend is true; remove it to run the plugin".to_owned();
            none(Judged { kind: "Suspended", holds: Some(true), reason: "Suspended", message })
        }
        State::Removing { pods, refused } => {
            let refused =
                refused.as_ref().map_or_else(String::new, |refused| format!("; the latest refusal: {refused}"));
            let message = format!("finalizers of the plugin are removed from pods: {pods} left{refused}");
            none(ready(Some(false), "RemovingFinalizers", &message))
        }
        State::NameTaken => none(ready(
            Some(false),
            "NameTaken",
            "a file of the host's --plugins defines a plugin of this name, which runs; rename this one",
        )),
        State::Beyond(Beyond { reason, message }) => none(ready(Some(false), reason, message)),
        State::Running { unprobed } => {
            let unprobed = if *unprobed { "no pod matched, so this version was not tried before it runs" } else { "" };
            let Some(note) = facts.active.as_ref().and_then(|active| active.stored.as_ref()) else {
                let reason = if unprobed.is_empty() { "Running" } else { "Unprobed" };
                return steps(|step| met(step, facts), ready(Some(true), reason, unprobed));
            };
            // Also here: without the disk the plugin would not run.
            let message = if unprobed.is_empty() { note.clone() } else { format!("{note}; {unprobed}") };
            let mut all = steps(|step| met(step, facts), ready(Some(true), "Stored", &message));
            all[0] = judged(Step::Fetched, Some(true), "Stored", note);
            all
        }
        State::Failed { step, reason, message, retried } => {
            let retried = if *retried { format!("; {RETRIED}") } else { String::new() };
            let ready = ready(Some(false), reason, &format!("{message}{retried}{}", going_on(facts)));
            let before: &[Step] = match step {
                // A component's imports are compared with the grants before it is compiled, everything else before it
                // is fetched.
                Step::Granted if *reason == "GrantsExceeded" => &[Step::Fetched, Step::Verified],
                Step::Ready if *reason == "InvalidSpec" => &[],
                Step::Fetched | Step::Granted => &[],
                Step::Verified => &[Step::Fetched],
                Step::Compiled => &[Step::Fetched, Step::Verified],
                // The version was loaded and tried.
                Step::Ready => &[Step::Fetched, Step::Verified, Step::Compiled, Step::Granted],
            };
            let of = |at: Step| match at {
                at if at == *step => judged(at, Some(false), reason, message),
                at if before.contains(&at) => met(at, facts),
                at => unknown(at),
            };
            steps(of, ready)
        }
    }
}

#[cfg(test)]
mod tests;
