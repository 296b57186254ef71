//! Claims about memory that jobs take, under paused time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use proptest::prelude::*;
use tokio::time::advance;

use super::{Claim, Claims, MemoryBudget, PATIENCE};
use crate::queue::{Backoff, Job, Next, Queue};

type Jobs = Queue<u8, u32, ()>;

/// By lane: tenant and bytes.
#[derive(Debug)]
struct Declared(Vec<(u32, u64)>);

impl Claims<u8> for Declared {
    fn claim(&self, lane: u8) -> Claim {
        let (tenant, bytes) = self.0[usize::from(lane)];
        Claim { tenant, bytes }
    }
}

fn queue(budget: u64, lanes: &[(u32, u64)], lane_limit: usize) -> Jobs {
    Queue::new(Backoff::default(), lane_limit, 1).within(MemoryBudget::new(budget), Arc::new(Declared(lanes.to_vec())))
}

/// Returns the job that may start now, if any; never waits.
async fn now(queue: &Jobs) -> Option<Job<u8, u32, ()>> {
    tokio::select! { biased; job = queue.next() => job, () = std::future::ready(()) => None }
}

async fn all(queue: &Jobs) -> Vec<Job<u8, u32, ()>> {
    let mut jobs = Vec::new();
    while let Some(job) = now(queue).await {
        jobs.push(job);
    }
    jobs
}

fn lanes(jobs: &[Job<u8, u32, ()>]) -> Vec<u8> {
    jobs.iter().map(|job| job.lane).collect()
}

#[tokio::test(start_paused = true)]
async fn a_tenant_holds_at_most_half_also_while_it_is_alone() {
    let queue = queue(100, &[(1, 20), (1, 20), (2, 25)], usize::MAX);
    queue.add((0..5).flat_map(|slot| [(0, slot, ()), (1, slot, ())]));
    let first = all(&queue).await;
    assert_eq!(lanes(&first), [0, 1], "a third job of the tenant would make it 60");
    queue.add((0..5).map(|slot| (2, slot, ())));
    assert_eq!(lanes(&all(&queue).await), [2, 2], "the other tenant finds the other half");
    queue.done(&first[0], Next::Settled);
    assert_eq!(all(&queue).await.len(), 1);
}

