//! Many replicas over one server, each with a clock of its own, in a simulated time of 45 s with faults and a calm end.
//!
//! After each event: at most one replica acts or has a write under way; no replica holds the Lease beyond its deadline,
//! with a part that stands still, or long after it was asked to exit; and the Lease has an owner within a bound, if a
//! replica and the server have worked long enough.

mod faults;

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use super::{
    random::Random,
    seeds::{Counts, number, run_all},
    server::Server,
};
use crate::{Answer, Call, Effect, Fitness, Input, Ownership, Part, State, Why};

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLI;
/// When faults end, and when the simulation does.
const CALM: u64 = 45 * SECOND;

/// The holder and the term of a Lease, and the number of its renewal.
type Known = Option<((String, u32), u64)>;

struct Replica {
    /// The process, if one runs.
    ownership: Option<Ownership>,
    /// The number of the process. Its own events name it.
    process: u64,
    duration: u64,
    /// The clock: where it began, its rate in millionths beside 1, and its steps.
    offset: u64,
    rate: i64,
    steps: u64,
    stepped: u64,
    /// Until when the process does not run.
    paused: u64,
    /// Until when no request and no answer passes.
    cut: u64,
    /// Until when answers arrive shortly before the time-out. The answer to a write may be the last one for a while.
    slow: u64,
    fitness: Fitness,
    /// A part that stands still, from when and until when.
    stuck: Option<(Part, u64, u64)>,
    /// The deadline of writes, on the replica's clock.
    until: Option<Duration>,
    drains: bool,
    /// When writes under way end: at the API server, also when the process is dead.
    writes: Vec<u64>,
    /// The Lease that the process has read last, if it has read.
    known: Option<Known>,
    /// Since when nothing has disturbed the replica.
    undisturbed: u64,
    stops: Option<u64>,
    /// The time of the next tick.
    tick: u64,
}

impl Replica {
    fn clock(&self, at: u64) -> Duration {
        let drift = (i128::from(at) * i128::from(self.rate) / 1_000_000) as i64;
        Duration::from_micros(self.offset + at.wrapping_add_signed(drift) + self.steps)
    }

    fn runs(&self, at: u64) -> bool {
        self.ownership.is_some() && self.paused <= at
    }

    fn left(&self, at: u64) -> Option<Duration> {
        // As `podium_api` sends writes.
        let left = self.until?.saturating_sub(self.clock(at));
        (left >= Duration::from_millis(500)).then(|| left.min(Duration::from_secs(5)))
    }

    fn may_begin(&self, at: u64) -> bool {
        self.runs(at) && !self.drains && self.left(at).is_some()
    }

    fn acts(&self, at: u64) -> bool {
        self.writes.iter().any(|end| *end > at) || self.may_begin(at)
    }

    /// True if the process has read that this one holds the Lease.
    fn knows(&self, present: &Known) -> bool {
        let holder = |known: &Known| known.as_ref().map(|(holder, _)| holder.clone());
        self.known.as_ref().is_some_and(|known| holder(known) == holder(present))
    }

    fn is_good(&self, at: u64) -> bool {
        let works = self.runs(at) && self.cut <= at && self.stuck.is_none() && self.stops.is_none();
        works && self.fitness == Fitness::Fit && self.undisturbed <= at
    }
}

enum Event {
    Start,
    Ready,
    Tick(u64),
    Beats,
    Work,
    Drained,
    Arrive(u64, Call),
    Answer(u64, Answer),
    Recover(Recovery),
    Fault,
}

enum Recovery {
    Fitness,
    Stuck,
    Lease,
}

struct Simulation {
    seed: u64,
    random: Random,
    at: u64,
    order: u64,
    /// The index of the replica and its process, or neither.
    events: BinaryHeap<(Reverse<(u64, u64)>, usize)>,
    bodies: Vec<Option<(usize, u64, Event)>>,
    free: Vec<usize>,
    server: Server,
    stalled: u64,
    down: u64,
    spoiled: bool,
    /// Until when replicas that begin to read are cut, after a restore.
    restored: u64,
    replicas: Vec<Replica>,
    longest: u64,
    pace: u64,
    may_delete: bool,
    /// When a replica last held the Lease, and when the Lease last changed.
    owned: u64,
    changed: u64,
    /// When the Lease was released, while others were waiting.
    released: Option<u64>,
    healthy: u64,
    counts: Counts,
    trace: bool,
}

