//! Random programs over random clusters: no canary in any output of a run, and all outputs, their order and the fuel
//! are the same whatever Pods other tenants have.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use podium_engine::{
    dispatch::State,
    ports::{LogLevel, Reconcile, Request, Staged, StateEntry, StateError, Subject, World},
};
use podium_pods::{
    cache::Snapshot,
    pod::{CachedPod, PodView},
};
use podium_runtime::{Engine, Plugin};
use podium_tests::{
    programs::{Choices, Program},
    sandbox::{NOW_MILLIS, thread_time},
};
use podium_vocabulary::{Refused, Write, WriteReport, WriteResult, authz::Authorized};
use podium_wire::{Section, SectionSet};
use tokio::runtime::Runtime;

use super::{
    CANARY, caller, engine, load, on_threads,
    population::{Others, Population, vocabulary},
    sinks,
};

/// All that a run shows and costs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trace {
    pub(super) lines: Vec<String>,
    /// Writes and Events that were committed or staged.
    pub(super) writes: Vec<String>,
    pub(super) result: String,
    pub(super) fuel: u64,
    pub(super) host_calls: u32,
}

/// The world of a run: a snapshot, the plugin's state with its program, and a record of the outputs.
struct Recorded {
    snapshot: Arc<Snapshot>,
    state: State,
    trace: Arc<Mutex<Trace>>,
}

impl World for Recorded {
    fn is_revoked(&self) -> bool {
        false
    }
    fn view(&self) -> &dyn PodView {
        &*self.snapshot
    }
    fn live<'a>(
        &'a mut self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        let pod = self.snapshot.get(namespace, name);
        Box::pin(std::future::ready(Ok(pod)))
    }
    fn commit(&mut self, staged: Staged) -> BoxFuture<'_, Vec<WriteReport>> {
        self.trace.lock().unwrap().writes.extend(written(&staged));
        let reports = staged.writes.into_iter().map(Authorized::into_inner).map(|Write { id, action }| {
            let target = action.pod().map(|key| self.snapshot.by_uid(&key.uid).is_some_and(|pod| pod.key == *key));
            let result = if target.unwrap_or(true) { WriteResult::Applied } else { WriteResult::Gone };
            WriteReport { id, description: action.describe(), result }
        });
        let reports = reports.collect();
        Box::pin(std::future::ready(reports))
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
    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        self.trace.lock().unwrap().lines.push(format!("{level:?} {message} {fields:?}"));
    }
}

fn written(staged: &Staged) -> Vec<String> {
    let writes = staged.writes.iter().map(|write| format!("{:?} {}", write.get(), write.get().action.describe()));
    let events = staged.events.iter().map(|event| format!("{:?}", event.get()));
    writes.chain(events).collect()
}

/// Runs a program on a Pod of the cluster.
pub(super) fn run(plugin: &Plugin, cluster: &Population, subject: &Arc<CachedPod>, program: &Program) -> Trace {
    timed(&runtime(), plugin, cluster, subject, program).0
}

/// A runtime of this thread, on which time stands still.
pub(super) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Runs a program, and returns the processor time of the run too.
pub(super) fn timed(
    runtime: &Runtime,
    plugin: &Plugin,
    cluster: &Population,
    subject: &Arc<CachedPod>,
    program: &Program,
) -> (Trace, Duration) {
    let trace = Arc::new(Mutex::new(Trace::default()));
    let mut state = State::default();
    state.put("program", program.bytes(), None).unwrap();
    let world = Recorded { snapshot: Arc::clone(&cluster.snapshot), state, trace: Arc::clone(&trace) };
    let request = Request {
        key: subject.key.clone(),
        subject: Subject::Present(Arc::clone(subject)),
        now_millis: NOW_MILLIS,
        attempt: 1,
        unsettled: Vec::new(),
        inputs: None,
        seed: 42,
    };
    let began = thread_time();
    let report = runtime.block_on(plugin.reconcile(request, Box::new(world)));
    let took = thread_time() - began;
    let mut trace = trace.lock().unwrap().clone();
    trace.writes.extend(written(&report.staged));
    trace.result = format!("{:?}", report.result);
    (trace.fuel, trace.host_calls) = (report.usage.fuel, report.usage.host_calls);
    (trace, took)
}

