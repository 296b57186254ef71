//! Loops and fights, with a fake world that applies sent values to its Pods and wakes every plugin; and controllers
//! that must not be slowed.

use std::{collections::BTreeMap, sync::Weak};

use podium_pods::pod::Record;
use podium_vocabulary::authz::Authorized;

use super::{
    super::breaker::{Field, HeldPod},
    *,
};

/// The Pods that the API server has, and the plugins that their changes wake.
pub(super) struct Stage {
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) server: Arc<Applying>,
    pub(super) lanes: Vec<Lane>,
}

/// Applies labels and annotations, publishes the change and queues the keys of all plugins.
pub(super) struct Applying {
    this: Weak<Self>,
    pub(super) pods: Mutex<BTreeMap<String, podium_wire::Pod>>,
    writer: Mutex<cache::Writer>,
    revision: AtomicUsize,
    queue: Arc<PodQueue>,
    expectations: Arc<Expectations>,
    pub(super) lanes: Mutex<Vec<Lane>>,
    /// When each write was applied, with the plugin's manager.
    applied: Mutex<Vec<(Instant, String, String)>>,
    events: Mutex<Vec<String>>,
    /// Writes whose description contains this are refused.
    pub(super) refuses: Mutex<Option<&'static str>>,
    /// How long after the response the event of a write comes. `None`: within the delivery, before its response.
    pub(super) late: Mutex<Option<Duration>>,
    /// The plugin of each run on a Pod that is present, by its place in [`Stage::lanes`].
    pub(super) ran: Mutex<Vec<usize>>,
}

impl Applying {
    pub(super) fn publish(&self, pod: &mut podium_wire::Pod) {
        let pod = self.changed(pod);
        self.observe(pod);
    }

    /// Returns the Pod with a new revision.
    fn changed(&self, pod: &mut podium_wire::Pod) -> Arc<CachedPod> {
        pod.header.resource_version = (self.revision.fetch_add(1, SeqCst) + 10).to_string();
        Arc::new(CachedPod::new(pod).unwrap())
    }

    /// Does the part of the ingest loop.
    fn observe(&self, pod: Arc<CachedPod>) {
        let revision = pod.revision;
        let lanes = self.lanes.lock().clone();
        let plan = {
            let mut writer = self.writer.lock();
            let update = writer.apply(vec![PodEvent::applied(pod)]);
            let tombstones = &self.expectations.tombstones;
            let plan =
                tombstones.plan(&self.queue, update.changes(), |_| lanes.clone(), |_| lanes.clone(), Instant::now());
            update.publish();
            plan
        };
        self.expectations.queue(&self.queue, plan);
        self.expectations.seen.up_to(revision);
    }

    fn write(&self, action: &Action, view: &dyn PodView, sent: &mut Sent) -> WriteResult {
        let (field, value) = Field::changed_by(action);
        if !HeldPod::new(view, action.pod().unwrap()).would_change(&field, value) {
            return WriteResult::Unchanged;
        }
        if self.refuses.lock().is_some_and(|text| action.describe().contains(text)) {
            return WriteResult::Invalid("no".into());
        }
        let mut pods = self.pods.lock();
        let Some(pod) = action.pod().and_then(|key| pods.get_mut(&*key.name)) else { return WriteResult::Gone };
        let before = pod.clone();
        match action {
            Action::SetLabel { key, value, .. } => _ = pod.labels.insert(key.clone(), value.clone()),
            Action::SetAnnotation { key, value, .. } => _ = pod.annotations.insert(key.clone(), value.clone()),
            Action::AddFinalizer { name, .. } => pod.lifecycle.finalizers.push(name.clone()),
            Action::RemoveFinalizer { name, .. } => pod.lifecycle.finalizers.retain(|held| held != name),
            other => panic!("{other:?}"),
        }
        if *pod == before {
            return WriteResult::Unchanged;
        }
        let pod = self.changed(pod);
        sent.expected.push(Expectation { key: pod.key.clone(), shown: Shown::Revision(pod.revision) });
        match *self.late.lock() {
            None => self.observe(pod),
            Some(late) => {
                let server = self.this.upgrade().unwrap();
                tokio::spawn(async move {
                    tokio::time::sleep(late).await;
                    server.observe(pod);
                });
            }
        }
        WriteResult::Applied
    }
}

