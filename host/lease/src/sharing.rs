//! The Leases of a replica: one for all shards, or one for each shard with one that says that the shards are shared.
//!
//! Each Lease is an [`Ownership`] of its own, so a shard has at most one holder for the same reasons as all shards
//! together have. This file adds which replica takes a free shard, and which shards change hands so that replicas
//! hold equal numbers. None of that decides who may act: a replica that decides wrongly takes or loses a shard too
//! early, as any Lease is taken or lost.
//!
//! **Sharing begins and ends with the first Lease**, which has format 2 while shards are shared. A replica acts on its
//! shards only for seven eighths of the duration after it knows that a holder of the first Lease renewed it in this
//! format. One that was created, or has another holder or term than before, says nothing: a replica that runs all
//! plugins by itself may act until it reads that Lease. Such a replica takes a Lease of format 2 when it has seen it
//! unchanged for the whole duration, also after a release.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use podium_vocabulary::{Shards, fnv};

use crate::{Answer, Effect, Fitness, Input, Ownership, Record, State};

/// No shard is asked for so long after a start, and after a holder has gone: shards move once and not with each step of
/// a rolling update.
const CALM: Duration = Duration::from_secs(30);
/// The Lease of all shards, or the one that says that they are shared.
const FIRST: usize = 0;

/// How many replicas run plugins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// One, and the others are standbys.
    #[default]
    One,
    /// All, each the shards that it holds.
    All,
}

impl Mode {
    /// Returns the shards for which the Lease of an index is.
    #[must_use]
    pub fn shards(self, index: usize) -> Shards {
        match (self, index) {
            (Self::One, _) => Shards::ALL,
            (Self::All, FIRST) => Shards::NONE,
            (Self::All, _) => Shards::one(index - 1),
        }
    }
}

/// The Leases of one replica, by index.
#[derive(Debug)]
pub struct Sharing {
    holder: String,
    duration: Duration,
    leases: Vec<Ownership>,
    /// The fitness of this replica by Lease.
    fitness: Vec<Fitness>,
    /// When the request was sent that first showed the first Lease as it is known.
    known: Option<Duration>,
    /// Shards are shared at least until then.
    open: Duration,
    /// It is so as far as this replica has acted on it.
    is_open: bool,
    /// The holders of shards, as they were seen last.
    holders: BTreeSet<String>,
    /// From when on a shard may be asked for.
    calm: Duration,
    stops: bool,
}

impl Sharing {
    /// Returns the Leases of a process. See [`Ownership::new`].
    pub fn new(holder: String, duration: Duration, mode: Mode, now: Duration) -> Self {
        let lease = || Ownership::new(holder.clone(), duration, now);
        let leases: Vec<_> = match mode {
            Mode::One => vec![lease()],
            Mode::All => (0..=Shards::COUNT).map(|_| lease().shared()).collect(),
        };
        let fitness = vec![Fitness::Unfit; leases.len()];
        Self {
            holder,
            duration,
            leases,
            fitness,
            known: None,
            open: Duration::ZERO,
            is_open: false,
            holders: BTreeSet::new(),
            calm: now + CALM,
            stops: false,
        }
    }

    /// Returns the name of a Lease, of the name of the first one.
    pub fn name(first: &str, index: usize) -> String {
        match index {
            FIRST => first.to_owned(),
            _ => format!("{first}-shard-{}", index - 1),
        }
    }

    /// Returns how many replicas run plugins.
    pub fn mode(&self) -> Mode {
        if self.leases.len() == 1 { Mode::One } else { Mode::All }
    }

    /// Returns the Leases.
    pub fn leases(&self) -> &[Ownership] {
        &self.leases
    }

    /// Returns the time until which no replica acts that runs all plugins by itself, as far as this one knows. With
    /// [`Mode::One`] it is without an end.
    pub fn open(&self) -> Duration {
        match self.mode() {
            Mode::One => Duration::MAX,
            Mode::All => self.open,
        }
    }

    /// Returns when [`Input::Tick`] has to come for all Leases at the latest.
    pub fn due(&self) -> Duration {
        self.leases.iter().map(Ownership::due).min().unwrap_or_default()
    }

    /// Applies an input to all Leases.
    pub fn step_all(&mut self, input: &Input, now: Duration) -> Vec<(usize, Effect)> {
        self.stops |= matches!(input, Input::Stop);
        let mut effects = Vec::new();
        for index in [FIRST].into_iter().chain(self.order()) {
            if !matches!(input, Input::Tick) || self.leases[index].due() <= now {
                self.one(index, input.clone(), now, &mut effects);
            }
        }
        self.coordinate(now, &mut effects);
        effects
    }

