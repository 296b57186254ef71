//! The automaton of one replica: when it takes the Lease, how long it acts, and how it hands over.

use std::{mem, time::Duration};

use podium_vocabulary::fnv;

use crate::{Answer, Call, Effect, Fitness, Input, Mark, Part, Record, Unusable, Why};

/// A part that has not moved for so long stands still.
const STANDSTILL: Duration = Duration::from_secs(10);

/// Which state a replica is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It reads the Lease, and takes it when it may.
    Standby,
    /// It acts.
    Holding,
    /// It hands over.
    Leaving,
    /// It has handed over and takes nothing any more.
    Stopped,
}

/// The ownership of one replica.
///
/// One request is under way at a time. Only the answer to a write of its own moves the deadline, from the time before
/// that write was sent. After a write without an answer, or with a conflict, the replica reads first: a Lease that
/// still has its name and its term is renewed again, and any other ends the term at once.
#[derive(Debug, Default)]
pub struct Ownership {
    holder: String,
    duration: Duration,
    /// The longest duration of a Lease that was seen, for a Lease that is deleted.
    longest: Duration,
    /// The highest term that was seen.
    highest: u32,
    seen: Option<Seen>,
    term: Option<Term>,
    flight: Option<Flight>,
    requests: u64,
    /// The number of the latest write, if the Lease may still be the one that it wrote.
    wrote: u64,
    /// The next write needs the present resource version.
    reads_first: bool,
    /// The time of the next request.
    next: Duration,
    answered: Option<Duration>,
    beats: [Option<Duration>; Part::ALL.len()],
    fitness: Fitness,
    mark: Option<Mark>,
    /// The replicas divide the shards among them.
    shared: bool,
    /// How much later than others this replica takes a free Lease.
    patience: Duration,
    /// The holder of the Lease excludes no other replica of its kind, of which this is one.
    hurries: bool,
    /// The term ends for the process that wants the Lease.
    hands_over: bool,
    /// The next renewal says that the Lease is not handed over.
    declines: bool,
    stops: bool,
    stopped: bool,
    /// The time of the latest step.
    now: Duration,
    effects: Vec<Effect>,
}

/// The Lease as it was read or written last.
#[derive(Debug)]
struct Seen {
    revision: String,
    view: View,
    /// When it was seen so for the first time.
    since: Duration,
    /// No process acts: its holder released it, or its holder is this process.
    is_free: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum View {
    Absent,
    Record(Record),
    Unusable(Unusable),
}

/// A term of this replica.
#[derive(Debug)]
struct Term {
    number: u32,
    /// No write is sent from here on.
    until: Duration,
    /// The fitness with which the Lease was taken, or a better one since.
    fitness: Fitness,
    leaving: Option<Leaving>,
}

#[derive(Debug)]
struct Leaving {
    why: Why,
    /// When deliveries that are still under way are closed.
    close: Duration,
    is_closed: bool,
    is_drained: bool,
}

#[derive(Debug)]
struct Flight {
    request: u64,
    sent: Duration,
    /// The record of a write.
    record: Option<Record>,
}

impl Ownership {
    /// Returns the ownership of a process. `holder` is the name of this process and never that of another one, also
    /// after a restart. `duration` is rounded up to seconds. `now` and the times of all steps are of one clock, which
    /// moves while the machine is suspended.
    pub fn new(holder: String, duration: Duration, now: Duration) -> Self {
        let duration = Duration::from_secs(duration.as_secs_f64().ceil() as u64).max(Duration::from_secs(1));
        Self { holder, duration, longest: duration, reads_first: true, next: now, now, ..Self::default() }
    }

    /// Returns the same ownership, of a Lease of replicas that divide the shards among them.
    #[must_use]
    pub fn shared(self) -> Self {
        Self { shared: true, ..self }
    }

    /// Advances to the time `now` and applies the input.
    pub fn step(&mut self, input: Input, now: Duration) -> Vec<Effect> {
        self.advance(now);
        match input {
            Input::Tick => {}
            Input::Beat(part) => self.beats[part as usize] = Some(self.now),
            Input::Fitness(fitness) => self.fitness = fitness,
            Input::Mark(mark) => self.mark = Some(mark),
            Input::Answer { request, answer } => self.answer(request, answer),
            Input::Drained(mark) => self.drained(mark),
            Input::Stop => self.stops = true,
        }
        self.leave();
        self.send();
        mem::take(&mut self.effects)
    }