impl Deliver for Applying {
    fn deliver<'a>(
        &'a self,
        sender: &'a Sender,
        _: &'a PodKey,
        view: &'a dyn PodView,
        staged: Staged,
        _: u64,
    ) -> BoxFuture<'a, Sent> {
        Box::pin(async move {
            // A request takes a while.
            tokio::time::sleep(Duration::from_millis(2)).await;
            let mut sent = Sent::default();
            for write in staged.writes.into_iter().map(Authorized::into_inner) {
                let result = self.write(&write.action, view, &mut sent);
                let description = write.action.describe();
                if result == WriteResult::Applied {
                    sent.requests += 1;
                    self.applied.lock().push((Instant::now(), sender.manager.clone(), description.clone()));
                }
                sent.reports.push(WriteReport { id: write.id, description, result });
            }
            let notes = staged.events.into_iter().map(|event| event.into_inner().note);
            self.events.lock().extend(notes);
            sent
        })
    }

    fn held(&self, _: &Sender) -> Option<Duration> {
        None
    }
}

pub(super) type Code = fn(&Request, &podium_wire::Pod) -> (Result<Outcome, Failure>, Vec<Action>);

impl Stage {
    /// Returns a stage with workers, on which these plugins run on these Pods.
    pub(super) fn new(pods: usize, plugins: &[(&str, Code)]) -> Self {
        let base = rig(|_, _| report(Ok(Outcome::Settled), Vec::new()));
        let Ingested { writer, .. } = base.writer;
        let registry = Arc::new(Registry::default());
        let queue: Arc<PodQueue> = Arc::new(Queue::new(Backoff::default(), 4, 1));
        let expectations = Arc::<Expectations>::default();
        let server = Arc::new_cyclic(|this| Applying {
            this: this.clone(),
            pods: Mutex::default(),
            writer: Mutex::new(Arc::into_inner(writer).unwrap().into_inner()),
            revision: AtomicUsize::default(),
            queue: queue.clone(),
            expectations: expectations.clone(),
            lanes: Mutex::default(),
            applied: Mutex::default(),
            events: Mutex::default(),
            refuses: Mutex::default(),
            late: Mutex::default(),
            ran: Mutex::default(),
        });
        let dispatch = Arc::new(Dispatch {
            queue,
            registry,
            expectations,
            reader: base.dispatch.reader.clone(),
            deliver: server.clone(),
            live: Arc::new(Nowhere),
            tasks: Arc::new(Spawned),
            clock: Clock::starting_at(1_000),
            seed: 1,
            traces: None,
        });
        let mut stage = Self { dispatch, server, lanes: Vec::new() };
        for (name, code) in plugins {
            stage.load(name, *code);
        }
        *stage.server.lanes.lock() = stage.lanes.clone();
        for index in 0..pods {
            let mut pod = podium_wire::Pod::default();
            pod.header.namespace = "shop".into();
            pod.header.name = format!("cart-{index}");
            pod.header.uid = format!("u{index}");
            stage.server.publish(&mut pod);
            stage.server.pods.lock().insert(pod.header.name.clone(), pod);
        }
        for _ in 0..4 {
            tokio::spawn(stage.dispatch.clone().work());
        }
        stage
    }

    fn load(&mut self, name: &str, code: Code) {
        self.load_with(testing::plugin(Some("shop"), name), code);
    }

    pub(super) fn load_with(&mut self, mut spec: PluginSpec, code: Code) {
        spec.grants.write.events = true;
        let scope = spec.scope();
        let server = self.server.clone();
        let index = self.lanes.len();
        let run = move |request: Request, _: Box<dyn World>| {
            let Subject::Present(pod) = &request.subject else { return report(Ok(Outcome::Settled), Vec::new()) };
            server.ran.lock().push(index);
            let pod = podium_wire::Pod {
                labels: pod.labels().unwrap(),
                annotations: pod.annotations().unwrap(),
                lifecycle: pod.lifecycle().unwrap(),
                ..podium_wire::Pod::default()
            };
            let (result, actions) = code(&request, &pod);
            let mut grants = Grants::default();
            let keys = || vec![KeyPattern("shop.example/*".into())];
            grants.write.labels = keys();
            grants.write.annotations = keys();
            grants.write.finalizers = keys();
            let writes =
                (0..).zip(actions).map(|(id, action)| authorize(&scope, &grants, Write { id, action }).unwrap());
            RunReport {
                result,
                staged: Staged { writes: writes.collect(), ..Staged::default() },
                usage: Usage::default(),
            }
        };
        let sender = Sender { manager: format!("podium/shop/{}", spec.id.name), impersonate: None };
        let status = Arc::new(PluginStatus::default());
        self.lanes.push(self.dispatch.registry.put(spec, Arc::new(Closure(Box::new(run))), sender, status, None, None));
    }

