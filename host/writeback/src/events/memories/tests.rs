use podium_vocabulary::{EventType, PodKey};

use super::*;

const MILLI: Duration = Duration::from_millis(1);

pub(in super::super) fn event(note: &str) -> Event {
    let reason = "CrashLoop".to_owned();
    let action = "Diagnose".to_owned();
    let target = PodKey::new("shop", "cart-0", "u1");
    Event { target, event_type: EventType::Warning, reason, action, note: note.to_owned() }
}

/// Performs the step successfully.
pub(in super::super) fn done(memories: &mut Memories, event: &Event, now: Instant) -> Step {
    let step = memories.step("podium/shop/a", event, now);
    match &step {
        Step::Create { digest, .. } => memories.record_sent(*digest, 1, now),
        Step::Repeat { digest, count } => memories.record_sent(*digest, *count, now),
        Step::Nothing | Step::Drop | Step::Wait { .. } => {}
    }
    step
}

#[test]
fn repeats_are_counted_and_sent_as_a_series_after_six_minutes() {
    let start = Instant::now();
    let mut memories = Memories::new(start);
    assert!(matches!(done(&mut memories, &event("a"), start), Step::Create { .. }));
    for millis in 1..=8 {
        assert_eq!(done(&mut memories, &event("a"), start + millis * MILLI), Step::Nothing);
    }
    assert!(matches!(done(&mut memories, &event("a"), start + SERIES), Step::Repeat { count: 10, .. }));
    assert_eq!(done(&mut memories, &event("a"), start + SERIES + MILLI), Step::Nothing);
}

#[test]
fn the_eleventh_note_for_one_reason_joins_a_combined_event() {
    let start = Instant::now();
    let mut memories = Memories::new(start);
    for note in 0..10 {
        let step = done(&mut memories, &event(&note.to_string()), start);
        assert!(matches!(step, Step::Create { note, .. } if note.len() == 1));
    }
    let Step::Create { note, .. } = done(&mut memories, &event("10"), start) else { panic!("not created") };
    assert_eq!(note, "(combined from similar events): 10");
    assert_eq!(done(&mut memories, &event("11"), start), Step::Nothing);
    let later = done(&mut memories, &event("12"), start + SIMILAR_WINDOW);
    assert!(matches!(later, Step::Create { note, .. } if note == "12"));
}

#[test]
fn equal_events_of_two_plugins_stay_separate_also_when_combined() {
    let digests = |manager: &str| {
        let start = Instant::now();
        let mut memories = Memories::new(start);
        let digest = |note: usize| match memories.step(manager, &event(&note.to_string()), start) {
            Step::Create { digest, .. } => digest,
            step => panic!("not created: {step:?}"),
        };
        (0..=SIMILAR).map(digest).collect::<Vec<_>>()
    };
    let one = digests("podium/shop/a");
    let other = digests("podium/shop/b");
    assert!(one.iter().all(|digest| !other.contains(digest)), "{one:?} {other:?}");
}

#[test]
fn a_plugin_sends_25_events_of_a_pod_then_one_in_five_minutes() {
    let start = Instant::now();
    let mut memories = Memories::new(start);
    let say = |memories: &mut Memories, index: usize, now| {
        let event = Event { reason: format!("Reason{index}"), ..event("a") };
        matches!(done(memories, &event, now), Step::Create { .. })
    };
    assert_eq!((0..100).filter(|index| say(&mut memories, *index, start)).count(), 25);
    assert!(!say(&mut memories, 100, start + Duration::from_secs(300) - MILLI));
    assert!(say(&mut memories, 101, start + Duration::from_secs(300)));
    assert!(!say(&mut memories, 102, start + Duration::from_secs(300)));
}

#[test]
fn a_plugin_sends_500_events_at_once_and_then_two_a_second() {
    let start = Instant::now();
    let mut memories = Memories::new(start);
    let say = |memories: &mut Memories, index: usize, now| {
        let event = Event { target: PodKey::new("shop", "cart-0", &format!("u{index}")), ..event("a") };
        matches!(done(memories, &event, now), Step::Create { .. })
    };
    assert_eq!((0..2_000).filter(|index| say(&mut memories, *index, start)).count(), 500);
    assert_eq!((2_000..2_100).filter(|index| say(&mut memories, *index, start + 1_000 * MILLI)).count(), 2);
}
