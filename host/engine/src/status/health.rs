//! [`Health`]: the failures of one version of a plugin, as the status of its object lists them.
//!
//! A failure is a run that trapped, exceeded a limit or returned an error, or a write that the API server refused and
//! that the next two attempts of the key did not settle, or that no attempt follows. A write that the host itself holds
//! back is none.
//!
//! Failures that differ only in the name and uid of the Pod are one entry, which does not change while it is repeated:
//! a plugin that fails on every Pod causes no writes of a status. The messages have the author's file and line where
//! the guest reports them.

use std::time::Duration;

use parking_lot::Mutex;
use podium_vocabulary::{PodKey, WriteResult, text};
use podium_wire::Timestamp;
use tokio::time::Instant;

/// The most entries of one version.
const MOST: usize = 8;
/// An entry is removed so long after its last occurrence: twice the longest back-off of a key.
pub const FORGET: Duration = Duration::from_secs(600);
/// The most bytes of a message.
const MESSAGE_BYTES: usize = 512;
/// The attempt of a key, counted from the first that the API server refused, at which its refused writes are failures.
pub(crate) const ATTEMPTS: u32 = 3;

/// Failures with one reason and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// [`FailureKind::name`](crate::ports::FailureKind::name) of a run, or [`WriteResult::name`] of a write.
    pub reason: String,
    /// The message with `*` instead of the Pod; escaped, at most 512 bytes.
    pub message: String,
    /// The first Pod that was seen, as `NAMESPACE/NAME`.
    pub pod: String,
    /// The time of the first failure, as RFC 3339.
    pub since: String,
    /// It was taken over from a host before this one, and was not seen since.
    pub is_of_before: bool,
}

/// A plugin object and the component that it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionId {
    /// The uid of the object; empty for a plugin of a file.
    pub uid: String,
    /// The SHA-256 of the component in hexadecimal digits.
    pub sha256: String,
}

/// The failures of one version.
#[derive(Debug, Default)]
pub struct Health {
    version: VersionId,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// In the order of their first occurrence, each with its last.
    entries: Vec<(Failing, Instant)>,
    /// Failures that found [`MOST`] other entries.
    unlisted: u64,
    /// Entries of a host before this one may be taken over.
    may_restore: bool,
}

impl Health {
    /// Returns the health of a version without failures. `is_first` for the first version of a plugin since the start.
    pub(super) fn new(version: VersionId, is_first: bool) -> Self {
        Self { version, inner: Mutex::new(Inner { may_restore: is_first, ..Inner::default() }) }
    }

    /// Returns the version.
    pub fn version(&self) -> &VersionId {
        &self.version
    }

    /// Records a failure with a reason about a Pod.
    pub(crate) fn failed(&self, reason: &str, message: &str, pod: &PodKey, now_millis: u64, now: Instant) {
        let message = text::bounded(&without_pod(message, pod), MESSAGE_BYTES);
        let inner = &mut *self.inner.lock();
        inner.forget(now);
        let of = |(of, _): &&mut (Failing, Instant)| of.reason == reason && of.message == message;
        if let Some((of, last)) = inner.entries.iter_mut().find(of) {
            of.is_of_before = false;
            *last = now;
        } else if inner.entries.len() < MOST {
            let reason = reason.to_owned();
            let pod = format!("{}/{}", pod.namespace, pod.name);
            let since = i64::try_from(now_millis / 1_000 * 1_000).unwrap_or(i64::MAX);
            let since = Timestamp(since).to_string();
            let failing = Failing { reason, message, pod, since, is_of_before: false };
            inner.entries.push((failing, now));
        } else {
            inner.unlisted += 1;
            // One of its kind stays while others occur: the version has failed within 10 minutes.
            let at = inner.entries.iter().rposition(|(of, _)| of.reason == reason).unwrap_or(MOST - 1);
            inner.entries[at].1 = now;
        }
    }

    /// Adds the entries of a host before this one before the others: once, and only for the first version since
    /// the start.
    pub fn restore(&self, entries: impl FnOnce() -> Vec<Failing>, now: Instant) {
        let inner = &mut *self.inner.lock();
        if !std::mem::take(&mut inner.may_restore) {
            return;
        }
        let mut since = std::mem::take(&mut inner.entries);
        for of in entries() {
            let same = |(known, _): &(Failing, Instant)| known.reason == of.reason && known.message == of.message;
            let last = since.iter().position(same).map(|at| since.remove(at).1);
            inner.entries.push((Failing { is_of_before: last.is_none(), ..of }, last.unwrap_or(now)));
        }
        inner.entries.extend(since);
        inner.entries.truncate(MOST);
    }

    /// Returns the entries, the first that occurred first.
    pub fn failing(&self, now: Instant) -> Vec<Failing> {
        let mut inner = self.inner.lock();
        inner.forget(now);
        inner.entries.iter().map(|(failing, _)| failing.clone()).collect()
    }

    /// Returns how many failures were not listed, because there were 8 others.
    pub(super) fn unlisted(&self) -> u64 {
        self.inner.lock().unlisted
    }
}

impl Inner {
    fn forget(&mut self, now: Instant) {
        self.entries.retain(|(_, last)| now < *last + FORGET);
    }
}

