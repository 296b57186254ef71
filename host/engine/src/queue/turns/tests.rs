//! Claims about turns, in simulations with fixed costs, and against a reference that looks at every lane.

mod reference;
mod simulation;

use std::{sync::Arc, time::Duration};

use simulation::{Simulation, ms, percentile};
use tokio::time::Instant;

use super::super::{Backoff, Claim, Claims, MemoryBudget, Next, slots::Slots};

/// 8 workers on 2 processors, as the host has by default.
const WORKERS: usize = 8;
const PROCESSORS: u32 = 2;
/// The tenant whose latency is measured.
const GOOD: u32 = 0;

fn simulation() -> Simulation {
    Simulation::new(WORKERS, PROCESSORS)
}

/// Q3: a key of another tenant does not wait for a backlog. `PODIUM_BACKLOG` sets the number of due keys.
#[test]
fn a_key_beside_100_000_keys_of_another_tenant_starts_in_50_ms() {
    let keys = std::env::var("PODIUM_BACKLOG").map_or(100_000, |keys| keys.parse().unwrap());
    let mut simulation = simulation();
    simulation.plugin(GOOD, 0, ms(1));
    simulation.plugin(1, 0, ms(20));
    simulation.add(1, 0, keys);
    for at in 0..250 {
        simulation.arrive(ms(37 * at), GOOD, 0);
    }
    simulation.run_for(Duration::from_secs(10));
    let waited = simulation.waited(GOOD, 0);
    assert_eq!(waited.len(), 250);
    let [median, longest] = [50, 100].map(|percent| percentile(&waited, percent));
    println!("beside {keys} due keys: started after {median:?}, at most {longest:?}");
    assert!(longest <= ms(50), "{longest:?}");
    assert!(simulation.runs(1) > 900, "the backlog is worked on meanwhile: {}", simulation.runs(1));
}

/// Runs `hostile` plugins of a tenant each, or of one, beside a good one. Returns the good one's p99 from the event to
/// the end of the run, without and beside them.
fn beside(hostile: u32, one_tenant: bool, cost: Duration, holds: Duration) -> (Duration, Duration) {
    let p99 = |hostile: u32| {
        let mut simulation = simulation();
        simulation.plugin(GOOD, 0, Duration::from_micros(300));
        // It is known: nothing is known of the others.
        simulation.add(GOOD, 0, 1);
        simulation.run_for(ms(10));
        for at in 0..hostile {
            let (tenant, lane) = if one_tenant { (1, at) } else { (1 + at, 0) };
            simulation.plugin_with(tenant, lane, cost, holds, Next::After(ms(100)));
            simulation.add(tenant, lane, 50);
        }
        for at in 0..600 {
            simulation.arrive(ms(50 * at), GOOD, 0);
        }
        simulation.run_for(Duration::from_secs(31));
        let took = simulation.took(GOOD, 0);
        assert_eq!(took.len(), 601, "beside {hostile}");
        percentile(&took, 99)
    };
    (p99(0), p99(hostile))
}

#[test]
fn plugins_just_under_their_limit_delay_others_by_20_ms_at_most() {
    for (hostile, one_tenant, cost) in [(50, false, ms(20)), (50, true, ms(20)), (10, false, ms(800))] {
        let (without, beside) = beside(hostile, one_tenant, cost, Duration::ZERO);
        println!("beside {hostile} plugins of {cost:?}: p99 of {beside:?}, {without:?} without them");
        assert!(beside <= (2 * without).max(ms(20)), "{hostile} of {cost:?}: {beside:?} instead of {without:?}");
    }
}

#[test]
fn plugins_that_only_hold_workers_delay_others_by_20_ms_at_most() {
    let (without, beside) = beside(20, false, ms(1), Duration::from_secs(10));
    assert!(beside <= (2 * without).max(ms(20)), "{beside:?} instead of {without:?}");
}

