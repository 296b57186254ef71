//! Notes runs, their writes with the results, log lines, and calls that the grants do not permit, between the host and
//! the code of a plugin, and between the host and the port that sends writes. Leaves out runs that a case does not ask
//! for; changes nothing else.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::bail;
use futures::future::BoxFuture;
use podium_engine::ports::{
    Deliver, Failure, LogLevel, ObjectAnswer, Outcome, Reconcile, Request, RunReport, Sender, Sent, Staged, StateEntry,
    StateError, Usage, World,
};
use podium_pods::pod::{CachedPod, PodView};
use podium_vocabulary::{
    Action, ObjectOwner, PodKey, Refused, WriteReport, WriteResult,
    authz::{Authorized, ObjectRead},
    text,
};
use serde_json::{Value, json};

use super::{Observed, Scenario};

/// The time between two runs on a Pod after which they are counted again.
const SECOND: u64 = 1_000;
/// The most runs of a case, which may have a week of time.
const MOST_RUNS: usize = 1_000;

/// A run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ran {
    /// Namespace and name.
    pub(crate) pod: String,
    pub(crate) writes: Vec<Value>,
    /// `done`, `stop`, `requeue after 60s`, `unsettled`, or `failed: MESSAGE`.
    pub(crate) result: String,
    pub(crate) failed: bool,
}

/// The notes of a case, and what it admits.
struct Notes {
    on: Option<Vec<String>>,
    state: BTreeMap<String, Vec<u8>>,
    most: u32,
    once: bool,
    /// Whether runs after a failure are admitted.
    repeats: bool,
    closed: bool,
    runs: Vec<Ran>,
    /// By Pod, the time of the last run, and the number of runs without a second in between.
    recent: BTreeMap<String, (u64, u32)>,
    log: Vec<String>,
    lacking: Vec<String>,
    unfinished: Option<String>,
    refused_state: Option<String>,
}

/// Notes the runs of a plugin in one host.
#[derive(Clone)]
pub(super) struct Observer {
    code: Arc<dyn Reconcile>,
    notes: Arc<Mutex<Notes>>,
}

impl Observer {
    pub(super) fn new(code: impl Reconcile + 'static, scenario: &Scenario) -> Self {
        let notes = Notes {
            on: scenario.on.clone(),
            state: scenario.state.clone(),
            most: scenario.runs,
            once: scenario.once,
            repeats: !scenario.then.is_zero(),
            closed: false,
            runs: Vec::new(),
            recent: BTreeMap::new(),
            log: Vec::new(),
            lacking: Vec::new(),
            unfinished: None,
            refused_state: None,
        };
        Self { code: Arc::new(code), notes: Arc::new(Mutex::new(notes)) }
    }

    /// Returns a port around the one that sends writes.
    pub(super) fn deliver(&self, deliver: Arc<dyn Deliver>) -> Arc<dyn Deliver> {
        Arc::new(Noting { deliver, observer: self.clone() })
    }

    pub(super) fn reconcile(&self) -> Arc<dyn Reconcile> {
        Arc::new(self.clone())
    }

    /// Admits no more runs.
    pub(super) fn close(&self) {
        self.notes().closed = true;
    }

