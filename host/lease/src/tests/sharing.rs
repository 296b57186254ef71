//! Replicas that share the shards, beside some that run all plugins by themselves, over the Leases of one server, in a
//! simulated time of 60 s with faults and a calm end.
//!
//! Whenever a term or a write begins, at most one replica acts on a shard or has a write under way for it. At the end
//! each shard has a holder, and replicas that share hold equal numbers. Then one crashes: the others go on, and take
//! its shards.

mod rollout;

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use podium_vocabulary::Shards;

use super::{
    random::Random,
    seeds::{Counts, number, run_all},
    server::Server,
};
use crate::{Answer, Call, Effect, Fitness, Input, Mode, Part, Record, Sharing, State};

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000 * MILLI;
const LEASE: u64 = 8 * SECOND;
const LEASES: usize = Shards::COUNT + 1;
/// When faults end.
const CALM: u64 = 60 * SECOND;
/// After the crash, the time until all shards have holders.
const TAKEN: u64 = 11 * SECOND;
/// In the calm end: a take of each shard, the time in which nothing is asked for, and one hand-over after another.
const END: u64 = CALM + 30 * SECOND + 30 * SECOND + 40 * SECOND;

/// The holder, the term and the number of the renewal of a Lease.
type Known = Option<(String, u32, u64)>;

struct Replica {
    mode: Mode,
    sharing: Option<Sharing>,
    process: u64,
    /// The clock: where it began, its rate in millionths beside 1, and its steps.
    offset: u64,
    rate: i64,
    steps: u64,
    /// Until when the process does not run, and until when no request and no answer passes.
    paused: u64,
    cut: u64,
    fitness: Fitness,
    stuck: Option<Part>,
    /// When the process began, on the replica's clock.
    began: Duration,
    /// The deadlines of writes by Lease, on the replica's clock.
    until: [Option<Duration>; LEASES],
    drains: [bool; LEASES],
    /// The Lease and the end of each write, at the API server, also when the process is dead.
    writes: Vec<(usize, u64)>,
    known: Vec<Known>,
    tick: u64,
}

impl Replica {
    fn clock(&self, at: u64) -> Duration {
        let drift = (i128::from(at) * i128::from(self.rate) / 1_000_000) as i64;
        Duration::from_micros(self.offset + at.wrapping_add_signed(drift) + self.steps)
    }

    /// The Lease of a shard.
    fn lease(&self, shard: usize) -> usize {
        if self.mode == Mode::One { 0 } else { shard + 1 }
    }

    /// The time in which a write may be begun and ended, as `podium_api` sends writes.
    fn left(&self, lease: usize, at: u64) -> Option<Duration> {
        let open = self.sharing.as_ref().filter(|_| self.paused <= at && !self.drains[lease])?.open();
        let left = self.until[lease]?.min(open).saturating_sub(self.clock(at));
        (left >= Duration::from_millis(500)).then(|| left.min(Duration::from_secs(5)))
    }

    fn acts(&self, shard: usize, at: u64) -> bool {
        let lease = self.lease(shard);
        self.left(lease, at).is_some() || self.writes.iter().any(|(of, end)| *of == lease && *end > at)
    }

    fn held(&self) -> usize {
        let leases = self.sharing.iter().flat_map(Sharing::leases).skip(usize::from(self.mode == Mode::All));
        leases.filter(|lease| lease.state() == State::Holding).count()
    }
}

enum Event {
    Start,
    Tick(u64),
    Beats,
    Fit(Fitness),
    Work,
    Drained(usize),
    Arrive(usize, u64, Call),
    Answer(usize, u64, Answer),
    Fault,
    Crash,
    Roll(usize),
}