/// T10: the one that asks for more gets no more, also with runs so short that the kept worker is for it.
#[test]
fn tenants_with_due_keys_get_the_same_processor_time() {
    for cost in [|tenant: u32| 1 + u64::from(tenant) % 20, |tenant| if tenant == 0 { 1 } else { 20 }] {
        let mut simulation = simulation();
        for tenant in 0..100 {
            let plugins = if tenant == 0 { 100 } else { 1 };
            for plugin in 0..plugins {
                simulation.plugin_with(tenant, plugin, ms(cost(tenant)), Duration::ZERO, Next::After(ms(0)));
                simulation.add(tenant, plugin, 100);
            }
        }
        simulation.run_for(Duration::from_secs(60));
        let used: Vec<f64> = (0..100).map(|tenant| simulation.used(tenant).as_secs_f64()).collect();
        let sum = used.iter().sum::<f64>();
        let squares = used.iter().map(|used| used * used).sum::<f64>();
        let jain = sum * sum / (100.0 * squares);
        println!("Jain index {jain:.4}");
        assert!(jain >= 0.95, "{jain}: {used:?}");
        assert!((119.0..121.0).contains(&sum), "no processor rests: {sum} s");
    }
}

#[test]
fn the_plugins_of_a_tenant_get_the_same_processor_time() {
    let mut simulation = Simulation::new(4, 1);
    for (plugin, cost) in [(0, 1), (1, 5), (2, 20)] {
        simulation.plugin_with(1, plugin, ms(cost), Duration::ZERO, Next::After(ms(0)));
        simulation.add(1, plugin, 20);
    }
    simulation.run_for(Duration::from_secs(30));
    for plugin in 0..3 {
        let used = simulation.used_by(1, plugin).as_secs_f64();
        assert!((9.0..11.0).contains(&used), "plugin {plugin} got {used} s of 30");
    }
}

#[test]
fn a_tenant_that_rested_is_first_for_50_ms_and_no_longer() {
    let mut simulation = Simulation::new(1, 1);
    simulation.plugin(1, 0, ms(10));
    simulation.plugin_with(2, 0, ms(10), Duration::ZERO, Next::After(ms(0)));
    // Both are known; then one has the processor for a minute.
    simulation.add(1, 0, 1);
    simulation.add(2, 0, 10);
    simulation.run_for(Duration::from_secs(60));
    let before = simulation.used(1);
    simulation.add(1, 0, 100);
    simulation.run_for(ms(400));
    let got = simulation.used(1) - before;
    assert!((ms(210)..=ms(240)).contains(&got), "{got:?} of 400 ms");
}

#[test]
fn a_tenant_with_one_long_run_waits_for_the_others_to_catch_up() {
    let mut simulation = Simulation::new(1, 1);
    simulation.plugin(1, 0, Duration::from_secs(5));
    simulation.plugin_with(2, 0, ms(10), Duration::ZERO, Next::After(ms(0)));
    simulation.add(1, 0, 2);
    simulation.run_for(ms(1));
    simulation.add(2, 0, 10);
    let started = |simulation: &Simulation| simulation.trace.iter().filter(|(_, tenant, ..)| *tenant == 1).count();
    simulation.run_for(Duration::from_millis(9_900));
    assert_eq!(started(&simulation), 1, "its second run starts after 5 s of the other");
    simulation.run_for(ms(200));
    assert_eq!(started(&simulation), 2, "and it does start");
}

#[test]
fn the_keys_of_a_plugin_are_run_in_the_order_they_were_due() {
    let mut simulation = Simulation::new(4, 1);
    simulation.plugin(1, 0, ms(3));
    simulation.plugin(2, 0, ms(1));
    simulation.add(1, 0, 100);
    simulation.add(2, 0, 100);
    simulation.run_for(Duration::from_secs(1));
    let slots: Vec<_> =
        simulation.trace.iter().filter(|(_, tenant, ..)| *tenant == 1).map(|(.., slot)| *slot).collect();
    assert_eq!(slots, (0..100).collect::<Vec<_>>());
}

