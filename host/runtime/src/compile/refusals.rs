//! Components that the compiler refused. Compiling one again would cost as much and be refused again, so that is done
//! rarely, however often a plugin with this component is configured.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use podium_engine::throttle::Backoff;
use tokio::time::Instant;

use super::{super::LoadProblem, Key};

/// The time in which a refused component is not compiled again. At its end, one that takes the 60 s of its class each
/// time uses one sixtieth of a processor.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(60), most: Duration::from_secs(3_600) };
/// Refusals that are remembered; further ones replace those that end first.
const MAX_REFUSALS: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<BTreeMap<Key, Refusal>>);

#[derive(Debug)]
struct Refusal {
    problem: LoadProblem,
    /// Compilations that were refused in a row.
    times: u32,
    until: Instant,
}

impl Refusals {
    /// Returns why a component is not compiled now.
    pub(super) fn get(&self, key: Key, now: Instant) -> Option<LoadProblem> {
        let refusals = self.0.lock();
        let Refusal { problem, until, .. } = refusals.get(&key)?;
        let wait = until.checked_duration_since(now).filter(|wait| !wait.is_zero())?;
        Some(LoadProblem::RefusedBefore { problem: Box::new(problem.clone()), wait })
    }

    /// Records the result of a compilation. Problems that may pass by themselves are not remembered.
    pub(super) fn record<T>(&self, key: Key, result: &Result<T, LoadProblem>, now: Instant) {
        let mut refusals = self.0.lock();
        let problem = match result {
            Err(problem) if problem.is_passing() => return,
            Err(problem) => problem.clone(),
            Ok(_) => return drop(refusals.remove(&key)),
        };
        let times = refusals.get(&key).map_or(1, |refusal| refusal.times.saturating_add(1));
        refusals.insert(key, Refusal { problem, times, until: now + BACKOFF.doubled(times) });
        if refusals.len() > MAX_REFUSALS {
            let first = refusals.iter().min_by_key(|(_, refusal)| refusal.until).map(|(key, _)| *key);
            first.map(|first| refusals.remove(&first));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Sha256, *};

    const KEY: Key = Key { digest: Sha256([1; 32]), class: "native" };

    fn refused() -> Result<(), LoadProblem> {
        Err(LoadProblem::TooSlow { limit: Duration::from_secs(10) })
    }

    #[test]
    fn a_refused_component_is_retried_after_a_minute_up_to_an_hour() {
        let refusals = Refusals::default();
        let mut now = Instant::now();
        assert!(refusals.get(KEY, now).is_none());
        for minutes in [1, 2, 4, 8, 16, 32, 60, 60] {
            refusals.record(KEY, &refused(), now);
            now += Duration::from_secs(60 * minutes - 1);
            let text = refusals.get(KEY, now).unwrap().to_string();
            assert!(text.contains("10 s of processor time") && text.contains("is in 1 s"), "{text}");
            assert!(refusals.get(Key { class: "interpreter", ..KEY }, now).is_none());
            now += Duration::from_secs(1);
            assert!(refusals.get(KEY, now).is_none(), "after {minutes} min");
        }
        refusals.record(KEY, &Ok(()), now);
        refusals.record(KEY, &refused(), now);
        assert!(refusals.get(KEY, now + Duration::from_secs(60)).is_none(), "it succeeded in between");
    }

    #[test]
    fn only_lasting_refusals_are_remembered_within_a_bound() {
        let refusals = Refusals::default();
        let now = Instant::now();
        refusals.record(KEY, &Err::<(), _>(LoadProblem::Killed), now);
        assert!(refusals.get(KEY, now).is_none());
        for number in 0..MAX_REFUSALS as u64 + 10 {
            let mut digest = Sha256([0; 32]);
            digest.0[..8].copy_from_slice(&number.to_le_bytes());
            refusals.record(Key { digest, ..KEY }, &refused(), now + Duration::from_secs(number));
        }
        let refusals = refusals.0.lock();
        assert_eq!(refusals.len(), MAX_REFUSALS);
        assert!(!refusals.contains_key(&Key { digest: Sha256([0; 32]), ..KEY }), "the first ones are gone");
    }
}