/// The plugin with different sections, and with so little processor time that some runs use it up.
fn plugins(engine: &Engine) -> Vec<Plugin> {
    let of = |sections: &[Section]| sections.iter().copied().collect::<SectionSet>();
    let searched = [Section::Labels, Section::Owners, Section::Spec, Section::Status];
    let sections = [of(&[]), of(&[Section::Labels]), of(&searched), SectionSet::ALL];
    let specs = sections.into_iter().flat_map(|sections| {
        [1_000, 1].map(|millis| {
            let mut spec = caller();
            spec.grants.read.as_mut().unwrap().sections = sections;
            spec.limits.cpu = Duration::from_millis(millis);
            spec
        })
    });
    specs.map(|spec| load(engine, &spec)).collect()
}

/// Programs on one cluster.
const PROGRAMS: u64 = 4;

#[test]
fn other_tenants_pods_change_no_output_and_no_cost() {
    let engine = engine();
    let plugins = plugins(&engine);
    let words = vocabulary();
    on_threads(120, |seed| {
        let clusters = [Others::Present(1), Others::Absent, Others::Present(2)].map(|of| Population::new(seed, of));
        for number in 0..PROGRAMS {
            let mut choices = Choices::new(seed ^ (number + 3) << 40);
            let plugin = choices.one(&plugins);
            let subject = choices.below(clusters[0].own.len());
            let program = Program::random(&mut choices, &words);
            let [with, without, with_others] = clusters.each_ref().map(|cluster| {
                let (trace, logged) = sinks::logged(|| run(plugin, cluster, &cluster.own[subject], &program));
                for line in logged.iter().chain(&trace.lines).chain(&trace.writes).chain([&trace.result]) {
                    assert!(!line.contains(CANARY), "seed {seed}, program {number}: {line}");
                }
                trace
            });
            assert_eq!(with, without, "seed {seed}, program {number}");
            assert_eq!(with, with_others, "seed {seed}, program {number}");
        }
    });
}

#[test]
fn random_programs_read_pods_and_reach_every_kind_of_answer() {
    let engine = engine();
    let plugins = plugins(&engine);
    let words = vocabulary();
    let mut lines = String::new();
    for seed in 0..100 {
        let cluster = Population::new(seed, Others::Present(1));
        let mut choices = Choices::new(seed);
        let program = Program::random(&mut choices, &words);
        let trace = run(choices.one(&plugins), &cluster, &cluster.own[0], &program);
        lines += &trace.lines.concat();
        lines += &trace.writes.concat();
        lines += &trace.result;
    }
    // Otherwise equal outputs would mean nothing.
    for part in ["bytes", "page Some", "page None", "Ok(1)", "Ok(0)", "Ok(2)", "NotGranted", "Invalid", "None", "Cpu"] {
        assert!(lines.contains(part), "no {part}");
    }
    for part in ["SetLabel", "DeletePod", "ApplyObject", "Applied", "Gone", "reason: \"Called\""] {
        assert!(lines.contains(part), "no {part}");
    }
}

#[test]
fn a_canary_is_found_where_a_plugin_may_read_it() {
    let engine = engine();
    let mut spec = caller();
    spec.id.namespace = None;
    spec.grants.read.as_mut().unwrap().sections = SectionSet::ALL;
    let plugin = load(&engine, &spec);
    let cluster = Population::new(1, Others::Present(1));
    let mut program = Program::default();
    program.find(&podium_tests::programs::Search::default(), 500, None);
    let (trace, _) = sinks::logged(|| run(&plugin, &cluster, &cluster.own[0], &program));
    let text = trace.lines.concat();
    for field in ["name", "value", "key", "note", "owner", "env", "image", "message", "account", "condition"] {
        assert!(text.contains(&format!("{CANARY}-{field}-")), "{field} in {text}");
    }
}