#[test]
fn the_same_additions_lead_to_the_same_order() {
    let trace = || {
        let mut simulation = simulation();
        for tenant in 0..20 {
            simulation.plugin_with(tenant, 0, ms(1 + u64::from(tenant) * 7 % 5), ms(1), Next::Failed);
            simulation.add(tenant, 0, 20);
        }
        simulation.run_for(Duration::from_secs(5));
        simulation.trace
    };
    let first = trace();
    assert!(first.len() > 1_000 && first == trace());
}

#[test]
fn a_plugin_that_fails_slowly_delays_its_sibling_by_one_of_its_runs() {
    for cost in [ms(0), ms(20)] {
        let mut simulation = simulation();
        simulation.plugin_with(1, 0, Duration::from_micros(100), Duration::from_secs(2), Next::Failed);
        // It costs more, so that virtual time prefers the other one.
        simulation.plugin(1, 1, cost);
        simulation.add(1, 0, 2_000);
        for at in 0..1_000 {
            simulation.arrive(ms(500 * at + 13 * (at % 37)), 1, 1);
        }
        simulation.run_for(Duration::from_secs(510));
        let took = simulation.took(1, 1);
        let own = cost + ms(1);
        assert!(took.len() > 250, "{} runs", took.len());
        let p99 = percentile(&took, 99);
        assert!(p99 <= Duration::from_secs(2) + own, "{p99:?} beside runs of 2 s");
    }
}

#[test]
fn a_tenant_has_a_quarter_of_the_workers_even_without_others() {
    let mut simulation = simulation();
    for plugin in 0..20 {
        simulation.plugin_with(1, plugin, ms(1), Duration::from_secs(10), Next::After(ms(0)));
        simulation.add(1, plugin, 10);
    }
    simulation.plugin(2, 0, ms(1));
    simulation.run_for(Duration::from_secs(1));
    assert_eq!(simulation.trace.len(), WORKERS / 4);
    simulation.add(2, 0, 1);
    simulation.run_for(ms(2));
    assert_eq!(simulation.runs(2), 1, "a new tenant finds a worker");
    simulation.run_for(Duration::from_secs(10));
    assert_eq!(simulation.runs(1), WORKERS / 4);
}

/// Lane 0 takes 1 byte, all others take 50. Each is a tenant.
#[derive(Debug)]
struct Large;

impl Claims<u32> for Large {
    fn claim(&self, lane: u32) -> Claim {
        Claim { tenant: lane, bytes: if lane == 0 { 1 } else { 50 } }
    }
}

#[test]
fn the_first_of_many_large_jobs_is_next_after_32_small_ones() {
    let now = Instant::now();
    let mut slots: Slots<u32, u32, ()> = Slots::new(Backoff::default(), usize::MAX, 1);
    slots.turns.set_budget(MemoryBudget::new(100), Arc::new(Large));
    (0..200).for_each(|slot| slots.add(0, slot, (), now));
    let small = slots.take(now).unwrap();
    (1..=1_000).for_each(|lane| slots.add(lane, 0, (), now));
    let large = slots.take(now).unwrap();
    assert_eq!((small.lane, large.lane), (0, 1), "no other large one fits beside these");
    for _ in 0..32 {
        let job = slots.take(now).unwrap();
        assert_eq!(job.lane, 0);
        slots.done(&job, Next::Settled, now);
    }
    assert_eq!(slots.take(now).map(|job| job.lane), None, "the rest is kept for the first large one");
    slots.done(&large, Next::Settled, now);
    let large = slots.take(now).unwrap();
    assert_eq!(large.lane, 2);
    assert_eq!(slots.take(now).map(|job| job.lane), None, "the others have waited for as long");
    slots.done(&large, Next::Settled, now);
    assert_eq!(slots.take(now).unwrap().lane, 3);
}