impl Simulation {
    fn new(seed: u64, trace: bool) -> Self {
        let mut random = Random(seed);
        let many = if random.once_in(20) { random.between(9, 25) } else { random.between(1, 7) };
        let durations: &[u64] = if random.once_in(5) { &[4, 8, 16] } else { &[8] };
        let replica = |random: &mut Random| Replica {
            ownership: None,
            process: 0,
            duration: durations[random.between(0, durations.len() as u64) as usize] * SECOND,
            offset: random.between(0, 1 << 40),
            rate: random.between(0, 3) as i64 * 10_000 - 10_000,
            steps: 0,
            stepped: 0,
            paused: 0,
            cut: 0,
            slow: 0,
            fitness: Fitness::Unfit,
            stuck: None,
            until: None,
            drains: false,
            writes: Vec::new(),
            known: None,
            undisturbed: 0,
            stops: None,
            tick: 0,
        };
        let replicas: Vec<_> = (0..many).map(|_| replica(&mut random)).collect();
        let longest = durations.iter().max().unwrap() * SECOND;
        let pace = random.between(500 * MILLI, 10 * SECOND);
        let mut this = Self {
            seed,
            random,
            at: 0,
            order: 0,
            events: BinaryHeap::new(),
            bodies: Vec::new(),
            free: Vec::new(),
            server: Server::default(),
            stalled: 0,
            down: 0,
            spoiled: false,
            restored: 0,
            replicas,
            longest,
            pace,
            may_delete: durations.len() == 1,
            owned: 0,
            changed: 0,
            released: None,
            healthy: 0,
            counts: Counts::new(),
            trace,
        };
        for index in 0..this.replicas.len() {
            let at = this.random.between(0, 3 * SECOND);
            this.schedule(at, index, Event::Start);
        }
        this.schedule(this.pace, 0, Event::Fault);
        this
    }

    fn schedule(&mut self, at: u64, index: usize, event: Event) {
        self.schedule_for(self.replicas[index].process, at, index, event);
    }

    fn schedule_for(&mut self, process: u64, at: u64, index: usize, event: Event) {
        let body = Some((index, process, event));
        let slot = self.free.pop().unwrap_or(self.bodies.len());
        if slot == self.bodies.len() {
            self.bodies.push(body)
        } else {
            self.bodies[slot] = body
        }
        self.order += 1;
        self.events.push((Reverse((at, self.order)), slot));
    }

    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    fn run(mut self) -> Counts {
        let end = CALM + 3 * self.longest + 4 * SECOND;
        while let Some((Reverse((at, _)), slot)) = self.events.pop() {
            let (index, process, event) = self.bodies[slot].take().unwrap();
            self.free.push(slot);
            if at > end {
                break;
            }
            self.at = at;
            let replica = &mut self.replicas[index];
            let is_process = !matches!(event, Event::Fault | Event::Start | Event::Arrive(..) | Event::Recover(_));
            if is_process && (replica.process != process || replica.ownership.is_none()) {
                continue;
            }
            if is_process && replica.paused > at {
                let after = replica.paused;
                self.schedule(after, index, event);
                continue;
            }
            self.event(index, process, event);
            self.check();
        }
        let owners = self.replicas.iter().filter(|replica| replica.until.is_some()).count();
        assert_eq!(owners, 1, "seed {}: no owner in the end", self.seed);
        self.counts
    }