struct Simulation {
    seed: u64,
    random: Random,
    at: u64,
    order: u64,
    events: BinaryHeap<(Reverse<(u64, u64)>, usize)>,
    bodies: Vec<Option<(usize, u64, Event)>>,
    servers: Vec<Server>,
    stalled: u64,
    down: u64,
    /// Until when replicas that begin to read are cut, after a restore.
    restored: u64,
    /// When a replica last took a Lease.
    moved: u64,
    crashed: bool,
    replicas: Vec<Replica>,
    /// The modes differ, and change with a start.
    mixed: bool,
    pace: u64,
    counts: Counts,
    trace: bool,
    end: u64,
    /// How often each shard was taken by a replica.
    takes: [u32; Shards::COUNT],
    /// A replica that does not start again when it was stopped.
    last: Option<usize>,
}

impl Simulation {
    fn new(seed: u64, trace: bool) -> Self {
        let mut random = Random(seed);
        let many = if random.once_in(20) { random.between(9, 25) } else { random.between(1, 6) };
        let mixed = random.once_in(3);
        let mut this = Self::of_replicas(seed, random, many, mixed, trace);
        for index in 0..this.replicas.len() {
            let at = this.random.between(0, 3 * SECOND);
            this.schedule(at, index, Event::Start);
        }
        this.schedule(this.pace, 0, Event::Fault);
        this.schedule(END, 0, Event::Crash);
        this
    }

    fn of_replicas(seed: u64, mut random: Random, many: u64, mixed: bool, trace: bool) -> Self {
        let replica = |random: &mut Random| Replica {
            mode: Mode::All,
            sharing: None,
            process: 0,
            offset: random.between(0, 1 << 40),
            rate: random.between(0, 3) as i64 * 10_000 - 10_000,
            steps: 0,
            paused: 0,
            cut: 0,
            fitness: Fitness::Unfit,
            stuck: None,
            began: Duration::ZERO,
            until: [None; LEASES],
            drains: [false; LEASES],
            writes: Vec::new(),
            known: vec![None; LEASES],
            tick: 0,
        };
        let replicas: Vec<_> = (0..many).map(|_| replica(&mut random)).collect();
        let pace = random.between(500 * MILLI, 12 * SECOND);
        Self {
            seed,
            random,
            at: 0,
            order: 0,
            events: BinaryHeap::new(),
            bodies: Vec::new(),
            servers: (0..LEASES).map(|_| Server::default()).collect(),
            stalled: 0,
            down: 0,
            restored: 0,
            moved: 0,
            crashed: false,
            replicas,
            mixed,
            pace,
            counts: Counts::new(),
            trace,
            end: END + TAKEN,
            takes: [0; Shards::COUNT],
            last: None,
        }
    }

    fn schedule(&mut self, at: u64, index: usize, event: Event) {
        self.schedule_for(self.replicas[index].process, at, index, event);
    }

    fn schedule_for(&mut self, process: u64, at: u64, index: usize, event: Event) {
        self.order += 1;
        self.events.push((Reverse((at, self.order)), self.bodies.len()));
        self.bodies.push(Some((index, process, event)));
    }

    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    fn run(mut self) -> Counts {
        self.run_events();
        let held = self.replicas.iter().map(Replica::held).sum::<usize>();
        assert!(held == Shards::COUNT || self.replicas.len() == 1, "seed {}: {held} after a crash", self.seed);
        self.counts
    }

    fn run_events(&mut self) {
        while let Some((Reverse((at, _)), slot)) = self.events.pop() {
            let Some((index, process, event)) = self.bodies[slot].take() else { continue };
            if at > self.end {
                break;
            }
            self.at = at;
            let replica = &self.replicas[index];
            let is_process =
                !matches!(event, Event::Fault | Event::Crash | Event::Start | Event::Roll(_) | Event::Arrive(..));
            if is_process && (replica.process != process || replica.sharing.is_none()) {
                continue;
            }
            if is_process && replica.paused > at {
                self.schedule(replica.paused, index, event);
                continue;
            }
            let may_overlap = matches!(event, Event::Work);
            let owned = self.counts.get("own").copied();
            self.event(index, process, event);
            if may_overlap || self.counts.get("own").copied() != owned {
                self.check();
            }
        }
    }

