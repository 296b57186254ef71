//! Failures of runs and writes, as the status of the plugin lists them.

use futures::FutureExt;

use super::*;
use crate::status::VersionId;

impl Rig {
    /// The reasons and messages that are listed.
    fn failing(&self) -> Vec<(String, String)> {
        let failing = self.status.health().failing(Instant::now());
        failing.into_iter().map(|of| (of.reason, of.message)).collect()
    }

    /// Runs the key once for each of these results of its write. Returns how many failures are listed after each.
    async fn attempts(&mut self, results: &[WriteResult]) -> Vec<usize> {
        self.script.results.lock().extend(results.iter().cloned());
        self.add();
        let mut listed = Vec::new();
        for _ in results {
            self.turn().await;
            listed.push(self.failing().len());
        }
        listed
    }
}

fn writing() -> Rig {
    let mut rig = rig(|request, _| report(Ok(Outcome::Settled), vec![label(&request)]));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_is_a_failure_when_two_more_attempts_do_not_settle_it() {
    use WriteResult::{Blocked, Conflict, Forbidden, Invalid, NotSent, OwnedByOther};
    for refused in [Blocked, Forbidden, Invalid, OwnedByOther].map(|refused| refused("pods \"cart-0\"".into())) {
        let mut rig = writing();
        let name = refused.name().to_owned();
        assert_eq!(
            rig.attempts(&[refused.clone(), refused.clone(), refused.clone(), refused.clone()]).await,
            [0, 0, 1, 1]
        );
        assert_eq!(rig.failing(), [(name, "set label team=web on shop/*: pods \"*\"".to_owned())]);
        // Attempts that the host held back, or that conflicted, did not settle it either.
        assert_eq!(writing().attempts(&[refused.clone(), NotSent, Conflict, refused]).await, [0, 0, 0, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_settles_or_that_the_host_held_back_is_none() {
    use WriteResult::{Applied, Blocked, Conflict, Forbidden, NotSent};
    let refused = || Forbidden("no".into());
    assert_eq!(writing().attempts(&[refused(), refused(), Applied]).await, [0; 3]);
    assert_eq!(
        writing().attempts(&[NotSent, Conflict, Conflict, NotSent, refused(), Blocked("no".into())]).await,
        [0; 6]
    );
    let mut rig = writing();
    assert_eq!(rig.attempts(&[refused(), refused(), Applied]).await, [0; 3]);
    assert_eq!(rig.attempts(&[refused(), refused(), Applied]).await, [0; 3], "attempts are counted from the first");
}

/// Commits a write, stages it again, or not, and ends with the next of these results.
fn committing(stages: bool, results: Vec<Result<Outcome, Failure>>) -> Rig {
    let results = Mutex::new(results.into_iter().cycle());
    let mut rig = rig(move |request, mut world| {
        let committed = report(Ok(Outcome::Settled), vec![label(&request)]).staged;
        assert_eq!(world.commit(committed).now_or_never().unwrap().len(), 1);
        let staged = if stages { vec![label(&request)] } else { Vec::new() };
        report(results.lock().next().unwrap(), staged)
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig
}

fn failure(message: &str) -> Failure {
    Failure { kind: FailureKind::Retry, message: message.into() }
}

#[tokio::test(start_paused = true)]
async fn a_refused_write_of_a_commit_is_a_failure_as_any_other() {
    use WriteResult::{Applied, Conflict, Forbidden};
    let refused = || Forbidden("no".into());
    let again = || vec![Ok(Outcome::RequeueAfter(Duration::from_secs(1)))];
    let mut rig = committing(false, again());
    assert_eq!(rig.attempts(&[refused(), refused(), refused()]).await, [0, 0, 1]);
    assert_eq!(rig.failing(), [("forbidden".to_owned(), "set label team=web on shop/*: no".to_owned())]);
    assert_eq!(committing(false, again()).attempts(&[refused(), Applied, refused(), refused()]).await, [0; 4]);
    // The run that follows an error is an attempt of the same write.
    let fails = || vec![Err(failure("no team"))];
    assert_eq!(committing(false, fails()).attempts(&[refused(), refused(), refused()]).await, [1, 1, 2]);
    // No attempt follows that could settle it.
    for last in [Ok(Outcome::Settled), Ok(Outcome::Stop)] {
        assert_eq!(committing(false, vec![last]).attempts(&[refused()]).await, [1]);
    }
    assert_eq!(committing(false, vec![Ok(Outcome::Settled)]).attempts(&[Conflict]).await, [0]);
    // The run settles it itself.
    let rig = committing(true, vec![Ok(Outcome::Settled)]);
    rig.script.results.lock().extend([refused(), Applied]);
    rig.add();
    rig.turn().await;
    assert_eq!(rig.failing(), []);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_fail_by_themselves_are_attempts_of_a_refused_write() {
    let runs = AtomicUsize::new(0);
    let mut rig = rig(move |request, _| match runs.fetch_add(1, SeqCst) % 2 {
        0 => report(Ok(Outcome::Settled), vec![label(&request)]),
        _ => report(Err(failure("no team")), Vec::new()),
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.script.results.lock().extend([(); 2].map(|()| WriteResult::Forbidden("no".into())));
    rig.add();
    let mut listed = Vec::new();
    for _ in 0..3 {
        rig.turn().await;
        listed.push(rig.failing().len());
    }
    assert_eq!(listed, [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn each_run_that_fails_is_a_failure_unless_it_was_revoked() {
    for kind in FailureKind::ALL {
        let message = |request: &Request| format!("no team of {}", request.key.name);
        let mut rig = rig(move |request, _| report(Err(Failure { kind, message: message(&request) }), Vec::new()));
        rig.writer.apply(vec![PodEvent::applied(pod(5))]);
        rig.add();
        rig.turn().await;
        let expected = (kind != FailureKind::Revoked).then(|| (kind.name().to_owned(), "no team of *".to_owned()));
        assert_eq!(rig.failing(), expected.into_iter().collect::<Vec<_>>());
    }
}

#[tokio::test(start_paused = true)]
async fn another_component_or_object_has_no_failure_of_the_one_before() {
    let version = |uid: &str, sha256: &str| VersionId { uid: uid.into(), sha256: sha256.into() };
    let failure = Failure { kind: FailureKind::Retry, message: "no team".into() };
    let mut rig = rig(move |_, _| report(Err(failure.clone()), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    for (other, is_new) in [("a", true), ("a", false), ("b", true)] {
        rig.status.installed(version("u1", other));
        assert_eq!(rig.failing().is_empty(), is_new);
        rig.grant_labels();
        rig.add();
        rig.turn().await;
        assert_eq!(rig.failing().len(), 1);
    }
    // Its last run ends after the next version was installed.
    rig.status.installed(version("u2", "b"));
    rig.turn().await;
    assert_eq!(rig.failing(), []);
}
