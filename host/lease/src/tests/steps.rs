use std::time::Duration;

use crate::{Answer, Call, Effect, Fitness, Input, Mark, Ownership, Part, Record, State, Unusable, Why};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(8);

/// A replica, its clock, and the request that is under way.
struct Replica {
    ownership: Ownership,
    now: Duration,
    /// A part that stands still.
    stuck: Option<Part>,
    pending: Option<(u64, Call)>,
}

fn record(holder: &str, term: u32, renewal: u64) -> Record {
    Record {
        holder: holder.to_owned(),
        term,
        renewal,
        duration: LEASE,
        mark: None,
        shared: false,
        wanted: String::new(),
    }
}

fn found(revision: &str, record: Record) -> Answer {
    Answer::Read(Some((revision.to_owned(), Ok(record))))
}

fn update(revision: &str, record: Record) -> Call {
    Call::Update { revision: revision.to_owned(), record }
}

impl Replica {
    /// A fit replica that has sent its first request.
    fn new() -> Self {
        let now = 1_000 * SECOND;
        let ownership = Ownership::new("me".to_owned(), LEASE, now);
        let mut this = Self { ownership, now, stuck: None, pending: None };
        assert_eq!(this.step(Input::Fitness(Fitness::Fit)), []);
        assert_eq!(this.pending, Some((1, Call::Read)));
        this
    }

    /// A replica that has taken the Lease with term 5 and revision 11.
    fn holding() -> Self {
        let mut this = Self::new();
        this.answer(found("10", record("", 4, 1)));
        assert_eq!(this.pending, Some((2, update("10", record("me", 5, 2)))));
        let until = this.now + 7 * SECOND;
        this.now += SECOND / 10;
        let owned = this.answer(Answer::Written("11".to_owned()));
        assert_eq!(owned, [Effect::Own { term: 5, until, mark: None }]);
        this
    }

    /// Applies an input and returns all effects except requests.
    fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        for part in Part::ALL.into_iter().filter(|part| self.stuck != Some(*part)) {
            effects.extend(self.ownership.step(Input::Beat(part), self.now));
        }
        effects.extend(self.ownership.step(input, self.now));
        effects.retain(|effect| {
            let Effect::Send { request, call, within } = effect else { return true };
            assert_eq!(*within, 2 * SECOND);
            self.pending = Some((*request, call.clone()));
            false
        });
        effects
    }

    fn answer(&mut self, answer: Answer) -> Vec<Effect> {
        let (request, _) = self.pending.take().unwrap();
        self.step(Input::Answer { request, answer })
    }

    /// Ticks until the replica writes or there is another effect. Reads find the same Lease.
    fn wait(&mut self, most: Duration, lease: impl Fn() -> Answer) -> Vec<Effect> {
        let end = self.now + most;
        while self.now < end {
            let effects = if matches!(self.pending, Some((_, Call::Read))) {
                self.answer(lease())
            } else {
                self.now = self.ownership.due().min(end);
                self.step(Input::Tick)
            };
            if !effects.is_empty() || self.pending.as_ref().is_some_and(|(_, call)| *call != Call::Read) {
                return effects;
            }
        }
        Vec::new()
    }

    /// Returns how long the replica waited until it wrote.
    fn waits(&mut self, lease: impl Fn() -> Answer) -> Duration {
        let begun = self.now;
        assert_eq!(self.wait(30 * SECOND, lease), []);
        assert!(self.pending.is_some(), "nothing is written");
        self.now - begun
    }
}

#[test]
fn a_lease_is_taken_when_it_was_seen_unchanged_for_its_duration() {
    assert_eq!(Replica::new().waits(|| found("10", record("", 4, 1))), Duration::ZERO, "released");
    assert_eq!(Replica::new().waits(|| found("10", record("other", 4, 1))), LEASE, "held");
    let longer = Record { duration: 12 * SECOND, ..record("other", 4, 1) };
    assert_eq!(Replica::new().waits(|| found("10", longer.clone())), 12 * SECOND, "the holder's own duration");
    let mut replica = Replica::new();
    assert_eq!(replica.wait(5 * SECOND, || found("10", record("other", 4, 1))), []);
    let waited = replica.waits(|| found("11", record("other", 4, 2)));
    assert!((LEASE..=LEASE + SECOND / 2).contains(&waited), "renewed meanwhile: {waited:?}");
    let (number, call) = replica.pending.clone().unwrap();
    assert_eq!(call, update("11", record("me", 5, number)));
}