    /// Returns how many writes were applied within the next seconds.
    pub(super) async fn applied_within(&self, seconds: u64) -> usize {
        let before = self.server.applied.lock().len();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.server.applied.lock().len() - before
    }

    pub(super) fn status(&self, index: usize) -> Arc<PluginStatus> {
        self.dispatch.registry.get(self.lanes[index]).unwrap().status.clone()
    }

    fn loops(&self, index: usize) -> Vec<String> {
        let loops = self.status(index).loops();
        loops.into_iter().map(|((field, by), count)| format!("{count} {field} {by}")).collect()
    }
}

const KEY: &str = "shop.example/step";

pub(super) fn set(request: &Request, key: &str, value: impl ToString) -> Action {
    Action::SetLabel { target: request.key.clone(), key: key.into(), value: value.to_string() }
}

pub(super) fn number(pod: &podium_wire::Pod, key: &str) -> u64 {
    pod.labels.get(key).and_then(|value| value.parse().ok()).unwrap_or_default()
}

/// Increments a number in one label at each run.
fn counter(request: &Request, pod: &podium_wire::Pod) -> (Result<Outcome, Failure>, Vec<Action>) {
    (Ok(Outcome::Settled), vec![set(request, KEY, number(pod, KEY) + 1)])
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_wakes_itself_is_slowed_and_reported_once() {
    let stage = Stage::new(1, &[("a", counter)]);
    assert_eq!(stage.applied_within(62).await, 16, "11, and then after 1, 2, 4, 8 and 16 s");
    assert_eq!(stage.applied_within(600).await, 10, "after 32 s, and then once a minute");
    assert_eq!(stage.loops(0), ["1 label the plugin itself"]);
    let note = "shop/a changed Pod shop/cart-0 more than 10 times within a minute, most often label shop.example/step, \
                whose other values are from the plugin itself. Further changes wait 1 s to 1 min.";
    assert_eq!(*stage.server.events.lock(), [note]);
    assert!(stage.status(0).runs() < 60, "{} runs: the key waits too", stage.status(0).runs());
}

#[tokio::test(start_paused = true)]
async fn two_plugins_that_undo_each_other_are_slowed_and_named() {
    let a: Code = |request, _| (Ok(Outcome::Settled), vec![set(request, KEY, "a")]);
    let b: Code = |request, _| (Ok(Outcome::Settled), vec![set(request, KEY, "b")]);
    let stage = Stage::new(1, &[("a", a), ("b", b)]);
    let first = stage.applied_within(62).await;
    assert!(first <= 34, "{first} values in the first minute");
    let later = stage.applied_within(600).await;
    assert!(later <= 24, "{later} values in ten minutes");
    assert_eq!(
        (stage.loops(0), stage.loops(1)),
        (vec!["1 label shop/b".to_owned()], vec!["1 label shop/a".to_owned()])
    );
    assert!(stage.status(0).runs() < 120, "{} runs", stage.status(0).runs());
}

/// Keeps one label at the value of another, or one above it.
fn step(
    request: &Request,
    pod: &podium_wire::Pod,
    from: &str,
    to: &str,
    by: u64,
) -> (Result<Outcome, Failure>, Vec<Action>) {
    let value = number(pod, from) + by;
    let writes = if number(pod, to) < value { vec![set(request, to, value)] } else { Vec::new() };
    (Ok(Outcome::Settled), writes)
}

#[tokio::test(start_paused = true)]
async fn a_cycle_of_three_plugins_is_slowed_whatever_fields_they_write() {
    let a: Code = |request, pod| step(request, pod, "shop.example/c", "shop.example/a", 1);
    let b: Code = |request, pod| step(request, pod, "shop.example/a", "shop.example/b", 0);
    let c: Code = |request, pod| step(request, pod, "shop.example/b", "shop.example/c", 0);
    let stage = Stage::new(1, &[("a", a), ("b", b), ("c", c)]);
    let first = stage.applied_within(62).await;
    assert!((30..=51).contains(&first), "{first} values in the first minute");
    let later = stage.applied_within(600).await;
    assert!((10..=36).contains(&later), "{later} values in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_fight_with_an_unknown_client_is_slowed() {
    let mine: Code = |request, _| (Ok(Outcome::Settled), vec![set(request, KEY, "mine")]);
    let stage = Stage::new(1, &[("a", mine)]);
    let server = stage.server.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let mut pods = server.pods.lock();
            let pod = pods.get_mut("cart-0").unwrap();
            pod.labels.insert(KEY.into(), "theirs".into());
            server.publish(pod);
        }
    });
    let first = stage.applied_within(62).await;
    assert!((11..=17).contains(&first), "{first} values in the first minute");
    assert!(stage.applied_within(600).await <= 12);
    assert_eq!(stage.loops(0), ["1 label another manager"]);
}