    /// Applies an input to one Lease.
    pub fn step(&mut self, index: usize, input: Input, now: Duration) -> Vec<(usize, Effect)> {
        let mut effects = Vec::new();
        let is_answer = matches!(input, Input::Answer { .. });
        let input = match input {
            Input::Fitness(fitness) => {
                self.fitness[index] = fitness;
                Input::Fitness(self.fit(index))
            }
            input => input,
        };
        self.one(index, input, now, &mut effects);
        for other in [FIRST].into_iter().chain(self.order()) {
            if other != index && self.leases[other].due() <= now {
                self.one(other, Input::Tick, now, &mut effects);
            }
        }
        self.coordinate(now, &mut effects);
        // Between two reads of a Lease.
        if is_answer {
            self.ask(now, &mut effects);
        }
        effects
    }

    fn one(&mut self, index: usize, input: Input, now: Duration, effects: &mut Vec<(usize, Effect)>) {
        let sent = match &input {
            Input::Answer { request, answer: Answer::Read(_) | Answer::Written(_) } if index == FIRST => {
                self.leases[FIRST].sent(*request)
            }
            _ => None,
        };
        let before = sent.and_then(|_| self.leases[FIRST].seen().cloned());
        let patience = self.patience(index);
        self.leases[index].wait(patience);
        // No replica that runs all plugins acts, so it does not matter which one says that shards are shared.
        let hurries = self.mode() == Mode::All && self.open > now;
        self.leases[FIRST].hurry(hurries);
        let own = self.leases[index].step(input, now);
        if let Some(sent) = sent {
            self.know(before.as_ref(), sent);
        }
        for effect in &own {
            if let (FIRST, Effect::Own { until, .. } | Effect::Until(until)) = (index, effect) {
                self.open = self.open.max(*until);
            }
        }
        effects.extend(own.into_iter().map(|effect| (index, effect)));
    }

    /// Returns how fit this replica is to hold a Lease.
    fn fit(&self, index: usize) -> Fitness {
        if index == FIRST || self.is_open { self.fitness[index] } else { Fitness::Unfit }
    }

    /// Returns how much later than others this replica takes a free Lease: the one that holds fewest shards is first,
    /// and takes one after another.
    fn patience(&self, index: usize) -> Duration {
        match self.leases[index].seen().map(|record| &*record.wanted) {
            _ if index == FIRST => Duration::ZERO,
            Some(wanted) if wanted == self.holder => Duration::ZERO,
            Some("") | None => {
                let mine = self.leases[1..].iter().filter(|lease| lease.state() == State::Holding || lease.is_taking());
                self.duration / 128 * mine.count() as u32
            }
            Some(_) => self.duration,
        }
    }

    /// Notes the first Lease, by the answer to a request. One that was renewed was so after it was known before, so
    /// nothing that takes it unchanged for its duration began earlier.
    fn know(&mut self, before: Option<&Record>, sent: Duration) {
        let window = self.leases[FIRST].window();
        match (before, self.leases[FIRST].seen(), self.known) {
            (_, Some(record), _) if !record.shared && !record.holder.is_empty() => self.open = Duration::ZERO,
            (Some(before), Some(record), Some(known)) if record.shared && record.renews(before) => {
                // A replica that runs all plugins by itself may wait for the duration of this record only.
                self.open = known + window.min(record.duration - record.duration / 8);
            }
            _ => {}
        }
        self.known = Some(sent);
    }

    /// Follows the first Lease, and hands shards over.
    fn coordinate(&mut self, now: Duration, effects: &mut Vec<(usize, Effect)>) {
        if self.mode() == Mode::One {
            return;
        }
        let is_open = self.open > now;
        if std::mem::replace(&mut self.is_open, is_open) != is_open {
            for index in self.order() {
                self.one(index, Input::Fitness(self.fit(index)), now, effects);
            }
        }
        self.note_holders(now);
        self.hand_over(now, effects);
    }

    /// The Leases of shards, in an order of this replica.
    fn order(&self) -> impl Iterator<Item = usize> + use<> {
        let first = fnv(&self.holder) as usize;
        (1..self.leases.len()).map(move |number| 1 + first.wrapping_add(number) % Shards::COUNT)
    }