    fn event(&mut self, index: usize, process: u64, event: Event) {
        match event {
            Event::Start => self.start(index),
            Event::Tick(tick) if tick == self.replicas[index].tick => {
                self.replicas[index].tick = 0;
                self.step_all(index, &Input::Tick);
            }
            Event::Tick(_) => {}
            Event::Beats => {
                let stuck = self.replicas[index].stuck;
                for part in Part::ALL.into_iter().filter(|part| stuck != Some(*part)) {
                    self.step_all(index, &Input::Beat(part));
                }
                self.schedule(self.at + 3 * SECOND, index, Event::Beats);
            }
            Event::Fit(fitness) => {
                self.replicas[index].fitness = fitness;
                for lease in 0..self.leases(index) {
                    self.step(index, lease, Input::Fitness(fitness));
                }
            }
            Event::Work => self.work(index),
            Event::Drained(lease) => self.step(index, lease, Input::Drained(None)),
            Event::Arrive(lease, request, call) => self.arrive(index, process, lease, (request, call)),
            Event::Answer(lease, request, answer) => {
                if self.replicas[index].cut > self.at {
                    return;
                }
                if let Answer::Read(found) = &answer {
                    let record = found.as_ref().and_then(|(_, record)| record.as_ref().ok());
                    self.replicas[index].known[lease] = record.map(known);
                }
                self.step(index, lease, Input::Answer { request, answer });
            }
            Event::Fault => self.fault(),
            Event::Roll(stops) => self.roll(stops),
            Event::Crash => {
                self.check_end();
                self.crashed = true;
                // The one whose Lease says that the shards are shared.
                let says = |sharing: &Sharing| sharing.leases()[0].state() == State::Holding;
                let crashes = |replica: &&mut Replica| replica.sharing.as_ref().is_some_and(says);
                let replica = self.replicas.iter_mut().find(crashes).unwrap();
                replica.sharing = None;
                replica.until = [None; LEASES];
            }
        }
    }

    fn leases(&self, index: usize) -> usize {
        if self.replicas[index].mode == Mode::One { 1 } else { LEASES }
    }

    fn start(&mut self, index: usize) {
        let at = self.at;
        let is_one = self.mixed && at < CALM && self.random.once_in(2);
        let replica = &mut self.replicas[index];
        if replica.sharing.is_some() {
            return;
        }
        replica.process += 1;
        replica.mode = if is_one { Mode::One } else { Mode::All };
        let name = format!("{index}.{}", replica.process);
        let duration = Duration::from_micros(LEASE);
        replica.began = replica.clock(at);
        replica.sharing = Some(Sharing::new(name, duration, replica.mode, replica.began));
        replica.fitness = Fitness::Unfit;
        replica.until = [None; LEASES];
        replica.drains = [false; LEASES];
        replica.known = vec![None; LEASES];
        replica.paused = 0;
        replica.stuck = None;
        replica.tick = 0;
        replica.cut = replica.cut.max(self.restored);
        let ready = at + self.random.between(0, 3 * SECOND);
        self.schedule(ready, index, Event::Fit(Fitness::Fit));
        self.schedule(at, index, Event::Beats);
        self.schedule(at, index, Event::Work);
        self.step_all(index, &Input::Tick);
    }

    /// Begins a write for some shard, as workers do until the deadline.
    fn work(&mut self, index: usize) {
        let at = self.at;
        let shard = self.random.between(0, Shards::COUNT as u64) as usize;
        let replica = &mut self.replicas[index];
        replica.writes.retain(|(_, end)| *end > at);
        let lease = replica.lease(shard);
        if let Some(most) = replica.left(lease, at) {
            let most = most.as_micros() as u64;
            let takes = if self.random.once_in(5) { most } else { most.min(self.random.between(MILLI, 50 * MILLI)) };
            self.replicas[index].writes.push((lease, at + takes));
            self.count("write");
        }
        let next = at + self.random.between(10 * MILLI, 200 * MILLI);
        self.schedule(next, index, Event::Work);
    }

