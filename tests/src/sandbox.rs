//! A small environment of one run, for tests of the sandbox only: three Pods, records of host calls, and specs with
//! few grants. Guests are built by [`guests`](crate::guests).

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use podium_engine::ports::{
    Failure, FailureKind, LogLevel, Meter, ObjectAnswer, Reconcile, Request, RunReport, Staged, StateEntry, StateError,
    Subject, World,
};
use podium_pods::{
    cache::Snapshot,
    pod::{CachedPod, Effort, PodView, Slice},
    testing,
};
use podium_runtime::{Engine, EngineOptions, LoadError, Plugin};
use podium_vocabulary::{
    Cursor, Grants, KeyPattern, LimitClass, Limits, ObjectGrant, PluginSpec, PodQuery, ReadGrants, Refused, Revision,
    WriteGrants, WriteReport, WriteResult,
    authz::{Authorized, ObjectRead},
};
use podium_wire::{Header, Pod, Section, SectionSet, Status};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::guests;

/// 2026-01-02T03:04:05.678Z.
pub const NOW_MILLIS: u64 = 1_767_323_045_678;

/// Tests run concurrently on few cores, each with its own engine, so the pools are small.
fn options() -> EngineOptions {
    EngineOptions { concurrent_runs: 4, ..EngineOptions::default() }
}

/// Returns an engine that cuts runs by fuel and by wall time, not by measured processor time: a virtual machine counts
/// time that its host took away as the thread's, so a test that measures it fails now and then through no fault.
pub fn engine() -> Arc<Engine> {
    Engine::with_meter(options(), Arc::new(Still)).unwrap()
}

/// Returns an engine that measures processor time as podium-host does.
pub fn measuring_engine() -> Arc<Engine> {
    Engine::new(options()).unwrap()
}

/// Clocks that stand still.
struct Still;

impl Meter for Still {
    fn thread_time(&self) -> Duration {
        Duration::ZERO
    }

    fn time(&self) -> Duration {
        Duration::ZERO
    }
}

/// Returns limits that a slow machine does not exceed by being slow.
pub fn spec(name: &str) -> PluginSpec {
    let read = ReadGrants { sections: SectionSet::EMPTY.with(Section::Labels), live: false };
    let write = WriteGrants { labels: vec![KeyPattern("guests.example/*".into())], ..WriteGrants::default() };
    PluginSpec {
        grants: Grants { read: Some(read), write, ..Grants::default() },
        limits: Limits { wall: Duration::from_secs(20), ..Limits::default() },
        ..testing::plugin(Some("shop"), name)
    }
}

/// Returns a spec whose plugin is checked by interface at load, so that single functions are refused at the call.
pub fn probe(script: &[&str]) -> PluginSpec {
    let mut spec = spec("probe");
    spec.limits.class = LimitClass::Interpreter;
    spec.grants = everything();
    spec.config = serde_json::to_string(&script.join("\n")).unwrap().into();
    spec
}

/// Returns a spec like [`probe`]'s, of the guest that calls the interface `objects`.
pub fn reader(script: &[&str]) -> PluginSpec {
    PluginSpec { id: spec("reader").id, source: spec("reader").source, ..probe(script) }
}

pub fn everything() -> Grants {
    let keys = || vec![KeyPattern("guests.example/*".into())];
    Grants {
        read: Some(ReadGrants { sections: SectionSet::EMPTY.with(Section::Labels), live: true }),
        read_objects: config_maps(),
        write: WriteGrants {
            labels: keys(),
            annotations: keys(),
            finalizers: keys(),
            conditions: keys(),
            events: true,
            delete: true,
            evict: true,
            objects: config_maps(),
            forced: Vec::new(),
            scale: config_maps(),
        },
    }
}

fn config_maps() -> Vec<ObjectGrant> {
    let [api_version, kind, resource] = ["v1", "ConfigMap", "configmaps"].map(str::to_owned);
    vec![ObjectGrant { api_version, kind, resource }]
}

pub fn load(engine: &Engine, spec: &PluginSpec) -> Result<Plugin, LoadError> {
    let guest = spec.source.file().unwrap().file_stem().unwrap().to_str().unwrap();
    engine.compile(spec, &guests::component(guest).unwrap())
}

