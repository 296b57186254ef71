//! The probe of a new version beside the one that runs: runs on a few Pods that change nothing.
//!
//! A run of a probe reads the cache as any run does. Its state is a copy, its live reads are refused, and it has passed
//! at its first commit, because there is no honest report of writes that are not sent. Its staged writes are dropped.
//! The tenant is charged for it as for other runs.

use std::{
    future::poll_fn,
    hash::{DefaultHasher, Hash, Hasher},
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use podium_pods::pod::{CachedPod, Change, Page, PodView};
use podium_vocabulary::{PluginSpec, PodQuery, Refused, WriteReport};
use tokio::time::Instant;
use tracing::Instrument;

use super::{Dispatch, LoadedPlugin, State, seed, world::log};
use crate::{
    ports::{
        Failure, FailureKind, LogLevel, RUN_TARGET, Reconcile, Request, RunReport, Staged, StateEntry, StateError,
        Subject, World, panic_message,
    },
    wake::Wake,
};

/// The most Pods that a probe runs on.
pub const PROBE_PODS: usize = 8;
/// A probe runs on no further Pod after this time, because other loads wait for it.
const PROBE_TIME: Duration = Duration::from_secs(10);
/// Pods that are looked at before other tasks have their turn; about a millisecond.
const SLICE: usize = 1_000;

/// Whether the result of a probe is still of use; if not, the host calls of its runs are refused.
pub type IsWanted = Arc<dyn Fn() -> bool + Send + Sync>;

impl Dispatch {
    /// Runs a new version on at most [`PROBE_PODS`] of the Pods that it matches. Returns the number of Pods. If there
    /// is none, an instance is created and dropped. `inputs` are the objects of the new version's inputs.
    ///
    /// # Errors
    /// Returns the failure of a run that trapped or exceeded a limit. Other failures are for the plugin to report, and
    /// the new version may report them where the one before does.
    pub async fn probe(
        &self,
        before: &Arc<LoadedPlugin>,
        spec: &PluginSpec,
        reconcile: &dyn Reconcile,
        inputs: Option<Arc<str>>,
        is_wanted: IsWanted,
    ) -> Result<usize, String> {
        let began = Instant::now();
        let snapshot: Arc<dyn PodView> = self.reader.snapshot();
        let state = Arc::new(Mutex::new(before.state.lock().copied()));
        let committed = Arc::new(AtomicBool::new(false));
        let world = || ProbeWorld {
            before: before.clone(),
            snapshot: snapshot.clone(),
            state: state.clone(),
            committed: committed.clone(),
            is_wanted: is_wanted.clone(),
        };
        let charge = |cost| {
            before.status.charged(cost);
            self.queue.charge(before.lane, cost);
        };
        let pods = drawn(&*snapshot, spec, self.seed).await;
        if pods.is_empty() {
            let instance = AssertUnwindSafe(reconcile.instantiate(Box::new(world()))).catch_unwind().await;
            // An instance has no report, as a run that is dropped.
            charge(began.elapsed().min(spec.limits.cpu));
            return match instance.unwrap_or(Ok(())) {
                Err(failure) if failure.kind.is_panic() => Err(described("at its start", &failure)),
                _ => Ok(0),
            };
        }
        let mut probed = 0;
        for (number, pod) in (1..).zip(pods) {
            if began.elapsed() >= PROBE_TIME || !is_wanted() {
                break;
            }
            let key = pod.key.clone();
            let span = tracing::error_span!(
                target: RUN_TARGET,
                "reconcile",
                probe = true,
                run = number,
                plugin = %spec.id,
                namespace = %key.namespace,
                pod = %key.name,
                uid = %key.uid,
                generation = pod.generation(),
            );
            let request = Request {
                key: key.clone(),
                subject: Subject::Present(pod),
                now_millis: self.clock.now_millis(),
                attempt: 1,
                unsettled: Vec::new(),
                inputs: inputs.clone(),
                seed: seed::of_run(self.seed, &spec.id, number),
            };
            committed.store(false, SeqCst);
            let run = reconcile.reconcile(request, Box::new(world()));
            let started = Instant::now();
            let (ended, cost) = until_commit(run, &committed).instrument(span).await;
            // A run that was dropped cannot report its time on the processor. It has had no more than this.
            let most = || started.elapsed().min(spec.limits.cpu);
            charge(cost.unwrap_or_else(most));
            if let Err(failure) = ended
                && failure.kind.is_panic()
            {
                return Err(described(&format!("on pod {}/{}", key.namespace, key.name), &failure));
            }
            probed += 1;
        }
        Ok(probed)
    }
}

fn described(place: &str, failure: &Failure) -> String {
    format!("{place}, reason {}: {}", failure.kind.name(), failure.message)
}

/// Polls a run until it ends or commits, and drops it then. Returns its processor time too, if it ended.
async fn until_commit(
    run: BoxFuture<'_, RunReport<Staged>>,
    committed: &AtomicBool,
) -> (Result<(), Failure>, Option<Duration>) {
    let mut run = AssertUnwindSafe(run).catch_unwind();
    let ended = poll_fn(|context| match run.poll_unpin(context) {
        Poll::Ready(ended) => Poll::Ready(Some(ended)),
        Poll::Pending if committed.load(SeqCst) => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    match ended.await {
        None => (Ok(()), None),
        Some(Ok(report)) => (report.result.map(|_| ()), Some(report.usage.cpu)),
        Some(Err(panic)) => {
            let message = format!("the host panicked: {}", panic_message(&*panic));
            (Err(Failure { kind: FailureKind::Host, message }), None)
        }
    }
}

/// Draws Pods that the plugin matches; the same Pods and seed lead to the same choice.
async fn drawn(view: &dyn PodView, spec: &PluginSpec, seed: u64) -> Vec<Arc<CachedPod>> {
    let labels = spec.watch.selector.clone();
    let query = PodQuery { namespace: spec.id.namespace.clone(), labels, ..PodQuery::default() };
    let mut drawn: Vec<(u64, Arc<CachedPod>)> = Vec::new();
    let mut after = None;
    let wake = Wake::new([((), spec)]);
    // A Pod without a group never runs the plugin.
    let runs = |pod: &Arc<CachedPod>| {
        let added = Change::between(None, Some(pod.clone()));
        added.is_some_and(|added| !wake.concerned(&added).is_empty())
    };
    loop {
        let Page { pods, next, .. } = view.find(&query, SLICE, after.as_ref());
        drawn.extend(pods.into_iter().filter(runs).map(|pod| (lot(seed, &pod.key.uid), pod)));
        drawn.sort_by_key(|(lot, _)| *lot);
        drawn.truncate(PROBE_PODS);
        after = next;
        if after.is_none() {
            return drawn.into_iter().map(|(_, pod)| pod).collect();
        }
        tokio::task::yield_now().await;
    }
}

fn lot(seed: u64, uid: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, uid).hash(&mut hasher);
    hasher.finish()
}

/// The world of a run of a probe.
struct ProbeWorld {
    before: Arc<LoadedPlugin>,
    snapshot: Arc<dyn PodView>,
    /// A copy.
    state: Arc<Mutex<State>>,
    committed: Arc<AtomicBool>,
    is_wanted: IsWanted,
}

impl World for ProbeWorld {
    fn is_revoked(&self) -> bool {
        self.before.is_revoked() || !(self.is_wanted)()
    }

    fn view(&self) -> &dyn PodView {
        &*self.snapshot
    }

    fn live<'a>(&'a mut self, _: &'a str, _: &'a str) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        Box::pin(std::future::ready(Err(Refused::Unavailable("a probe reads from the cache only".to_owned()))))
    }

    fn commit(&mut self, _: Staged) -> BoxFuture<'_, Vec<WriteReport>> {
        self.committed.store(true, SeqCst);
        Box::pin(std::future::pending())
    }

    fn state_get(&mut self, key: &str) -> Option<StateEntry> {
        self.state.lock().get(key)
    }

    fn state_put(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        self.state.lock().put(key, value, expected)
    }

    fn state_remove(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        self.state.lock().remove(key, expected)
    }

    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        log(&self.before, level, message, fields);
    }
}
