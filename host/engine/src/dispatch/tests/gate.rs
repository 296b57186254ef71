//! When a plugin is run again after its own writes: once the cache shows them.

use podium_pods::{
    cache::Snapshot,
    pod::{PodView, Slice},
};
use podium_vocabulary::{Cursor, PodQuery, Scope};

use super::{super::values::Values, budget::named, *};

#[tokio::test(start_paused = true)]
async fn after_its_own_deletion_a_plugin_waits_for_the_cache() {
    let mut rig = rig(|request, _| match request.subject {
        Subject::Present(_) => {
            let target = request.key;
            report(Ok(Outcome::Settled), vec![Action::DeletePod { target, grace_seconds: None }])
        }
        Subject::Deleted(_) => report(Ok(Outcome::Settled), Vec::new()),
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.add();
    assert_eq!(rig.turn().await, Next::Settled);
    rig.add();
    // The cache lags for long, and the API server, when asked at last, says that the Pod is gone.
    for _ in 0..100 {
        assert_eq!(rig.turn().await, Next::Postponed(GATE_PAUSE));
    }
    assert!(rig.server.asked.load(SeqCst));
    rig.writer.apply(vec![PodEvent::deleted(pod(6))]);
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!((rig.script.sent.lock().len(), rig.status.runs()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_never_was_opens_the_gate_after_a_live_read() {
    let mut rig = rig(|request, _| {
        let target = request.key;
        report(Ok(Outcome::Settled), vec![Action::DeletePod { target, grace_seconds: None }])
    });
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    *rig.server.pod.lock() = Some(pod(5));
    rig.add();
    assert_eq!(rig.turn().await, Next::Settled);
    rig.add();
    while rig.turn().await != Next::Settled {}
    assert_eq!(rig.script.sent.lock().len(), 2);
}

/// The revision of the Pod of a run.
fn revision_of(request: &Request) -> u64 {
    match &request.subject {
        Subject::Present(pod) => pod.revision.0,
        Subject::Deleted(_) => 0,
    }
}

/// A rig whose plugin sets a label, and the revisions at which the plugin was run.
fn labelling_rig() -> (Rig, Arc<Mutex<Vec<u64>>>) {
    let seen = Arc::<Mutex<Vec<u64>>>::default();
    let runs = seen.clone();
    let rig = rig(move |request, _| {
        runs.lock().push(revision_of(&request));
        report(Ok(Outcome::Settled), vec![label(&request)])
    });
    (rig, seen)
}

#[tokio::test(start_paused = true)]
async fn a_deletion_seen_before_its_answer_leaves_nothing_to_wait_for() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.writer.apply(vec![PodEvent::deleted(pod(6))]);
    let dispatch = &rig.dispatch;
    let key = pod(5).key.clone();
    let expected = [Expectation { key, shown: Shown::Deletion }];
    dispatch.expectations.gates.expect(rig.lane, &expected, &dispatch.reader, Instant::now());
    assert_eq!(dispatch.expectations.gates.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_seen_to_be_gone_leaves_nothing_to_wait_for() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    let dispatch = &rig.dispatch;
    let key = pod(5).key.clone();
    let expected = [Expectation { key: key.clone(), shown: Shown::Revision(Revision(9)) }];
    dispatch.expectations.gates.expect(rig.lane, &expected, &dispatch.reader, Instant::now());
    assert_eq!(dispatch.expectations.gates.len(), 1);
    dispatch.expectations.seen_gone(&key.uid);
    assert_eq!(dispatch.expectations.gates.len(), 0);
}

/// A view that counts how often a Pod is looked up.
struct Counted<'a>(&'a Snapshot, AtomicUsize);

impl PodView for Counted<'_> {
    fn get(&self, namespace: &str, name: &str) -> Option<Arc<CachedPod>> {
        self.1.fetch_add(1, SeqCst);
        self.0.get(namespace, name)
    }
    fn by_uid(&self, uid: &str) -> Option<Arc<CachedPod>> {
        self.1.fetch_add(1, SeqCst);
        self.0.by_uid(uid)
    }
    fn search(&self, query: &PodQuery, limit: usize, most: u64, after: Option<&Cursor>) -> Slice {
        self.0.search(query, limit, most, after)
    }
    fn known_count(&self, query: &PodQuery) -> Option<u64> {
        self.0.known_count(query)
    }
    fn revision(&self) -> Revision {
        self.0.revision()
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_looked_up_twice_for_all_the_writes_to_it_that_wait() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    let dispatch = &rig.dispatch;
    let plugin = dispatch.registry.get(rig.lane).unwrap();
    let target = pod(5).key.clone();
    let other = PodKey::new("shop", "of-another-name", "another");
    let set = |at: usize| {
        let key = format!("guests.example/l{at}");
        let target = if at < 100 { target.clone() } else { other.clone() };
        let value = "1".to_owned();
        let action = match at % 2 {
            0 => Action::SetLabel { target, key, value },
            _ => Action::SetAnnotation { target, key, value },
        };
        let mut grants = Grants::default();
        grants.write.labels = vec![KeyPattern("guests.example/*".to_owned())];
        grants.write.annotations = grants.write.labels.clone();
        authorize(&Scope::Cluster, &grants, Write { id: at as u32, action }).unwrap()
    };
    let snapshot = dispatch.reader.snapshot();
    // By uid for the time that it waits, and by name for its fields.
    for (waits, sent, looked_up) in [(false, 101, 0), (true, 1, 2)] {
        if waits {
            let expected = [Expectation { key: target.clone(), shown: Shown::Revision(Revision(9)) }];
            dispatch.expectations.gates.expect(rig.lane, &expected, &dispatch.reader, Instant::now());
        }
        let view = Counted(&snapshot, AtomicUsize::new(0));
        let mut staged = Staged { writes: (0..101).map(set).collect(), ..Staged::default() };
        let now = Instant::now();
        let _ = Values::withhold(&dispatch.expectations, &plugin, &target, &view, &mut staged, now);
        assert_eq!((staged.writes.len(), view.1.into_inner()), (sent, looked_up));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_patch_a_plugin_waits_for_the_patched_revision() {
    let (mut rig, seen) = labelling_rig();
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    *rig.script.shown.lock() = Some(Shown::Revision(Revision(7)));
    rig.add();
    assert_eq!(rig.turn().await, Next::Again(LEAST_REQUEUE), "its event did not come");
    // Longer than any patience, and a revision in between that another writer made.
    *rig.server.pod.lock() = Some(pod(9));
    for turn in 0..100 {
        if turn == 50 {
            rig.writer.apply(vec![PodEvent::applied(pod(6))]);
        }
        assert_eq!(rig.turn().await, Next::Postponed(GATE_PAUSE));
    }
    rig.writer.apply(vec![PodEvent::applied(pod(7))]);
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!(*seen.lock(), [5, 7]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_fulfils_every_expectation() {
    for shown in [Shown::Revision(Revision(9)), Shown::Gone, Shown::Deletion] {
        let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
        rig.writer.apply(vec![PodEvent::applied(pod(5))]);
        let expected = [Expectation { key: pod(5).key.clone(), shown }];
        rig.dispatch.expectations.gates.expect(rig.lane, &expected, &rig.dispatch.reader, Instant::now());
        rig.add();
        assert_eq!(rig.turn().await, Next::Postponed(GATE_PAUSE));
        rig.writer.apply(vec![PodEvent::deleted(pod(6))]);
        assert_eq!(rig.turn().await, Next::Settled, "{shown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_lost_answer_a_live_read_sets_the_expectation() {
    let (mut rig, seen) = labelling_rig();
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.script.results.lock().push_back(WriteResult::Unknown);
    *rig.server.pod.lock() = Some(pod(8));
    rig.add();
    assert_eq!(rig.turn().await, Next::Failed);
    assert!(!rig.server.asked.load(SeqCst));
    // The lost write was done, as revision 8, which the cache does not have.
    for _ in 0..100 {
        assert_eq!(rig.turn().await, Next::Postponed(GATE_PAUSE));
    }
    assert!(rig.server.asked.load(SeqCst));
    rig.writer.apply(vec![PodEvent::applied(pod(8))]);
    assert_eq!(rig.turn().await, Next::Settled);
    assert_eq!(*seen.lock(), [5, 8]);
}

#[tokio::test(start_paused = true)]
async fn a_history_that_was_set_back_opens_the_gate_after_a_live_read() {
    let mut rig = rig(|request, _| report(Ok(Outcome::Settled), vec![label(&request)]));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    *rig.script.shown.lock() = Some(Shown::Revision(Revision(900)));
    *rig.server.pod.lock() = Some(pod(5));
    rig.add();
    assert_eq!(rig.turn().await, Next::Again(LEAST_REQUEUE));
    *rig.script.shown.lock() = None;
    while rig.turn().await != Next::Settled {}
    assert_eq!(rig.status.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changed_nothing_settles_after_a_list() {
    let mut rig = rig(|request, _| report(Ok(Outcome::Settled), vec![label(&request)]));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    rig.dispatch.expectations.seen.listed(Revision(1_000));
    rig.dispatch.expectations.seen.up_to(Revision(1_000));
    *rig.script.shown.lock() = Some(Shown::Revision(Revision(5)));
    rig.add();
    assert_eq!(rig.turn().await, Next::Settled);
}

#[tokio::test(start_paused = true)]
async fn a_delivery_that_sees_its_writes_leaves_nothing_to_wait_for() {
    let (mut rig, _) = labelling_rig();
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    *rig.script.shown.lock() = Some(Shown::Revision(Revision(7)));
    rig.add();
    let mut turn = Box::pin(rig.dispatch.queue.next().now_or_never().flatten().map(|job| rig.finish(job)).unwrap());
    assert!(turn.as_mut().now_or_never().is_none());
    rig.writer.clone().apply(vec![PodEvent::applied(pod(7))]);
    assert_eq!(turn.await, Next::Settled);
    assert_eq!(rig.dispatch.expectations.gates.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn writes_to_a_pod_without_runs_do_not_wait_for_a_lost_history() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    rig.writer.apply(vec![PodEvent::applied(pod(5))]);
    let gates = &rig.dispatch.expectations.gates;
    let reader = &rig.dispatch.reader;
    let expect = |revision| {
        let expected = [Expectation { key: pod(5).key.clone(), shown: Shown::Revision(Revision(revision)) }];
        gates.expect(rig.lane, &expected, reader, Instant::now());
    };
    let unseen = || gates.unseen(rig.lane, "u1", &*reader.snapshot(), Instant::now());
    expect(900);
    let start = Instant::now();
    let mut runs = 0;
    while let Some(pause) = unseen().filter(|_| runs < 20) {
        tokio::time::advance(pause).await;
        runs += 1;
    }
    assert_eq!((start.elapsed(), runs), (Duration::from_secs(5), 6));
    // The answer to the write is of the present history.
    expect(6);
    assert!(unseen().is_some());
    rig.writer.clone().apply(vec![PodEvent::applied(pod(6))]);
    assert_eq!(unseen(), None);
}

#[tokio::test(start_paused = true)]
async fn after_a_commit_the_run_sees_its_own_write() {
    for (result, shown) in
        [(WriteResult::Applied, Shown::Revision(Revision(7))), (WriteResult::Unknown, Shown::Unknown)]
    {
        let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
        rig.writer.apply(vec![PodEvent::applied(pod(5))]);
        rig.script.results.lock().push_back(result);
        *rig.script.shown.lock() = Some(shown);
        *rig.server.pod.lock() = Some(pod(7));
        let dispatch = rig.dispatch.clone();
        let key = pod(5).key.clone();
        rig.add();
        let job = dispatch.queue.next().await.unwrap();
        let plugin = dispatch.registry.get(rig.lane).unwrap();
        let snapshot = dispatch.reader.snapshot();
        let writes = Arc::new(RunWrites::new(&Subject::Deleted(None), 0));
        let mut world = RunWorld::new(dispatch, plugin, key.clone(), job, snapshot, writes);
        let action = Action::SetLabel { target: key, key: "team".into(), value: "web".into() };
        let mut commit = Box::pin(world.commit(report(Ok(Outcome::Settled), vec![action]).staged));
        assert!(commit.as_mut().now_or_never().is_none(), "{shown:?}");
        rig.writer.apply(vec![PodEvent::applied(pod(7))]);
        commit.await;
        assert_eq!(world.view().by_uid("u1").unwrap().revision, Revision(7), "{shown:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unreadable_live_reads_become_rare_and_the_gate_stays_closed() {
    // A lost answer, which only a live read resolves; a revision, which the cache may show any time.
    for (shown, turns_at_most) in [(Shown::Unknown, 330), (Shown::Revision(Revision(7)), 12_000)] {
        let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
        rig.writer.apply(vec![PodEvent::applied(pod(5))]);
        rig.server.broken.store(true, SeqCst);
        let expected = [Expectation { key: pod(5).key.clone(), shown }];
        rig.dispatch.expectations.gates.expect(rig.lane, &expected, &rig.dispatch.reader, Instant::now());
        rig.add();
        let start = Instant::now();
        let mut turns = 0;
        while start.elapsed() < Duration::from_secs(24 * 3_600) {
            assert!(matches!(rig.turn().await, Next::Postponed(_)));
            turns += 1;
        }
        let reads = rig.server.reads.load(SeqCst);
        assert!(reads < 310 && turns < turns_at_most, "{shown:?}: {reads} reads and {turns} turns in a day");
        // An event does not bring a read forward, and one that can be read opens the gate.
        rig.add();
        assert!(matches!(rig.turn().await, Next::Postponed(_)));
        assert_eq!(rig.server.reads.load(SeqCst), reads);
        rig.server.broken.store(false, SeqCst);
        *rig.server.pod.lock() = Some(pod(5));
        let start = Instant::now();
        while rig.turn().await != Next::Settled {}
        assert!(start.elapsed() <= Duration::from_secs(310), "{shown:?}");
        // A Pod that goes is not waited for.
        rig.dispatch.expectations.gates.expect(rig.lane, &expected, &rig.dispatch.reader, Instant::now());
        rig.writer.apply(vec![PodEvent::deleted(pod(6))]);
        rig.add();
        assert_eq!(rig.turn().await, Next::Settled);
    }
}

#[tokio::test(start_paused = true)]
async fn forgetting_a_plugin_looks_at_no_expectations_of_others() {
    let mut rig = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
    let pods: Vec<_> = (0..5_000).map(|at| named(&format!("cart-{at}"), at + 1)).collect();
    rig.writer.apply(pods.iter().cloned().map(PodEvent::applied).collect());
    let Dispatch { expectations, reader, .. } = &*rig.dispatch;
    let shown = Shown::Revision(Revision(10_000));
    let expected: Vec<_> = pods.iter().map(|pod| Expectation { key: pod.key.clone(), shown }).collect();
    expectations.gates.expect(rig.lane, &expected, reader, Instant::now());
    let other = Lane(9_999);
    expectations.gates.expect(other, &expected[..10], reader, Instant::now());
    let timed = |work: &dyn Fn()| {
        let times = (0..3).map(|_| {
            let began = std::time::Instant::now();
            work();
            began.elapsed()
        });
        times.min().unwrap()
    };
    // A comparison on this machine at this moment: the forbidden work is 2,000 looks at each expectation.
    let each = timed(&|| pods.iter().for_each(|pod| _ = expectations.gates.written(rig.lane, &pod.key.uid)));
    let took = timed(&|| (5_000..7_000).for_each(|lane| expectations.gates.forget_lane(Lane(lane))));
    assert!(took < 20 * each, "{took:?} for 2,000 plugins without expectations, {each:?} for a look at each");
    let gate = |lane, at: usize| expectations.gates.gate(lane, &pods[at].key, &*reader.snapshot(), Instant::now());
    assert_eq!((gate(other, 3), gate(rig.lane, 3)), (Gate::Wait, Gate::Wait));
    expectations.gates.forget_lane(other);
    assert_eq!((gate(other, 3), gate(rig.lane, 3)), (Gate::Open, Gate::Wait));
    expectations.gates.forget_lane(rig.lane);
    assert_eq!((gate(rig.lane, 3), expectations.gates.len()), (Gate::Open, 0));
}

#[tokio::test(start_paused = true)]
async fn an_event_is_lost_when_the_watch_has_later_ones() {
    let (mut rig, _) = labelling_rig();
    let lost = rig.dispatch.expectations.seen.lost();
    let at = |revision: u64| *lost.borrow() == (if revision > 0 { "u1" } else { "" }.into(), Revision(revision));
    rig.writer.apply(vec![PodEvent::applied(pod(5)), PodEvent::applied(named("other", 6))]);
    *rig.script.shown.lock() = Some(Shown::Revision(Revision(7)));
    rig.add();
    // Its event may still come.
    assert_eq!(rig.turn().await, Next::Again(LEAST_REQUEUE));
    assert_eq!(rig.turn().await, Next::Postponed(GATE_PAUSE));
    assert!(at(0));
    rig.writer.apply(vec![PodEvent::applied(named("other", 8))]);
    assert_eq!(rig.turn().await, Next::Postponed(GATE_PAUSE));
    assert!(at(8));
    rig.writer.apply(vec![PodEvent::applied(pod(9))]);
    // The delivery itself finds that the event of its write is passed.
    *rig.script.shown.lock() = Some(Shown::Revision(Revision(10)));
    let writer = rig.writer.clone();
    let times = AtomicUsize::new(0);
    *rig.script.sending.lock() = Some(Box::new(move || {
        if times.fetch_add(1, SeqCst) == 0 {
            writer.clone().apply(vec![PodEvent::applied(named("other", 11))]);
        }
    }));
    assert_eq!(rig.turn().await, Next::Again(LEAST_REQUEUE));
    assert!(at(11));
}
