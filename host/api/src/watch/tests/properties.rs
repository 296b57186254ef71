//! The watch and the cache behind it against a cluster whose servers lag, lose connections, repeat and reorder
//! events, compact and are rolled back, while Pods are created, changed, deleted and created again under the same
//! names.
//!
//! The model is the cluster's own list of events. At each revision readers must see the Pods of the cluster at this
//! revision; no observation may contradict an earlier one, except in an announced epoch; and when the cluster has
//! recovered, the cache must equal the cluster.

use std::{sync::Arc, time::Duration};

use podium_encoding::Pool;
use podium_pods::{
    cache::{self, Reader, Snapshot, Writer},
    pod::{Observation, PodView},
    testing::ChangeChecker,
};
use podium_vocabulary::Revision;
use proptest::{prelude::*, test_runner::TestCaseError};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, timeout_at},
};

use super::{
    cluster::{Cluster, Fault, Pods},
    scenarios::take,
};
use crate::watch::{Watch, WatchOptions};

#[derive(Debug, Clone)]
enum Step {
    Happen {
        name: u8,
        delete: bool,
    },
    CatchUp {
        server: usize,
        events: usize,
    },
    Wait(u64),
    Fault(Fault),
    /// All history until now is compacted.
    Compact,
    /// etcd is restored from a snapshot.
    Restore(usize),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let faults = [
        Fault::Down,
        Fault::Refused(410),
        Fault::Refused(500),
        Fault::Silent,
        Fault::Cut,
        Fault::Short,
        Fault::Malformed,
        Fault::Repeated,
        Fault::Swapped,
        Fault::Late,
    ];
    let step = prop_oneof![
        12 => (0..4_u8, prop::bool::weighted(0.4)).prop_map(|(name, delete)| Step::Happen { name, delete }),
        8 => (0..2_usize, 1..6_usize).prop_map(|(server, events)| Step::CatchUp { server, events }),
        8 => (0..4_000_u64).prop_map(Step::Wait),
        6 => prop::sample::select(faults.to_vec()).prop_map(Step::Fault),
        1 => Just(Step::Compact),
        1 => (1..8_usize).prop_map(Step::Restore),
        2 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..60)
}

struct Harness {
    cluster: Cluster,
    writer: Writer,
    reader: Reader,
    observations: mpsc::Receiver<Observation>,
    task: JoinHandle<()>,
    checker: ChangeChecker,
    /// The revision that readers saw last.
    revision: Revision,
    /// Readers never see an older epoch.
    epoch: usize,
    /// True if a list was observed since the host's start or the last epoch.
    listed: bool,
    /// The host was restarted since the last observation.
    restarted: bool,
}

fn begin(cluster: &Cluster) -> (Writer, Reader, mpsc::Receiver<Observation>, JoinHandle<()>) {
    let (writer, reader) = cache::new(7);
    let options = WatchOptions { page_limit: 2, ..WatchOptions::default() };
    let watch = Watch::new(cluster.api(), options, Arc::new(Pool::new(7)), Arc::new(reader.clone()), 7);
    let (sender, observations) = mpsc::channel(4);
    (writer, reader, observations, tokio::spawn(watch.run(sender)))
}

impl Harness {
    fn new(streaming_lists: bool) -> Self {
        let cluster = Cluster::new(streaming_lists);
        let (writer, reader, observations, task) = begin(&cluster);
        let checker = ChangeChecker::default();
        let revision = Revision(0);
        Self {
            cluster,
            writer,
            reader,
            observations,
            task,
            checker,
            revision,
            epoch: 0,
            listed: false,
            restarted: false,
        }
    }

    /// Applies observations for this long.
    async fn observe(&mut self, time: Duration) -> Result<(), TestCaseError> {
        let end = Instant::now() + time;
        while let Ok(observation) = timeout_at(end, self.observations.recv()).await {
            self.apply(observation.expect("the watch ended"))?;
        }
        Ok(())
    }