#[test]
fn declared_memory_is_counted_in_seven_sizes_within_the_half_of_a_tenant() {
    const MIB: u64 = 1 << 20;
    let sizes = |budget: u64| {
        let counted =
            (1..=256).map(|declared| (declared, MemoryBudget::new(budget * MIB).counted(declared * MIB) / MIB));
        let (fits, larger): (Vec<_>, Vec<_>) = counted.partition(|(declared, _)| declared * 2 <= budget);
        assert!(larger.iter().all(|(declared, counted)| declared == counted), "they never start");
        assert!(fits.iter().all(|(declared, counted)| declared <= counted));
        fits.into_iter().map(|(_, counted)| counted).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(sizes(1_024), [4, 8, 16, 32, 64, 128, 256]);
    assert_eq!(sizes(200), [4, 8, 16, 32, 64, 100]);
    assert_eq!(sizes(4), [2]);
}

/// Runs small jobs, each new one there before the place of the last one is free, beside a large one of lane 0 that
/// waits. Returns how many started before it.
async fn overtaking(declared: &[(u32, u64)], pause: Duration) -> u32 {
    let queue = queue(100, declared, usize::MAX);
    queue.add((1..u8::try_from(declared.len()).unwrap()).map(|lane| (lane, 0, ())));
    let mut running = all(&queue).await;
    queue.add([(0, 0, ())]);
    assert!(now(&queue).await.is_none());
    let mut overtaken = 0;
    while overtaken < 1_000 && !running.is_empty() {
        queue.add([(running[0].lane, overtaken + 1, ())]);
        queue.done(&running.remove(0), Next::Settled);
        advance(pause).await;
        let started = all(&queue).await;
        if started.iter().any(|job| job.lane == 0) {
            assert_eq!(lanes(&started)[0], 0, "the large one is first when there is place");
            return overtaken;
        }
        overtaken += u32::try_from(started.len()).unwrap();
        running.extend(started);
    }
    panic!("the large one never started, and {overtaken} small ones did");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_does_not_fit_lets_smaller_ones_pass_for_a_time() {
    // For the memory of all, beside three other tenants with 30 of 100 each; for its tenant's 50.
    for declared in [vec![(1, 50), (2, 30), (3, 30), (4, 30)], vec![(1, 40), (1, 20), (1, 20)]] {
        assert_eq!(overtaking(&declared, Duration::ZERO).await, PATIENCE.0);
        assert_eq!(overtaking(&declared, PATIENCE.1 / 4).await, 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_its_own_tenant_holds_up_no_other_tenant() {
    let queue = queue(100, &[(1, 30), (1, 50), (2, 10)], usize::MAX);
    queue.add([(0, 0, ())]);
    let first = all(&queue).await;
    queue.add([(1, 0, ()), (0, 1, ())]);
    assert!(now(&queue).await.is_none(), "both are too large beside 30 of the same tenant");
    advance(PATIENCE.1).await;
    for slot in 0..2 * PATIENCE.0 {
        queue.add([(2, slot, ())]);
        let job = now(&queue).await.unwrap();
        assert_eq!(job.lane, 2);
        queue.done(&job, Next::Settled);
    }
    queue.done(&first[0], Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [1], "the one that waited longest");
}

#[tokio::test(start_paused = true)]
async fn memory_is_free_when_the_run_has_ended_and_is_freed_once() {
    let queue = queue(100, &[(1, 50)], usize::MAX);
    queue.add((0..3).map(|slot| (0, slot, ())));
    let first = now(&queue).await.unwrap();
    assert_eq!(first.claim, Some(Claim { tenant: 1, bytes: 50 }));
    assert!(now(&queue).await.is_none());
    queue.ran(&first, Duration::ZERO);
    queue.ran(&first, Duration::ZERO);
    let second = now(&queue).await.unwrap();
    queue.done(&first, Next::Settled);
    assert!(now(&queue).await.is_none(), "the second still has what it took");
    queue.done(&second, Next::Settled);
    assert!(now(&queue).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_start_holds_up_no_other() {
    let queue = queue(100, &[(1, 51), (2, 50), (3, 0), (4, 50), (5, 10)], usize::MAX);
    queue.add([(0, 0, ()), (1, 0, ()), (2, 0, ())]);
    assert_eq!(lanes(&all(&queue).await), [1, 2]);
    advance(PATIENCE.1).await;
    queue.add([(3, 0, ())]);
    assert_eq!(lanes(&all(&queue).await), [3], "nothing is kept for a job that can never start");
    queue.add([(4, 0, ())]);
    assert!(now(&queue).await.is_none());
    advance(PATIENCE.1).await;
    queue.add([(2, 1, ())]);
    assert_eq!(lanes(&all(&queue).await), [2], "a job without memory passes one that is overdue");
}

#[tokio::test(start_paused = true)]
async fn a_removed_lane_that_waited_holds_up_none() {
    let queue = Arc::new(queue(100, &[(1, 30), (2, 40), (3, 40), (1, 20)], usize::MAX));
    queue.add([(0, 0, ()), (1, 0, ())]);
    assert_eq!(all(&queue).await.len(), 2);
    queue.add([(2, 0, ())]);
    assert!(now(&queue).await.is_none());
    advance(PATIENCE.1).await;
    queue.add([(3, 0, ())]);
    assert!(now(&queue).await.is_none(), "20 would fit, and are kept");
    let waits = tokio::spawn({
        let queue = Arc::clone(&queue);
        async move { queue.next().await }
    });
    tokio::task::yield_now().await;
    queue.remove_lane(2);
    let woken = tokio::time::timeout(Duration::from_secs(3_600), waits).await;
    assert_eq!(woken.expect("the worker was not woken").unwrap().unwrap().lane, 3);
}

/// Freed memory wakes a worker that waits, and one wake-up reaches as many as there is memory for.
#[tokio::test(start_paused = true)]
async fn freed_memory_wakes_as_many_workers_as_it_is_enough_for() {
    for release in [false, true] {
        let queue = Arc::new(queue(100, &[(1, 50), (1, 25)], usize::MAX));
        queue.add([(0, 0, ())]);
        let large = now(&queue).await.unwrap();
        queue.add([(1, 0, ()), (1, 1, ())]);
        let workers = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            tokio::spawn(async move { queue.next().await })
        });
        tokio::task::yield_now().await;
        if release {
            queue.ran(&large, Duration::ZERO);
        } else {
            queue.done(&large, Next::Settled);
        }
        for worker in workers {
            let woken = tokio::time::timeout(Duration::from_secs(3_600), worker).await;
            assert_eq!(woken.expect("no worker was woken").unwrap().unwrap().lane, 1);
        }
    }
}

/// Claims whose bytes a test sets.
#[derive(Debug)]
struct Changing(AtomicU64);

impl Claims<u8> for Changing {
    fn claim(&self, lane: u8) -> Claim {
        Claim { tenant: 1, bytes: if lane == 0 { 30 } else { self.0.load(Relaxed) } }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_takes_less_than_before_does_not_wait_for_more() {
    let claims = Arc::new(Changing(AtomicU64::new(40)));
    let queue: Jobs = Queue::new(Backoff::default(), usize::MAX, 1).within(MemoryBudget::new(100), claims.clone());
    queue.add([(0, 0, ())]);
    let _held = now(&queue).await.unwrap();
    queue.add([(1, 0, ())]);
    assert!(now(&queue).await.is_none(), "70 of 50");
    claims.0.store(20, Relaxed);
    queue.claim_changed(1);
    let job = now(&queue).await.unwrap();
    assert_eq!(job.claim, Some(Claim { tenant: 1, bytes: 20 }));
    // It takes more than before, which is found out when it is next.
    queue.add([(1, 1, ())]);
    claims.0.store(21, Relaxed);
    queue.done(&job, Next::Settled);
    assert!(now(&queue).await.is_none(), "51 of 50");
}

const LANES: u8 = 6;
const BUDGET: u64 = 100;

#[derive(Debug, Clone)]
enum Step {
    Add(u8),
    Take,
    Done(usize, bool),
    Release(usize),
    Advance(u64),
    RemoveLane(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..LANES).prop_map(Step::Add),
        8 => Just(Step::Take),
        6 => (any::<usize>(), any::<bool>()).prop_map(|(at, again)| Step::Done(at, again)),
        2 => any::<usize>().prop_map(Step::Release),
        1 => (0..700_u64).prop_map(Step::Advance),
        1 => (0..LANES).prop_map(Step::RemoveLane),
    ]
}

/// The expected state of the queue, kept without looking at it.
#[derive(Default)]
struct Model {
    /// Due items by lane.
    due: BTreeMap<u8, usize>,
    /// The jobs, and whether their memory is released already.
    running: Vec<(Job<u8, u32, ()>, bool)>,
    /// For a lane with a due item: starts of others since it last started or had none, of its tenant and while its
    /// tenant had place.
    passed: BTreeMap<u8, (u32, u32)>,
}

impl Model {
    fn taken(&self, tenant: Option<u32>) -> u64 {
        let claims = self.running.iter().filter(|(_, released)| !released).filter_map(|(job, _)| job.claim);
        claims.filter(|claim| tenant.is_none_or(|tenant| claim.tenant == tenant)).map(|claim| claim.bytes).sum()
    }

    fn has_place(&self, (tenant, bytes): (u32, u64)) -> bool {
        self.taken(Some(tenant)) + bytes <= BUDGET / 2
    }

    fn fits(&self, claim: (u32, u64)) -> bool {
        self.has_place(claim) && self.taken(None) + claim.1 <= BUDGET
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(500)))]

    #[test]
    fn the_budget_holds_and_no_lane_starves(
        declared in proptest::collection::vec((0..3_u32, 1..=50_u64), usize::from(LANES)),
        steps in proptest::collection::vec(step(), 0..600),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let checked: Result<(), TestCaseError> = runtime.block_on(async {
            let queue = queue(BUDGET, &declared, usize::MAX);
            let of = |lane: u8| declared[usize::from(lane)];
            let mut model = Model::default();
            let mut slots = 0;
            for step in steps {
                match step {
                    Step::Add(lane) => {
                        slots += 1;
                        queue.add([(lane, slots, ())]);
                        *model.due.entry(lane).or_default() += 1;
                        model.passed.entry(lane).or_default();
                    }
                    Step::Take => {
                        let waiting: Vec<u8> = model.due.keys().copied().collect();
                        let Some(job) = now(&queue).await else {
                            let fitting = waiting.iter().filter(|lane| model.fits(of(**lane))).count();
                            // Only a lane that does not fit and has waited can keep others from starting.
                            prop_assert!(fitting < waiting.len() || waiting.is_empty(), "it rests, and all fit");
                            continue;
                        };
                        let (tenant, bytes) = of(job.lane);
                        prop_assert_eq!(job.claim, Some(Claim { tenant, bytes }));
                        prop_assert!(model.fits((tenant, bytes)), "over budget");
                        for lane in waiting.into_iter().filter(|lane| *lane != job.lane) {
                            let place = model.has_place(of(lane));
                            let passed = model.passed.get_mut(&lane).unwrap();
                            passed.0 += u32::from(of(lane).0 == tenant);
                            passed.1 += u32::from(place);
                            // A turn of each lane before it is found waiting, and of each that waited longer.
                            let most = PATIENCE.0 + 2 * u32::from(LANES);
                            prop_assert!(passed.0 <= most && passed.1 <= most, "lane {} starves: {:?}", lane, passed);
                        }
                        model.passed.remove(&job.lane);
                        let due = model.due.get_mut(&job.lane).unwrap();
                        *due -= 1;
                        if *due == 0 {
                            model.due.remove(&job.lane);
                        } else {
                            model.passed.insert(job.lane, (0, 0));
                        }
                        model.running.push((job, false));
                    }
                    Step::Done(at, again) if !model.running.is_empty() => {
                        let (job, _) = model.running.remove(at % model.running.len());
                        let later = Next::After(Duration::from_secs(1_000_000));
                        queue.done(&job, if again { later } else { Next::Settled });
                    }
                    Step::Release(at) if !model.running.is_empty() => {
                        let at = at % model.running.len();
                        queue.ran(&model.running[at].0, Duration::ZERO);
                        model.running[at].1 = true;
                    }
                    Step::Done(..) | Step::Release(_) => {}
                    Step::Advance(millis) => advance(Duration::from_millis(millis)).await,
                    Step::RemoveLane(lane) => {
                        queue.remove_lane(lane);
                        model.due.remove(&lane);
                        model.passed.remove(&lane);
                    }
                }
            }
            // When all that runs ends, everything that is due starts.
            let mut left: usize = model.due.values().sum();
            for (job, _) in model.running.drain(..) {
                queue.done(&job, Next::Settled);
            }
            while let Some(job) = now(&queue).await {
                left -= 1;
                queue.done(&job, Next::Settled);
            }
            prop_assert_eq!(left, 0, "something is left that nothing holds up");
            Ok(())
        });
        checked?;
    }

    /// A lost wake-up leaves a worker waiting: under paused time the hour passes at once.
    #[test]
    fn workers_run_everything_and_stay_within_the_budget(
        declared in proptest::collection::vec((0..3_u32, 1..=50_u64), usize::from(LANES)),
        added in proptest::collection::vec((0..LANES, 0..20_u64, 0..20_u64), 1..60),
        workers in 1..6_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let checked: Result<(), TestCaseError> = runtime.block_on(async {
            let queue = Arc::new(queue(BUDGET, &declared, 3));
            let taken = Arc::new(AtomicU64::new(0));
            let most = Arc::new(AtomicU64::new(0));
            let times: Arc<Vec<u64>> = Arc::new(added.iter().map(|(_, _, takes)| *takes).collect());
            let working: Vec<_> = (0..workers)
                .map(|_| {
                    let queue = Arc::clone(&queue);
                    let taken = Arc::clone(&taken);
                    let most = Arc::clone(&most);
                    let times = Arc::clone(&times);
                    tokio::spawn(async move {
                        while let Some(job) = queue.next().await {
                            let bytes = job.claim.unwrap().bytes;
                            most.fetch_max(taken.fetch_add(bytes, Relaxed) + bytes, Relaxed);
                            tokio::time::sleep(Duration::from_millis(times[job.slot as usize])).await;
                            taken.fetch_sub(bytes, Relaxed);
                            if job.slot % 2 == 0 {
                                queue.ran(&job, Duration::ZERO);
                                tokio::time::sleep(Duration::from_millis(3)).await;
                            }
                            queue.done(&job, Next::Settled);
                        }
                    })
                })
                .collect();
            for (slot, (lane, wait, _)) in (0..).zip(&added) {
                queue.add([(*lane, slot, ())]);
                tokio::time::sleep(Duration::from_millis(*wait)).await;
            }
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            prop_assert!(queue.is_idle(), "a wake-up was lost");
            prop_assert!(most.load(Relaxed) <= BUDGET);
            queue.close();
            for worker in working {
                worker.await.unwrap();
            }
            Ok(())
        });
        checked?;
    }
}
