//! [`HalfOpen`]: things that are closed for a time, and then opened by the answer to one probe.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// How long others wait for the answer to a probe before another one is sent.
pub const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// The things that are closed. After its time one request may be sent as a probe, and another one each second until
/// one is answered. Without an answer it is open again at its end.
#[derive(Debug)]
pub struct HalfOpen<K> {
    closed: BTreeMap<K, Closed>,
}

/// One thing that is closed.
#[derive(Debug, Clone, Copy)]
struct Closed {
    /// When it was closed, or closed again.
    at: Instant,
    until: Instant,
    end: Instant,
    /// When the latest probe was sent.
    probed: Option<Instant>,
}

impl<K> Default for HalfOpen<K> {
    fn default() -> Self {
        Self { closed: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> HalfOpen<K> {
    /// Closes a thing until `until`, and at most until `end`. Times only grow while it is closed. Returns whether it
    /// was open.
    pub fn close(&mut self, key: K, until: Instant, end: Instant, now: Instant) -> bool {
        let was_open = !self.closed.contains_key(&key);
        let closed = self.closed.entry(key).or_insert(Closed { at: now, until: now, end: now, probed: None });
        closed.at = now;
        closed.until = closed.until.max(until);
        closed.end = closed.end.max(end);
        was_open
    }

    /// Returns when the next request may be sent; `None` if it is not closed.
    #[must_use]
    pub fn opens(&self, key: &K) -> Option<Instant> {
        let closed = self.closed.get(key)?;
        Some(closed.probed.map_or(closed.until, |at| closed.until.max(at + PROBE_PAUSE)).min(closed.end))
    }

    /// Returns how long a request has to wait; `None` if it may be sent.
    #[must_use]
    pub fn wait(&self, key: &K, now: Instant) -> Option<Duration> {
        self.opens(key).map(|opens| opens.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Records that a request is sent. Returns whether it is a probe.
    pub fn send(&mut self, key: &K, now: Instant) -> bool {
        let closed = self.closed.get_mut(key);
        closed.map(|closed| closed.probed = Some(now)).is_some()
    }

    /// A probe that was sent at `sent` has no answer, and none is waited for: the next request is the probe.
    pub fn give_up(&mut self, key: &K, sent: Instant) {
        if let Some(closed) = self.closed.get_mut(key).filter(|closed| closed.probed == Some(sent)) {
            closed.probed = None;
        }
    }

    /// Opens a thing because of the answer to a request that was sent at `sent`, unless it was closed again since.
    /// Returns whether it was closed.
    pub fn open(&mut self, key: &K, sent: Instant) -> bool {
        let opens = self.closed.get(key).is_some_and(|closed| closed.at <= sent);
        opens && self.closed.remove(key).is_some()
    }

    /// Forgets the things that are open again without an answer, and returns them.
    pub fn ended(&mut self, now: Instant) -> Vec<K> {
        self.closed.extract_if(.., |_, closed| closed.end <= now).map(|(key, _)| key).collect()
    }

    /// Returns the things that are closed, and how long the next request to each waits.
    pub fn list(&self, now: Instant) -> impl Iterator<Item = (&K, Duration)> {
        self.closed.keys().map(move |key| (key, self.wait(key, now).unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// While nothing is answered, at most one request a second is sent, and none before the time is over.
        #[test]
        fn only_one_probe_a_second_is_sent_until_an_answer_or_the_end(
            (until, more) in (1..10_u64, 0..10_u64),
            pauses in prop::collection::vec((0..900_u64, any::<bool>()), 1..60),
        ) {
            let mut of = HalfOpen::default();
            let begin = Instant::now();
            let end = begin + Duration::from_secs(until + more);
            prop_assert!(of.close((), begin + Duration::from_secs(until), end, begin));
            let mut now = begin;
            let mut latest = None::<Instant>;
            for (pause, gives_up) in pauses {
                now += Duration::from_millis(pause);
                prop_assert_eq!(of.ended(now).len(), usize::from(now >= end));
                if now >= end {
                    prop_assert_eq!(of.wait(&(), now), None);
                    return Ok(());
                }
                if of.wait(&(), now).is_some() {
                    continue;
                }
                prop_assert!(now >= begin + Duration::from_secs(until));
                prop_assert!(latest.is_none_or(|latest| now >= latest + PROBE_PAUSE));
                prop_assert!(of.send(&(), now));
                latest = Some(now);
                if gives_up {
                    of.give_up(&(), now);
                    prop_assert_eq!(of.wait(&(), now), None, "the next request is the probe");
                    latest = None;
                }
            }
            of.close((), now + PROBE_PAUSE, end, now);
            prop_assert!(!of.open(&(), now - Duration::from_nanos(1)), "an answer from before");
            prop_assert!(of.open(&(), now) && of.wait(&(), now).is_none());
        }
    }
}