#[test]
fn a_missing_lease_is_created_and_taken_after_its_duration() {
    let mut replica = Replica::new();
    assert!(replica.waits(|| Answer::Read(None)) <= SECOND / 2);
    assert_eq!(replica.pending, Some((2, Call::Create(record("", 0, 2)))));
    assert_eq!(replica.answer(Answer::Written("10".to_owned())), []);
    assert_eq!(replica.ownership.state(), State::Standby);
    assert_eq!(replica.waits(|| found("10", record("", 0, 2))), LEASE);
    let begun = Replica::new().waits(|| found("10", record("", 0, 2)));
    assert_eq!(begun, LEASE, "also by a replica that has not seen that it was missing");
}

#[test]
fn a_lease_that_cannot_be_created_is_not_asked_for_in_a_tight_loop() {
    for refused in [|| Answer::Failed, || Answer::Conflict] {
        let mut replica = Replica::new();
        let begun = replica.now;
        let mut requests = 0;
        while replica.now < begun + 10 * SECOND {
            let answer = match &replica.pending {
                None => {
                    replica.now = replica.ownership.due();
                    replica.step(Input::Tick);
                    continue;
                }
                Some((_, Call::Read)) => Answer::Read(None),
                Some(_) => refused(),
            };
            replica.answer(answer);
            requests += 1;
            assert!(requests <= 60, "{:?} after {:?}", refused(), replica.now - begun);
        }
    }
}

#[test]
fn a_release_counts_only_of_the_holder_that_was_seen() {
    let mut replica = Replica::new();
    replica.answer(found("10", record("other", 4, 1)));
    assert!(replica.waits(|| found("11", record("", 4, 2))) <= SECOND / 2, "one read");
    for (term, reason) in [(3, "restored"), (6, "of a holder that was not seen")] {
        let mut replica = Replica::new();
        replica.answer(found("10", record("other", 4, 1)));
        let waited = replica.waits(|| found("11", record("", term, 2)));
        assert!(waited >= LEASE, "{reason}: {waited:?}");
    }
    // After a restore a resource version may belong to another state.
    let mut replica = Replica::new();
    assert_eq!(replica.wait(5 * SECOND, || found("10", record("other", 4, 1))), []);
    let waited = replica.waits(|| found("10", record("third", 4, 9)));
    assert!(waited >= LEASE, "{waited:?}");
}

#[test]
fn the_deadline_is_counted_from_before_the_renewal_was_sent() {
    let mut replica = Replica::holding();
    assert_eq!(replica.wait(SECOND, || unreachable!()), [], "the renewal is due");
    let (number, call) = replica.pending.clone().unwrap();
    assert_eq!(call, update("11", record("me", 5, number)));
    let sent = replica.now;
    replica.now += SECOND;
    assert_eq!(replica.answer(Answer::Written("12".to_owned())), [Effect::Until(sent + 7 * SECOND)]);
}

#[test]
fn a_holder_without_answers_stops_at_its_deadline() {
    let mut replica = Replica::holding();
    let until = replica.now + 7 * SECOND - SECOND / 10;
    loop {
        replica.now = replica.ownership.due();
        let effects = replica.step(Input::Tick);
        if replica.now == until {
            assert_eq!(effects, [Effect::Close(Why::Deadline)]);
            break;
        }
        assert_eq!(effects, []);
        assert!(replica.now < until);
    }
    assert_eq!(replica.ownership.state(), State::Standby);
    let number = replica.ownership.seen().unwrap().renewal;
    replica.answer(found("11", record("me", 5, number)));
    assert!(
        matches!(replica.pending, Some((_, Call::Update { .. }))),
        "no other replica took it: {:?}",
        replica.pending
    );
}

#[test]
fn a_renewal_without_an_answer_is_repeated_with_the_revision_that_is_read() {
    for lost in [Answer::Conflict, Answer::Failed] {
        let mut replica = Replica::holding();
        replica.wait(SECOND, || unreachable!());
        let number = replica.pending.clone().unwrap().0;
        assert_eq!(replica.answer(lost), []);
        replica.now += SECOND;
        replica.step(Input::Tick);
        assert_eq!(replica.pending.clone().map(|(_, call)| call), Some(Call::Read));
        assert_eq!(replica.answer(found("12", record("me", 5, number))), [], "reading does not move the deadline");
        let (number, call) = replica.pending.clone().unwrap();
        assert_eq!(call, update("12", record("me", 5, number)));
    }
}

