//! The trial of a new version: its first runs decide whether the version before comes back.
//!
//! A probe sees a few Pods and ends at the first commit, so it does not find each failure. A version that replaced
//! another one therefore has a trial of [`TRIAL_RUNS`] runs and at most [`TRIAL_TIME`].

use std::time::Duration;

use parking_lot::Mutex;
use podium_sync::watch;
use podium_vocabulary::PodKey;
use tokio::time::{Instant, timeout_at};

use super::LoadedPlugin;
use crate::ports::{Failure, Outcome};

/// The most runs of a trial.
pub const TRIAL_RUNS: u32 = 20;
/// The longest time of a trial.
pub const TRIAL_TIME: Duration = Duration::from_secs(60);

/// The runs of one version, as far as a trial needs them: that of the version itself, or of the next one.
#[derive(Debug, Clone, Default)]
struct Record {
    /// At most [`TRIAL_RUNS`].
    runs: u32,
    /// The first failure among these runs in which the code did not return.
    panic: Option<String>,
    /// The latest runs, one bit each, the newest lowest; 1 if the code did not return.
    latest: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Pending,
    Passed,
    Failed(String),
}

impl Record {
    fn ran(&mut self, panic: Option<String>) {
        self.latest = (self.latest << 1) | u32::from(panic.is_some());
        if self.runs < TRIAL_RUNS {
            self.runs += 1;
            self.panic = self.panic.take().or(panic);
        }
    }

    /// Returns true if the code did not return in one of the latest [`TRIAL_RUNS`] runs.
    fn panicked_lately(&self) -> bool {
        self.latest & ((1 << TRIAL_RUNS) - 1) != 0
    }

    /// Decides about this version. If the version before panicked too, going back would not help.
    fn verdict(&self, is_over: bool, before: &Self) -> Verdict {
        match &self.panic {
            _ if before.panicked_lately() => Verdict::Passed,
            Some(panic) => Verdict::Failed(panic.clone()),
            None if is_over || self.runs >= TRIAL_RUNS => Verdict::Passed,
            None => Verdict::Pending,
        }
    }
}

/// The [`Record`] of a version, and a signal when it changes.
#[derive(Debug)]
pub(super) struct Runs {
    record: Mutex<Record>,
    sender: watch::Sender<()>,
    receiver: watch::Receiver<()>,
}

impl Default for Runs {
    fn default() -> Self {
        let (sender, receiver) = watch::channel(());
        Self { record: Mutex::default(), sender, receiver }
    }
}

impl Runs {
    /// Records the end of a run on a Pod.
    pub(super) fn ended(&self, result: &Result<Outcome, Failure>, pod: &PodKey) {
        let panic = result.as_ref().err().filter(|failure| failure.kind.is_panic());
        let panic = panic.map(|Failure { kind, message }| {
            format!("on pod {}/{}, reason {}: {message}", pod.namespace, pod.name, kind.name())
        });
        let mut record = self.record.lock();
        let in_trial = record.runs < TRIAL_RUNS;
        record.ran(panic);
        drop(record);
        if in_trial {
            self.sender.send_replace(());
        }
    }
}

impl LoadedPlugin {
    /// Waits until the trial of this version is over.
    ///
    /// # Errors
    /// Returns the failure of a run that trapped or exceeded a limit, if no recent run of the version `before` did.
    pub async fn trial(&self, before: &Self) -> Result<(), String> {
        let end = Instant::now() + TRIAL_TIME;
        let mut changed = self.runs.receiver.clone();
        let mut is_over = false;
        loop {
            let record = self.runs.record.lock().clone();
            let verdict = record.verdict(is_over, &before.runs.record.lock());
            match verdict {
                Verdict::Pending => is_over = timeout_at(end, changed.changed()).await.is_err(),
                Verdict::Passed => return Ok(()),
                Verdict::Failed(failure) => return Err(failure),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(panics: &[bool]) -> Record {
        let mut record = Record::default();
        panics.iter().enumerate().for_each(|(at, panics)| record.ran(panics.then(|| at.to_string())));
        record
    }

    #[test]
    fn a_trial_ends_with_its_first_panic_its_last_run_or_its_time() {
        let good = Record::default();
        let verdict = |panics: &[bool], is_over| record(panics).verdict(is_over, &good);
        assert_eq!(verdict(&[], false), Verdict::Pending);
        assert_eq!(verdict(&[], true), Verdict::Passed);
        assert_eq!(verdict(&[false; 19], false), Verdict::Pending);
        assert_eq!(verdict(&[false; 20], false), Verdict::Passed);
        let mut last = [false; 20];
        last[19] = true;
        assert_eq!(verdict(&last, false), Verdict::Failed("19".to_owned()));
        assert_eq!(verdict(&[false, true, true], true), Verdict::Failed("1".to_owned()), "the first one");
        let later = [[false; 20].as_slice(), &[true]].concat();
        assert_eq!(verdict(&later, false), Verdict::Passed, "after the trial");
    }

    #[test]
    fn a_version_is_kept_if_the_one_before_panicked_lately_too() {
        let bad = record(&[true]);
        assert_eq!(bad.verdict(false, &record(&[true])), Verdict::Passed);
        let within = [[true].as_slice(), &[false; 19]].concat();
        assert_eq!(bad.verdict(false, &record(&within)), Verdict::Passed);
        let long_ago = [[true].as_slice(), &[false; 20]].concat();
        assert!(matches!(bad.verdict(false, &record(&long_ago)), Verdict::Failed(_)));
    }
}
