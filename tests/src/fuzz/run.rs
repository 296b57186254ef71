//! The runs of the targets that fuzz host calls, and the guarantees of every run, whatever its guest does.

#![expect(clippy::unwrap_used, reason = "a panic is a finding")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use podium_engine::{
    dispatch::State,
    ports::{FailureKind, LogLevel, Reconcile, RunReport, Staged, StateEntry, StateError, World},
};
use podium_pods::{
    cache::{self, Snapshot},
    pod::{CachedPod, PodEvent, PodView, Slice},
    testing,
};
use podium_runtime::{Engine, EngineOptions, Plugin};
use podium_vocabulary::{Action, LimitClass, PluginSpec, Refused, WriteReport, WriteResult};
use podium_wire::SectionSet;
use tokio::runtime::Runtime;

use crate::sandbox;

/// Processor time of a run, which is fuel only: 10 million units.
const CPU: Duration = Duration::from_millis(2);
const FUEL: u64 = 10_000_000;
const HOST_CALLS: u32 = 200;
const WRITES: u32 = 20;
const LOG_BYTES: usize = 16 << 10;
/// The most of a line that is escaped, and of what one byte becomes.
const ESCAPED: usize = 10;

/// An engine with one sandbox, a runtime under paused time, and Pods of two namespaces.
pub(super) struct Rig {
    pub(super) engine: Arc<Engine>,
    runtime: Runtime,
    snapshot: Arc<Snapshot>,
}

impl Rig {
    pub(super) fn new() -> Self {
        let options = EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let (mut writer, reader) = cache::new(7);
        let mut pods = Vec::new();
        for (at, namespace) in (1..).zip(["bank", "bank", "shop", "shop", "shop", "zoo"]) {
            let mut pod = testing::pod(&format!("cart-{at}"), &format!("u{at}"), at, "cart");
            pod.header.namespace = namespace.to_owned();
            pods.push(PodEvent::applied(testing::cached(&pod)));
        }
        writer.apply(pods).publish();
        Self { engine: Engine::new(options).unwrap(), runtime: runtime.unwrap(), snapshot: reader.snapshot() }
    }

    /// A plugin of the namespace `shop` with grants of everything there.
    pub(super) fn spec(&self) -> PluginSpec {
        let mut spec = sandbox::spec("fuzzed");
        spec.grants = sandbox::everything();
        spec.grants.read.as_mut().unwrap().sections = SectionSet::ALL;
        spec.limits.class = LimitClass::Interpreter;
        spec.limits.cpu = CPU;
        (spec.limits.host_calls, spec.limits.writes, spec.limits.log_bytes) = (HOST_CALLS, WRITES, LOG_BYTES);
        spec
    }

    /// Runs the plugin with these bytes as the value of the key `program` of its state, and checks the run. Returns its
    /// report and its log.
    pub(super) fn run(&self, plugin: &Plugin, program: &[u8]) -> (RunReport<Staged>, Vec<String>) {
        let outputs = Arc::new(Mutex::new(Outputs::default()));
        let mut state = State::default();
        state.put("program", program.to_vec(), None).unwrap();
        let world = Fuzzed { snapshot: Arc::clone(&self.snapshot), state, outputs: Arc::clone(&outputs) };
        let mut request = sandbox::request();
        request.unsettled =
            vec![WriteReport { id: 3, description: "evict".into(), result: WriteResult::Blocked("pdb".into()) }];
        let report = self.runtime.block_on(plugin.reconcile(request, Box::new(world)));
        let outputs = Arc::into_inner(outputs).unwrap().into_inner().unwrap();
        check(&report, &outputs);
        (report, outputs.lines)
    }
}

#[derive(Default)]
struct Outputs {
    lines: Vec<String>,
    committed: Vec<Staged>,
    live: u32,
}

