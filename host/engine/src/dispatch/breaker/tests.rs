//! Claims about the breaker, and a comparison with a reference that keeps every change.

use podium_vocabulary::{Action, ObjectRef};
use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn uid(name: &str) -> Arc<str> {
    name.into()
}

/// Sends values as soon as they may be sent, until `end`; returns the seconds at which each was sent.
fn loops(breaker: &Breaker, begin: Instant, end: Duration, every: Duration) -> Vec<u64> {
    let mut now = begin;
    let mut sent = Vec::new();
    while now < begin + end {
        match breaker.wait(Lane(1), &uid("a"), now) {
            Some(wait) => now += wait,
            None => {
                breaker.changed(Lane(1), &uid("a"), &[(7, 0)], now);
                sent.push((now - begin).as_secs());
                now += every;
            }
        }
    }
    sent
}

#[tokio::test(start_paused = true)]
async fn after_ten_values_a_minute_waits_double_up_to_a_minute() {
    let millis = Duration::from_millis(1);
    let sent = loops(&Breaker::default(), Instant::now(), 400 * SECOND, millis);
    assert_eq!(sent, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363]);
}

/// The last write to a field decides whether a delivery counts.
#[test]
fn replicas_are_another_field_than_the_rest_of_an_object() {
    let object = ObjectRef {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        resource: "deployments".into(),
        namespace: Some("shop".into()),
        name: "web".into(),
    };
    let scale = |replicas: u32| Field::changed_by(&Action::Scale { object: object.clone(), replicas });
    let (apply, _) =
        Field::changed_by(&Action::ApplyObject { object: object.clone(), body: serde_json::Value::Null, owner: None });
    assert_ne!(apply.digest(), scale(3).0.digest());
    assert_eq!(scale(3), scale(3));
    assert_eq!(scale(3).0.digest(), scale(5).0.digest());
    assert_ne!(scale(3).1, scale(5).1);
}