#[tokio::test(start_paused = true)]
async fn other_pods_of_a_plugin_in_a_loop_go_on() {
    // Cart 0 is in a loop; all Pods follow an annotation that another client sets.
    let code: Code = |request, pod| {
        let asked = pod.annotations.get("asked").cloned().unwrap_or_default();
        let mut writes = Vec::new();
        if request.key.name.as_ref() == "cart-0" {
            writes.push(set(request, KEY, number(pod, KEY) + 1));
        }
        if !asked.is_empty() {
            writes.push(set(request, "shop.example/answer", asked));
        }
        (Ok(Outcome::Settled), writes)
    };
    let stage = Stage::new(2, &[("a", code)]);
    stage.applied_within(120).await;
    for (name, least, most) in [("cart-0", 0, 60), ("cart-1", 0, 0)] {
        let asked = Instant::now();
        {
            let mut pods = stage.server.pods.lock();
            let pod = pods.get_mut(name).unwrap();
            pod.annotations.insert("asked".into(), "now".into());
            stage.server.publish(pod);
        }
        tokio::time::sleep(Duration::from_secs(61)).await;
        let applied = stage.server.applied.lock();
        let answer = applied.iter().rfind(|(_, _, write)| write.contains("answer=now") && write.contains(name));
        let after = answer.map(|(at, ..)| (*at - asked).as_secs());
        assert!(after.is_some_and(|after| (least..=most).contains(&after)), "{name}: {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn twelve_labels_in_one_delivery_are_one_change() {
    let code: Code = |request, _| {
        let labels = (0..12).map(|index| set(request, &format!("shop.example/{index}"), 1));
        (Ok(Outcome::Settled), labels.collect())
    };
    let stage = Stage::new(1, &[("a", code)]);
    assert_eq!(stage.applied_within(1).await, 12);
    assert_eq!((stage.loops(0).len(), stage.status(0).writes_withheld.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn runs_on_many_pods_may_each_write_to_one_of_them() {
    let code: Code = |request, _| {
        let target = PodKey::new("shop", "cart-0", "u0");
        let key = format!("shop.example/{}", request.key.name);
        let value = "seen".to_owned();
        (Ok(Outcome::Settled), vec![Action::SetAnnotation { target, key, value }])
    };
    let stage = Stage::new(30, &[("a", code)]);
    assert_eq!(stage.applied_within(1).await, 30);
    assert_eq!((stage.loops(0).len(), stage.status(0).writes_withheld.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_loop_does_not_hold_back_the_removal_of_a_finalizer() {
    const NAME: &str = "shop.example/cleanup";
    let code: Code = |request, pod| {
        let target = request.key.clone();
        let name = NAME.to_owned();
        let mut writes = vec![set(request, KEY, number(pod, KEY) + 1)];
        if pod.lifecycle.deletion_timestamp.is_some() {
            writes.push(Action::RemoveFinalizer { target, name });
        } else if pod.lifecycle.finalizers.is_empty() {
            writes.push(Action::AddFinalizer { target, name });
        }
        (Ok(Outcome::Settled), writes)
    };
    let stage = Stage::new(1, &[("a", code)]);
    stage.applied_within(120).await;
    let deleted = Instant::now();
    {
        let mut pods = stage.server.pods.lock();
        let pod = pods.get_mut("cart-0").unwrap();
        assert_eq!(pod.lifecycle.finalizers, [NAME]);
        pod.lifecycle.deletion_timestamp = Some(podium_wire::Timestamp::default());
        stage.server.publish(pod);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let applied = stage.server.applied.lock();
    let removed = applied.iter().find(|(at, _, write)| *at >= deleted && write.contains("finalizer"));
    assert!(removed.is_some_and(|(at, ..)| *at - deleted < Duration::from_secs(2)), "{removed:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_key_woken_by_its_own_write_keeps_its_back_off() {
    let code: Code = |request, pod| {
        let refused =
            Action::SetLabel { target: request.key.clone(), key: "shop.example/bad".into(), value: "x".into() };
        // Another field at each run.
        let field = format!("shop.example/{}", pod.labels.len());
        (Ok(Outcome::Settled), vec![set(request, &field, "x"), refused])
    };
    for late in [None, Some(Duration::from_millis(5))] {
        let stage = Stage::new(0, &[("a", code)]);
        *stage.server.refuses.lock() = Some("shop.example/bad");
        *stage.server.late.lock() = late;
        let mut pod = podium_wire::Pod::default();
        pod.header.namespace = "shop".into();
        pod.header.name = "cart-0".into();
        pod.header.uid = "u0".into();
        stage.server.publish(&mut pod);
        stage.server.pods.lock().insert("cart-0".into(), pod);
        assert!(stage.applied_within(10).await <= 10, "{} runs", stage.status(0).runs());
        // A change by others is answered at once.
        let before = stage.status(0).runs();
        {
            let mut pods = stage.server.pods.lock();
            let pod = pods.get_mut("cart-0").unwrap();
            pod.annotations.insert("theirs".into(), "new".into());
            stage.server.publish(pod);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(stage.status(0).runs(), before + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreign_change_during_a_failing_run_skips_the_back_off() {
    let code: Code = |request, pod| {
        let refused =
            Action::SetLabel { target: request.key.clone(), key: "shop.example/bad".into(), value: "x".into() };
        let field = format!("shop.example/{}", pod.labels.len());
        (Ok(Outcome::Settled), vec![set(request, &field, "x"), refused])
    };
    let stage = Stage::new(1, &[("a", code)]);
    *stage.server.refuses.lock() = Some("shop.example/bad");
    // The runs until the back-off is about a second.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let before = stage.status(0).runs();
    let change = |value: &str| {
        let mut pods = stage.server.pods.lock();
        let pod = pods.get_mut("cart-0").unwrap();
        pod.annotations.insert("theirs".into(), value.into());
        stage.server.publish(pod);
    };
    change("1");
    // The run that answers it is under way for 2 ms.
    tokio::time::sleep(Duration::from_millis(1)).await;
    change("2");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(stage.status(0).runs(), before + 2);
}

#[tokio::test(start_paused = true)]
async fn a_state_machine_of_ten_steps_is_not_slowed() {
    let code: Code = |request, pod| {
        let step = number(pod, KEY);
        (Ok(Outcome::Settled), if step < 10 { vec![set(request, KEY, step + 1)] } else { Vec::new() })
    };
    let stage = Stage::new(3, &[("a", code)]);
    assert_eq!(stage.applied_within(1).await, 30);
    assert_eq!(stage.loops(0), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_progress_report_every_six_seconds_is_not_slowed() {
    let code: Code = |request, _| {
        let now = request.now_millis.to_string();
        let action =
            Action::SetAnnotation { target: request.key.clone(), key: "shop.example/progress".into(), value: now };
        (Ok(Outcome::RequeueAfter(Duration::from_secs(6))), vec![action])
    };
    // The plugin does not watch annotations, or each write would wake it.
    let mut stage = Stage::new(0, &[]);
    stage.load("a", code);
    let mut pod = podium_wire::Pod::default();
    pod.header.namespace = "shop".into();
    pod.header.name = "cart-0".into();
    pod.header.uid = "u0".into();
    stage.server.publish(&mut pod);
    stage.server.pods.lock().insert("cart-0".into(), pod);
    stage.dispatch.queue.add([(stage.lanes[0], ("shop".into(), "cart-0".into()), "u0".into())]);
    assert!(stage.applied_within(600).await >= 99);
    assert_eq!(stage.loops(0), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_is_added_and_removed_is_not_slowed() {
    let code: Code = |request, pod| {
        let target = request.key.clone();
        let name = "shop.example/cleanup".to_owned();
        let has = pod.lifecycle.finalizers.contains(&name);
        let writes = match number(pod, "shop.example/phase") {
            0 if !has => vec![Action::AddFinalizer { target, name }],
            0 => vec![set(request, "shop.example/phase", 1)],
            1 if has => vec![Action::RemoveFinalizer { target, name }],
            _ => Vec::new(),
        };
        (Ok(Outcome::Settled), writes)
    };
    let stage = Stage::new(5, &[("a", code)]);
    assert_eq!(stage.applied_within(1).await, 15);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_of_300_pods_and_a_resync_of_them_are_not_slowed() {
    let code: Code = |request, _| (Ok(Outcome::Settled), vec![set(request, KEY, "done")]);
    let stage = Stage::new(300, &[("a", code)]);
    assert_eq!(stage.applied_within(5).await, 300);
    for _ in 0..20 {
        let key = |index: usize| {
            (stage.lanes[0], ("shop".into(), format!("cart-{index}").into()), format!("u{index}").into())
        };
        stage.dispatch.queue.add((0..300).map(key));
        assert_eq!(stage.applied_within(2).await, 0);
        assert!(stage.dispatch.queue.is_idle());
    }
    assert_eq!((stage.loops(0).len(), stage.status(0).writes_withheld.get()), (0, 0));
}

/// A watch that is cut off, and runs on several Pods that each write to one of them.
#[tokio::test(start_paused = true)]
async fn a_write_is_not_sent_again_while_its_event_is_late() {
    let code: Code = |_, _| {
        let target = PodKey::new("shop", "cart-0", "u0");
        (Ok(Outcome::Settled), vec![Action::SetLabel { target, key: KEY.into(), value: "x".into() }])
    };
    for late in [4, 40] {
        let stage = Stage::new(3, &[("a", code)]);
        *stage.server.late.lock() = Some(Duration::from_secs(late));
        assert_eq!(stage.applied_within(4).await, 1);
        let writes = stage.status(0).writes();
        assert!(!writes.contains_key("unchanged") && writes["not_sent"] >= 2, "{writes:?}");
        assert_eq!(stage.applied_within(60).await, 0);
        let runs = stage.status(0).runs();
        let not_sent = stage.status(0).writes()["not_sent"];
        assert!(not_sent < 20, "{not_sent} in {runs} runs");
        assert_eq!((stage.applied_within(60).await, stage.status(0).runs()), (0, runs), "all have settled");
    }
}

/// A list shows the Pod as it was before the write, because another client has undone it meanwhile.
#[tokio::test(start_paused = true)]
async fn a_write_that_was_undone_before_a_list_is_made_again() {
    let code: Code = |request, pod| {
        let is_there = pod.labels.contains_key(KEY);
        (Ok(Outcome::Settled), if is_there { Vec::new() } else { vec![set(request, KEY, "x")] })
    };
    for cut_off in [1, 9] {
        let stage = Stage::new(1, &[("a", code)]);
        *stage.server.late.lock() = Some(Duration::from_secs(60));
        assert_eq!(stage.applied_within(cut_off).await, 1);
        {
            let mut pods = stage.server.pods.lock();
            let pod = pods.get_mut("cart-0").unwrap();
            pod.labels.clear();
            let pod = stage.server.changed(pod);
            let revision = pod.revision;
            let list = [Record::from(pod)].into_iter().collect();
            let changes = stage.server.writer.lock().relist(list, revision).publish();
            assert!(changes.is_empty(), "it looks the same");
            stage.server.expectations.seen.listed(revision);
            stage.server.expectations.seen.up_to(revision);
        }
        assert_eq!(stage.applied_within(9).await, 1, "after {cut_off} s without the watch");
    }
}
