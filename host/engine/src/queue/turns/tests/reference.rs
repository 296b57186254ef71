//! The rules of turns written down a second time, without memory, by looking at every lane.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use proptest::prelude::*;
use tokio::time::Instant;

use super::super::{
    super::{Backoff, Claim, Claims, Job, MemoryBudget, Next, Occupancy, slots::Slots, virtual_time::CREDIT},
    JOB,
};

const LANES: u8 = 9;
const WORKERS: usize = 12;
const LANE_LIMIT: usize = 4;

/// Lane 0 is of tenant 0, lanes 1 to 3 are of tenant 1, and so on.
fn tenant(lane: u8) -> u32 {
    u32::from(lane).div_ceil(3)
}

#[derive(Debug)]
struct Tenants;

impl Claims<u8> for Tenants {
    fn claim(&self, lane: u8) -> Claim {
        Claim { tenant: tenant(lane), bytes: 1 }
    }
}

#[derive(Debug, Default)]
struct Lane {
    time: u128,
    turn: u64,
    estimate: u128,
    slots: Vec<u32>,
    jobs: usize,
    /// It could have started a job after the last step.
    waited: bool,
}

#[derive(Debug, Default)]
struct Tenant {
    time: u128,
    turn: u64,
    present: u128,
    held: Option<Duration>,
    cost: Duration,
    since: Option<Instant>,
    light: bool,
    runs: usize,
    jobs: usize,
    lanes: BTreeMap<u8, Lane>,
}

#[derive(Debug)]
struct Started {
    job: Job<u8, u32, ()>,
    since: Instant,
    charged: u128,
    ran: bool,
}

#[derive(Debug, Default)]
struct Reference {
    tenants: BTreeMap<u32, Tenant>,
    present: u128,
    turns: u64,
    running: usize,
}

impl Tenant {
    fn ran(&mut self, held: Duration, cost: Duration, now: Instant) {
        self.held = Some(self.held.map_or(held, |longest| held.max(longest - longest / 8)));
        self.cost = self.cost(now) + cost;
        self.since = Some(now);
    }

    fn cost(&self, now: Instant) -> Duration {
        self.cost.saturating_sub(self.since.map_or(Duration::ZERO, |since| (now - since) / 20))
    }

    /// Decides whether the tenant is light when something happens to it.
    fn weigh(&mut self, now: Instant) {
        let is_short = self.held.is_some_and(|held| held <= Duration::from_millis(10));
        self.light = is_short && self.cost(now) <= Duration::from_millis(50);
    }

    fn may_start(&self) -> bool {
        self.runs < WORKERS / 4 && self.jobs < WORKERS / 2 && self.lanes.values().any(Lane::may_start)
    }
}

impl Lane {
    fn may_start(&self) -> bool {
        !self.slots.is_empty() && self.jobs < LANE_LIMIT
    }
}

impl Reference {
    /// Tenants and lanes that begin to wait have at most the credit, and what waits is looked at in the next turn.
    fn settle(&mut self) {
        for tenant in self.tenants.values_mut() {
            for lane in tenant.lanes.values_mut() {
                if lane.may_start() && !lane.waited {
                    lane.time = lane.time.max(tenant.present.saturating_sub(CREDIT.as_nanos()));
                }
                lane.waited = lane.may_start();
            }
        }
    }