fn check(report: &RunReport<Staged>, outputs: &Outputs) {
    if let Err(failure) = &report.result {
        assert_ne!(failure.kind, FailureKind::Host, "{}", failure.message);
        assert!(is_one_line(&failure.message) && failure.message.len() <= ESCAPED << 11, "{}", failure.message);
        assert!(report.staged.writes.is_empty() && report.staged.events.is_empty(), "a failed run sends nothing");
    }
    let usage = report.usage;
    assert!(usage.fuel <= FUEL && usage.host_calls <= 2 * HOST_CALLS + 1, "{usage:?}");
    assert!(outputs.live <= 10, "{} live reads", outputs.live);
    let log: usize = outputs.lines.iter().map(String::len).sum();
    assert!(log <= ESCAPED * (LOG_BYTES + 1_024), "{log} bytes of log");
    assert!(outputs.lines.len() <= LOG_BYTES / 128 + 2, "{} lines", outputs.lines.len());
    outputs.lines.iter().for_each(|line| assert!(is_one_line(line), "{line:?}"));
    let staged = || outputs.committed.iter().chain([&report.staged]);
    let sum: usize = staged().map(|staged| staged.writes.len() + staged.events.len()).sum();
    assert!(sum <= WRITES as usize, "{sum} writes");
    for action in staged().flat_map(|staged| &staged.writes).map(|write| &write.get().action) {
        let namespace = match action {
            Action::ApplyObject { object, .. } | Action::DeleteObject { object, .. } | Action::Scale { object, .. } => {
                object.namespace.as_deref()
            }
            other => other.pod().map(|key| &*key.namespace),
        };
        assert_eq!(namespace, Some("shop"), "{action:?}");
        assert!(is_one_line(&action.describe()), "{action:?}");
    }
    for event in staged().flat_map(|staged| &staged.events) {
        assert_eq!(&*event.get().target.namespace, "shop");
    }
}

fn is_one_line(text: &str) -> bool {
    let forges = |character: char| character.is_control() || ('\u{2028}'..='\u{202e}').contains(&character);
    !text.contains(forges)
}

struct Fuzzed {
    snapshot: Arc<Snapshot>,
    state: State,
    outputs: Arc<Mutex<Outputs>>,
}

impl World for Fuzzed {
    fn is_revoked(&self) -> bool {
        false
    }

    fn view(&self) -> &dyn PodView {
        self
    }
    fn live<'a>(
        &'a mut self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        assert_eq!(namespace, "shop", "another namespace is never asked for");
        self.outputs.lock().unwrap().live += 1;
        Box::pin(async move {
            tokio::task::yield_now().await;
            Ok(self.snapshot.get(namespace, name))
        })
    }
    fn commit(&mut self, staged: Staged) -> BoxFuture<'_, Vec<WriteReport>> {
        let report = |write: &podium_vocabulary::Write| WriteReport {
            id: write.id,
            description: write.action.describe(),
            result: WriteResult::Applied,
        };
        let reports = staged.writes.iter().map(|write| report(write.get())).collect();
        self.outputs.lock().unwrap().committed.push(staged);
        Box::pin(async move {
            tokio::task::yield_now().await;
            reports
        })
    }
    fn state_get(&mut self, key: &str) -> Option<StateEntry> {
        self.state.get(key)
    }
    fn state_put(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        self.state.put(key, value, expected)
    }
    fn state_remove(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        self.state.remove(key, expected)
    }
    fn log(&mut self, _: LogLevel, message: &str, fields: &[(String, String)]) {
        let mut lines = self.outputs.lock().unwrap();
        lines.lines.push(fields.iter().fold(message.to_owned(), |line, (key, value)| line + " " + key + "=" + value));
    }
}

/// The snapshot, which fails where a plugin of a namespace looks at another one.
impl PodView for Fuzzed {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        assert_eq!(namespace, "shop", "another namespace is never asked for");
        self.snapshot.get(namespace, name)
    }
    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>> {
        self.snapshot.by_uid(uid)
    }
    fn search(
        &self,
        query: &podium_vocabulary::PodQuery,
        limit: usize,
        most: u64,
        after: Option<&podium_vocabulary::Cursor>,
    ) -> Slice {
        assert_eq!(query.namespace.as_deref(), Some("shop"), "another namespace is never searched");
        self.snapshot.search(query, limit, most, after)
    }
    fn known_count(&self, query: &podium_vocabulary::PodQuery) -> Option<u64> {
        assert_eq!(query.namespace.as_deref(), Some("shop"), "another namespace is never counted");
        self.snapshot.known_count(query)
    }
    fn revision(&self) -> podium_vocabulary::Revision {
        self.snapshot.revision()
    }
}
