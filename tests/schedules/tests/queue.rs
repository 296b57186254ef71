//! The queue between producers and workers, in many orders.

#![cfg(podium_model = "shuttle")]
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use podium_engine::queue::{Backoff, Claim, Claims, Member, MemoryBudget, Next, Occupancy, Order, Queue};
use shuttle::{
    future::block_on,
    rand::{Rng, thread_rng},
    sync::{Barrier, mpsc},
    thread,
};

const SLOTS: usize = 2;
const LANES: usize = 2;
const LANE_LIMIT: usize = 2;

/// The expected state of each slot. It is outside the checker's control and adds no steps.
#[derive(Default)]
struct ModelSlot {
    added: AtomicUsize,
    seen: AtomicUsize,
    running: AtomicBool,
}

#[derive(Default)]
struct Harness {
    slots: [[ModelSlot; SLOTS]; LANES],
    running: [AtomicUsize; LANES],
}

type Jobs = Queue<usize, usize, &'static str>;

fn queue() -> Arc<Jobs> {
    // Delays need a clock, which is not modelled here: failed keys are due at once.
    let backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
    Arc::new(Queue::new(backoff, LANE_LIMIT, 7))
}

fn worker(queue: Arc<Jobs>, harness: Arc<Harness>, ran: mpsc::Sender<()>) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        while let Some(job) = block_on(queue.next()) {
            let slot = &harness.slots[job.lane][job.slot];
            assert!(!slot.running.swap(true, SeqCst), "two at once on one slot");
            assert!(harness.running[job.lane].fetch_add(1, SeqCst) < LANE_LIMIT, "a lane took more than it may");
            let present = slot.added.load(SeqCst);
            thread::yield_now();
            slot.seen.fetch_max(present, SeqCst);
            slot.running.store(false, SeqCst);
            harness.running[job.lane].fetch_sub(1, SeqCst);
            let again = job.attempt < 2 && thread_rng().gen_range(0..4) == 0;
            queue.done(&job, if again { Next::Failed } else { Next::Settled });
            ran.send(()).unwrap();
        }
    })
}