    /// Returns how many shards each replica holds. Those that this one is taking are its own.
    fn counts(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::from([(self.holder.clone(), 0)]);
        for lease in &self.leases[1..] {
            let holder = match lease.state() {
                State::Holding => &self.holder,
                State::Leaving => continue,
                _ if lease.is_taking() => &self.holder,
                _ => match lease.seen().map(|record| &record.holder) {
                    Some(holder) if !holder.is_empty() && *holder != self.holder => holder,
                    _ => continue,
                },
            };
            *counts.entry(holder.clone()).or_default() += 1;
        }
        counts
    }

    /// Notes that a replica holds no shard any more, or that a shard has no holder. One that was handed to another
    /// replica says nothing of either.
    fn note_holders(&mut self, now: Duration) {
        let seen = || usable(&self.leases).map(Ownership::seen);
        let is_free = |record: &Record| record.holder.is_empty() && record.wanted.is_empty();
        let is_held_by = |holder: &str| seen().flatten().any(|record| record.holder == holder);
        if seen().any(|record| record.is_none_or(is_free)) || !self.holders.iter().all(|holder| is_held_by(holder)) {
            self.calm = now + CALM;
        }
        let is_as_before = |record: &Record| record.holder.is_empty() || self.holders.contains(&record.holder);
        if !seen().flatten().all(is_as_before) || !self.holders.iter().all(|holder| is_held_by(holder)) {
            let holders = seen().flatten().map(|record| record.holder.clone()).filter(|holder| !holder.is_empty());
            self.holders = holders.collect();
        }
    }

    /// Hands a shard over to the replica that wants it, one at a time, or says that it is not handed over.
    fn hand_over(&mut self, now: Duration, effects: &mut Vec<(usize, Effect)>) {
        if self.leases[1..].iter().any(|lease| lease.state() == State::Leaving) {
            return;
        }
        let is_wanted = |lease: &Ownership| {
            let is_held = lease.state() == State::Holding;
            is_held && lease.seen().is_some_and(|record| !record.wanted.is_empty())
        };
        let Some(index) = (1..self.leases.len()).find(|index| is_wanted(&self.leases[*index])) else { return };
        let wanted = self.leases[index].seen().map(|record| record.wanted.clone()).unwrap_or_default();
        let counts = self.counts();
        let mine = counts.get(&self.holder).copied().unwrap_or_default();
        let theirs = counts.get(&wanted).copied().unwrap_or_default();
        if wanted != self.holder && mine > theirs + 1 {
            self.leases[index].hand_over();
        } else {
            self.leases[index].decline();
        }
        self.one(index, Input::Tick, now, effects);
    }

    /// Requests one shard of the replica that holds most, if this one holds fewest and they differ by more than one.
    fn ask(&mut self, now: Duration, effects: &mut Vec<(usize, Effect)>) {
        if self.mode() == Mode::One || !self.is_open || self.stops || now < self.calm {
            return;
        }
        let counts = self.counts();
        let mine = counts.get(&self.holder).copied().unwrap_or_default();
        let is_held = |lease: &Ownership| lease.seen().is_some_and(|record| !record.holder.is_empty());
        let is_busy = |lease: &Ownership| {
            let wanted = lease.seen().map(|record| &*record.wanted);
            lease.is_taking() || wanted == Some(&self.holder)
        };
        let others = || counts.iter().filter(|(holder, _)| **holder != self.holder);
        let Some((fullest, most)) = others().max_by_key(|(_, count)| **count) else { return };
        let is_due = *most > mine + 1 && others().all(|(_, count)| *count >= mine);
        if !is_due || !usable(&self.leases).all(is_held) || self.leases[1..].iter().any(is_busy) {
            return;
        }
        let is_of_fullest = |index: &usize| {
            let seen = self.leases[*index].seen();
            let may = self.fitness[*index] == Fitness::Fit && self.leases[*index].may_want();
            may && seen.is_some_and(|record| record.holder == *fullest && record.wanted.is_empty())
        };
        if let Some(index) = self.order().find(is_of_fullest) {
            let asked = self.leases[index].want(now);
            effects.extend(asked.into_iter().map(|effect| (index, effect)));
        }
    }
}

/// Returns the Leases of shards that can be held.
fn usable(leases: &[Ownership]) -> impl Iterator<Item = &Ownership> {
    leases.iter().skip(1).filter(|lease| !lease.is_unusable())
}