    fn apply(&mut self, observation: Observation) -> Result<(), TestCaseError> {
        match &observation {
            Observation::RolledBack => {
                self.checker.roll_back();
                self.revision = Revision(0);
                // An announced epoch is later than the observed one.
                self.epoch += 1;
                self.listed = false;
                self.cluster.was_listed(u64::MAX);
            }
            Observation::Relisted { revision, .. } => {
                // The server may have sent later events in a wrong order already.
                self.cluster.was_listed(revision.0);
                self.listed = true;
            }
            _ => {}
        }
        let changes = take(&mut self.writer, observation);
        self.checker.apply(&changes).map_err(TestCaseError::fail)?;
        let snapshot = self.reader.snapshot();
        self.checker.agrees_with(&snapshot).map_err(TestCaseError::fail)?;
        if self.listed { self.is_exact(&snapshot) } else { Ok(()) }
    }

    /// Readers see the Pods that the cluster had at the revision, in the epoch that was seen or in a later one.
    fn is_exact(&mut self, snapshot: &Snapshot) -> Result<(), TestCaseError> {
        let revision = snapshot.revision();
        let first = std::mem::take(&mut self.restarted);
        if first && revision < self.revision {
            // An epoch that began while the host was down is not announced.
            self.epoch += 1;
        } else {
            prop_assert!(self.revision <= revision, "back from {} to {revision}", self.revision);
        }
        self.revision = revision;
        if self.cluster.is_disordered() {
            return Ok(());
        }
        let seen = pods(snapshot);
        while let Some(there) = self.cluster.at(self.epoch, revision.0) {
            if seen == there {
                return Ok(());
            }
            self.epoch += 1;
        }
        prop_assert!(false, "at {revision} there was never {seen:?}");
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Happen { name, delete } => self.cluster.happen(&format!("pod-{name}"), delete),
            Step::CatchUp { server, events } => self.cluster.catch_up(server, events),
            Step::Wait(millis) => return self.observe(Duration::from_millis(millis)).await,
            Step::Fault(fault) => self.cluster.fault(fault),
            Step::Compact => self.cluster.compact(),
            Step::Restore(back) => {
                // If the history advanced past the observed revision at once, no client could detect the rollback.
                self.cluster.restore(back);
                return self.observe(Duration::from_secs(60)).await;
            }
            Step::Restart => {
                self.task.abort();
                // A host begins again, regardless of earlier observations.
                self.cluster.was_listed(u64::MAX);
                // The journal knows the Pods that were deleted meanwhile.
                self.checker = ChangeChecker::default();
                self.listed = false;
                self.restarted = true;
                (self.writer, self.reader, self.observations, self.task) = begin(&self.cluster);
            }
        }
        Ok(())
    }
}

fn pods(snapshot: &Snapshot) -> Pods {
    snapshot.iter().map(|pod| (pod.key.name.to_string(), (pod.key.uid.to_string(), pod.revision.0))).collect()
}

async fn run(steps: &[Step], streaming_lists: bool) -> Result<(), TestCaseError> {
    let mut harness = Harness::new(streaming_lists);
    for step in steps {
        harness.step(step).await?;
    }
    harness.cluster.heal();
    (0..2).for_each(|server| harness.cluster.catch_up(server, usize::MAX));
    // Long enough for the timeout of a silent streaming list and for the longest back-off.
    harness.observe(Duration::from_secs(60)).await?;
    prop_assert_eq!(pods(&harness.reader.snapshot()), harness.cluster.present());
    prop_assert_eq!(harness.reader.staleness(), None);
    harness.task.abort();
    Ok(())
}

proptest! {
    #[test]
    fn readers_see_consistent_states_and_finally_the_clusters(steps in steps(), streaming_lists in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        runtime.unwrap().block_on(run(&steps, streaming_lists))?;
    }
}