pub fn pod(namespace: &str, name: &str) -> Arc<CachedPod> {
    pod_with_label(namespace, name, "cart")
}

/// Returns a running Pod with the label `app`.
pub fn pod_with_label(namespace: &str, name: &str, app: &str) -> Arc<CachedPod> {
    let header = Header {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-of-{name}"),
        resource_version: "7".into(),
        ..Header::default()
    };
    let labels = [("app".to_owned(), app.to_owned())].into();
    let annotations = [("secret".to_owned(), "not granted".to_owned())].into();
    let status = Status { phase: "Running".into(), ..Status::default() };
    Arc::new(CachedPod::new(&Pod { header, labels, annotations, status, ..Pod::default() }).unwrap())
}

pub fn request() -> Request {
    let pod = pod("shop", "cart-0");
    Request {
        key: pod.key.clone(),
        subject: Subject::Present(pod),
        now_millis: NOW_MILLIS,
        attempt: 1,
        unsettled: Vec::new(),
        inputs: None,
        seed: 42,
    }
}

/// A log line: level, message, fields.
pub type Line = (LogLevel, String, Vec<(String, String)>);

/// The recorded host calls.
#[derive(Debug, Default, Clone)]
pub struct Notes {
    pub log: Vec<Line>,
    pub committed: Vec<u32>,
    pub live: u32,
    /// The reasons of calls that the grants do not permit.
    pub lacking: Vec<String>,
}

impl Notes {
    pub fn lines(&self) -> Vec<&str> {
        self.log.iter().map(|(_, message, _)| message.as_str()).collect()
    }
}

/// A world with two Pods of the plugin's own namespace and one of another.
pub struct FakeWorld {
    pub notes: Arc<Mutex<Notes>>,
    pods: Pods,
    /// Read instead of the Pods above.
    pub snapshot: Option<Arc<Snapshot>>,
    /// The plugin's state by key.
    pub state: BTreeMap<String, StateEntry>,
    /// The behaviour of live reads.
    pub live: LiveReads,
    /// Whether the plugin's permissions were revoked.
    pub revoked: bool,
    /// The duration of a commit.
    pub commit_takes: Duration,
    /// The processor time that a commit uses.
    pub commit_computes: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveReads {
    Answer,
    NeverAnswer,
    Panic,
}

pub struct Pods {
    pods: Vec<Arc<CachedPod>>,
    /// The processor time that each `get` uses.
    busy: Duration,
    /// The number of examined Pods that each Pod counts as.
    weight: usize,
}

impl Pods {
    fn matching<'a>(&'a self, query: &'a PodQuery) -> impl Iterator<Item = &'a Arc<CachedPod>> {
        self.pods.iter().filter(|pod| {
            query.namespace.as_ref().is_none_or(|namespace| *namespace == pod.key.namespace)
                && query.phase.as_ref().is_none_or(|phase| **phase == *pod.phase())
        })
    }
}

/// Returns the processor time that this thread has used.
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}

/// Uses processor time.
fn compute(busy: Duration) {
    let began = thread_time();
    while thread_time() - began < busy {
        std::hint::spin_loop();
    }
}

impl PodView for Pods {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        compute(self.busy);
        self.pods.iter().find(|pod| &*pod.key.namespace == namespace && &*pod.key.name == name).cloned()
    }
    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>> {
        self.pods.iter().find(|pod| &*pod.key.uid == uid).cloned()
    }
    fn search(&self, query: &PodQuery, limit: usize, _: u64, after: Option<&Cursor>) -> Slice {
        let rest = self.matching(query).filter(|pod| after.is_none_or(|after| pod.cursor() > *after));
        let pods: Vec<_> = rest.take(limit).cloned().collect();
        let examined = self.weight * pods.len();
        Slice { examined, effort: Effort::CANDIDATE * examined as u64, pods, ..Slice::default() }
    }
    fn known_count(&self, _: &PodQuery) -> Option<u64> {
        None
    }
    fn revision(&self) -> Revision {
        Revision(7)
    }
}

impl Default for FakeWorld {
    fn default() -> Self {
        Self::with_pods(vec![pod("bank", "vault-0"), pod("shop", "cart-0"), pod("shop", "cart-1")])
    }
}

