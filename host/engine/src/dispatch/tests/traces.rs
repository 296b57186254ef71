//! Which runs are traced, and what their writes and records have of their traces.

use super::*;
use crate::{
    dispatch::Traces,
    ports::{TRACED_WRITES, Trace, TraceId, WriteTime},
};

const SLOW: Duration = Duration::from_secs(1);

/// An API server that is slow, and notes the traces of deliveries.
struct Late(Duration, Arc<Mutex<Vec<Option<Trace>>>>);

impl Deliver for Late {
    fn deliver<'a>(
        &'a self,
        _: &'a Sender,
        _: &'a PodKey,
        _: &'a dyn PodView,
        staged: Staged,
        _: u64,
    ) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            self.1.lock().push(staged.trace);
            let began = Instant::now();
            tokio::time::sleep(self.0).await;
            let mut sent = Sent::default();
            for write in staged.writes {
                let Write { id, action } = write.into_inner();
                sent.reports.push(WriteReport { id, description: action.describe(), result: WriteResult::Applied });
                sent.times.push(WriteTime { id, began, took: self.0 });
            }
            sent
        })
    }

    fn held(&self, _: &Sender) -> Option<Duration> {
        None
    }
}

/// Runs a plugin once that stages this many writes, each of which takes a while. Returns the traces that its deliveries
/// had, and the record if the run was traced.
async fn run(
    ratio: Option<f64>,
    result: Result<Outcome, Failure>,
    writes: usize,
    takes: Duration,
) -> (Vec<Option<Trace>>, Option<Arc<RunRecord>>) {
    let mut rig = rig(move |request, _| report(result.clone(), vec![label(&request); writes]));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    let deliveries = Arc::<Mutex<Vec<_>>>::default();
    let kept = Arc::<Mutex<Option<_>>>::default();
    let keeps = kept.clone();
    let Dispatch { queue, registry, expectations, reader, clock, .. } = &*rig.dispatch;
    let dispatch = Arc::new(Dispatch {
        queue: queue.clone(),
        registry: registry.clone(),
        expectations: expectations.clone(),
        reader: reader.clone(),
        deliver: Arc::new(Late(takes, deliveries.clone())),
        live: rig.server.clone(),
        tasks: Arc::new(Spawned),
        clock: clock.clone(),
        seed: 1,
        traces: ratio.map(|ratio| Traces::new(ratio, SLOW, move |record| *keeps.lock() = Some(record))),
    });
    rig.add();
    let job = dispatch.queue.next().await.unwrap();
    finish(dispatch, job).await;
    let deliveries = std::mem::take(&mut *deliveries.lock());
    let kept = kept.lock().take();
    (deliveries, kept)
}

#[tokio::test(start_paused = true)]
async fn without_traces_a_delivery_has_none() {
    let (deliveries, kept) = run(None, Ok(Outcome::Settled), 1, Duration::ZERO).await;
    assert_eq!((deliveries, kept.is_none()), (vec![None], true));
}

#[tokio::test(start_paused = true)]
async fn a_drawn_run_is_traced_and_its_writes_know_it() {
    let (deliveries, kept) = run(Some(1.0), Ok(Outcome::Settled), 10, Duration::from_millis(5)).await;
    let record = kept.unwrap();
    let trace = record.trace.as_ref().unwrap();
    assert_eq!(deliveries, [Some(Trace { id: trace.id, is_sampled: true })]);
    let ids: Vec<_> = trace.times.iter().map(|time| time.id).collect();
    assert_eq!(ids, (0..TRACED_WRITES).collect::<Vec<_>>(), "those that the record lists");
    assert_eq!(record.writes.iter().map(|write| write.id).collect::<Vec<_>>(), ids);
    assert_eq!(trace.times[0].took, Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn of_the_other_runs_those_that_fail_or_are_slow_are_traced() {
    let failure = Failure { kind: FailureKind::Retry, message: "teapot".to_owned() };
    for (result, takes, is_traced) in [
        (Ok(Outcome::Settled), Duration::ZERO, false),
        (Ok(Outcome::Settled), SLOW, false),
        (Ok(Outcome::Settled), SLOW + Duration::from_millis(1), true),
        (Err(failure), Duration::ZERO, true),
    ] {
        let (deliveries, kept) = run(Some(0.0), result.clone(), 1, takes).await;
        assert_eq!(kept.is_some(), is_traced, "{result:?} after {takes:?}");
        assert!(deliveries.iter().all(|trace| trace.is_some_and(|trace| !trace.is_sampled)), "{deliveries:?}");
    }
}

#[test]
fn a_ratio_draws_that_part_of_the_runs_by_their_ids() {
    let plugin = spec().id;
    for ratio in [0.0, 0.01, 0.25, 1.0] {
        let traces = Traces::new(ratio, SLOW, drop);
        let drawn = (0..10_000).filter(|number| traces.begin(1, &plugin, *number, 5).is_sampled).count();
        assert!(drawn.abs_diff((ratio * 10_000.0) as usize) <= 100, "{drawn} of {ratio}");
    }
    let traces = Traces::new(1.0, SLOW, drop);
    let ids: Vec<TraceId> = [(1, 1, 5), (2, 1, 5), (1, 2, 5), (1, 1, 6)]
        .map(|(host, number, now)| traces.begin(host, &plugin, number, now).id)
        .into();
    assert!((1..4).all(|at| ids[..at].iter().all(|id| *id != ids[at])), "{ids:?}");
}