    /// Returns when [`Input::Tick`] has to come at the latest.
    pub fn due(&self) -> Duration {
        let until = self.term.as_ref().map(|term| term.until);
        let close = self.term.as_ref().and_then(|term| term.leaving.as_ref()).map(|leaving| leaving.close);
        let next = self.flight.is_none().then_some(self.next);
        let times = [until, close, next, self.takes_at()].into_iter().flatten().filter(|time| *time > self.now);
        times.fold(self.now + self.poll(), Duration::min)
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        match &self.term {
            Some(Term { leaving: None, .. }) => State::Holding,
            Some(_) => State::Leaving,
            None if self.stopped => State::Stopped,
            None => State::Standby,
        }
    }

    /// Returns the Lease as it was read or written last.
    pub fn seen(&self) -> Option<&Record> {
        match &self.seen.as_ref()?.view {
            View::Record(record) => Some(record),
            View::Absent | View::Unusable(_) => None,
        }
    }

    /// Returns true if the Lease can be neither held nor taken.
    pub fn is_unusable(&self) -> bool {
        self.seen.as_ref().is_some_and(|seen| matches!(seen.view, View::Unusable(_)))
    }

    /// Returns when the API server last answered a request for the Lease.
    pub fn answered(&self) -> Option<Duration> {
        self.answered
    }

    /// Returns for how long no replica has held the Lease, as far as this one knows.
    pub fn unowned(&self, now: Duration) -> Duration {
        let Some(seen) = self.seen.as_ref().filter(|_| self.term.is_none()) else { return Duration::ZERO };
        match &seen.view {
            View::Record(record) if !record.holder.is_empty() => now.saturating_sub(seen.since + self.longest),
            View::Record(_) | View::Absent | View::Unusable(_) => now.saturating_sub(seen.since),
        }
    }

    /// Returns when the request was sent that has this number and is under way.
    pub(crate) fn sent(&self, request: u64) -> Option<Duration> {
        self.flight.as_ref().filter(|flight| flight.request == request).map(|flight| flight.sent)
    }

    /// Returns true while a request is under way that takes the Lease.
    pub(crate) fn is_taking(&self) -> bool {
        let record = self.flight.as_ref().and_then(|flight| flight.record.as_ref());
        self.term.is_none() && record.is_some_and(|record| record.holder == self.holder)
    }