    /// Returns the notes.
    ///
    /// # Errors
    /// Returns an error if the state before the first run cannot be stored.
    pub(super) fn observed(&self) -> anyhow::Result<Observed> {
        let mut notes = self.notes();
        if let Some(why) = notes.refused_state.take() {
            bail!(why);
        }
        Ok(Observed {
            runs: std::mem::take(&mut notes.runs),
            log: std::mem::take(&mut notes.log),
            lacking: std::mem::take(&mut notes.lacking),
            unfinished: notes.unfinished.take(),
            ..Observed::default()
        })
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reconcile for Observer {
    fn reconcile(&self, request: Request, world: Box<dyn World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(async move {
            let Some(at) = self.notes().begin(&request) else {
                let result = Ok(Outcome::Settled);
                return RunReport { result, staged: Staged::default(), usage: Usage::default() };
            };
            let mut world = Observing { world, observer: self.clone() };
            let state = std::mem::take(&mut self.notes().state);
            for (key, value) in state {
                if let Err(StateError::Refused(why)) = world.state_put(&key, value, None) {
                    let why = format!("state.{}: {why}", text::name(&key));
                    self.notes().refused_state.get_or_insert(why);
                }
            }
            let report = self.code.reconcile(request, Box::new(world)).await;
            if let Some(ran) = self.notes().runs.get_mut(at) {
                ran.end(&report.result);
            }
            report
        })
    }

    fn instantiate(&self, world: Box<dyn World>) -> BoxFuture<'_, Result<(), Failure>> {
        self.code.instantiate(world)
    }
}

impl Notes {
    /// Returns the index of the run that begins; `None` for one that is left out.
    fn begin(&mut self, request: &Request) -> Option<usize> {
        let pod = request.key.to_string();
        let at = self.admits(&pod, request).then_some(self.runs.len())?;
        self.runs.push(Ran { pod, ..Ran::default() });
        Some(at)
    }

    fn admits(&mut self, pod: &str, request: &Request) -> bool {
        let is_subject = self.on.as_ref().is_none_or(|on| on.iter().any(|one| one == pod));
        let is_repeated = request.attempt > 1;
        if !is_subject || (is_repeated && !self.repeats) || self.closed {
            return false;
        }
        if self.runs.len() == MOST_RUNS {
            let why = || format!("is cut off: {MOST_RUNS} runs are the most of a case; lower thenSeconds, or split it");
            self.unfinished.get_or_insert_with(why);
            return false;
        }
        if is_repeated {
            return true;
        }
        let now = request.now_millis;
        let (last, count) = self.recent.get(pod).copied().unwrap_or_default();
        let count = if now.saturating_sub(last) < SECOND { count + 1 } else { 1 };
        if count > self.most {
            let most = self.most;
            let why = || {
                format!(
                    "does not settle: after {most} runs on {pod} the plugin wakes itself again; compare before it \
                     writes, or set runs if it needs more"
                )
            };
            if !self.once {
                self.unfinished.get_or_insert_with(why);
            }
            return false;
        }
        self.recent.insert(pod.to_owned(), (now, count));
        true
    }
}

impl Ran {
    fn end(&mut self, result: &Result<Outcome, Failure>) {
        // A commit was refused.
        if self.failed && result.is_ok() {
            return;
        }
        self.result = match result {
            Ok(Outcome::Settled) => "done".to_owned(),
            Ok(Outcome::Stop) => "stop".to_owned(),
            Ok(Outcome::RequeueAfter(after)) => format!("requeue after {}", seconds(*after)),
            Err(failure) => format!("failed: {}", failure.message),
        };
        self.failed = result.is_err();
    }