#[tokio::test(start_paused = true)]
async fn ten_values_a_minute_never_wait_and_ended_loops_are_forgotten() {
    let breaker = Breaker::default();
    let now = Instant::now();
    assert_eq!(loops(&breaker, now, 600 * SECOND, 6 * SECOND).len(), 100, "one every 6 s");
    let breaker = Breaker::default();
    let sent = loops(&breaker, now, 20 * SECOND, Duration::from_millis(1));
    assert_eq!(*sent.last().unwrap(), 15);
    // It waits 16 s after the last value, and a minute after that it is forgotten.
    let later = now + 15 * SECOND + 76 * SECOND + SECOND;
    assert_eq!(loops(&breaker, later, SECOND, Duration::from_millis(10)).len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_value_that_comes_later_than_the_wait_shortens_the_next() {
    let breaker = Breaker::default();
    let mut now = Instant::now();
    let a = uid("a");
    loops(&breaker, now, 8 * SECOND, Duration::from_millis(1));
    now += 8 * SECOND;
    assert_eq!(breaker.wait(Lane(1), &a, now).map(|wait| wait.as_secs()), Some(7));
    for (pause, left) in [(60, 4), (50, 2), (50, 1), (50, 0), (50, 0)] {
        now += pause * SECOND;
        assert_eq!(breaker.wait(Lane(1), &a, now), None);
        breaker.changed(Lane(1), &a, &[(7, 0)], now);
        assert_eq!(breaker.wait(Lane(1), &a, now).unwrap_or_default(), left * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn other_pods_and_plugins_go_on() {
    let breaker = Breaker::default();
    let now = Instant::now();
    loops(&breaker, now, SECOND / 2, Duration::from_millis(1));
    assert!(breaker.wait(Lane(1), &uid("a"), now).is_some());
    for (lane, pod) in [(2, "a"), (1, "b")] {
        assert_eq!(breaker.wait(Lane(lane), &uid(pod), now), None);
    }
}

#[tokio::test(start_paused = true)]
async fn the_sender_of_a_value_is_found_among_the_other_plugins() {
    let breaker = Breaker::default();
    let now = Instant::now();
    let a = uid("a");
    for (lane, value) in [(1, 10), (2, 20), (3, 30)] {
        breaker.changed(Lane(lane), &a, &[(7, value)], now);
    }
    assert_eq!(breaker.sender_of(20, Lane(1), &a, 7), Some(Lane(2)));
    assert_eq!(breaker.sender_of(10, Lane(1), &a, 7), None, "its own");
    assert_eq!(breaker.sender_of(40, Lane(1), &a, 7), None);
    assert_eq!(breaker.sender_of(20, Lane(1), &a, 8), None);
}

#[tokio::test(start_paused = true)]
async fn changes_are_forgotten_when_quiet_and_with_their_pod_or_plugin() {
    let breaker = Breaker::default();
    let now = Instant::now();
    for lane in 1..=3 {
        for pod in ["a", "b"] {
            breaker.changed(Lane(lane), &uid(pod), &[(7, 0)], now);
        }
    }
    breaker.seen_gone("a");
    assert_eq!(breaker.len(), 3);
    breaker.forget_lane(Lane(2));
    assert_eq!(breaker.len(), 2);
    // The values of one plugin also sweep another's.
    breaker.changed(Lane(1), &uid("c"), &[(7, 0)], now + 60 * SECOND);
    breaker.changed(Lane(1), &uid("c"), &[(7, 0)], now + 60 * SECOND);
    assert_eq!(breaker.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_plugins_pods_are_bounded_and_displace_only_its_own() {
    let breaker = Breaker::default();
    let now = Instant::now();
    breaker.changed(Lane(2), &uid("other"), &[(7, 0)], now);
    let pod = |index: usize| uid(&format!("u{index}"));
    for index in 0..MAX_PODS + 10 {
        breaker.changed(Lane(1), &pod(index), &[(7, 0)], now + Duration::from_micros(index as u64));
    }
    assert_eq!(breaker.len(), MAX_PODS + 1);
    let has = |index| breaker.pods.lock().changes.contains_key(&Id { uid: pod(index), lane: Lane(1) });
    assert_eq!([9, 10].map(has), [false, true]);
}

#[tokio::test(start_paused = true)]
async fn waiting_pods_are_listed_by_name_and_their_number_is_bounded() {
    let breaker = Breaker::default();
    let begin = Instant::now();
    let field = Field { kind: field::FieldKind::Label, name: "example/step".into() };
    for index in 0..100 {
        let pod = PodKey::new("shop", &format!("cart-{index}"), &format!("u{index}"));
        for _ in 0..11 {
            if breaker.changed(Lane(1), &pod.uid, &[(field.digest(), 0)], begin).is_some() {
                breaker.name(Lane(1), &pod, &field, "another manager");
            }
        }
    }
    let first = |open: &OpenLoops| open.loops.iter().find(|open| &*open.pod.name == "cart-0").cloned().unwrap();
    let open = breaker.open(begin);
    assert_eq!((open.loops.len(), open.total), (64, 100));
    let OpenLoop { lane, field, counterpart, wait, .. } = first(&open);
    assert_eq!((lane, &*field, &*counterpart, wait), (Lane(1), "label example/step", "another manager", SECOND));
    let open = breaker.open(begin + 60 * SECOND);
    assert_eq!((open.total, first(&open).wait), (100, Duration::ZERO));
    assert_eq!(breaker.len(), 100);
    assert_eq!(breaker.open(begin + 62 * SECOND), OpenLoops { loops: Vec::new(), total: 0 });
    assert_eq!(breaker.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_field_that_changed_most_often_is_named_with_its_earlier_value() {
    let breaker = Breaker::default();
    let now = Instant::now();
    let a = uid("a");
    let mut tripped = None;
    for change in 0..11 {
        // One field at each change, and others of which each changes once.
        let fields = [(100 + change, 5), (7, change), (200 + change, 5), (300 + change, 5)];
        tripped = tripped.or(breaker.changed(Lane(1), &a, &fields, now));
    }
    assert_eq!(tripped, Some(Tripped { field: 7, earlier: Some(9) }));
    assert_eq!(breaker.pods.lock().changes[&Id { uid: a, lane: Lane(1) }].fields.len(), FIELDS);
}

/// Every change, from which each wait is computed again.
#[derive(Default)]
struct Reference(Vec<(u64, Instant)>);

impl Reference {
    /// Returns the latest change, and how long the next one waits after it.
    fn wait(&self, pod: u64) -> Option<(Instant, Duration)> {
        let of: Vec<Instant> = self.0.iter().filter(|(of, _)| *of == pod).map(|(_, at)| *at).collect();
        let mut wait = Duration::ZERO;
        for (index, now) in of.iter().enumerate().skip(1) {
            let gap = *now - of[index - 1];
            if gap >= wait + WINDOW {
                wait = Duration::ZERO;
                continue;
            }
            let within = of[..index].iter().filter(|at| *now - **at < WINDOW).count();
            let seconds = wait.as_secs();
            let next = if within >= 10 || (seconds > 0 && gap < 2 * wait) { (2 * seconds).max(1) } else { seconds / 2 };
            wait = if next == 0 { Duration::ZERO } else { Duration::from_secs(next.min(60)) };
        }
        of.last().map(|last| (*last, wait))
    }
}

proptest! {
    #[test]
    fn waits_are_those_of_a_reference_that_keeps_every_change(
        steps in prop::collection::vec(
            (0..3_u64, prop_oneof![6 => 0..50_u64, 3 => 0..5_000_u64, 1 => 0..130_000_u64]),
            1..200,
        ),
        obeys in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let _guard = runtime.enter();
        let breaker = Breaker::default();
        let mut reference = Reference::default();
        let mut now = Instant::now();
        for (pod, pause) in steps {
            let of = uid(&format!("u{pod}"));
            now += Duration::from_millis(pause);
            let left = |(last, wait): (Instant, Duration)| (last + wait).saturating_duration_since(now);
            let expected = reference.wait(pod).map(left).filter(|left| !left.is_zero());
            prop_assert_eq!(breaker.wait(Lane(1), &of, now), expected);
            if obeys {
                now += expected.unwrap_or_default();
            }
            let before = reference.wait(pod).filter(|(last, wait)| now < *last + *wait + WINDOW);
            reference.0.push((pod, now));
            let tripped = breaker.changed(Lane(1), &of, &[(7, 0)], now).is_some();
            let waits = |left: Option<(Instant, Duration)>| left.is_some_and(|(_, wait)| !wait.is_zero());
            prop_assert_eq!(tripped, !waits(before) && waits(reference.wait(pod)));
        }
    }
}
