//! Claims about the queue, under paused time.

mod beats;
mod histories;
mod oracle;
mod reasons;
mod rests;

use std::{
    hash::{Hash, Hasher},
    sync::atomic::{AtomicUsize, Ordering},
    task::{Context, Wake, Waker},
    time::Duration,
};

use tokio::time::{Instant, advance};

use super::*;

type TestQueue = Queue<u8, &'static str, u32>;

fn queue() -> TestQueue {
    Queue::new(Backoff::default(), usize::MAX, 1)
}

/// Returns the job that is due now, if any; never waits.
async fn now(queue: &TestQueue) -> Option<Job<u8, &'static str, u32>> {
    tokio::select! { biased; job = queue.next() => job, () = std::future::ready(()) => None }
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_events_on_one_item_is_one_run() {
    let queue = queue();
    for _ in 0..100 {
        queue.add([(1, "cart-0", 7)]);
    }
    let job = now(&queue).await.unwrap();
    queue.done(&job, Next::Settled);
    assert_eq!(now(&queue).await, None);
}

#[tokio::test(start_paused = true)]
async fn keys_due_for_over_30_s_are_stale_until_they_are_taken() {
    let queue = queue();
    let figures = || queue.tenants().values().map(|of| (of.waiting, of.stale)).collect::<Vec<_>>();
    queue.add([(1, "cart-0", 7), (1, "cart-1", 7)]);
    let delayed = now(&queue).await.unwrap();
    queue.done(&delayed, Next::After(Duration::from_secs(10)));
    advance(Duration::from_secs(20)).await;
    queue.add([(1, "cart-2", 7), (1, "cart-3", 7), (1, "cart-1", 7)]);
    assert_eq!(figures(), [(4, 0)], "the delayed key is due although no worker has asked for it");
    advance(Duration::from_secs(11)).await;
    assert_eq!(figures(), [(4, 1)], "another event does not make a due key new");
    advance(Duration::from_secs(20)).await;
    assert_eq!(figures(), [(4, 4)]);
    assert_eq!(now(&queue).await.unwrap().slot, "cart-1");
    assert_eq!(figures(), [(3, 3)]);
}

#[tokio::test(start_paused = true)]
async fn an_event_during_a_run_causes_one_run_after_it() {
    let queue = queue();
    queue.add([(1, "cart-0", 7)]);
    let job = now(&queue).await.unwrap();
    queue.add([(1, "cart-0", 7)]);
    assert_eq!(now(&queue).await, None, "two at once in one slot");
    queue.done(&job, Next::Settled);
    assert!(now(&queue).await.is_some(), "a wake-up was lost");
}