impl FakeWorld {
    pub fn with_pods(pods: Vec<Arc<CachedPod>>) -> Self {
        let pods = Pods { pods, busy: Duration::ZERO, weight: 1 };
        Self {
            notes: Arc::default(),
            pods,
            snapshot: None,
            state: [("there".to_owned(), StateEntry { value: vec![1], version: 3 })].into(),
            live: LiveReads::Answer,
            revoked: false,
            commit_takes: Duration::ZERO,
            commit_computes: Duration::ZERO,
        }
    }
    pub fn reads_compute(&mut self, busy: Duration) {
        self.pods.busy = busy;
    }
    pub fn each_pod_counts_as(&mut self, weight: usize) {
        self.pods.weight = weight;
    }
}

impl World for FakeWorld {
    fn is_revoked(&self) -> bool {
        self.revoked
    }
    fn view(&self) -> &dyn PodView {
        self.snapshot.as_deref().map_or(&self.pods, |snapshot| snapshot)
    }
    fn live<'a>(
        &'a mut self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        self.notes.lock().unwrap().live += 1;
        Box::pin(async move {
            match self.live {
                LiveReads::Answer => Ok(self.pods.get(namespace, name)),
                LiveReads::NeverAnswer => std::future::pending().await,
                LiveReads::Panic => panic!("the world fell over"),
            }
        })
    }
    fn object<'a>(&'a mut self, read: &'a Authorized<ObjectRead>) -> ObjectAnswer<'a> {
        self.notes.lock().unwrap().live += 1;
        let name = &read.get().0.name;
        let object = json!({ "metadata": { "name": name }, "data": { "a": "b" } });
        Box::pin(std::future::ready(Ok((name != "absent").then_some(object))))
    }
    fn commit(&mut self, staged: Staged) -> BoxFuture<'_, Vec<WriteReport>> {
        let writes = staged.writes.iter().map(|write| write.get());
        let reports: Vec<_> = writes
            .map(|write| WriteReport {
                id: write.id,
                description: write.action.describe(),
                result: WriteResult::Applied,
            })
            .collect();
        Box::pin(async move {
            tokio::time::sleep(self.commit_takes).await;
            compute(self.commit_computes);
            self.notes.lock().unwrap().committed.extend(reports.iter().map(|report| report.id));
            reports
        })
    }
    fn state_get(&mut self, key: &str) -> Option<StateEntry> {
        self.state.get(key).cloned()
    }
    fn state_put(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        let there = self.state_get(key);
        let version = there.as_ref().map_or(0, |entry| entry.version);
        if expected.is_some_and(|expected| expected != version) {
            return Err(StateError::Conflict(there));
        }
        self.state.insert(key.to_owned(), StateEntry { value, version: version + 1 });
        Ok(version + 1)
    }
    fn state_remove(&mut self, _: &str, _: Option<u64>) -> Result<(), StateError> {
        Ok(())
    }
    fn not_granted(&mut self, why: &str) {
        self.notes.lock().unwrap().lacking.push(why.to_owned());
    }
    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        self.notes.lock().unwrap().log.push((level, message.to_owned(), fields.to_vec()));
    }
}

pub async fn run_in(plugin: &Plugin, request: Request, world: FakeWorld) -> (RunReport<Staged>, Notes) {
    let notes = Arc::clone(&world.notes);
    let report = plugin.reconcile(request, Box::new(world)).await;
    let notes = notes.lock().unwrap().clone();
    (report, notes)
}

pub async fn run(spec: &PluginSpec) -> (RunReport<Staged>, Notes) {
    let engine = engine();
    run_in(&load(&engine, spec).unwrap(), request(), FakeWorld::default()).await
}

/// Returns the results that a probe logged.
pub async fn answers(spec: &PluginSpec) -> Vec<String> {
    let (report, notes) = run(spec).await;
    assert!(report.result.is_ok(), "{:?}", report.result);
    notes.lines().into_iter().map(str::to_owned).collect()
}

#[track_caller]
pub fn failed(report: RunReport<Staged>, kind: FailureKind) -> Failure {
    let failure = report.result.unwrap_err();
    assert_eq!(failure.kind, kind, "{}", failure.message);
    assert!(report.staged.writes.is_empty() && report.staged.events.is_empty(), "a failed run sends nothing");
    failure
}