/// Returns true if the API server refused the write, so that only a change of something else settles it.
pub(crate) const fn is_refusal(result: &WriteResult) -> bool {
    use WriteResult::{Blocked, Forbidden, Invalid, OwnedByOther};
    matches!(result, OwnedByOther(_) | Blocked(_) | Forbidden(_) | Invalid(_))
}

/// Returns the message with `*` instead of the name and uid of the Pod, where they are whole words.
pub(crate) fn without_pod(message: &str, pod: &PodKey) -> String {
    [&*pod.uid, &*pod.name].into_iter().fold(message.to_owned(), |message, word| without(&message, word))
}

fn without(message: &str, word: &str) -> String {
    let of_word = |character: char| character.is_ascii_alphanumeric() || character == '-';
    let mut replaced = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(at) = rest.find(word).filter(|_| !word.is_empty()) {
        let before = &rest[..at];
        let after = &rest[at + word.len()..];
        let begins = !before.chars().next_back().or(replaced.chars().next_back()).is_some_and(of_word);
        let is_whole = begins && !after.chars().next().is_some_and(of_word);
        replaced.push_str(before);
        replaced.push_str(if is_whole { "*" } else { word });
        rest = after;
    }
    replaced + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(number: usize) -> PodKey {
        PodKey { namespace: "shop".into(), name: format!("web-{number}").into(), uid: format!("uid-{number}").into() }
    }

    fn messages(health: &Health) -> Vec<String> {
        health.failing(Instant::now()).into_iter().map(|failing| failing.message).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_on_many_pods_is_one_entry_until_10_minutes_after_the_last() {
        let health = Health::default();
        for number in 0..1_000 {
            let pod = pod(number);
            let now = Instant::now();
            health.failed("retry", &format!("no team of shop/{}", pod.name), &pod, number as u64 + 1_000, now);
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        let entry = Failing {
            reason: "retry".into(),
            message: "no team of shop/*".into(),
            pod: "shop/web-0".into(),
            since: "1970-01-01T00:00:01Z".into(),
            is_of_before: false,
        };
        assert_eq!(health.failing(Instant::now()), std::slice::from_ref(&entry));
        tokio::time::advance(FORGET - Duration::from_secs(2)).await;
        assert_eq!(health.failing(Instant::now()), [entry]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(health.failing(Instant::now()), []);
    }

    #[tokio::test(start_paused = true)]
    async fn a_ninth_failure_is_only_counted_until_one_is_removed() {
        let health = Health::default();
        let fail = |number: usize| health.failed("retry", &format!("of kind {number}"), &pod(1), 0, Instant::now());
        (0..100).for_each(fail);
        assert_eq!((messages(&health).len(), health.unlisted()), (8, 92));
        tokio::time::advance(FORGET / 2).await;
        (1..8).for_each(fail);
        tokio::time::advance(FORGET / 2).await;
        fail(50);
        let kept = messages(&health);
        assert_eq!((kept.len(), &*kept[0], &*kept[7]), (8, "of kind 1", "of kind 50"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_whose_messages_vary_does_not_look_healthy_in_between() {
        let health = Health::default();
        for number in 0..1_000 {
            health.failed("retry", &format!("request {number}"), &pod(1), 0, Instant::now());
            tokio::time::advance(Duration::from_secs(59)).await;
            assert_ne!(health.failing(Instant::now()), [], "{number}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn entries_of_a_host_before_are_marked_until_they_are_seen_or_removed() {
        let of_before = |message: &str| Failing {
            reason: "retry".into(),
            message: message.into(),
            pod: "shop/web-7".into(),
            since: "before".into(),
            is_of_before: false,
        };
        let health = Health::new(VersionId::default(), true);
        health.failed("retry", "no price", &pod(2), 800, Instant::now());
        health.restore(|| vec![of_before("no team"), of_before("no price")], Instant::now());
        health.restore(|| unreachable!("once only"), Instant::now());
        let of = |message: &str, is_marked| (message.to_owned(), "before".to_owned(), is_marked);
        let marked = |health: &Health| -> Vec<_> {
            health.failing(Instant::now()).into_iter().map(|of| (of.message, of.since, of.is_of_before)).collect()
        };
        assert_eq!(marked(&health), [of("no team", true), of("no price", false)]);
        health.failed("retry", "no team", &pod(1), 900, Instant::now());
        assert_eq!(marked(&health), [of("no team", false), of("no price", false)]);
        tokio::time::advance(FORGET).await;
        assert_eq!(marked(&health), []);
        Health::new(VersionId::default(), false).restore(|| unreachable!("another version ran"), Instant::now());
    }

    #[test]
    fn only_whole_words_are_the_pod() {
        let of = |name: &str, message: &str| without_pod(message, &PodKey::new("shop", name, "6b1"));
        assert_eq!(
            of("a", "pods \"a\" in shop/a: a label is bad, see a-b and ba"),
            "pods \"*\" in shop/*: * label is bad, see a-b and ba"
        );
        assert_eq!(of("a", "aaa a.a 6b1."), "aaa *.* *.");
        assert_eq!(of("web.0", "set label on shop/web.0"), "set label on shop/*");
        assert_eq!(of("", "é"), "é");
    }
}
