//! Deletions: each is delivered with the last state until it has settled or is given up.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_old_deletion_is_given_up_also_while_the_account_is_held() {
    let mut rig = rig(|_, _| report(Ok(Outcome::RequeueAfter(Duration::ZERO)), Vec::new()));
    rig.grant_labels();
    rig.publish_deletion();
    *rig.script.held.lock() = Some(Instant::now() + 2 * GIVE_UP);
    rig.add();
    assert!(matches!(rig.turn().await, Next::Postponed(_)));
    tokio::time::advance(GIVE_UP).await;
    rig.add();
    assert_eq!(rig.turn().await, Next::Settled);
    assert!(rig.dispatch.queue.is_idle() && rig.tombstones() == 0);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_given_up_during_its_job_ignores_a_held_account() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.grant_labels();
    *rig.script.held.lock() = Some(Instant::now() + GIVE_UP);
    // The Pod is not there and has no tombstone.
    rig.add();
    assert_eq!((rig.turn().await, rig.status.runs()), (Next::Settled, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_brings_the_last_state_until_it_has_settled() {
    let fail = Arc::new(AtomicBool::new(true));
    let failing = fail.clone();
    let mut rig = rig(move |request, _| {
        let Subject::Deleted(Some(last)) = &request.subject else { panic!("{:?}", request.subject) };
        assert_eq!(last.revision.0, 5);
        let failure = Failure { kind: FailureKind::Retry, message: "later".into() };
        let result = if failing.load(SeqCst) { Err(failure) } else { Ok(Outcome::Settled) };
        report(result, Vec::new())
    });
    rig.publish_deletion();
    rig.queue_planned();
    assert_eq!(rig.turn().await, Next::Failed);
    fail.store(false, SeqCst);
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!(rig.tombstones(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ends_before_the_deletion_leaves_the_last_state() {
    let hook = Arc::new(Mutex::new(None::<Box<dyn FnOnce() + Send>>));
    let reported = Arc::new(Mutex::new(Vec::new()));
    let during = hook.clone();
    let noted = reported.clone();
    let mut rig = rig(move |request, _| {
        if let Some(hook) = during.lock().take() {
            hook();
        }
        noted.lock().push(match &request.subject {
            Subject::Present(_) => "present",
            Subject::Deleted(Some(_)) => "deleted, with the last state",
            Subject::Deleted(None) => "deleted",
        });
        report(Ok(Outcome::Settled), Vec::new())
    });
    rig.writer.apply(vec![PodEvent::applied(pod(4))]);
    rig.add();
    let mut writer = rig.writer.clone();
    *hook.lock() = Some(Box::new(move || writer.apply(vec![PodEvent::deleted(pod(5))])));
    assert_eq!(rig.turn().await, Next::Settled);
    rig.queue_planned();
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!(*reported.lock(), ["present", "deleted, with the last state"]);
    assert!(rig.dispatch.queue.is_idle() && rig.tombstones() == 0);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_settled_before_it_is_queued_is_delivered_once() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.add();
    rig.publish_deletion();
    assert_eq!(rig.turn().await, Next::Settled);
    rig.queue_planned();
    assert!(rig.dispatch.queue.is_idle() && rig.tombstones() == 0 && rig.status.runs() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_never_settles_is_given_up_after_a_day() {
    let mut rig = rig(|_, _| report(Ok(Outcome::RequeueAfter(Duration::ZERO)), Vec::new()));
    rig.publish_deletion();
    rig.queue_planned();
    assert_eq!(rig.turn().await, Next::After(LEAST_REQUEUE));
    tokio::time::advance(GIVE_UP).await;
    assert_eq!(rig.turn().await, Next::Settled);
    assert!(rig.dispatch.queue.is_idle() && rig.tombstones() == 0);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_is_pending_until_its_plugin_has_settled_on_it() {
    let directory = tempfile::tempdir().unwrap();
    let (entries, opened) = entries(directory.path());
    opened.journal.failed("this test has no task that writes");
    let fail = Arc::new(AtomicBool::new(true));
    let failing = fail.clone();
    let mut rig = rig_with(Some(entries.clone()), move |request, _| {
        let failure = Failure { kind: FailureKind::Retry, message: "later".into() };
        let gone = matches!(request.subject, Subject::Deleted(_));
        report(if gone && failing.load(SeqCst) { Err(failure) } else { Ok(Outcome::Settled) }, Vec::new())
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Settled);
    assert!(entries.pending_deletions().is_empty());
    rig.writer.apply(vec![PodEvent::deleted(pod(6))]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Failed);
    assert_eq!(entries.pending_deletions(), [pod(5).key.clone()]);
    fail.store(false, SeqCst);
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!((entries.pending_deletions().len(), opened.journal.figures().entries), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_a_time_is_given_up_after_a_day() {
    let rig = rig(|request, _| {
        assert!(matches!(request.subject, Subject::Deleted(None)));
        report(Ok(Outcome::RequeueAfter(Duration::ZERO)), Vec::new())
    });
    let pending = || vec![pod(5).key.clone()];
    rig.dispatch.expectations.tombstones.queue_deletions(&rig.dispatch.queue, rig.lane, pending, Instant::now());
    assert_eq!(rig.turn().await, Next::After(LEAST_REQUEUE));
    tokio::time::advance(GIVE_UP / 2).await;
    assert_eq!(rig.turn().await, Next::After(LEAST_REQUEUE));
    tokio::time::advance(GIVE_UP / 2).await;
    assert_eq!(rig.turn().await, Next::Settled);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_left_of_deletions_and_groups_that_were_given_up() {
    let mut rig = rig(|request, _| report(Ok(Outcome::Settled), vec![label(&request)]));
    rig.script.results.lock().push_back(WriteResult::Forbidden("no patch".into()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Failed);
    let Expectations { unsettled, gates, .. } = &*rig.dispatch.expectations;
    let written = [Expectation { key: pod(5).key.clone(), shown: Shown::Revision(Revision(9)) }];
    let group = PodKey::new("shop", "label/app=web", "label/app=web");
    gates.expect(rig.lane, &written, &rig.dispatch.reader, Instant::now());
    gates.add_unseen(rig.lane, &group.uid, &written, &*rig.dispatch.reader.snapshot());
    let kept = || (unsettled.len(), gates.unseen_of(rig.lane, &group.uid).len());
    assert_eq!(kept(), (1, 1));
    let plugin = rig.dispatch.registry.get(rig.lane).unwrap();
    let given_up = vec![pod(5).key.clone(), group.clone()];
    rig.dispatch.expectations.exceeded(&plugin, Excess { states: 0, given_up });
    assert_eq!((kept(), rig.status.deletions_given_up.get()), ((0, 0), 2));
}