    fn arrive(&mut self, index: usize, process: u64, lease: usize, (request, call): (u64, Call)) {
        let at = self.at;
        if self.replicas[index].cut > at {
            return;
        }
        if self.stalled > at {
            let after = self.stalled + self.random.between(0, 20 * MILLI);
            return self.schedule_for(process, after, index, Event::Arrive(lease, request, call));
        }
        let answer = if self.down > at { Answer::Failed } else { self.servers[lease].execute(&call, at) };
        if let Answer::Written(_) = answer {
            self.replicas[index].known[lease] = self.present(lease);
            if let Call::Update { record, .. } = &call {
                self.count(if record.wanted.is_empty() { "update" } else { "wanted" });
            }
        }
        let mut after = at + self.random.between(MILLI, 30 * MILLI);
        if at < CALM && self.random.once_in(200) {
            self.count("lost answer");
            if self.random.once_in(2) {
                return;
            }
            after += self.random.between(0, 3 * SECOND);
        }
        if self.replicas[index].process == process {
            self.schedule(after, index, Event::Answer(lease, request, answer));
        }
    }

    fn present(&self, lease: usize) -> Known {
        self.servers[lease].record()?.as_ref().ok().map(known)
    }

    fn step_all(&mut self, index: usize, input: &Input) {
        let now = self.replicas[index].clock(self.at);
        let Some(sharing) = &mut self.replicas[index].sharing else { return };
        let effects = sharing.step_all(input, now);
        self.applied(index, effects, now);
    }

    fn step(&mut self, index: usize, lease: usize, input: Input) {
        let now = self.replicas[index].clock(self.at);
        let Some(sharing) = &mut self.replicas[index].sharing else { return };
        if self.trace && !matches!(input, Input::Answer { answer: Answer::Read(_), .. }) {
            println!("{:>10} {index} lease {lease} {now:?} {input:?}", self.at);
        }
        let effects = sharing.step(lease, input, now);
        self.applied(index, effects, now);
    }

    fn applied(&mut self, index: usize, effects: Vec<(usize, Effect)>, now: Duration) {
        for (lease, effect) in effects {
            if self.trace && !matches!(effect, Effect::Send { call: Call::Read, .. }) {
                println!("{:>10} {index} lease {lease}   -> {effect:?}", self.at);
            }
            self.apply(index, lease, effect);
        }
        let next = self.random.between(0, 20 * MILLI);
        let replica = &mut self.replicas[index];
        let Some(due) = replica.sharing.as_ref().map(Sharing::due) else { return };
        assert!(due > now, "seed {}: due in the past", self.seed);
        let next = next + self.at + (due - now).as_micros() as u64 * 91 / 90;
        if replica.tick <= self.at || replica.tick > next + 20 * MILLI {
            replica.tick = next;
            self.schedule(next, index, Event::Tick(next));
        }
    }

