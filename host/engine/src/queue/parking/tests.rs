//! Claims about the order of lanes, under paused time. Lanes 1, 2 and 3 follow each other; lane 9 leads all groups.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, advance};

use super::super::{
    Backoff, Claim, Claims, Demand, Job, Member, MemoryBudget, Next, Order, Queue, Rate, tests::waiting_workers,
};

type TestQueue = Queue<u8, &'static str, u32>;
type TestJob = Job<u8, &'static str, u32>;

const POD: (&str, u32) = ("cart-0", 7);

fn member(lane: u8, group: usize, phase: u8, after: &[u8]) -> Member<u8> {
    Member { lane, group, phase, after: after.to_vec(), leads: lane == 9 }
}

fn order() -> Order<u8> {
    Order::new(&[
        member(1, 1, 1, &[]),
        member(2, 1, 1, &[1]),
        member(3, 1, 2, &[]),
        member(8, 0, 1, &[]),
        member(9, 0, 0, &[]),
    ])
}

fn ordered(queue: TestQueue) -> TestQueue {
    queue.set_order(&[0, 1], order());
    queue
}

fn queue() -> TestQueue {
    ordered(Queue::new(Backoff::default(), usize::MAX, 1))
}

/// Returns the job that is due now, if any; never waits.
async fn now(queue: &TestQueue) -> Option<TestJob> {
    tokio::select! { biased; job = queue.next() => job, () = std::future::ready(()) => None }
}

/// Returns all jobs that are due now, sorted by lane.
async fn all(queue: &TestQueue) -> Vec<TestJob> {
    let mut jobs = Vec::new();
    while let Some(job) = now(queue).await {
        jobs.push(job);
    }
    jobs.sort_by_key(|job| job.lane);
    jobs
}

fn lanes(jobs: &[TestJob]) -> Vec<u8> {
    jobs.iter().map(|job| job.lane).collect()
}

fn changed(queue: &TestQueue, lanes: &[u8]) {
    queue.add_changed(lanes.iter().map(|lane| (*lane, POD.0, POD.1)));
}

/// Queues one change for lanes 1, 2 and 3, and returns the first job.
async fn begin(queue: &TestQueue) -> TestJob {
    changed(queue, &[1, 2, 3]);
    let mut jobs = all(queue).await;
    assert_eq!(lanes(&jobs), [1], "the others wait");
    jobs.remove(0)
}

#[tokio::test(start_paused = true)]
async fn items_of_one_change_run_in_the_order_of_their_lanes() {
    let queue = queue();
    let mut job = begin(&queue).await;
    for lane in [2, 3] {
        assert_eq!((queue.depth(2), queue.depth(3)), (usize::from(lane == 2), 1), "they are due");
        queue.done(&job, Next::Settled);
        job = now(&queue).await.unwrap();
        assert_eq!(job.lane, lane);
        assert!(now(&queue).await.is_none());
    }
    queue.done(&job, Next::Settled);
    assert!(queue.is_idle() && queue.slots.lock().parked.is_empty());
}