#[tokio::test(start_paused = true)]
async fn the_items_of_a_slot_are_tried_in_order_one_at_a_time() {
    let queue = queue();
    queue.add([(1, "cart-0", 7), (1, "cart-0", 8)]);
    let old = now(&queue).await.unwrap();
    assert_eq!(old.item, 7);
    assert_eq!(now(&queue).await, None, "two at once in one slot");
    assert_eq!(queue.done(&old, Next::Settled), Done::Forgotten);
    assert_eq!(now(&queue).await.unwrap().item, 8);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_names_its_wait_counts_as_an_attempt() {
    const WAIT: Duration = Duration::from_secs(7);
    let queue = queue();
    queue.add([(1, "cart-0", 7)]);
    for (attempt, next) in [(1, Next::FailedFor(WAIT)), (2, Next::Postponed(WAIT)), (2, Next::FailedFor(WAIT))] {
        let job = now(&queue).await.unwrap();
        assert_eq!(job.attempt, attempt);
        queue.done(&job, next);
        advance(WAIT).await;
    }
    assert_eq!(now(&queue).await.unwrap().attempt, 3);
}

#[tokio::test(start_paused = true)]
async fn an_old_item_that_fails_does_not_starve_its_successor() {
    for next in [Next::Failed, Next::After(Duration::from_secs(600))] {
        let queue = queue();
        queue.add([(1, "cart-0", 7), (1, "cart-0", 8)]);
        let old = now(&queue).await.unwrap();
        assert_eq!(queue.done(&old, next), Done::Kept);
        let new = now(&queue).await.unwrap();
        assert_eq!(new.item, 8);
        queue.done(&new, Next::Settled);
        assert_eq!(queue.next().await.unwrap().item, 7, "and it is not lost");
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_added_while_the_old_item_waits_runs_at_once() {
    let queue = queue();
    queue.add([(1, "cart-0", 7)]);
    let old = now(&queue).await.unwrap();
    queue.done(&old, Next::After(Duration::from_secs(600)));
    queue.add([(1, "cart-0", 8)]);
    assert_eq!(now(&queue).await.unwrap().item, 8);
}

#[tokio::test(start_paused = true)]
async fn a_retry_still_answers_the_event_of_its_first_attempt() {
    let queue = queue();
    let event = Instant::now();
    queue.add([(1, "cart-0", 7)]);
    for _ in 0..5 {
        let job = queue.next().await.unwrap();
        assert_eq!(job.queued, event);
        queue.done(&job, Next::Failed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_writes_conflict_is_run_again_soon() {
    let queue = queue();
    queue.add([(1, "cart-0", 7)]);
    let mut waits = Vec::new();
    for failure in 1..=20 {
        let before = Instant::now();
        let job = queue.next().await.unwrap();
        assert_eq!(job.attempt, failure);
        waits.push(before.elapsed());
        queue.done(&job, Next::Conflict);
    }
    assert!(waits[1] <= Duration::from_millis(30) && waits[7] > Duration::from_secs(1), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= CONFLICT_WAIT + Duration::from_millis(1)), "{waits:?}");
    // They count as failures.
    let job = queue.next().await.unwrap();
    queue.done(&job, Next::Failed);
    let before = Instant::now();
    assert_eq!(queue.next().await.unwrap().attempt, 22);
    assert!(before.elapsed() > Duration::from_secs(100));
}

#[tokio::test(start_paused = true)]
async fn delays_that_events_overtook_leave_nothing_behind() {
    let queue = queue();
    for _ in 0..100 {
        queue.add([(1, "cart-0", 7)]);
        let job = now(&queue).await.unwrap();
        queue.done(&job, Next::After(Duration::from_secs(3_600)));
    }
    assert_eq!(queue.slots.lock().delays(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_requeue_after_never_delays_a_fresh_event() {
    let queue = queue();
    queue.add([(1, "cart-0", 7)]);
    let job = now(&queue).await.unwrap();
    queue.done(&job, Next::After(Duration::from_secs(60)));
    advance(Duration::from_secs(59)).await;
    assert_eq!(now(&queue).await, None);
    queue.add([(1, "cart-0", 7)]);
    let job = now(&queue).await.unwrap();
    queue.done(&job, Next::Settled);
    advance(Duration::from_secs(120)).await;
    assert_eq!(now(&queue).await, None, "the old delay fired although the run after it settled");
}

#[tokio::test(start_paused = true)]
async fn a_requeue_after_fires_by_itself() {
    let queue = queue();
    queue.add([(1, "cart-0", 7)]);
    let job = now(&queue).await.unwrap();
    queue.done(&job, Next::After(Duration::from_secs(60)));
    let start = Instant::now();
    assert_eq!(queue.next().await.unwrap().attempt, 1);
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn failures_back_off_to_5_min_and_success_resets() {
    for seed in 0..200 {
        let queue: TestQueue = Queue::new(Backoff::default(), usize::MAX, seed);
        queue.add([(1, "cart-0", 7)]);
        let start = Instant::now();
        let mut runs_in_ten_seconds = 0;
        let mut last = Duration::ZERO;
        for attempt in 1..=30 {
            let before = start.elapsed();
            let job = queue.next().await.unwrap();
            assert_eq!(job.attempt, attempt);
            last = start.elapsed() - before;
            runs_in_ten_seconds += u32::from(start.elapsed() <= Duration::from_secs(10));
            queue.done(&job, Next::Failed);
        }
        assert!((8..=10).contains(&runs_in_ten_seconds), "{runs_in_ten_seconds} with seed {seed}");
        assert!(last <= Duration::from_secs(300) && last >= Duration::from_secs(150), "{last:?} with seed {seed}");
        let job = queue.next().await.unwrap();
        queue.done(&job, Next::Settled);
        queue.add([(1, "cart-0", 7)]);
        assert_eq!(now(&queue).await.unwrap().attempt, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lane_that_was_charged_without_a_job_waits_for_the_others() {
    for is_due in [false, true] {
        let queue: Queue<u8, u32, ()> = Queue::new(Backoff::default(), usize::MAX, 1);
        let add = |lane| queue.add((0..100).map(|slot| (lane, slot, ())));
        if is_due {
            add(1);
        }
        queue.charge(1, Duration::from_millis(100));
        if !is_due {
            add(1);
        }
        add(2);
        let mut lanes = Vec::new();
        for _ in 0..40 {
            let job = queue.next().await.unwrap();
            queue.ran(&job, Duration::from_millis(10));
            queue.done(&job, Next::Settled);
            lanes.push(job.lane);
        }
        assert_eq!(lanes[..9], [2; 9], "due before the charge: {is_due}");
        let first = lanes.iter().filter(|lane| **lane == 1).count();
        assert!((14..=16).contains(&first), "the rest is shared: {first} of 40");
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_take_turns_so_a_backlog_starves_no_neighbour() {
    let queue: Queue<u8, u32, ()> = Queue::new(Backoff::default(), usize::MAX, 1);
    queue.add((0..1_000).map(|slot| (1, slot, ())));
    queue.add([(2, 0, ())]);
    let lanes: Vec<u8> = [queue.next().await, queue.next().await].into_iter().flatten().map(|job| job.lane).collect();
    assert!(lanes.contains(&2), "{lanes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lane_at_its_limit_waits_and_its_neighbour_does_not() {
    let queue: Queue<u8, u32, ()> = Queue::new(Backoff::default(), 2, 1);
    queue.add((0..10).map(|slot| (1, slot, ())));
    queue.add([(2, 0, ())]);
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(queue.next().await.unwrap());
    }
    assert_eq!(jobs.iter().filter(|job| job.lane == 1).count(), 2);
    let waiting = std::pin::pin!(queue.next());
    let none = tokio::select! { biased; job = waiting => job, () = std::future::ready(()) => None };
    assert_eq!(none, None, "the limit is not kept");
    let first = jobs.iter().find(|job| job.lane == 1).unwrap();
    queue.done(first, Next::Settled);
    assert_eq!(queue.next().await.unwrap().lane, 1);
}

/// Workers that wait for an item.
pub(super) async fn waiting_workers<S, I>(
    queue: &Arc<Queue<u8, S, I>>,
    count: usize,
) -> Vec<tokio::task::JoinHandle<Option<Job<u8, S, I>>>>
where
    S: Clone + Eq + Hash + Send + 'static,
    I: Clone + Eq + Hash + Send + 'static,
{
    let worker = |queue: Arc<Queue<u8, S, I>>| tokio::spawn(async move { queue.next().await });
    let workers = (0..count).map(|_| worker(queue.clone())).collect();
    tokio::task::yield_now().await;
    workers
}

#[tokio::test(start_paused = true)]
async fn one_notification_for_many_items_wakes_as_many_workers() {
    let queue = Arc::new(Queue::<u8, u32, ()>::new(Backoff::default(), usize::MAX, 1));
    let workers = waiting_workers(&queue, 3).await;
    queue.add((0..3).map(|slot| (1, slot, ())));
    for worker in workers {
        assert!(worker.await.unwrap().is_some());
    }
}

/// Counts its wake-ups.
#[derive(Default)]
struct WakeUps(AtomicUsize);

impl Wake for WakeUps {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_sleeps_is_woken_only_for_what_it_can_use() {
    let queue = queue();
    queue.add(["cart-1", "cart-2", "cart-3"].map(|slot| (1, slot, 7)));
    let jobs = [now(&queue).await.unwrap(), now(&queue).await.unwrap(), now(&queue).await.unwrap()];
    // A notification may be left from the addition.
    assert_eq!(now(&queue).await, None);
    let wake_ups = Arc::new(WakeUps::default());
    let waker = Waker::from(wake_ups.clone());
    let mut sleeper = std::pin::pin!(queue.next());
    let mut woken = || {
        assert!(sleeper.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        wake_ups.0.swap(0, Ordering::Relaxed)
    };
    assert_eq!(woken(), 0);
    queue.ran(&jobs[0], Duration::from_millis(1));
    queue.spend(&jobs[0], WRITES, 1);
    queue.spend(&jobs[0], WRITES, 0);
    queue.sent(&jobs[0]);
    queue.done(&jobs[0], Next::Settled);
    assert_eq!(woken(), 0, "nothing was left to do");
    queue.done(&jobs[1], Next::After(Duration::from_secs(10)));
    assert_eq!(woken(), 1, "it has to wait for a time now");
    queue.done(&jobs[2], Next::After(Duration::from_secs(20)));
    assert_eq!(woken(), 0, "it looks again before that");
    queue.add([(1, "cart-3", 7)]);
    assert_eq!(wake_ups.0.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_every_waiting_worker() {
    let queue = Arc::new(queue());
    let workers = waiting_workers(&queue, 4).await;
    queue.close();
    for worker in workers {
        assert_eq!(worker.await.unwrap(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_lane_hands_out_nothing_more_and_may_be_used_again() {
    let queue = queue();
    queue.add([(1, "cart-0", 7), (1, "cart-1", 8)]);
    let job = now(&queue).await.unwrap();
    queue.remove_lane(1);
    assert_eq!(now(&queue).await, None);
    queue.done(&job, Next::Failed);
    assert!(queue.is_idle());
    queue.add([(1, "cart-0", 7)]);
    assert_eq!(now(&queue).await.unwrap().attempt, 1);
}

#[tokio::test(start_paused = true)]
async fn a_removed_lane_is_remembered_until_its_job_is_done() {
    let queue = queue();
    queue.add([(1, "cart-0", 7)]);
    let job = now(&queue).await.unwrap();
    queue.sent(&job);
    queue.remove_lane(1);
    assert!(queue.remembered().lanes.contains(&1));
    queue.done(&job, Next::Settled);
    assert!(queue.remembered().lanes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lane_removed_before_its_job_was_sent_is_forgotten_with_it() {
    let queue = queue();
    queue.add([(1, "cart-0", 7)]);
    let job = now(&queue).await.unwrap();
    queue.remove_lane(1);
    queue.sent(&job);
    assert!(queue.remembered().lanes.contains(&1));
    queue.done(&job, Next::Settled);
    assert!(queue.remembered().lanes.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reused_lane_waits_for_its_old_job_and_loses_nothing() {
    let queue = queue();
    queue.add([(1, "cart-0", 7), (1, "cart-0", 8)]);
    let old = now(&queue).await.unwrap();
    queue.remove_lane(1);
    assert!(queue.lanes_with([1], &"cart-0", &7).is_empty());
    queue.add([(1, "cart-0", 7)]);
    assert_eq!(now(&queue).await, None, "two at once in one slot");
    assert_eq!(queue.lanes_with([1, 2], &"cart-0", &7), [1]);
    assert_eq!(queue.done(&old, Next::Failed), Done::Orphaned);
    let new = now(&queue).await.unwrap();
    assert_eq!((new.item, new.attempt), (7, 1));
    assert_eq!(queue.done(&new, Next::Settled), Done::Forgotten);
    assert!(queue.is_idle() && now(&queue).await.is_none(), "what waited in the lane before is back");
}

#[tokio::test(start_paused = true)]
async fn a_settled_item_is_not_run_for_an_event_during_its_last_run() {
    let queue = queue();
    queue.add([(1, "cart-0", 7)]);
    let job = now(&queue).await.unwrap();
    queue.add([(1, "cart-0", 7), (1, "cart-0", 8)]);
    assert_eq!(queue.done(&job, Next::Final), Done::Forgotten);
    assert_eq!(now(&queue).await.unwrap().item, 8);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_waits_can_be_removed_and_takes_no_other_with_it() {
    // It is due, it waits for a delay, it stands behind one that runs; 8 is due or waits.
    for (first, second) in [(None, true), (Some(60), true), (None, false), (Some(60), false)] {
        let queue = queue();
        queue.add([(1, "cart-0", 7)]);
        if let Some(delay) = first {
            let job = now(&queue).await.unwrap();
            queue.done(&job, Next::After(Duration::from_secs(delay)));
        }
        if second {
            queue.add([(1, "cart-0", 8)]);
        }
        assert!(queue.remove(1, "cart-0", &7));
        assert!(!queue.remove(1, "cart-0", &7));
        assert_eq!(now(&queue).await.map(|job| job.item), second.then_some(8));
        advance(Duration::from_secs(600)).await;
        assert_eq!(now(&queue).await, None);
    }
    let queue = queue();
    queue.add([(1, "cart-0", 7), (1, "cart-0", 8), (1, "cart-1", 9)]);
    let job = now(&queue).await.unwrap();
    assert!(!queue.remove(1, "cart-0", &7), "it runs");
    assert!(queue.remove(1, "cart-0", &8));
    queue.done(&job, Next::After(Duration::from_secs(1)));
    assert_eq!(now(&queue).await.unwrap().item, 9);
    assert_eq!(queue.next().await.unwrap().item, 7);
}

thread_local! {
    static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A slot that counts how often it is compared on this thread.
#[derive(Debug, Clone, Eq)]
struct Counted(usize);

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[tokio::test(start_paused = true)]
async fn removing_an_item_looks_at_no_other_however_many_are_due() {
    let queue: Queue<u8, Counted, u32> = Queue::new(Backoff::default(), usize::MAX, 1);
    queue.add((0..5_000).map(|at| (1, Counted(at), 7)));
    COMPARED.set(0);
    assert!((0..5_000).step_by(2).all(|at| queue.remove(1, Counted(at), &7)));
    let compared = COMPARED.get();
    assert!(compared < 20 * 2_500, "2,500 removals compared {compared} slots");
    assert_eq!(queue.depth(1), 2_500);
    // A slot that is added again is last, and no slot is taken twice.
    queue.add([(1, Counted(0), 8)]);
    let mut taken = Vec::new();
    while let Some(job) = tokio::select! { biased; job = queue.next() => job, () = std::future::ready(()) => None } {
        taken.push(job.slot.0);
        queue.done(&job, Next::Settled);
    }
    let expected: Vec<_> = (1..5_000).step_by(2).chain([0]).collect();
    assert_eq!((taken == expected, queue.depth(1), queue.is_idle()), (true, 0, true));
}

/// A lane whose comparisons are counted.
#[derive(Debug, Clone, Copy, Eq, PartialOrd, Ord)]
struct CountedLane(u32);

impl PartialEq for CountedLane {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Hash for CountedLane {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[tokio::test(start_paused = true)]
async fn removing_a_lane_looks_at_no_keys_of_others() {
    let removing = async |others: u32| {
        let queue: Queue<CountedLane, u32, u32> = Queue::new(Backoff::default(), usize::MAX, 1);
        for lane in 0..=others {
            queue.add((0..5).map(|key| (CountedLane(lane), key, key)));
        }
        for _ in 0..=others {
            let job = queue.next().await.unwrap();
            queue.done(&job, Next::After(Duration::from_secs(60)));
        }
        COMPARED.set(0);
        queue.remove_lane(CountedLane(0));
        COMPARED.get()
    };
    let few = removing(10).await;
    let many = removing(1_000).await;
    assert!(many <= 2 * few, "{few} comparisons beside 10 lanes, {many} beside 1,000");
}
