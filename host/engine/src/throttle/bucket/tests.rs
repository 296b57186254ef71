//! Claims about one bucket, and a comparison with a reference that counts in whole numbers of a slower unit.

use proptest::prelude::*;

use super::*;

const RATE: Rate = Rate { per_second: 10, burst: 3 };

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_bucket_has_its_burst_at_once_and_then_its_rate() {
    let start = Instant::now();
    let mut bucket = Bucket::full(RATE, start);
    assert_eq!(bucket.wait(3, start), Duration::ZERO);
    bucket.take(3, start);
    assert_eq!(bucket.wait(1, start), ms(100));
    assert_eq!(bucket.wait(1, start + ms(99)), ms(1));
    assert_eq!(bucket.wait(1, start + ms(100)), Duration::ZERO);
    assert_eq!(bucket.wait(3, start + ms(100)), ms(200));
    let rested = start + Duration::from_secs(3_600);
    bucket.take(3, rested);
    assert_eq!(bucket.wait(1, rested), ms(100), "an hour is no more than the burst");
}

#[test]
fn debt_is_paid_first() {
    let start = Instant::now();
    let mut bucket = Bucket::full(RATE, start);
    bucket.take(13, start);
    assert_eq!(bucket.wait(1, start), ms(1_100));
    assert_eq!(bucket.take(1, start + ms(1_100)), Duration::ZERO);
    assert_eq!(bucket.take(2, start + ms(1_100)), ms(200));
}

#[test]
fn a_new_rate_holds_at_once_and_fills_nothing() {
    let start = Instant::now();
    let mut bucket = Bucket::full(RATE, start);
    bucket.set_rate(Rate { per_second: 1, burst: 2 }, start);
    bucket.take(2, start);
    assert_eq!(bucket.wait(1, start), ms(1_000));
    bucket.set_rate(Rate { per_second: 100, burst: 50 }, start);
    assert_eq!(bucket.wait(1, start), ms(10));
}

#[test]
fn an_unlimited_bucket_is_never_empty() {
    let start = Instant::now();
    let mut bucket = Bucket::full(Rate::UNLIMITED, start);
    for _ in 0..1_000 {
        bucket.take(1_000_000, start);
    }
    assert_eq!(bucket.wait(1_000_000, start), Duration::ZERO);
}

#[derive(Debug, Clone)]
enum Step {
    Advance(u64),
    Take(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![(0..5_000_000_000_u64).prop_map(Step::Advance), (0..20_u32).prop_map(Step::Take),]
}

proptest! {
    #[test]
    fn a_bucket_is_that_of_the_reference(
        per_second in 1..1_000_u32,
        burst in 1..50_u32,
        steps in prop::collection::vec(step(), 0..100),
        need in 0..50_u32,
    ) {
        let start = Instant::now();
        let mut bucket = Bucket::full(Rate { per_second, burst }, start);
        let mut now = start;
        // The reference: the moment at which the bucket is full, in units of a nanosecond divided by the rate.
        let unit = i128::from(per_second);
        let size = i128::from(burst);
        let mut full_at = 0_i128;
        let mut at = 0_i128;
        for step in steps {
            match step {
                Step::Advance(nanos) => {
                    now += Duration::from_nanos(nanos);
                    at += i128::from(nanos) * unit;
                }
                Step::Take(tokens) => {
                    bucket.take(tokens, now);
                    full_at = full_at.max(at) + i128::from(tokens) * 1_000_000_000;
                }
            }
            let need = need.min(burst);
            let holds_at = full_at - (size - i128::from(need)) * 1_000_000_000;
            let wait = (holds_at - at).max(0);
            let expected = u64::try_from((wait + unit - 1) / unit).unwrap();
            prop_assert_eq!(bucket.wait(need, now), Duration::from_nanos(expected));
        }
    }
}