#[tokio::test(start_paused = true)]
async fn other_objects_and_later_steps_are_not_waited_for() {
    let queue = queue();
    queue.add_changed([(1, "cart-0", 7), (2, "cart-1", 7), (2, "cart-0", 8)]);
    assert_eq!(lanes(&all(&queue).await), [1, 2, 2]);
    let queue = self::queue();
    changed(&queue, &[2]);
    changed(&queue, &[1]);
    assert_eq!(lanes(&all(&queue).await), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn earlier_steps_and_other_reasons_are_waited_for() {
    let queue = queue();
    changed(&queue, &[1]);
    changed(&queue, &[2]);
    queue.add([(1, "cart-1", 7), (2, "cart-1", 7)]);
    for _ in 0..2 {
        let jobs = all(&queue).await;
        assert_eq!(lanes(&jobs), [jobs[0].lane; 2], "one of each object");
        jobs.iter().for_each(|job| _ = queue.done(job, Next::Settled));
    }
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_successor_starts_when_its_predecessor_is_delayed_or_gone() {
    let minute = Duration::from_secs(60);
    for next in [Next::Failed, Next::FailedFor(minute), Next::After(minute), Next::Postponed(minute), Next::Final] {
        let queue = queue();
        let job = begin(&queue).await;
        queue.done(&job, next);
        assert_eq!(lanes(&all(&queue).await), [2], "{next:?}");
    }
    let queue = queue();
    changed(&queue, &[1, 2]);
    assert!(queue.remove(1, POD.0, &POD.1));
    assert_eq!(lanes(&all(&queue).await), [2], "the item was removed");
    for running in [false, true] {
        let queue = self::queue();
        changed(&queue, &[1, 2]);
        let job = if running { now(&queue).await } else { None };
        queue.remove_lane(1);
        assert_eq!((job.is_some(), lanes(&all(&queue).await)), (running, vec![2]), "the lane was removed");
        let queue = self::queue();
        let _job = begin(&queue).await;
        queue.set_order(&[0, 1], Order::default());
        assert_eq!(lanes(&all(&queue).await), [2, 3], "the configuration has no order any more");
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_of_a_removed_item_waits_for_its_predecessors() {
    let queue = queue();
    let first = begin(&queue).await;
    assert!(queue.remove(2, POD.0, &POD.1));
    assert!(now(&queue).await.is_none());
    queue.done(&first, Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [3]);
}

#[derive(Debug)]
struct Few;

impl Claims<u8> for Few {
    fn claim(&self, lane: u8) -> Claim {
        Claim { tenant: 1, bytes: if lane == 1 { 40 } else { 10 } }
    }

    fn demand(&self, lane: u8) -> Demand {
        let mut demand = Demand::default();
        if lane == 1 {
            (demand.lane[0], demand.writes) = (Rate { per_second: 1, burst: 1 }, true);
        }
        demand
    }
}

#[tokio::test(start_paused = true)]
async fn a_successor_does_not_wait_for_a_lane_without_tokens() {
    let queue = ordered(Queue::new(Backoff::default(), usize::MAX, 1).within(MemoryBudget::new(1_000), Arc::new(Few)));
    queue.add_changed(["a", "b", "c", "d"].into_iter().flat_map(|name| [(1, name, 7), (2, name, 7)]));
    let first = now(&queue).await.unwrap();
    queue.spend(&first, 0, 1);
    assert_eq!(lanes(&all(&queue).await), [2, 2, 2], "only the one whose predecessor runs waits");
    queue.done(&first, Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_successor_does_not_wait_for_a_lane_without_memory() {
    let queue = ordered(Queue::new(Backoff::default(), usize::MAX, 1).within(MemoryBudget::new(100), Arc::new(Wide)));
    // The tenant may have 50, of which this takes 40.
    queue.add([(7, "other", 1)]);
    let other = now(&queue).await.unwrap();
    changed(&queue, &[1, 2]);
    let job = now(&queue).await.unwrap();
    assert_eq!(job.lane, 2);
    queue.done(&job, Next::Settled);
    queue.done(&other, Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_runs_the_successor_of_a_lane_that_lost_its_memory() {
    let queue = ordered(Queue::new(Backoff::default(), usize::MAX, 1).within(MemoryBudget::new(100), Arc::new(Mixed)));
    queue.add([(1, "costly", 1)]);
    let costly = now(&queue).await.unwrap();
    queue.ran(&costly, Duration::from_secs(1));
    queue.done(&costly, Next::Settled);
    let queue = Arc::new(queue);
    let workers = waiting_workers(&queue, 2).await;
    // Lane 1 is next after lane 7, whose job leaves 20 of the 40 bytes that lane 1 needs.
    queue.add_changed([(7, "other", 1), (1, POD.0, POD.1), (2, POD.0, POD.1)]);
    assert_eq!(ends(workers).await, [(7, Duration::ZERO), (2, Duration::ZERO)]);
}

/// Returns the lanes of the jobs that waiting workers take within a minute, and when they took them.
async fn ends(workers: Vec<tokio::task::JoinHandle<Option<TestJob>>>) -> Vec<(u8, Duration)> {
    let start = Instant::now();
    let taken = workers.into_iter().map(|worker| async move {
        let job = tokio::time::timeout(Duration::from_secs(60), worker).await.ok()?.unwrap()?;
        Some((job.lane, start.elapsed()))
    });
    futures::future::join_all(taken).await.into_iter().flatten().collect()
}

#[derive(Debug)]
struct Mixed;

impl Claims<u8> for Mixed {
    fn claim(&self, lane: u8) -> Claim {
        let bytes = match lane {
            1 => 40,
            7 => 30,
            _ => 10,
        };
        Claim { tenant: 1, bytes }
    }
}

#[derive(Debug)]
struct Wide;

impl Claims<u8> for Wide {
    fn claim(&self, lane: u8) -> Claim {
        Claim { tenant: 1, bytes: if lane == 2 { 10 } else { 40 } }
    }
}

#[tokio::test(start_paused = true)]
async fn changes_without_end_do_not_keep_a_successor_waiting() {
    let queue = queue();
    let first = begin(&queue).await;
    changed(&queue, &[1, 2, 3]);
    queue.done(&first, Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [1, 2], "lane 2 has waited for one run");
}

#[tokio::test(start_paused = true)]
async fn an_item_added_during_its_predecessors_run_waits_for_the_next() {
    let queue = queue();
    changed(&queue, &[1]);
    let first = now(&queue).await.unwrap();
    changed(&queue, &[1, 2]);
    queue.done(&first, Next::Settled);
    let second = all(&queue).await;
    assert_eq!(lanes(&second), [1]);
    queue.done(&second[0], Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [2]);
    // Without a run after it, the successor does not wait for one.
    let queue = self::queue();
    changed(&queue, &[1]);
    let first = now(&queue).await.unwrap();
    changed(&queue, &[1, 2]);
    queue.answered(&first, queue.changed_during(&first).unwrap());
    assert!(now(&queue).await.is_none(), "the run is under way");
    queue.done(&first, Next::Failed);
    assert_eq!(lanes(&all(&queue).await), [2]);
}

#[tokio::test(start_paused = true)]
async fn other_groups_wait_for_a_leading_lane_for_a_tenth_of_a_second() {
    let queue = queue();
    changed(&queue, &[9, 8, 1, 2]);
    let start = Instant::now();
    let leading = all(&queue).await;
    assert_eq!(lanes(&leading), [9]);
    let first = queue.next().await.unwrap();
    assert_eq!((first.lane, start.elapsed()), (1, Duration::from_millis(100)));
    assert!(now(&queue).await.is_none(), "its successor waits for it, lane 8 for lane 9");
    advance(Duration::from_secs(60)).await;
    queue.done(&first, Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [2]);
    queue.done(&leading[0], Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [8]);
    // And not at all once it is done, or delayed.
    for next in [Next::Settled, Next::Failed] {
        let queue = self::queue();
        changed(&queue, &[9, 8, 1]);
        queue.done(&now(&queue).await.unwrap(), next);
        assert_eq!(lanes(&all(&queue).await), [1, 8]);
    }
}

/// The wait counts from the end of a run during which the change came.
#[tokio::test(start_paused = true)]
async fn a_key_that_was_added_during_its_run_waits_for_a_leading_lane_too() {
    let queue = queue();
    changed(&queue, &[1]);
    let first = now(&queue).await.unwrap();
    changed(&queue, &[9, 1]);
    assert_eq!(lanes(&all(&queue).await), [9]);
    advance(Duration::from_millis(200)).await;
    queue.done(&first, Next::Settled);
    let start = Instant::now();
    assert_eq!((queue.next().await.unwrap().lane, start.elapsed()), (1, Duration::from_millis(100)));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_ends_the_wait_for_a_leading_lane() {
    let queue = Arc::new(queue());
    let workers = waiting_workers(&queue, 2).await;
    // The worker that is woken takes the leading lane's job, which is long.
    changed(&queue, &[9, 1]);
    assert_eq!(ends(workers).await, [(9, Duration::ZERO), (1, Duration::from_millis(100))]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_waits_runs_the_requeue_of_a_job_whose_end_freed_another() {
    let queue = Arc::new(queue());
    let first = begin(&queue).await;
    let workers = waiting_workers(&queue, 2).await;
    // A delivery ends the job, no worker: the one that is woken takes the successor's.
    queue.done(&first, Next::After(Duration::from_secs(1)));
    assert_eq!(ends(workers).await, [(2, Duration::ZERO), (1, Duration::from_secs(1))]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_its_timer_woke_leaves_the_next_delay_to_another() {
    let queue = Arc::new(queue());
    changed(&queue, &[1]);
    let first = now(&queue).await.unwrap();
    let workers = waiting_workers(&queue, 3).await;
    // Lane 2 waits for lane 1, which was due before, and for lane 9.
    changed(&queue, &[9, 2]);
    tokio::task::yield_now().await;
    // Two delays of which one worker learns.
    queue.done(&first, Next::After(Duration::from_secs(1)));
    let expected = [(9, Duration::ZERO), (2, Duration::from_millis(100)), (1, Duration::from_millis(1_100))];
    let mut ends = ends(workers).await;
    ends.sort_by_key(|(_, after)| *after);
    assert_eq!(ends, expected);
}

#[tokio::test(start_paused = true)]
async fn each_of_several_delays_is_seen_by_a_worker_that_waits() {
    let queue = Arc::new(queue());
    queue.add([(20, "cart-0", 1), (20, "cart-1", 1)]);
    let jobs = all(&queue).await;
    let first = begin(&queue).await;
    let workers = waiting_workers(&queue, 4).await;
    queue.done(&jobs[0], Next::After(Duration::from_secs(1)));
    queue.done(&first, Next::After(Duration::from_secs(3)));
    queue.done(&jobs[1], Next::After(Duration::from_secs(2)));
    let seconds = |lane, seconds| (lane, Duration::from_secs(seconds));
    let mut ends = ends(workers).await;
    ends.sort_by_key(|(_, after)| *after);
    assert_eq!(ends, [seconds(2, 0), seconds(20, 1), seconds(20, 2), seconds(1, 3)]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_skips_the_successors_of_its_group() {
    let queue = queue();
    changed(&queue, &[9, 8, 1, 2, 3]);
    let leading = now(&queue).await.unwrap();
    queue.stop(&leading);
    queue.done(&leading, Next::Settled);
    let first = all(&queue).await;
    assert_eq!(lanes(&first), [1], "lane 8 is of its group, lane 1 is not");
    assert_eq!(queue.stop(&first[0]), [2, 3]);
    queue.done(&first[0], Next::Settled);
    assert!(all(&queue).await.is_empty() && queue.is_idle());
    assert!(queue.lanes_with([2, 3, 8], &POD.0, &POD.1).is_empty());
    changed(&queue, &[2, 3]);
    assert_eq!(lanes(&all(&queue).await), [2], "a later change");
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_retries_later_changes_and_other_reasons_stay() {
    // A retry.
    let queue = queue();
    changed(&queue, &[2]);
    queue.done(&now(&queue).await.unwrap(), Next::FailedFor(Duration::from_secs(7)));
    let start = Instant::now();
    let first = begin(&queue).await;
    queue.stop(&first);
    queue.done(&first, Next::Settled);
    let retry = queue.next().await.unwrap();
    assert_eq!((retry.lane, retry.attempt, start.elapsed()), (2, 2, Duration::from_secs(7)));
    // A later change, which the predecessor is not concerned by.
    let queue = self::queue();
    let first = begin(&queue).await;
    changed(&queue, &[2]);
    assert!(queue.stop(&first).contains(&3) && !queue.stop(&first).contains(&2), "lane 2 is run for the later change");
    queue.done(&first, Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [2]);
    // A sweep or a resync.
    let queue = self::queue();
    let first = begin(&queue).await;
    queue.add([(2, POD.0, POD.1)]);
    queue.stop(&first);
    queue.done(&first, Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_a_run_that_wrote_holds_for_its_next_run_too() {
    let queue = queue();
    let first = begin(&queue).await;
    changed(&queue, &[1, 2, 3]);
    queue.stop(&first);
    queue.done(&first, Next::Settled);
    let second = all(&queue).await;
    assert_eq!(lanes(&second), [1]);
    queue.stop(&second[0]);
    queue.done(&second[0], Next::Settled);
    assert!(all(&queue).await.is_empty() && queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_a_successor_runs_drops_its_next_run_only() {
    let queue = queue();
    queue.add([(2, POD.0, POD.1)]);
    let running = now(&queue).await.unwrap();
    changed(&queue, &[1, 2]);
    let first = now(&queue).await.unwrap();
    queue.stop(&first);
    queue.done(&first, Next::Settled);
    queue.done(&running, Next::After(Duration::from_secs(5)));
    let start = Instant::now();
    assert_eq!((queue.next().await.unwrap().lane, start.elapsed().as_secs()), (2, 5));
}

#[test]
fn each_plugin_of_a_chain_waits_for_one_other() {
    let lanes = 0..100_u8;
    let after = |lane: u8| lane.checked_sub(1).into_iter().collect::<Vec<_>>();
    let member = |lane| Member { lane, group: 0, phase: 0, after: after(lane), leads: false };
    let queue: TestQueue = Queue::new(Backoff::default(), usize::MAX, 1);
    queue.set_order(&[0], Order::new(&lanes.clone().map(member).collect::<Vec<_>>()));
    changed(&queue, &lanes.clone().collect::<Vec<_>>());
    let take = || queue.slots.lock().take(Instant::now());
    for lane in lanes {
        let job = take().unwrap();
        assert_eq!(job.lane, lane);
        // Not all of them are looked at at once.
        assert!(take().is_none() && take().is_none());
        let waits: usize = queue.slots.lock().parked.values().flat_map(|of| of.values()).map(|of| of.len()).sum();
        assert_eq!(waits, usize::from(99 - lane));
        queue.done(&job, Next::Settled);
    }
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn successors_that_wait_start_when_the_lane_loses_its_tokens() {
    let queue = ordered(Queue::new(Backoff::default(), usize::MAX, 1).within(MemoryBudget::new(1_000), Arc::new(Few)));
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    // Lane 2 is next, and its keys are found to wait.
    queue.charge(1, Duration::from_secs(1));
    queue.add_changed(names.iter().flat_map(|name| [(1, *name, 7), (2, *name, 7)]));
    let first = now(&queue).await.unwrap();
    assert_eq!((first.lane, queue.depth(2)), (1, 12));
    queue.spend(&first, 0, 1);
    assert_eq!(lanes(&all(&queue).await), [2; 11], "only the one whose predecessor runs waits");
    queue.done(&first, Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [2]);
}

#[test]
fn an_order_that_is_set_again_examines_no_key() {
    let queue = queue();
    changed(&queue, &[1, 2, 3]);
    let take = || queue.slots.lock().take(Instant::now());
    assert_eq!(take().unwrap().lane, 1);
    assert!(take().is_none());
    queue.set_order(&[0, 1], order());
    assert!(!queue.slots.lock().has_ready());
}

#[test]
fn an_order_of_one_group_examines_no_key_of_others() {
    let queue = queue();
    changed(&queue, &[1, 2, 3]);
    let take = || queue.slots.lock().take(Instant::now());
    assert_eq!(take().unwrap().lane, 1);
    assert!(take().is_none());
    queue.set_order(&[0], Order::new(&[member(8, 0, 1, &[])]));
    assert!(!queue.slots.lock().has_ready());
    queue.set_order(&[1], Order::new(&[member(1, 1, 1, &[]), member(2, 1, 1, &[])]));
    assert_eq!(take().unwrap().lane, 2, "it follows lane 1 no more");
}

#[tokio::test(start_paused = true)]
async fn a_requeue_is_a_step_of_its_own() {
    let queue = queue();
    changed(&queue, &[2]);
    queue.done(&now(&queue).await.unwrap(), Next::After(Duration::from_secs(10)));
    advance(Duration::from_secs(5)).await;
    changed(&queue, &[1]);
    advance(Duration::from_secs(5)).await;
    let first = all(&queue).await;
    assert_eq!(lanes(&first), [1], "it was due before the requeue of lane 2");
    changed(&queue, &[3]);
    queue.done(&first[0], Next::Settled);
    assert_eq!(lanes(&all(&queue).await), [2], "which lane 3 waits for");
}

/// A retry that becomes due while another incarnation of its name waits, or runs, is a step as every other.
#[tokio::test(start_paused = true)]
async fn a_successor_waits_for_a_retry_beside_another_incarnation() {
    for runs in [false, true] {
        let queue = queue();
        changed(&queue, &[1]);
        queue.done(&now(&queue).await.unwrap(), Next::Postponed(Duration::from_secs(1)));
        queue.add([(1, POD.0, 8)]);
        let other = if runs { now(&queue).await } else { None };
        advance(Duration::from_secs(2)).await;
        changed(&queue, &[2]);
        assert_eq!(all(&queue).await.len(), usize::from(!runs), "the retry runs, or waits for the other one");
        if let Some(other) = other {
            queue.done(&other, Next::Settled);
            assert_eq!(lanes(&all(&queue).await), [1]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_waited_keeps_its_place_in_the_lane_and_its_age() {
    let queue = queue();
    changed(&queue, &[1, 2]);
    let first = now(&queue).await.unwrap();
    queue.add_changed(["cart-1", "cart-2"].map(|name| (2, name, 7)));
    assert_eq!(now(&queue).await.unwrap().slot, "cart-1", "cart-0 waits");
    advance(Duration::from_secs(31)).await;
    let figures = queue.tenants().values().map(|of| (of.waiting, of.stale)).collect::<Vec<_>>();
    assert_eq!(figures, [(0, 0), (2, 2)]);
    queue.done(&first, Next::Settled);
    assert_eq!([now(&queue).await.unwrap().slot, now(&queue).await.unwrap().slot], ["cart-0", "cart-2"]);
    // A key that waits for a leading lane is due too.
    let queue = self::queue();
    changed(&queue, &[9, 1]);
    assert_eq!((lanes(&all(&queue).await), queue.depth(1)), (vec![9], 1));
}

#[tokio::test(start_paused = true)]
async fn keys_that_only_wait_do_not_delay_the_next_one() {
    let queue = queue();
    let names: Vec<&'static str> = (0..1_000).map(|at| &*at.to_string().leak()).collect();
    queue.add_changed(names.iter().map(|name| (1, *name, 7)));
    assert_eq!(all(&queue).await.len(), 1_000);
    queue.charge(20, Duration::from_millis(5));
    queue.add_changed(names.iter().map(|name| (2, *name, 7)));
    queue.add([(2, "last", 7), (20, "other", 7)]);
    let before = Instant::now();
    assert_eq!(queue.next().await.unwrap().slot, "other", "lane 2 pays for the examinations");
    assert_eq!((queue.next().await.unwrap().slot, before.elapsed()), ("last", Duration::ZERO));
}