#[test]
fn added_keys_run_after_their_addition_and_never_concurrently() {
    common::check(4_000, 1, || {
        let (queue, harness) = (queue(), Arc::new(Harness::default()));
        let (ran, runs) = mpsc::channel();
        let workers = [(); 3].map(|()| worker(Arc::clone(&queue), Arc::clone(&harness), ran.clone()));
        let adders = [(); 2].map(|()| {
            let (queue, harness) = (Arc::clone(&queue), Arc::clone(&harness));
            thread::spawn(move || {
                for _ in 0..2 {
                    let mut items = Vec::new();
                    for _ in 0..thread_rng().gen_range(1..4) {
                        let (lane, slot) = (thread_rng().gen_range(0..LANES), thread_rng().gen_range(0..SLOTS));
                        harness.slots[lane][slot].added.fetch_add(1, SeqCst);
                        items.push((lane, slot, ["a", "b"][thread_rng().gen_range(0..2)]));
                    }
                    queue.add(items);
                }
            })
        });
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        let behind = |slot: &ModelSlot| slot.seen.load(SeqCst) < slot.added.load(SeqCst);
        // A lost wake-up leaves every thread waiting, which the checker reports.
        while harness.slots.iter().flatten().any(behind) {
            runs.recv().unwrap();
        }
        queue.close();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// Lane 0 goes before lane 1.
fn order() -> Order<usize> {
    let member = |lane: usize, after: Vec<usize>| Member { lane, group: 0, phase: 1, after, leads: false };
    Order::new(&[member(0, Vec::new()), member(1, vec![0])])
}

#[test]
fn keys_of_ordered_lanes_are_all_run() {
    common::check(4_000, 1, || {
        let (queue, harness) = (queue(), Arc::new(Harness::default()));
        queue.set_order(&[0], order());
        let (ran, runs) = mpsc::channel();
        let workers = [(); 3].map(|()| worker(Arc::clone(&queue), Arc::clone(&harness), ran.clone()));
        let adders = [(); 2].map(|()| {
            let (queue, harness) = (Arc::clone(&queue), Arc::clone(&harness));
            thread::spawn(move || {
                for step in 0..2 {
                    let (slot, item) = (thread_rng().gen_range(0..SLOTS), ["a", "b"][thread_rng().gen_range(0..2)]);
                    (0..LANES).for_each(|lane| _ = harness.slots[lane][slot].added.fetch_add(1, SeqCst));
                    let items = (0..LANES).map(|lane| (lane, slot, item));
                    if step == 0 { queue.add_changed(items) } else { queue.add(items) }
                }
            })
        });
        let configuration = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                queue.set_order(&[0], if thread_rng().gen_range(0..2) == 0 { Order::default() } else { order() })
            })
        };
        adders.into_iter().for_each(|adder| adder.join().unwrap());
        configuration.join().unwrap();
        let behind = |slot: &ModelSlot| slot.seen.load(SeqCst) < slot.added.load(SeqCst);
        while harness.slots.iter().flatten().any(behind) {
            runs.recv().unwrap();
        }
        queue.close();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// The claims of three lanes, of which two belong to one tenant. A tenant may have 50.
#[derive(Debug)]
struct Memory;

impl Claims<usize> for Memory {
    fn claim(&self, lane: usize) -> Claim {
        [Claim { tenant: 1, bytes: 30 }, Claim { tenant: 1, bytes: 50 }, Claim { tenant: 2, bytes: 25 }][lane]
    }
}

#[test]
fn jobs_stay_within_the_memory_and_every_one_is_run() {
    common::check(4_000, 1, || {
        let backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
        let queue: Arc<Jobs> =
            Arc::new(Queue::new(backoff, LANE_LIMIT, 7).within(MemoryBudget::new(100), Arc::new(Memory)));
        let taken: Arc<[AtomicUsize; 3]> = Arc::default();
        let (ran, runs) = mpsc::channel();
        let workers = [(); 3].map(|()| {
            let (queue, taken, ran) = (Arc::clone(&queue), Arc::clone(&taken), ran.clone());
            thread::spawn(move || {
                while let Some(job) = block_on(queue.next()) {
                    let claim = job.claim.unwrap();
                    let (tenant, bytes) = (claim.tenant as usize, usize::try_from(claim.bytes).unwrap());
                    assert!(taken[tenant].fetch_add(bytes, SeqCst) + bytes <= 50, "a tenant has more than half");
                    assert!(taken[0].fetch_add(bytes, SeqCst) + bytes <= 100, "over the budget");
                    thread::yield_now();
                    taken[tenant].fetch_sub(bytes, SeqCst);
                    taken[0].fetch_sub(bytes, SeqCst);
                    if thread_rng().gen_range(0..2) == 0 {
                        queue.ran(&job, Duration::ZERO);
                        thread::yield_now();
                    }
                    queue.done(&job, Next::Settled);
                    ran.send(()).unwrap();
                }
            })
        });
        let mut added = 0;
        for slot in 0..4 {
            queue.add([(thread_rng().gen_range(0..3), slot, "a")]);
            added += 1;
        }
        // A wake-up that is lost leaves every thread waiting, which the checker reports.
        for _ in 0..added {
            runs.recv().unwrap();
        }
        queue.close();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn due_keys_do_not_wait_for_an_idle_worker() {
    common::check(4_000, 1, || {
        let queue = queue();
        let both_run = Arc::new(Barrier::new(2));
        let workers = [(); 2].map(|()| {
            let (queue, both_run) = (Arc::clone(&queue), Arc::clone(&both_run));
            thread::spawn(move || {
                let job = block_on(queue.next()).unwrap();
                both_run.wait();
                queue.done(&job, Next::Settled);
            })
        });
        queue.add([(0, 0, "a"), (1, 0, "a")]);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert!(queue.is_idle());
    });
}

#[test]
fn a_lane_that_is_removed_affects_no_other() {
    common::check(4_000, 1, || {
        let (queue, harness) = (queue(), Arc::new(Harness::default()));
        let (ran, runs) = mpsc::channel();
        let workers = [(); 2].map(|()| worker(Arc::clone(&queue), Arc::clone(&harness), ran.clone()));
        let removing = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.remove_lane(0))
        };
        harness.slots[1][0].added.fetch_add(1, SeqCst);
        queue.add([(0, 0, "a"), (0, 1, "a"), (1, 0, "a")]);
        removing.join().unwrap();
        while harness.slots[1][0].seen.load(SeqCst) == 0 {
            runs.recv().unwrap();
        }
        queue.close();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

/// With 7 workers a tenant has one run and one job beside it.
#[test]
fn jobs_stay_within_their_tenants_bound_and_all_of_them_run() {
    common::check(4_000, 1, || {
        let backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
        let queue = Queue::new(backoff, LANE_LIMIT, 7).within(MemoryBudget::new(1_000), Arc::new(Memory));
        let queue: Arc<Jobs> = Arc::new(queue.shared(Occupancy::new(7)));
        // Runs and jobs by tenant.
        let under_way: Arc<[[AtomicUsize; 2]; 3]> = Arc::default();
        let (ran, runs) = mpsc::channel();
        let workers = [(); 3].map(|()| {
            let (queue, under_way, ran) = (Arc::clone(&queue), Arc::clone(&under_way), ran.clone());
            thread::spawn(move || {
                while let Some(job) = block_on(queue.next()) {
                    let [runs, jobs] = &under_way[job.claim.unwrap().tenant as usize];
                    assert_eq!(runs.fetch_add(1, SeqCst), 0, "a tenant has two runs");
                    assert!(jobs.fetch_add(1, SeqCst) < 2, "a tenant has three jobs");
                    thread::yield_now();
                    runs.fetch_sub(1, SeqCst);
                    if thread_rng().gen_range(0..2) == 0 {
                        queue.ran(&job, Duration::from_millis(thread_rng().gen_range(0..100)));
                        thread::yield_now();
                    }
                    jobs.fetch_sub(1, SeqCst);
                    queue.done(&job, Next::Settled);
                    ran.send(()).unwrap();
                }
            })
        });
        for slot in 0..4 {
            queue.add([(thread_rng().gen_range(0..3), slot, "a")]);
        }
        // A wake-up that is lost leaves every thread waiting, which the checker reports.
        for _ in 0..4 {
            runs.recv().unwrap();
        }
        queue.close();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}
