//! Claims about tokens, with workers that are counted and a clock that is set.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::time::Instant;

use super::super::super::{
    Backoff, Claim, Claims, Demand, Job, MemoryBudget, Next, Occupancy, Rate, admission::LIGHT, slots::Slots,
};
use super::*;

const READS: usize = 1;
const OWN: Rate = Rate { per_second: 10, burst: 20 };
const TENANT: Rate = Rate { per_second: 40, burst: 60 };
/// How long a run takes.
const RUN: Duration = Duration::from_millis(1);

/// A lane is a tenant and a plugin of it.
type Lane = (u32, u32);

fn demand(own: Rate, tenant: Rate) -> Demand {
    Demand { lane: [own; KINDS], tenant: [tenant; KINDS], writes: true }
}

#[derive(Debug)]
struct Demands(Mutex<BTreeMap<Lane, Demand>>);

impl Claims<Lane> for Demands {
    fn claim(&self, (tenant, _): Lane) -> Claim {
        Claim { tenant, bytes: 1 }
    }
    fn demand(&self, lane: Lane) -> Demand {
        self.0.lock().get(&lane).copied().unwrap_or_else(|| demand(OWN, TENANT))
    }
}

type TestJob = Job<Lane, u32, ()>;

/// The work of a run: it sends requests, and returns their number of each kind and when it is run again.
type Run = dyn Fn(&mut Slots<Lane, u32, ()>, &TestJob, Instant) -> ([u32; KINDS], Next);

struct Bench {
    slots: Slots<Lane, u32, ()>,
    demands: Arc<Demands>,
    begin: Instant,
    now: Instant,
    /// Runs under way, and when they end.
    running: VecDeque<(Instant, TestJob)>,
    runs: BTreeMap<Lane, Vec<Duration>>,
    /// Tokens that were spent, by tenant and plugin and kind.
    spent: BTreeMap<(Lane, usize), u64>,
    /// The longest time from an event to its run.
    waited: BTreeMap<Lane, Duration>,
    most_running: usize,
}

impl Bench {
    fn new() -> Self {
        let demands = Arc::new(Demands(Mutex::default()));
        let mut slots = Slots::new(Backoff::default(), 4, 1);
        slots.turns.set_budget(MemoryBudget::new(1_000), demands.clone());
        slots.turns.set_occupancy(Occupancy::new(8));
        let begin = Instant::now();
        let running = VecDeque::new();
        let most_running = 0;
        let (runs, spent, waited) = <_>::default();
        Self { slots, demands, begin, now: begin, running, runs, spent, waited, most_running }
    }

    fn add(&mut self, lane: Lane, keys: u32) {
        (0..keys).for_each(|slot| self.slots.add(lane, slot, (), self.now));
    }

    /// Runs due keys for this time.
    fn run_for(&mut self, time: Duration, run: &Run) {
        let end = self.now + time;
        loop {
            while let Some((_, job)) = self.running.pop_front_if(|(ends, _)| *ends <= self.now) {
                let (requests, next) = run(&mut self.slots, &job, self.now);
                for (kind, requests) in requests.into_iter().enumerate() {
                    self.slots.turns.spend(job.number, kind, requests, self.now);
                    *self.spent.entry((job.lane, kind)).or_default() += u64::from(requests);
                }
                self.slots.turns.ran(job.number, Some(RUN), self.now);
                self.slots.done(&job, next, self.now);
            }
            while let Some(job) = self.slots.take(self.now) {
                self.runs.entry(job.lane).or_default().push(self.now - self.begin);
                let waited = self.waited.entry(job.lane).or_default();
                *waited = (*waited).max(self.now - job.queued);
                self.running.push_back((self.now + RUN, job));
            }
            self.most_running = self.most_running.max(self.running.len());
            let next = self.running.front().map(|(ends, _)| *ends).into_iter().chain(self.slots.next_due()).min();
            match next.filter(|next| *next <= end) {
                Some(next) => self.now = next,
                None => {
                    self.now = end;
                    return;
                }
            }
        }
    }

    fn spent(&self, lane: Lane, kind: usize) -> u64 {
        self.spent.get(&(lane, kind)).copied().unwrap_or_default()
    }
}

/// A run that writes once, and is run again at once.
fn writes_for_ever(_: &mut Slots<Lane, u32, ()>, _: &TestJob, _: Instant) -> ([u32; KINDS], Next) {
    ([1, 0, 0], Next::After(Duration::ZERO))
}