    fn apply(&mut self, index: usize, lease: usize, effect: Effect) {
        let at = self.at;
        match effect {
            Effect::Send { request, call, within } => {
                self.check_write(index, &call);
                let mut arrives = at + self.random.between(MILLI, 30 * MILLI);
                if at < CALM && self.random.once_in(200) {
                    if self.random.once_in(2) {
                        let failed = at + within.as_micros() as u64;
                        return self.schedule(failed, index, Event::Answer(lease, request, Answer::Failed));
                    }
                    arrives += self.random.between(0, 4 * SECOND);
                }
                self.schedule(arrives, index, Event::Arrive(lease, request, call));
            }
            Effect::Own { until, .. } => {
                self.count("own");
                self.moved = at;
                if let Some(takes) = lease.checked_sub(1).and_then(|shard| self.takes.get_mut(shard)) {
                    *takes += 1;
                }
                self.replicas[index].until[lease] = Some(until);
                self.replicas[index].drains[lease] = false;
            }
            Effect::Until(until) => self.replicas[index].until[lease] = Some(until),
            Effect::Drain(why) => {
                assert!(!self.crashed, "seed {}: another replica ends a term after a crash: {why:?}", self.seed);
                self.count(if why == crate::Why::Given { "given" } else { "drained" });
                let replica = &mut self.replicas[index];
                replica.drains[lease] = true;
                let ends = replica.writes.iter().filter(|(of, _)| *of == lease).map(|(_, end)| *end);
                let last = ends.max().unwrap_or(at).max(at);
                self.schedule(last, index, Event::Drained(lease));
            }
            Effect::Close(_) => {
                let replica = &mut self.replicas[index];
                replica.until[lease] = None;
                replica.drains[lease] = false;
                replica.writes.retain(|(of, _)| *of != lease);
                self.schedule(at, index, Event::Drained(lease));
            }
            Effect::Blocked(_) => {}
            Effect::Stopped => {
                let replica = &mut self.replicas[index];
                assert!(replica.until[lease].is_none(), "seed {}: stopped, and acts", self.seed);
                let stopped = |sharing: &Sharing| sharing.leases().iter().all(|one| one.state() == State::Stopped);
                if replica.sharing.as_ref().is_some_and(stopped) {
                    replica.sharing = None;
                    self.count("stopped");
                    if self.last == Some(index) {
                        return;
                    }
                    let after = at + self.random.between(0, 5 * SECOND);
                    self.schedule(after, index, Event::Start);
                }
            }
        }
    }

    fn fault(&mut self) {
        let at = self.at;
        if at >= CALM {
            // Replicas of the other mode end, as at a rollout.
            for index in 0..self.replicas.len() {
                if self.replicas[index].mode == Mode::One {
                    self.step_all(index, &Input::Stop);
                }
                self.replicas[index].stuck = None;
                self.schedule(at, index, Event::Start);
                self.schedule(at, index, Event::Fit(Fitness::Fit));
            }
            return;
        }
        let next = at + self.random.between(self.pace / 2, self.pace * 2);
        self.schedule(next.min(CALM), 0, Event::Fault);
        let index = self.random.between(0, self.replicas.len() as u64) as usize;
        let until = at + self.random.between(100, (CALM - at).clamp(101, 20 * SECOND));
        // In a third of the simulations the server has no fault.
        let kinds = if self.seed.is_multiple_of(3) { 7 } else { 12 };
        let choice = self.random.between(0, kinds);
        if self.trace {
            println!("{at:>10} fault {choice} of {index} until {until}");
        }
        let replica = &mut self.replicas[index];
        match choice {
            0 => {
                replica.sharing = None;
                replica.until = [None; LEASES];
                self.count("kill");
                self.schedule(until, index, Event::Start);
            }
            1 | 2 if replica.paused <= at => self.step_all(index, &Input::Stop),
            3 => replica.paused = replica.paused.max(until),
            4 => replica.cut = replica.cut.max(until),
            5 if replica.paused <= at => {
                let fitness = if self.random.once_in(2) { Fitness::Late } else { Fitness::Unfit };
                self.schedule(at, index, Event::Fit(fitness));
                self.schedule(until, index, Event::Fit(Fitness::Fit));
            }
            6 if replica.stuck.is_none() => replica.stuck = Some(Part::Dispatch),
            6 => replica.stuck = None,
            7 => replica.steps += self.random.between(0, 10 * SECOND),
            8 => self.stalled = until.min(at + 15 * SECOND),
            9 => self.down = until.min(at + 15 * SECOND),
            10 => {
                let lease = self.random.between(0, LEASES as u64) as usize;
                self.servers[lease].delete(at);
                self.count("deleted");
            }
            11 => self.restore(),
            _ => {}
        }
    }