    /// Adds writes with their results, except those that changed nothing.
    fn sent(&mut self, writes: Vec<Value>, reports: &[WriteReport]) {
        for (write, WriteReport { description, result, .. }) in writes.into_iter().zip(reports) {
            match result {
                WriteResult::Applied => self.writes.push(write),
                WriteResult::Unchanged | WriteResult::Gone => {}
                refused => {
                    let name = refused.name();
                    let message = Some(refused.text()).filter(|text| !text.is_empty());
                    let message = message.map_or_else(String::new, |text| format!(": {}", text::line(text)));
                    self.writes.push(format!("{description} ({name}{message})").into());
                    self.result = "unsettled".to_owned();
                    self.failed = true;
                }
            }
        }
    }
}

/// Formats a time as seconds: `60s`, `0.5s`.
fn seconds(time: Duration) -> String {
    format!("{}s", time.as_secs_f64())
}

/// Returns the description of a write. Where that does not say all, it is the only key of a mapping to the rest.
fn shown(action: &Action) -> Value {
    let rest = match action {
        Action::SetAnnotation { value, .. } => Some(json!(value)),
        Action::SetCondition { reason, message, .. } => Some(json!({ "reason": reason, "message": message })),
        Action::DeletePod { grace_seconds: Some(seconds), .. } => Some(json!({ "graceSeconds": seconds })),
        Action::ApplyObject { body, owner, .. } => {
            let owner = owner.as_ref().map(|owner| match owner {
                ObjectOwner::Pod(pod) => format!("Pod {pod}"),
                ObjectOwner::Workload(pod) => format!("the workload of Pod {pod}"),
            });
            let mut rest = json!({ "object": body });
            if let Some(owner) = owner {
                rest["owner"] = owner.into();
            }
            Some(rest)
        }
        Action::DeleteObject { uid: Some(uid), .. } => Some(json!({ "uid": uid })),
        Action::SetLabel { .. }
        | Action::RemoveLabel { .. }
        | Action::RemoveAnnotation { .. }
        | Action::AddFinalizer { .. }
        | Action::RemoveFinalizer { .. }
        | Action::RemoveCondition { .. }
        | Action::DeletePod { grace_seconds: None, .. }
        | Action::EvictPod { .. }
        | Action::DeleteObject { uid: None, .. }
        | Action::Scale { .. } => None,
    };
    let description = action.describe();
    match rest {
        Some(rest) => json!({ description: rest }),
        None => description.into(),
    }
}

fn log_line(level: LogLevel, message: &str, fields: &[(String, String)]) -> String {
    let level = match level {
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    };
    let fields = fields.iter().map(|(key, value)| format!(" {key}={value}"));
    text::line(&format!("{level} {message}{}", fields.collect::<String>()))
}

/// The world of a run, with notes.
struct Observing {
    world: Box<dyn World>,
    observer: Observer,
}

impl World for Observing {
    fn is_revoked(&self) -> bool {
        self.world.is_revoked()
    }

    fn view(&self) -> &dyn PodView {
        self.world.view()
    }

    fn live<'a>(
        &'a mut self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        self.world.live(namespace, name)
    }

    fn object<'a>(&'a mut self, read: &'a Authorized<ObjectRead>) -> ObjectAnswer<'a> {
        self.world.object(read)
    }

    fn commit(&mut self, staged: Staged) -> BoxFuture<'_, Vec<WriteReport>> {
        self.world.commit(staged)
    }

    fn state_get(&mut self, key: &str) -> Option<StateEntry> {
        self.world.state_get(key)
    }

    fn state_put(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        self.world.state_put(key, value, expected)
    }

    fn state_remove(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        self.world.state_remove(key, expected)
    }

    fn not_granted(&mut self, why: &str) {
        let why = text::line(why);
        let mut notes = self.observer.notes();
        if !notes.lacking.contains(&why) {
            notes.lacking.push(why);
        }
    }

    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        self.observer.notes().log.push(log_line(level, message, fields));
        self.world.log(level, message, fields);
    }
}

/// The port that sends writes, with notes.
struct Noting {
    deliver: Arc<dyn Deliver>,
    observer: Observer,
}

impl Deliver for Noting {
    fn deliver<'a>(
        &'a self,
        sender: &'a Sender,
        subject: &'a PodKey,
        view: &'a dyn PodView,
        staged: Staged,
        now_millis: u64,
    ) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            let writes: Vec<_> = staged.writes.iter().map(|write| shown(&write.get().action)).collect();
            let sent = self.deliver.deliver(sender, subject, view, staged, now_millis).await;
            let pod = subject.to_string();
            // A Pod has one run at a time, and its writes are sent before the next one begins.
            if let Some(ran) = self.observer.notes().runs.iter_mut().rfind(|ran| ran.pod == pod) {
                ran.sent(writes, &sent.reports);
            }
            sent
        })
    }

    fn held(&self, sender: &Sender) -> Option<Duration> {
        self.deliver.held(sender)
    }
}