    /// Returns the lane of which a job is next.
    fn next(&self) -> Option<u8> {
        let idle = WORKERS - self.running;
        let may = |tenant: &&Tenant| tenant.may_start() && (idle > 1 || idle == 1 && tenant.light);
        let tenant = self.tenants.values().filter(may).min_by_key(|tenant| (tenant.time, tenant.turn))?;
        let lanes = tenant.lanes.iter().filter(|(_, lane)| lane.may_start());
        // The last place of the tenant is for a lane without a job, if there is one.
        let is_last = tenant.runs + 1 == WORKERS / 4 || tenant.jobs + 1 == WORKERS / 2;
        lanes.min_by_key(|(_, lane)| (is_last && lane.jobs > 0, lane.time, lane.turn)).map(|(lane, _)| *lane)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Add(u8),
    Take,
    Ran(usize, u64),
    Done(usize, bool),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..LANES).prop_map(Step::Add),
        8 => Just(Step::Take),
        4 => (any::<usize>(), prop_oneof![0..300_u64, 0..40_000_u64]).prop_map(|(at, micros)| Step::Ran(at, micros)),
        5 => (any::<usize>(), any::<bool>()).prop_map(|(at, failed)| Step::Done(at, failed)),
        3 => (0..15_u64).prop_map(Step::Advance),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(500)))]

    #[test]
    fn the_order_is_that_of_the_reference(steps in prop::collection::vec(step(), 0..300)) {
        let occupancy = Occupancy::new(WORKERS);
        let mut slots: Slots<u8, u32, ()> = Slots::new(Backoff::default(), LANE_LIMIT, 1);
        slots.turns.set_occupancy(occupancy);
        slots.turns.set_budget(MemoryBudget::new(1_000), Arc::new(Tenants));
        let (mut reference, mut started, mut now, mut added) =
            (Reference::default(), Vec::<Started>::new(), Instant::now(), 0);
        let job_cost = JOB.as_nanos();
        for step in steps {
            match step {
                Step::Add(lane) => {
                    added += 1;
                    slots.add(lane, added, (), now);
                    reference.turns += 1;
                    let turn = reference.turns;
                    let present = reference.present;
                    let fresh = || Tenant { time: present, turn, ..Tenant::default() };
                    let tenant = reference.tenants.entry(tenant(lane)).or_insert_with(fresh);
                    let present = tenant.present;
                    let fresh = || Lane { time: present, turn, waited: true, ..Lane::default() };
                    let waiting = &mut tenant.lanes.entry(lane).or_insert_with(fresh).slots;
                    waiting.push(added);
                    if waiting.len() == 1 {
                        tenant.weigh(now);
                    }
                }
                Step::Take => {
                    let waiting = reference.tenants.values().filter(|of| of.may_start());
                    let head = waiting.map(|of| of.time).min().filter(|_| reference.running < WORKERS);
                    reference.present = reference.present.max(head.unwrap_or_default());
                    let expected = reference.next();
                    let taken = slots.take(now);
                    prop_assert_eq!(taken.as_ref().map(|job| job.lane), expected);
                    let Some(job) = taken else { continue };
                    let of = reference.tenants.get_mut(&tenant(job.lane)).unwrap();
                    reference.turns += 1;
                    let least = of.lanes.values().filter(|lane| lane.may_start()).map(|lane| lane.time).min();
                    of.present = of.present.max(least.unwrap_or_default());
                    let lane = of.lanes.get_mut(&job.lane).unwrap();
                    prop_assert_eq!(job.slot, lane.slots.remove(0), "not the first of its lane");
                    let charged = lane.estimate.max(job_cost);
                    lane.time += charged;
                    lane.turn = reference.turns;
                    of.time += charged;
                    of.turn = reference.turns;
                    lane.jobs += 1;
                    // The lane begins to wait again.
                    lane.waited = false;
                    of.runs += 1;
                    of.jobs += 1;
                    reference.running += 1;
                    of.weigh(now);
                    started.push(Started { job, since: now, charged, ran: false });
                }
                Step::Ran(at, micros) if !started.is_empty() => {
                    let at = at % started.len();
                    let Started { job, since, charged, ran } = &mut started[at];
                    let cost = Duration::from_micros(micros);
                    prop_assert_eq!(slots.turns.ran(job.number, Some(cost), now), !*ran);
                    if !std::mem::replace(ran, true) {
                        let used = job_cost + cost.as_nanos();
                        let of = reference.tenants.get_mut(&tenant(job.lane)).unwrap();
                        let lane = of.lanes.get_mut(&job.lane).unwrap();
                        lane.time = lane.time - *charged + used;
                        lane.estimate = lane.estimate - lane.estimate / 4 + used / 4;
                        of.time = of.time - *charged + used;
                        of.ran(now - *since, JOB + cost, now);
                        of.weigh(now);
                        of.runs -= 1;
                        reference.running -= 1;
                    }
                }
                Step::Done(at, failed) if !started.is_empty() => {
                    let Started { job, since, charged, ran } = started.remove(at % started.len());
                    let next = if failed { Next::Failed } else { Next::Settled };
                    // The item is removed, because delays are no part of this test.
                    slots.done(&job, next, now);
                    slots.remove((job.lane, job.slot), &(), now);
                    let of = reference.tenants.get_mut(&tenant(job.lane)).unwrap();
                    let lane = of.lanes.get_mut(&job.lane).unwrap();
                    if !ran {
                        lane.time = lane.time - charged + job_cost;
                        of.time = of.time - charged + job_cost;
                        of.runs -= 1;
                        reference.running -= 1;
                    }
                    lane.jobs -= 1;
                    of.jobs -= 1;
                    if !ran {
                        of.ran(now - since, JOB, now);
                    }
                    of.weigh(now);
                }
                Step::Ran(..) | Step::Done(..) => {}
                Step::Advance(millis) => now += Duration::from_millis(millis),
            }
            reference.settle();
            for of in reference.tenants.values_mut().filter(|of| of.may_start()) {
                of.time = of.time.max(reference.present.saturating_sub(CREDIT.as_nanos()));
            }
        }
    }
}