    fn event(&mut self, index: usize, process: u64, event: Event) {
        let at = self.at;
        match event {
            Event::Start => self.start(index),
            Event::Ready => {
                self.replicas[index].fitness = Fitness::Fit;
                self.disturb(index, at);
                self.step(index, Input::Fitness(Fitness::Fit));
            }
            Event::Tick(tick) if tick == self.replicas[index].tick => {
                self.replicas[index].tick = 0;
                self.step(index, Input::Tick);
            }
            Event::Tick(_) => {}
            Event::Beats => {
                let stuck = self.replicas[index].stuck.map(|(part, ..)| part);
                for part in Part::ALL.into_iter().filter(|part| stuck != Some(*part)) {
                    self.step(index, Input::Beat(part));
                }
                self.schedule(at + 3 * SECOND, index, Event::Beats);
            }
            Event::Work => self.work(index),
            Event::Drained => self.step(index, Input::Drained(None)),
            Event::Arrive(request, call) => self.arrive(index, process, request, call),
            Event::Answer(request, answer) => {
                if self.replicas[index].cut > at {
                    return;
                }
                if let Answer::Read(found) = &answer {
                    let record = found.as_ref().and_then(|(_, record)| record.as_ref().ok());
                    let known = record.map(|record| ((record.holder.clone(), record.term), record.renewal));
                    self.replicas[index].known = Some(known);
                }
                if self.replicas[index].slow > at && matches!(answer, Answer::Written(_)) && self.random.once_in(3) {
                    self.replicas[index].slow = 0;
                    self.replicas[index].cut = at + 10 * SECOND;
                    self.disturb(index, at + 10 * SECOND);
                }
                self.step(index, Input::Answer { request, answer });
            }
            Event::Recover(Recovery::Lease) => {
                self.server.delete(at);
                self.spoiled = false;
                self.changed = at;
                self.healthy = at;
            }
            Event::Recover(recovery) => self.recover(index, process, &recovery),
            Event::Fault => self.fault(),
        }
    }

    fn start(&mut self, index: usize) {
        let at = self.at;
        let replica = &mut self.replicas[index];
        if replica.ownership.is_some() {
            return;
        }
        replica.process += 1;
        let name = format!("{index}.{}", replica.process);
        let duration = Duration::from_micros(replica.duration);
        replica.ownership = Some(Ownership::new(name, duration, replica.clock(at)));
        replica.fitness = Fitness::Unfit;
        replica.until = None;
        replica.drains = false;
        replica.known = None;
        replica.paused = 0;
        replica.stops = None;
        replica.stuck = None;
        replica.tick = 0;
        replica.cut = replica.cut.max(self.restored);
        let until = replica.cut;
        self.disturb(index, until);
        let ready = at + self.random.between(0, 3 * SECOND);
        self.schedule(ready, index, Event::Ready);
        self.schedule(at, index, Event::Beats);
        self.step(index, Input::Tick);
    }

    fn recover(&mut self, index: usize, process: u64, recovery: &Recovery) {
        let replica = &mut self.replicas[index];
        if replica.process != process || replica.ownership.is_none() {
            return;
        }
        replica.undisturbed = replica.undisturbed.max(self.at + 4 * SECOND);
        match recovery {
            Recovery::Fitness => {
                replica.fitness = Fitness::Fit;
                self.step(index, Input::Fitness(Fitness::Fit));
            }
            Recovery::Stuck | Recovery::Lease => replica.stuck = None,
        }
    }

    /// Begins a write, as workers do until the deadline.
    fn work(&mut self, index: usize) {
        let at = self.at;
        self.replicas[index].writes.retain(|end| *end > at);
        if self.replicas[index].until.is_none() || self.replicas[index].drains {
            return;
        }
        if let Some(most) = self.replicas[index].left(at).filter(|_| self.replicas[index].may_begin(at)) {
            let most = most.as_micros() as u64;
            let takes = if self.random.once_in(5) { most } else { most.min(self.random.between(MILLI, 50 * MILLI)) };
            self.replicas[index].writes.push(at + takes);
            self.count("write");
        }
        let next = at + self.random.between(50 * MILLI, 900 * MILLI);
        self.schedule(next, index, Event::Work);
    }