    /// Sets how much later than others this replica takes the Lease when it is free.
    pub(crate) fn wait(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sets whether the Lease is taken after two renewals that did not come: its holder may act beside this replica.
    pub(crate) fn hurry(&mut self, hurries: bool) {
        self.hurries = hurries;
    }

    /// Hands the Lease over to the process that wants it, with the next step.
    pub(crate) fn hand_over(&mut self) {
        self.hands_over = true;
    }

    /// Has the next renewal say that the Lease is not handed over.
    pub(crate) fn decline(&mut self) {
        self.declines = true;
    }

    /// Returns true if the holder may be asked for the Lease: no request is under way, and the present Lease is known.
    pub(crate) fn may_want(&self) -> bool {
        let is_held = self.seen().is_some_and(|seen| !seen.holder.is_empty());
        is_held && self.flight.is_none() && self.term.is_none() && !self.reads_first && !self.stops
    }

    /// Requests the Lease from its holder, if it may be asked.
    pub(crate) fn want(&mut self, now: Duration) -> Vec<Effect> {
        self.advance(now);
        let may = self.may_want();
        if let Some(seen) = self.seen().filter(|_| may) {
            let record = Record { wanted: self.holder.clone(), ..seen.clone() };
            self.request(Some(record));
        }
        mem::take(&mut self.effects)
    }

    /// The time that a replica acts after it sent a renewal.
    pub(crate) fn window(&self) -> Duration {
        self.duration - self.duration / 8
    }

    /// The time between two reads of a standby, and before a request is repeated.
    fn poll(&self) -> Duration {
        self.duration / 16
    }

    fn timeout(&self) -> Duration {
        self.duration / 4
    }

    /// Shortens an interval by up to a fifth, so that replicas do not send in step.
    fn jittered(&self, interval: Duration) -> Duration {
        let number = self.requests.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ fnv(&self.holder);
        interval * (800 + (number % 201) as u32) / 1000
    }

    fn advance(&mut self, now: Duration) {
        let now = now.max(self.now);
        // A clock that stepped forward has not seen the Lease unchanged meanwhile. A replica that did not run takes it
        // later, which does no harm.
        let beyond = (now - self.now).saturating_sub(self.duration * 3 / 32);
        if let Some(seen) = &mut self.seen {
            seen.since += beyond;
        }
        // Neither did its parts move meanwhile, and each says only now that it moves again.
        self.beats.iter_mut().flatten().for_each(|beat| *beat += beyond);
        self.now = now;
        if self.term.as_ref().is_some_and(|term| term.until <= now) {
            self.end(Why::Deadline);
        }
        let timeout = self.timeout();
        if self.flight.take_if(|flight| flight.sent + timeout <= now).is_some() {
            self.reads_first = true;
        }
    }

    /// Ends the term without a release: whatever is under way for it is ignored.
    fn end(&mut self, why: Why) {
        if self.term.take().is_some_and(|term| term.leaving.is_none_or(|leaving| !leaving.is_closed)) {
            self.effects.push(Effect::Close(why));
        }
        self.flight = None;
        self.reads_first = true;
        self.next = self.now;
        self.hands_over = false;
        self.declines = false;
    }

    fn answer(&mut self, request: u64, answer: Answer) {
        let Some(flight) = self.flight.take_if(|flight| flight.request == request) else { return };
        self.reads_first = matches!(answer, Answer::Conflict | Answer::Failed);
        self.next = self.now + self.jittered(self.poll());
        if !matches!(answer, Answer::Failed) {
            self.answered = Some(self.now);
        }
        match (answer, flight.record) {
            (Answer::Read(found), _) => self.read(found),
            (Answer::Written(revision), Some(record)) => self.written(revision, record, flight.sent),
            (Answer::Conflict, _) => self.next = self.now,
            (Answer::Written(_), None) | (Answer::Failed, _) => {}
        }
    }

    fn read(&mut self, found: Option<(String, Result<Record, Unusable>)>) {
        let (revision, view) = match found {
            None => (String::new(), View::Absent),
            Some((revision, Ok(record))) => (revision, View::Record(record)),
            Some((revision, Err(unusable))) => (revision, View::Unusable(unusable)),
        };
        self.see(revision, view);
        let Some(term) = &self.term else { return };
        if self.seen().is_some_and(|record| record.holder == self.holder && record.term == term.number) {
            self.next = self.now;
        } else {
            self.end(Why::Taken);
        }
    }

    fn see(&mut self, revision: String, view: View) {
        // One resource version may belong to two states, before and after a restore.
        let is_as_before = self.seen.as_ref().is_some_and(|seen| seen.view == view);
        if is_as_before && self.seen.as_ref().is_some_and(|seen| seen.revision == revision) {
            return;
        }
        match &view {
            View::Record(record) => {
                self.highest = self.highest.max(record.term);
                self.longest = self.longest.max(record.duration);
            }
            View::Unusable(unusable) if !is_as_before => self.effects.push(Effect::Blocked(unusable.clone())),
            View::Unusable(_) | View::Absent => {}
        }
        // A release counts if it is of the holder that was seen before. Otherwise it may have been restored under
        // another holder, which acts until it reads the Lease. The same holds for a term of this process.
        let is_next = self.seen.as_ref().is_none_or(|seen| match (&seen.view, &view) {
            (View::Record(before), View::Record(record)) => before.term == record.term,
            _ => false,
        });
        let is_free = match &view {
            // One that was never held may replace one that was deleted under a holder that still acts.
            // One of replicas that divide the shards says nothing of the shards, which others may hold.
            View::Record(record) if record.holder.is_empty() => {
                is_next && record.term > 0 && (self.shared || !record.shared)
            }
            View::Record(record) => record.holder == self.holder && record.renewal == self.wrote,
            View::Absent | View::Unusable(_) => false,
        };
        // One that another installation renews has been unusable since the first time.
        let was_unusable = self.seen.as_ref().filter(|seen| matches!(seen.view, View::Unusable(_)));
        let since = was_unusable.filter(|_| matches!(view, View::Unusable(_))).map_or(self.now, |seen| seen.since);
        // Another Lease has come after the latest write.
        self.wrote = if is_free { self.wrote } else { 0 };
        self.seen = Some(Seen { revision, view, since, is_free });
    }

    fn written(&mut self, revision: String, record: Record, sent: Duration) {
        let is_release = record.holder.is_empty();
        if !is_release && record.holder != self.holder {
            return self.see(revision, View::Record(record));
        }
        let number = record.term;
        let until = sent + self.window();
        let before = record.mark.clone();
        self.see(revision, View::Record(record));
        self.next = sent + self.jittered(self.duration / 8);
        match &mut self.term {
            _ if is_release => {
                self.term = None;
                self.hands_over = false;
                self.declines = false;
            }
            // A replica that leaves has to end before its last deadline.
            Some(term) if term.leaving.is_none() => {
                self.declines = false;
                term.until = until;
                self.effects.push(Effect::Until(until));
            }
            Some(_) => {}
            None => {
                self.term = Some(Term { number, until, fitness: self.fitness, leaving: None });
                self.mark.clone_from(&before);
                self.effects.push(Effect::Own { term: number, until, mark: before });
            }
        }
    }

    fn drained(&mut self, mark: Option<Mark>) {
        let Some(leaving) = self.term.as_mut().and_then(|term| term.leaving.as_mut()) else { return };
        leaving.is_drained = true;
        self.next = self.now;
        self.mark = mark.or(self.mark.take());
    }

    fn stuck(&self) -> Option<Part> {
        let moved = |part: Part| self.beats[part as usize].is_some_and(|at| self.now - at < STANDSTILL);
        Part::ALL.into_iter().find(|part| !moved(*part))
    }

    /// Begins a hand-over, and closes deliveries that are under way when its time is over.
    fn leave(&mut self) {
        let stuck = self.stuck();
        let close = self.now + self.duration / 16;
        let Some(term) = &mut self.term else { return };
        let why = match stuck {
            _ if self.stops => Some(Why::Stop),
            Some(part) => Some(Why::Stuck(part)),
            None if self.fitness > term.fitness => Some(Why::Unfit),
            None => self.hands_over.then_some(Why::Given),
        };
        term.fitness = term.fitness.min(self.fitness);
        if let (None, Some(why)) = (&term.leaving, why) {
            term.leaving = Some(Leaving { why, close, is_closed: false, is_drained: false });
            self.effects.push(Effect::Drain(why));
        }
        let Some(leaving) = term.leaving.as_mut().filter(|leaving| !leaving.is_closed) else { return };
        if leaving.is_drained || leaving.close <= self.now {
            leaving.is_closed = true;
            self.next = self.now;
            // From here on it is the time until which the mark may still come.
            leaving.close = close;
            self.effects.push(Effect::Close(leaving.why));
        }
    }

    /// Returns from when on the Lease may be taken.
    fn takes_at(&self) -> Option<Duration> {
        let seen = self.seen.as_ref()?;
        let unchanged = match seen.is_free {
            true => Duration::ZERO,
            false if self.hurries => self.longest / 4,
            false => self.longest,
        };
        let after_others = if self.fitness == Fitness::Late { self.longest } else { Duration::ZERO };
        let may = self.fitness != Fitness::Unfit && matches!(seen.view, View::Record(_));
        may.then_some(seen.since + unchanged + after_others + self.patience)
    }

    /// The Lease is created without a holder, and then taken as one that another replica holds. Whether it was missing
    /// all the time could not be seen.
    fn is_missing(&self) -> bool {
        !self.reads_first && self.seen.as_ref().is_some_and(|seen| seen.view == View::Absent)
    }

    fn may_take(&self) -> bool {
        !self.reads_first && self.stuck().is_none() && self.takes_at().is_some_and(|at| at <= self.now)
    }

    /// Sends the next request if it is time for one.
    fn send(&mut self) {
        let writes = self.flight.as_ref().is_some_and(|flight| flight.record.is_some());
        if self.stops && !self.stopped && self.term.is_none() && !writes {
            self.stopped = true;
            self.effects.push(Effect::Stopped);
        }
        if self.flight.is_some() || self.stopped {
            return;
        }
        let is_time = self.next <= self.now;
        let record = match &self.term {
            None if is_time && self.is_missing() => Some((String::new(), 0)),
            None if self.may_take() => Some((self.holder.clone(), self.highest + 1)),
            Some(term) if is_time && !self.reads_first => match &term.leaving {
                None => Some((self.holder.clone(), term.number)),
                Some(leaving) if leaving.is_closed && (leaving.is_drained || leaving.close <= self.now) => {
                    Some((String::new(), term.number))
                }
                Some(_) => return,
            },
            _ if is_time => None,
            _ => return,
        };
        let record = record.map(|(holder, term)| self.record(holder, term));
        self.wrote = record.as_ref().map_or(self.wrote, |record| record.renewal);
        self.request(record);
    }

    /// Sends a read, or a write of a record.
    fn request(&mut self, record: Option<Record>) {
        self.requests += 1;
        let call = match (&record, &self.seen) {
            (None, _) => Call::Read,
            (Some(record), Some(Seen { revision, view: View::Record(_), .. })) => {
                Call::Update { revision: revision.clone(), record: record.clone() }
            }
            (Some(record), _) => Call::Create(record.clone()),
        };
        self.flight = Some(Flight { request: self.requests, sent: self.now, record });
        self.effects.push(Effect::Send { request: self.requests, call, within: self.timeout() });
    }

    /// Returns what this replica writes now. Until it has a mark of its own that is the one that it found.
    fn record(&self, holder: String, term: u32) -> Record {
        let mark = match &self.term {
            Some(_) => self.mark.clone(),
            // That of one that runs all plugins says nothing of each shard.
            None => self.seen().filter(|record| record.shared == self.shared).and_then(|record| record.mark.clone()),
        };
        let wanted = match &self.term {
            Some(_) if !self.declines => self.seen().map(|record| record.wanted.clone()).unwrap_or_default(),
            _ => String::new(),
        };
        let renewal = self.requests + 1;
        Record { holder, term, renewal, duration: self.duration, mark, shared: self.shared, wanted }
    }
}
