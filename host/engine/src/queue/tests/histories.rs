//! Random histories of keys, lanes and orders, in which the queue keeps the promises of the naive scheduler.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    oracle::{BUDGET, Key, Oracle, REST, RESTING, WORKERS},
    *,
};

const LANES: u8 = 6;
const GROUPS: [usize; 2] = [0, 1];
const MIB: u64 = 1 << 20;

#[derive(Debug, Clone)]
enum Op {
    /// The lanes as bits, the object, and whether it has changed.
    Add(u8, u8, u8, bool),
    Take,
    Send(usize, u32),
    Ran(usize, u64),
    /// The end of a job, perhaps after a stop.
    Done(usize, usize, bool),
    Remove(Key),
    Unload(u8),
    Order(usize),
    Advance(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let key = (0..LANES, 0..2_u8, 0..2_u8);
    let add = (0..1_u8 << LANES, 0..2_u8, 0..2_u8, prop::option::weighted(0.8, any::<bool>()));
    prop_oneof![
        6 => add.prop_map(|(lanes, name, item, cause)| Op::Add(lanes, name, item, cause.is_some())),
        8 => Just(Op::Take),
        2 => (any::<usize>(), 0..6_u32).prop_map(|(job, writes)| Op::Send(job, writes)),
        2 => (any::<usize>(), 0..30_u64).prop_map(|(job, millis)| Op::Ran(job, millis)),
        8 => (any::<usize>(), 0..7_usize, any::<bool>()).prop_map(|(job, next, stop)| Op::Done(job, next, stop)),
        1 => key.prop_map(Op::Remove),
        1 => (0..LANES).prop_map(Op::Unload),
        1 => (0..3_usize).prop_map(Op::Order),
        2 => (0..1_500_u64).prop_map(Op::Advance),
    ]
}

fn members() -> impl Strategy<Value = Vec<Member<u8>>> {
    let of = |lane: u8| {
        (0..3_u8, prop::collection::vec(0..LANES, 0..2)).prop_map(move |(phase, after)| {
            let after = after.into_iter().filter(|before| *before < lane).collect();
            let group = usize::from(lane / 3);
            Member { lane, group, phase, after, leads: group == 0 && phase == 0 }
        })
    };
    (0..LANES).map(of).collect::<Vec<_>>()
}

/// Two tenants; if anything is `scarce`, their lanes differ in memory and have few tokens.
#[derive(Debug)]
struct Tenants {
    scarce: bool,
}

impl Claims<u8> for Tenants {
    fn claim(&self, lane: u8) -> Claim {
        let bytes = if self.scarce { [4, 64, 128][usize::from(lane % 3)] * MIB } else { 4 * MIB };
        Claim { tenant: u32::from(lane / 3), bytes }
    }

    fn rest(&self, lane: u8) -> Duration {
        if lane == RESTING { REST } else { Duration::ZERO }
    }

    fn demand(&self, _: u8) -> Demand {
        let mut demand = Demand { writes: true, ..Demand::default() };
        if self.scarce {
            let rate = |(per_second, burst)| Rate { per_second, burst };
            (demand.lane[0], demand.tenant[0]) = (rate((2, 4)), rate((3, 6)));
        }
        demand
    }
}

async fn check(orders: &[Vec<Member<u8>>], ops: &[Op], scarce: bool) {
    let mut order = Order::new(&orders[0]);
    let queue: Queue<u8, u8, u8> = Queue::new(Backoff::default(), usize::MAX, 1)
        .within(MemoryBudget::new(BUDGET), Arc::new(Tenants { scarce }))
        .shared(Occupancy::new(WORKERS));
    queue.set_order(&GROUPS, Order::new(&orders[0]));
    let mut oracle = Oracle::default();
    for op in ops {
        oracle.operation += 1;
        let now = Instant::now();
        let count = oracle.running.len();
        match *op {
            Op::Add(lanes, name, item, is_change) => {
                let keys: Vec<Key> =
                    (0..LANES).filter(|lane| lanes & 1 << lane != 0).map(|lane| (lane, name, item)).collect();
                oracle.add(&order, &keys, is_change);
                if is_change { queue.add_changed(keys) } else { queue.add(keys) }
            }
            Op::Take => match futures::FutureExt::now_or_never(queue.next()) {
                Some(job) => oracle.take(job.unwrap(), scarce, now),
                None if !scarce => oracle.rests(now),
                None => {}
            },
            Op::Send(at, writes) if count > 0 && writes > 0 => {
                let job = &oracle.running[at % count].job;
                queue.spend(job, WRITES, writes);
            }
            Op::Ran(at, millis) if count > 0 => {
                queue.ran(&oracle.running[at % count].job, Duration::from_millis(millis));
                oracle.running[at % count].ran = true;
            }
            Op::Done(at, next, stop) if count > 0 => {
                let at = at % count;
                let delay = Duration::from_millis(700);
                let all = [
                    Next::Settled,
                    Next::Settled,
                    Next::Failed,
                    Next::After(delay),
                    Next::Final,
                    Next::Postponed(delay),
                    Next::Ended,
                ];
                if stop && !oracle.running[at].orphaned && matches!(all[next], Next::Settled | Next::After(_)) {
                    queue.stop(&oracle.running[at].job);
                    oracle.stop(&order, at);
                }
                queue.done(&oracle.running[at].job, all[next]);
                oracle.done(at, all[next], now);
            }
            Op::Remove(key) => {
                if queue.remove(key.0, key.1, &key.2) {
                    oracle.remove(key);
                }
            }
            Op::Unload(lane) => {
                queue.remove_lane(lane);
                (0..4_u8).for_each(|object| oracle.remove((lane, object / 2, object % 2)));
                let of_lane = oracle.running.iter_mut().filter(|running| running.job.lane == lane);
                of_lane.for_each(|running| running.orphaned = true);
            }
            Op::Order(at) => {
                order = Order::new(&orders[at]);
                queue.set_order(&GROUPS, Order::new(&orders[at]));
                // Which of those that wait now waits for which is not checked; keys that are added later are.
                oracle.first.clear();
            }
            Op::Advance(millis) => advance(Duration::from_millis(millis)).await,
            Op::Send(..) | Op::Ran(..) | Op::Done(..) => {}
        }
    }
    drain(&queue, oracle, scarce).await;
}

/// Whatever is left is run, and workers that wait learn of it.
async fn drain(queue: &Queue<u8, u8, u8>, mut oracle: Oracle, scarce: bool) {
    oracle.operation += 1;
    while !oracle.running.is_empty() {
        queue.done(&oracle.running[0].job, Next::Settled);
        oracle.done(0, Next::Settled, Instant::now());
    }
    while let Ok(Some(job)) = tokio::time::timeout(Duration::from_secs(3_600), queue.next()).await {
        oracle.take(job, scarce, Instant::now());
        queue.done(&oracle.running[0].job, Next::Settled);
        oracle.done(0, Next::Settled, Instant::now());
    }
    oracle.waiting.retain(|key, _| !oracle.unsure.contains(key));
    assert_eq!(oracle.waiting, BTreeMap::new(), "never run");
    assert!(queue.is_idle());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(400)))]

    #[test]
    fn the_promises_hold_whatever_happens(
        orders in prop::collection::vec(members(), 3),
        ops in prop::collection::vec(op(), 0..100),
        scarce in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(check(&orders, &ops, scarce));
    }
}
