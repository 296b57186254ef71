//! [`Repeats`]: equal log lines of one plugin about many Pods, logged as one line with their number.
//!
//! A plugin whose writes are refused fails on every Pod that it watches, many times each. Two messages are the same
//! when they differ only in the name and the uid of the Pod. The first is logged at once, the others in growing
//! intervals, each with the last of their Pods and the number of messages that the line represents.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use podium_vocabulary::PodKey;
use tokio::time::Instant;

use crate::{intervals::Intervals, status::without_pod};

/// Different messages of one plugin that are distinguished. Further ones are distinguished only by their kind.
const MESSAGES: usize = 64;
/// A message that was not repeated for this time is forgotten.
const FORGET: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<BTreeMap<(&'static str, String), Repeated>>);

#[derive(Debug)]
struct Repeated {
    intervals: Intervals,
    last: Instant,
}

impl Repeats {
    /// Records a message of a kind about a Pod. Returns how many messages a line that is logged now represents, or
    /// `None` while no line is due.
    pub(super) fn occurred(&self, kind: &'static str, message: &str, pod: &PodKey, now: Instant) -> Option<u64> {
        let mut message = without_pod(message, pod);
        let mut repeated = self.0.lock();
        if repeated.len() >= MESSAGES && !repeated.contains_key(&(kind, message.clone())) {
            repeated.retain(|_, repeated| now < repeated.last + FORGET);
            if repeated.len() >= MESSAGES {
                message.clear();
            }
        }
        let new = || Repeated { intervals: Intervals::new(), last: now };
        let repeated = repeated.entry((kind, message)).or_insert_with(new);
        repeated.last = now;
        repeated.intervals.occurred(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: u32) -> PodKey {
        PodKey { namespace: "shop".into(), name: format!("web-{number}").into(), uid: format!("uid-{number}").into() }
    }

    #[tokio::test(start_paused = true)]
    async fn nine_thousand_refusals_about_725_pods_are_a_handful_of_lines() {
        let repeats = Repeats::default();
        let mut lines = 0;
        let mut counted = 0;
        for attempt in 0..13 {
            for number in 0..725 {
                let pod = pod(number);
                let message = format!("pods {:?} is forbidden: User cannot patch resource \"pods\"", pod.name);
                if let Some(count) = repeats.occurred("forbidden", &message, &pod, Instant::now()) {
                    lines += 1;
                    counted += count;
                }
            }
            tokio::time::advance(Duration::from_millis(5 << attempt)).await;
        }
        assert!(lines <= 5, "{lines} lines");
        assert!(counted > 725 * 10, "{counted} of {} are counted in them", 725 * 13);
    }

    #[tokio::test(start_paused = true)]
    async fn different_messages_are_logged_at_once_up_to_a_bound() {
        let repeats = Repeats::default();
        let now = Instant::now();
        assert_eq!(repeats.occurred("retry", "no such team: red", &pod(1), now), Some(1));
        assert_eq!(repeats.occurred("retry", "no such team: blue", &pod(2), now), Some(1));
        assert_eq!(repeats.occurred("trap", "no such team: blue", &pod(3), now), Some(1));
        assert_eq!(repeats.occurred("retry", "no such team: blue", &pod(4), now), None);
        for number in 0..10_000 {
            repeats.occurred("retry", &format!("at {number}"), &pod(1), now);
        }
        assert!(repeats.0.lock().len() <= MESSAGES + 1);
        tokio::time::advance(FORGET).await;
        assert_eq!(repeats.occurred("retry", "new again", &pod(1), Instant::now()), Some(1));
        assert_eq!(repeats.0.lock().len(), 1);
    }
}