    /// The server returns to an earlier state. Requests under way are lost; replicas that have not read a Lease since,
    /// or not under its present holder, cannot read for one duration.
    fn restore(&mut self) {
        let at = self.at;
        let of = at.saturating_sub(self.random.between(SECOND, 40 * SECOND));
        let before: Vec<_> = (0..LEASES).map(|lease| self.present(lease)).collect();
        self.servers.iter_mut().for_each(|server| server.restore(of, at));
        let restored: Vec<_> = (0..LEASES).map(|lease| self.present(lease)).collect();
        self.restored = at + LEASE + LEASE / 20;
        self.count("restored");
        for body in &mut self.bodies {
            if matches!(body, Some((_, _, Event::Arrive(..)))) {
                *body = None;
            }
        }
        let holder = |known: &Known| known.as_ref().map(|(holder, term, _)| (holder.clone(), *term));
        for replica in &mut self.replicas {
            let is_behind = |lease: usize| {
                let known = &replica.known[lease];
                before[lease] != restored[lease]
                    && (holder(known) != holder(&before[lease]) || *known == restored[lease])
            };
            if (0..LEASES).any(is_behind) {
                replica.cut = replica.cut.max(self.restored);
            }
        }
    }

    /// A replica asks for a shard of another one when it has run for a while, and writes nothing else for another one.
    fn check_write(&self, index: usize, call: &Call) {
        let Call::Update { record, .. } = call else { return };
        let replica = &self.replicas[index];
        let name = format!("{index}.{}", replica.process);
        if record.holder != name && !record.holder.is_empty() {
            let age = replica.clock(self.at).saturating_sub(replica.began);
            assert!(record.wanted == name && age >= Duration::from_secs(30), "seed {}: {age:?} {record:?}", self.seed);
        }
    }

    fn check(&mut self) {
        let at = self.at;
        for shard in 0..Shards::COUNT {
            let mut acting = (0..self.replicas.len()).filter(|index| self.replicas[*index].acts(shard, at));
            let first = acting.next();
            let second = acting.next();
            assert!(second.is_none(), "seed {}: at {at} us {first:?} and {second:?} act on shard {shard}", self.seed);
        }
    }

    fn check_end(&self) {
        let held: Vec<_> = self.replicas.iter().map(Replica::held).collect();
        assert!(self.replicas.iter().all(|replica| replica.mode == Mode::All), "seed {}", self.seed);
        assert_eq!(held.iter().sum::<usize>(), Shards::COUNT, "seed {}: not all shards are held: {held:?}", self.seed);
        let least = held.iter().min().unwrap();
        let most = held.iter().max().unwrap();
        assert!(most - least <= 1, "seed {}: {held:?}", self.seed);
        let rest = END - self.moved;
        assert!(rest > 8 * SECOND, "seed {}: a shard was moved {rest} us ago", self.seed);
        for shard in 0..Shards::COUNT {
            let acts = self.replicas.iter().any(|replica| replica.acts(shard, self.at));
            assert!(acts, "seed {}: nothing acts on shard {shard}", self.seed);
        }
    }
}

fn known(record: &Record) -> (String, u32, u64) {
    (record.holder.clone(), record.term, record.renewal)
}

/// `PODIUM_SHARDS_SEEDS` is the number of seeds; `PODIUM_SHARDS_SEED` runs one of them and prints its events.
#[test]
fn no_two_replicas_act_on_a_shard_and_all_shards_are_shared_in_the_end() {
    if let Some(seed) = number("PODIUM_SHARDS_SEED") {
        Simulation::new(seed, true).run();
        return;
    }
    let seeds = number("PODIUM_SHARDS_SEEDS").unwrap_or(12);
    let counts = run_all(seeds, |seed| Simulation::new(seed, false).run());
    for name in ["write", "own", "given", "wanted", "drained", "stopped", "kill", "restored", "deleted", "lost answer"]
    {
        assert!(counts.get(name).is_some_and(|count| *count > seeds / 20), "{name}: {counts:?}");
    }
}