    fn arrive(&mut self, index: usize, process: u64, request: u64, call: Call) {
        let at = self.at;
        if self.replicas[index].cut > at {
            return;
        }
        if self.stalled > at {
            let after = self.stalled + self.random.between(0, 20 * MILLI);
            self.disturb(index, after);
            self.schedule_for(process, after, index, Event::Arrive(request, call));
            return;
        }
        let before = self.present();
        let answer = if self.down > at { Answer::Failed } else { self.server.execute(&call, at) };
        if let (Answer::Written(_), Call::Create(record) | Call::Update { record, .. }) = (&answer, &call) {
            self.changed = at;
            let waits = |(other, replica): (usize, &Replica)| {
                let knows = replica.knows(&before) && replica.undisturbed + self.longest < at;
                other != index && knows && replica.is_good(at)
            };
            let is_awaited = self.replicas.iter().enumerate().any(waits);
            let is_release = record.holder.is_empty() && record.term > 0;
            self.released = match (is_release && is_awaited, self.replicas[index].is_good(at)) {
                (true, _) => Some(at),
                (false, true) => self.released,
                (false, false) => None,
            };
            self.replicas[index].known = Some(self.present());
        }
        let mut after = at + self.random.between(MILLI, 30 * MILLI);
        if self.replicas[index].slow > at {
            after += self.replicas[index].duration / 32 * self.random.between(4, 8);
        }
        if at < CALM && self.random.once_in(60) {
            self.disturb(index, 0);
            self.count("lost answer");
            self.released = None;
            if self.random.once_in(2) {
                return;
            }
            after += self.random.between(0, 3 * SECOND);
        }
        if self.replicas[index].process == process {
            self.schedule(after, index, Event::Answer(request, answer));
        }
    }

    fn present(&self) -> Known {
        self.server.record()?.as_ref().ok().map(|record| ((record.holder.clone(), record.term), record.renewal))
    }

    /// Notes that the replica does not work as it should until some time from now.
    fn disturb(&mut self, index: usize, until: u64) {
        let replica = &mut self.replicas[index];
        // A request may have been lost, for which the replica waits a quarter of the duration.
        replica.undisturbed = replica.undisturbed.max(until.max(self.at) + replica.duration / 2);
    }

    fn step(&mut self, index: usize, input: Input) {
        let at = self.at;
        let replica = &mut self.replicas[index];
        let now = replica.clock(at);
        let Some(ownership) = &mut replica.ownership else { return };
        if self.trace && !matches!(input, Input::Tick | Input::Beat(_)) {
            println!("{at:>10} {index}.{} {now:?} {input:?}", replica.process);
        }
        let effects = ownership.step(input, now);
        let due = ownership.due();
        assert!(due > now, "seed {}: due in the past", self.seed);
        for effect in effects {
            if self.trace {
                println!("{at:>10} {index}.{}   -> {effect:?}", self.replicas[index].process);
            }
            self.apply(index, effect);
        }
        let replica = &mut self.replicas[index];
        if replica.ownership.is_some() {
            let wait = (due - now).as_micros() as u64;
            let next = at + wait + wait / 90 + self.random.between(0, 20 * MILLI);
            if replica.tick <= at || replica.tick > next + 20 * MILLI {
                replica.tick = next;
                self.schedule(next, index, Event::Tick(next));
            }
        }
    }

    fn apply(&mut self, index: usize, effect: Effect) {
        let at = self.at;
        match effect {
            Effect::Send { request, call, within } => {
                let replica = &self.replicas[index];
                if let (Call::Update { record, .. }, None) = (&call, replica.until) {
                    let may = record.holder.is_empty() || replica.fitness != Fitness::Unfit;
                    assert!(may, "seed {}: at {at} us {index} is unfit and takes the Lease", self.seed);
                }
                let mut arrives = at + self.random.between(MILLI, 30 * MILLI);
                let failed = at + within.as_micros() as u64;
                if at < CALM && self.random.once_in(60) {
                    self.disturb(index, at);
                    self.count("slow request");
                    if self.random.once_in(2) {
                        self.schedule(failed, index, Event::Answer(request, Answer::Failed));
                        return;
                    }
                    arrives += self.random.between(0, 4 * SECOND);
                    self.disturb(index, arrives);
                }
                self.schedule(arrives, index, Event::Arrive(request, call));
            }
            Effect::Own { until, .. } => {
                self.count("own");
                self.replicas[index].until = Some(until);
                self.replicas[index].drains = false;
                self.schedule(at, index, Event::Work);
            }
            Effect::Until(until) => {
                assert!(self.replicas[index].until.is_some(), "seed {}: a deadline without a term", self.seed);
                self.replicas[index].until = Some(until);
            }
            Effect::Drain(_) => {
                self.replicas[index].drains = true;
                let last = self.replicas[index].writes.iter().copied().max().unwrap_or(at).max(at);
                self.schedule(last, index, Event::Drained);
            }
            Effect::Close(why) => {
                let name = match why {
                    Why::Stop => "closed: stop",
                    Why::Stuck(_) => "closed: stuck",
                    Why::Unfit => "closed: unfit",
                    Why::Deadline => "closed: deadline",
                    Why::Taken => "closed: taken",
                    Why::Given => panic!("seed {}: a Lease that nothing wanted", self.seed),
                };
                self.count(name);
                let replica = &mut self.replicas[index];
                replica.until = None;
                replica.drains = false;
                replica.writes.clear();
                if !self.random.once_in(4) {
                    let after = at + self.random.between(0, 20 * MILLI);
                    self.schedule(after, index, Event::Drained);
                }
            }
            Effect::Blocked(_) => self.count("blocked"),
            Effect::Stopped => {
                self.count("stopped");
                let replica = &mut self.replicas[index];
                assert!(replica.until.is_none(), "seed {}: stopped, and acts", self.seed);
                replica.ownership = None;
                let after = at + self.random.between(0, 5 * SECOND);
                self.schedule(after, index, Event::Start);
            }
        }
    }