#[test]
fn a_holder_that_reads_another_lease_stops_at_once() {
    let other = || found("12", record("other", 6, 1));
    let restored = || found("9", record("me", 4, 1));
    let unusable = || Answer::Read(Some(("12".to_owned(), Err(Unusable::Installation("other".to_owned())))));
    for lease in [other, restored, || Answer::Read(None), unusable] {
        let mut replica = Replica::holding();
        replica.wait(SECOND, || unreachable!());
        assert_eq!(replica.answer(Answer::Conflict), []);
        assert!(replica.answer(lease()).contains(&Effect::Close(Why::Taken)));
        assert_eq!(replica.ownership.state(), State::Standby);
    }
}

#[test]
fn an_answer_to_an_earlier_request_changes_nothing() {
    let mut replica = Replica::holding();
    replica.wait(SECOND, || unreachable!());
    let (number, _) = replica.pending.take().unwrap();
    replica.now += 2 * SECOND;
    assert_eq!(replica.step(Input::Tick), []);
    assert_eq!(replica.pending.clone().map(|(_, call)| call), Some(Call::Read), "timed out");
    let late = Input::Answer { request: number, answer: Answer::Written("12".to_owned()) };
    assert_eq!(replica.step(late), []);
    replica.answer(found("12", record("me", 5, number)));
    assert!(matches!(replica.pending, Some((_, Call::Update { .. }))));
    let late = Input::Answer { request: number, answer: Answer::Written("12".to_owned()) };
    assert_eq!(replica.step(late), [], "the deadline is moved by an answer to the next renewal only");
}

#[test]
fn a_hand_over_ends_deliveries_and_then_releases_with_the_last_mark() {
    let mut replica = Replica::holding();
    assert_eq!(replica.step(Input::Stop), [Effect::Drain(Why::Stop)]);
    assert_eq!(replica.pending, None);
    let mark = Mark { term: 5, revision: 77, ..Mark::default() };
    replica.now += Duration::from_millis(100);
    assert_eq!(replica.step(Input::Drained(Some(mark.clone()))), [Effect::Close(Why::Stop)]);
    let (number, call) = replica.pending.clone().unwrap();
    assert_eq!(call, update("11", Record { mark: Some(mark), ..record("", 5, number) }));
    assert_eq!(replica.answer(Answer::Written("12".to_owned())), [Effect::Stopped]);
    assert_eq!(replica.ownership.state(), State::Stopped);
}

#[test]
fn deliveries_that_do_not_end_are_closed_before_the_release() {
    let mut replica = Replica::holding();
    let begun = replica.now;
    replica.step(Input::Stop);
    assert_eq!(replica.wait(SECOND, || unreachable!()), [Effect::Close(Why::Stop)]);
    assert_eq!(replica.now - begun, Duration::from_millis(500));
    assert_eq!(replica.pending, None, "the mark may still come");
    replica.wait(SECOND, || unreachable!());
    assert_eq!(replica.now - begun, SECOND);
    assert!(matches!(replica.pending, Some((_, Call::Update { .. }))));
}

#[test]
fn a_part_that_stands_still_ends_the_term_and_takes_nothing() {
    let mut replica = Replica::holding();
    replica.stuck = Some(Part::Dispatch);
    let begun = replica.now;
    let mut revision = 11;
    let drain = loop {
        let effects = replica.wait(20 * SECOND, || unreachable!());
        if effects.iter().any(|effect| matches!(effect, Effect::Drain(_))) {
            break effects;
        }
        assert!(replica.now - begun < 20 * SECOND, "renewed for too long");
        revision += 1;
        replica.answer(Answer::Written(revision.to_string()));
    };
    assert_eq!(drain, [Effect::Drain(Why::Stuck(Part::Dispatch))]);
    assert!(replica.now - begun <= 11 * SECOND);
    replica.pending = None;
    replica.step(Input::Drained(None));
    replica.answer(Answer::Written("99".to_owned()));
    let released = replica.ownership.seen().cloned().unwrap();
    assert_eq!(replica.wait(30 * SECOND, || found("99", released.clone())), []);
    assert_eq!(replica.ownership.unowned(replica.now), 30 * SECOND);
    replica.stuck = None;
    assert!(replica.waits(|| found("99", released.clone())) <= SECOND, "it moves again");
}