/// A run that writes once, and settles.
fn settles(_: &mut Slots<Lane, u32, ()>, _: &TestJob, _: Instant) -> ([u32; KINDS], Next) {
    ([1, 0, 0], Next::Settled)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_lane_that_always_writes_sends_its_rate_and_its_burst() {
    let mut bench = Bench::new();
    bench.add((1, 0), 50);
    bench.run_for(seconds(100), &writes_for_ever);
    // As many as are under way when the last token is used are a debt.
    let expected = 20 + 10 * 100;
    let spent = bench.spent((1, 0), WRITES);
    assert!((expected - 1..=expected + 3).contains(&spent), "{spent} writes");
}

#[test]
fn ten_plugins_of_a_tenant_share_its_budget_equally() {
    let mut bench = Bench::new();
    (0..10).for_each(|plugin| bench.add((1, plugin), 50));
    bench.run_for(seconds(100), &writes_for_ever);
    let each: Vec<_> = (0..10).map(|plugin| bench.spent((1, plugin), WRITES)).collect();
    let sum = each.iter().sum::<u64>();
    let expected = 60 + 40 * 100;
    assert!((expected - 1..=expected + 3).contains(&sum), "{sum} writes: {each:?}");
    assert!(each.iter().all(|each| (380..=430).contains(each)), "{each:?}");
}

#[test]
fn a_tenant_beside_tenants_without_tokens_starts_at_once() {
    let mut bench = Bench::new();
    (1..20).for_each(|tenant| bench.add((tenant, 0), 100));
    bench.run_for(seconds(10), &writes_for_ever);
    for _ in 0..1_000 {
        bench.add((0, 0), 1);
        bench.run_for(Duration::from_millis(100), &|slots, job, now| match job.lane {
            (0, 0) => settles(slots, job, now),
            _ => writes_for_ever(slots, job, now),
        });
    }
    assert_eq!(bench.runs[&(0, 0)].len(), 1_000, "its rate is not exceeded");
    assert!(bench.waited[&(0, 0)] <= LIGHT, "{:?}", bench.waited[&(0, 0)]);
}

#[test]
fn a_plugin_that_needs_no_tokens_does_not_wait_for_others() {
    let mut bench = Bench::new();
    let reader = Demand { writes: false, ..demand(OWN, TENANT) };
    bench.demands.0.lock().insert((1, 99), reader);
    (0..10).for_each(|plugin| bench.add((1, plugin), 50));
    bench.run_for(seconds(10), &writes_for_ever);
    bench.add((1, 99), 100);
    bench.run_for(seconds(1), &|slots, job, now| match job.lane {
        (1, 99) => ([0; KINDS], Next::Settled),
        _ => writes_for_ever(slots, job, now),
    });
    assert_eq!(bench.runs[&(1, 99)].len(), 100);
}

#[test]
fn a_lane_that_was_refused_a_request_waits_until_it_may_send_one() {
    let mut bench = Bench::new();
    (0..3).for_each(|plugin| bench.add((1, plugin), 10));
    bench.run_for(seconds(100), &|slots, job, now| {
        let mut reads = 0;
        while reads < 1_000 && slots.turns.has_tokens(job.number, READS, 1, now) {
            slots.turns.spend(job.number, READS, 1, now);
            reads += 1;
        }
        ([0; KINDS], Next::After(Duration::ZERO))
    });
    for plugin in 0..3 {
        let runs = bench.runs[&(1, plugin)].len();
        // For each token as many runs start as the tenant has places.
        assert!((300..=2 * 1_020).contains(&runs), "{runs} runs");
    }
    assert!(bench.slots.tenants(bench.now)[&1].refused[READS] > 0);
}

#[test]
fn a_plugin_beside_one_with_a_thousand_writes_waits_a_second_at_most() {
    let mut bench = Bench::new();
    // Neither has a bound of its own, and the other one's runs cost nothing.
    for plugin in 0..2 {
        bench.demands.0.lock().insert((1, plugin), demand(Rate::UNLIMITED, OWN));
    }
    bench.add((1, 0), 1_000);
    let begin = bench.now;
    for at in 0..90 {
        bench.add((1, 1), 1);
        bench.slots.turns.charge_cost((1, 1), Duration::from_millis(20), bench.now);
        let left = begin + seconds(at + 1) - bench.now;
        bench.run_for(left, &settles);
    }
    assert_eq!(bench.runs[&(1, 1)].len(), 90);
    assert!(bench.waited[&(1, 1)] <= seconds(1), "{:?}", bench.waited[&(1, 1)]);
    let sent = bench.spent((1, 0), WRITES) + bench.spent((1, 1), WRITES);
    let expected = 20 + 10 * 90;
    assert!((expected - 1..=expected + 3).contains(&sent), "{sent} writes in 90 s");
}

#[test]
fn a_run_that_writes_more_than_there_are_tokens_leaves_debt() {
    let mut bench = Bench::new();
    bench.add((1, 0), 50);
    bench.run_for(seconds(100), &|_, _, _| ([35, 0, 0], Next::After(Duration::ZERO)));
    let spent = bench.spent((1, 0), WRITES);
    // Those that were under way when the debt began, and the last one.
    let most = 20 + 10 * 100 + 4 * 35;
    assert!((980..=most).contains(&spent), "{spent} writes");
    assert!(bench.runs[&(1, 0)].len() <= 34, "no run is made whose writes are not sent");
}

#[test]
fn after_a_debt_lanes_take_turns_only_until_there_is_a_token_for_each() {
    let mut bench = Bench::new();
    let many = Rate { per_second: 100_000, burst: 100_000 };
    for plugin in 0..3 {
        bench.demands.0.lock().insert((1, plugin), demand(many, many));
        bench.add((1, plugin), 10);
    }
    bench.run_for(RUN, &|_, _, _| ([50_000, 0, 0], Next::After(Duration::ZERO)));
    let turns = |bench: &Bench| {
        let tokens = &bench.slots.turns.tenants[&1].tokens;
        (tokens.waiting.len(), tokens.admitted)
    };
    assert_eq!(turns(&bench).0, 3, "the tenant is in debt");
    bench.run_for(seconds(10), &writes_for_ever);
    assert_eq!(turns(&bench), (0, None));
}

#[test]
fn a_run_that_does_not_write_takes_no_token() {
    let mut bench = Bench::new();
    bench.add((1, 0), 10_000);
    bench.run_for(seconds(10), &|_, _, _| ([0; KINDS], Next::Settled));
    assert_eq!((bench.runs[&(1, 0)].len(), bench.spent((1, 0), WRITES)), (10_000, 0));
}

#[test]
fn after_a_storm_every_key_settles_and_the_burst_is_there_again() {
    let mut bench = Bench::new();
    for tenant in 1..4 {
        (0..7).for_each(|plugin| bench.add((tenant, plugin), 100));
    }
    bench.run_for(seconds(1), &settles);
    let without = bench.slots.tenants(bench.now)[&1].without_tokens;
    assert!(without > 500, "{without} keys wait for tokens");
    bench.run_for(seconds(60), &settles);
    for lane in (1..4).flat_map(|tenant| (0..7).map(move |plugin| (tenant, plugin))) {
        assert_eq!(bench.runs[&lane].len(), 100, "{lane:?}");
    }
    assert!(bench.slots.is_idle() && bench.slots.next_due().is_none());
    assert_eq!(bench.slots.tenants(bench.now)[&1].without_tokens, 0);
    bench.add((1, 0), 20);
    bench.run_for(Duration::from_millis(50), &settles);
    assert_eq!(bench.runs[&(1, 0)].len(), 120, "its burst");
}

#[test]
fn waiting_for_tokens_holds_up_nothing_that_waits_for_memory() {
    let mut bench = Bench::new();
    bench.add((1, 0), 50);
    bench.run_for(seconds(10), &writes_for_ever);
    let waits = bench.slots.turns.tenants.values().filter(|tenant| tenant.wait.is_some()).count();
    assert!(waits == 0 && bench.slots.turns.board.is_empty());
    assert!(!bench.slots.has_ready());
}

#[test]
fn a_higher_rate_wakes_lanes_and_a_removed_one_holds_up_none() {
    let mut bench = Bench::new();
    let slow = Rate { per_second: 1, burst: 1 };
    let lanes: Vec<_> = (0..5).map(|plugin| (1, plugin)).collect();
    for lane in &lanes {
        bench.demands.0.lock().insert(*lane, demand(OWN, slow));
    }
    lanes.iter().for_each(|lane| bench.add(*lane, 10));
    bench.run_for(seconds(3), &writes_for_ever);
    bench.slots.remove_lane(lanes[0], bench.now);
    bench.slots.remove_lane(lanes[1], bench.now);
    let before: usize = bench.runs.values().map(Vec::len).sum();
    bench.run_for(seconds(9), &writes_for_ever);
    let after: usize = bench.runs.values().map(Vec::len).sum();
    // Those that were under way when the last token was used were a debt.
    assert!((8..=9).contains(&(after - before)), "one a second: {}", after - before);
    for lane in &lanes {
        bench.demands.0.lock().insert(*lane, demand(OWN, TENANT));
    }
    bench.slots.claim_changed(lanes[2], bench.now);
    bench.run_for(seconds(1), &writes_for_ever);
    assert!(bench.runs.values().map(Vec::len).sum::<usize>() - after > 20);
}

#[derive(Debug, Clone)]
enum Step {
    Add(Lane, u32),
    Take,
    /// The job, the tokens that it uses of a kind, and how it ends.
    End(usize, usize, u32, bool),
    Advance(u64),
    Remove(Lane),
    Rates(Lane, u32, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let lane = || (0..3_u32, 0..3_u32);
    prop_oneof![
        4 => (lane(), 0..20_u32).prop_map(|(lane, slot)| Step::Add(lane, slot)),
        8 => Just(Step::Take),
        6 => (any::<usize>(), 0..KINDS, 0..6_u32, any::<bool>())
            .prop_map(|(at, kind, used, again)| Step::End(at, kind, used, again)),
        4 => (0..2_000_u64).prop_map(Step::Advance),
        1 => lane().prop_map(Step::Remove),
        1 => (lane(), 1..50_u32, 1..20_u32).prop_map(|(lane, rate, burst)| Step::Rates(lane, rate, burst)),
    ]
}

/// Checks the claims that hold at every moment.
fn check(turns: &Turns<Lane>) {
    for (number, tenant) in &turns.tenants {
        let tokens = &tenant.tokens;
        let needs_timer = !tokens.waiting.is_empty() && tokens.admitted.is_none();
        assert_eq!(needs_timer, tokens.timer.is_some(), "lanes wait without a timer, or one without them");
        if let Some(at) = tokens.timer {
            assert!(matches!(turns.timers.get(&at), Some(Timer::Tenant(of)) if of == number));
        }
        assert!(tokens.admitted.is_none_or(|lane| turns.lanes[&lane].listed.is_some()), "it starts never");
        for (turn, lane) in &tokens.waiting {
            assert_eq!(turns.lanes[lane].tokens.waits, Waits::Tenant(*turn));
            assert_eq!(turns.lanes[lane].tenant, *number);
        }
    }
    let mut timers = turns.tenants.values().filter_map(|tenant| tenant.tokens.timer).count();
    for lane in turns.lanes.values() {
        let waits = lane.tokens.waits != Waits::No;
        let listed = lane.listed.is_some();
        assert_eq!(turns.may_start(lane), listed || waits, "a lane is lost: {lane:?}");
        assert!(!(listed && waits));
        timers += usize::from(matches!(lane.tokens.waits, Waits::Timer(_)));
    }
    assert_eq!(timers, turns.timers.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(300)))]

    /// No lane is lost, whatever happens; and in the end everything runs.
    #[test]
    fn every_lane_that_may_start_is_listed_or_waits_with_a_timer(steps in prop::collection::vec(step(), 0..200)) {
        let mut bench = Bench::new();
        let mut started = Vec::new();
        for step in steps {
            match step {
                Step::Add(lane, slot) => bench.slots.add(lane, slot, (), bench.now),
                Step::Take => started.extend(bench.slots.take(bench.now)),
                Step::End(at, kind, used, again) if !started.is_empty() => {
                    let job: TestJob = started.remove(at % started.len());
                    if bench.slots.turns.has_tokens(job.number, kind, 1, bench.now) {
                        bench.slots.turns.spend(job.number, kind, used, bench.now);
                    }
                    check(&bench.slots.turns);
                    bench.slots.turns.ran(job.number, Some(RUN), bench.now);
                    let next = if again { Next::After(Duration::ZERO) } else { Next::Settled };
                    bench.slots.done(&job, next, bench.now);
                }
                Step::End(..) => {}
                Step::Advance(millis) => bench.now += Duration::from_millis(millis),
                Step::Remove(lane) => bench.slots.remove_lane(lane, bench.now),
                Step::Rates(lane, per_second, burst) => {
                    let rate = Rate { per_second, burst };
                    bench.demands.0.lock().insert(lane, demand(rate, rate));
                    bench.slots.claim_changed(lane, bench.now);
                }
            }
            check(&bench.slots.turns);
        }
        for job in started {
            bench.slots.done(&job, Next::Settled, bench.now);
        }
        bench.run_for(seconds(3_600), &settles);
        prop_assert!(bench.slots.is_idle() && bench.slots.next_due().is_none());
        check(&bench.slots.turns);
    }
}