    fn check(&mut self) {
        let at = self.at;
        let seed = self.seed;
        let acting: Vec<_> = (0..self.replicas.len()).filter(|index| self.replicas[*index].acts(at)).collect();
        assert!(acting.len() <= 1, "seed {seed}: at {at} us {acting:?} act");
        for (index, replica) in self.replicas.iter().enumerate() {
            let Some(ownership) = replica.ownership.as_ref().filter(|_| replica.paused <= at) else { continue };
            let poll = self.longest / 8 + SECOND;
            let is_late = |since: u64, bound: u64| at > since.max(replica.paused) + bound + poll;
            if ownership.state() == State::Holding {
                let beyond = replica.until.is_none_or(|until| {
                    replica.clock(at).saturating_sub(until) > Duration::from_micros(replica.duration / 8)
                });
                assert!(
                    !beyond || replica.paused + poll > at || replica.stepped + poll > at,
                    "seed {seed}: at {at} us {index} holds the Lease beyond its deadline"
                );
            }
            let stuck = replica.stuck.is_some_and(|(_, since, _)| is_late(since, 10 * SECOND));
            assert!(!stuck || replica.until.is_none(), "seed {seed}: at {at} us {index} acts and is stuck");
            let unstopped = replica.stops.is_some_and(|since| is_late(since, replica.duration));
            assert!(!unstopped, "seed {seed}: at {at} us {index} has not stopped");
        }
        if self.replicas.iter().any(|replica| replica.until.is_some() && replica.runs(at)) {
            if let Some(released) = self.released.take() {
                self.count("handed over");
                *self.counts.entry("us of hand-over").or_default() += at - released;
            }
            self.owned = at;
        }
        if self.healthy > at || self.spoiled {
            return;
        }
        let good = self.replicas.iter().filter(|replica| replica.is_good(at)).map(|replica| replica.undisturbed).min();
        let Some(good) = good else { return };
        let since = self.owned.max(self.changed).max(self.healthy).max(good);
        let bound = self.longest + self.longest / 8 + SECOND;
        assert!(at < since + bound, "seed {seed}: at {at} us no owner since {since}");
        if let Some(released) = self.released.filter(|released| good + self.longest < *released) {
            let bound = self.longest / 16 + 500 * MILLI;
            assert!(at < released.max(self.healthy) + bound, "seed {seed}: at {at} us released at {released}");
        }
    }
}

/// `PODIUM_LEASE_SEEDS` is the number of seeds; `PODIUM_LEASE_SEED` runs one of them and prints its events.
#[test]
fn no_two_replicas_act_at_one_instant_and_one_does_within_its_bound() {
    if let Some(seed) = number("PODIUM_LEASE_SEED") {
        Simulation::new(seed, true).run();
        return;
    }
    let seeds = number("PODIUM_LEASE_SEEDS").unwrap_or(1_000);
    let counts = run_all(seeds, |seed| Simulation::new(seed, false).run());
    let happens = ["own", "closed: stuck", "closed: unfit", "closed: deadline", "closed: taken", "stopped", "blocked"];
    for name in happens.into_iter().chain(["restored", "deleted", "handed over", "lost answer"]) {
        assert!(counts.get(name).is_some_and(|count| *count > seeds / 20), "{name}: {counts:?}");
    }
}