#[test]
fn a_replica_whose_process_was_paused_is_not_stuck() {
    let lease = 30 * SECOND;
    let mut ownership = Ownership::new("me".to_owned(), lease, SECOND);
    let mut now = 10 * SECOND;
    let mut revision = 10;
    let mut effects = Vec::new();
    for input in Part::ALL.map(Input::Beat).into_iter().chain([Input::Fitness(Fitness::Fit)]) {
        effects.extend(ownership.step(input, now));
    }
    let mut answer = Some(found("10", Record { duration: lease, ..record("", 4, 1) }));
    // Until it holds the Lease.
    while ownership.state() != State::Holding {
        let sent = effects.iter().find_map(|effect| match effect {
            Effect::Send { request, .. } => Some(*request),
            _ => None,
        });
        effects.clear();
        now += SECOND / 10;
        let input = match sent {
            Some(request) => {
                revision += 1;
                let answer = answer.take().unwrap_or_else(|| Answer::Written(revision.to_string()));
                Input::Answer { request, answer }
            }
            None => Input::Tick,
        };
        effects.extend(ownership.step(input, now));
        for part in Part::ALL {
            effects.extend(ownership.step(Input::Beat(part), now));
        }
        assert!(now < 60 * SECOND, "{effects:?}");
    }
    now += 12 * SECOND;
    for part in Part::ALL {
        let after = ownership.step(Input::Beat(part), now);
        assert!(!after.iter().any(|effect| matches!(effect, Effect::Drain(_))), "{after:?}");
    }
    assert_eq!(ownership.state(), State::Holding);
}

#[test]
fn a_replica_that_becomes_less_fit_hands_over_once() {
    let mut replica = Replica::holding();
    assert_eq!(replica.step(Input::Fitness(Fitness::Late)), [Effect::Drain(Why::Unfit)]);
    replica.step(Input::Drained(None));
    replica.answer(Answer::Written("12".to_owned()));
    let released = replica.ownership.seen().cloned().unwrap();
    let waited = replica.waits(|| found("12", released.clone()));
    assert_eq!(waited, LEASE, "no other replica has taken it");
    let owned = replica.answer(Answer::Written("13".to_owned()));
    assert!(matches!(owned[..], [Effect::Own { term: 6, .. }]), "{owned:?}");
    assert_eq!(replica.step(Input::Fitness(Fitness::Late)), []);
    assert_eq!(replica.step(Input::Fitness(Fitness::Fit)), []);
    assert_eq!(replica.step(Input::Fitness(Fitness::Late)), [Effect::Drain(Why::Unfit)]);
}

#[test]
fn the_mark_goes_from_holder_to_holder() {
    let mark = |term| Mark { term, revision: 77, ..Mark::default() };
    let mut replica = Replica::new();
    replica.answer(found("10", Record { mark: Some(mark(4)), ..record("", 4, 1) }));
    let of_call = |replica: &Replica| match &replica.pending {
        Some((_, Call::Update { record, .. })) => record.mark.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(of_call(&replica), Some(mark(4)));
    let owned = replica.answer(Answer::Written("11".to_owned()));
    assert!(matches!(&owned[..], [Effect::Own { mark: Some(found), .. }] if *found == mark(4)), "{owned:?}");
    replica.wait(SECOND, || unreachable!());
    assert_eq!(of_call(&replica), Some(mark(4)), "until the holder has its own");
    replica.answer(Answer::Written("12".to_owned()));
    replica.step(Input::Mark(mark(5)));
    replica.wait(SECOND, || unreachable!());
    assert_eq!(of_call(&replica), Some(mark(5)));
}

#[test]
fn a_lease_that_cannot_be_read_is_reported_once_and_never_taken() {
    let error = || Unusable::Format("2".to_owned());
    let mut replica = Replica::new();
    let unusable = |revision: &str| Answer::Read(Some((revision.to_owned(), Err(error()))));
    assert_eq!(replica.answer(unusable("10")), [Effect::Blocked(error())]);
    assert_eq!(replica.wait(30 * SECOND, || unusable("11")), []);
    assert!(matches!(replica.pending, None | Some((_, Call::Read))), "{:?}", replica.pending);
    assert_eq!(replica.ownership.seen(), None);
    // Also while another installation renews it.
    for revision in ["12", "13"] {
        replica.wait(SECOND, || unusable(revision));
    }
    let unheld = replica.ownership.unowned(replica.now);
    assert!(replica.ownership.is_unusable() && unheld >= 31 * SECOND, "{unheld:?}");
    replica.wait(SECOND, || Answer::Read(None));
    assert!(matches!(replica.pending, Some((_, Call::Create(_)))), "deleted");
}

#[test]
fn a_clock_that_steps_forward_takes_nothing_early() {
    let mut replica = Replica::new();
    let lease = || found("10", record("other", 4, 1));
    assert_eq!(replica.wait(2 * SECOND, lease), []);
    replica.now += 60 * SECOND;
    assert_eq!(replica.step(Input::Tick), []);
    let waited = replica.waits(lease);
    assert!((5 * SECOND..=6 * SECOND).contains(&waited), "{waited:?}");
}
