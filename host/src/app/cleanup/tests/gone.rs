//! Claims about objects that lost the host's finalizer before they were deleted.

use podium_vocabulary::KeyPattern;

use super::{
    super::super::life::tests::{Idle, give},
    *,
};
use crate::images::Store;

/// An object that is being deleted and waits for a finalizer of others.
pub(super) fn waiting(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!(["one.example/a"]);
    deleting(object)
}

fn again(finalizers: &[&str]) -> Value {
    let mut object = object(Some("shop"), "a", finalizers);
    object["metadata"]["uid"] = "u-again".into();
    object
}

impl Rig {
    /// A cleanup whose plugin `a` runs, with 2 Pods that it holds.
    pub(super) async fn holding(state: Option<&Path>) -> Self {
        let rig = Self::on(state, Vec::new(), frees, Some(CLEANUP), Rules::default(), Vec::new()).await;
        give(&rig.driver, &id("a"), Idle);
        rig.objects.put(object(Some("shop"), "a", &[HOLD]));
        sleep(Duration::from_secs(10)).await;
        assert_eq!(rig.objects.patched(), [("a".to_owned(), json!([HELD]))]);
        rig.hold("shop", 2, HOLD).await;
        rig
    }

    /// A host that starts with the state directory of the one before, beside 2 Pods of its plugin.
    async fn restarted(state: &Path, objects: Vec<Value>) -> Self {
        let rig = Self::on(Some(state), objects, frees, Some(CLEANUP), Rules::default(), Vec::new()).await;
        rig.hold("shop", 2, HOLD).await;
        rig
    }

    pub(super) fn remove(&self, name: &str) {
        self.objects.all.lock().retain(|object| object["metadata"]["name"] != name);
    }
}

pub(super) fn files(state: &Path) -> usize {
    std::fs::read_dir(state.join("components")).unwrap().count()
}

#[tokio::test(start_paused = true)]
async fn an_object_that_lost_the_hosts_finalizer_leaves_none_on_pods() {
    let rig = Rig::holding(None).await;
    rig.remove("a");
    sleep(PROMISED).await;
    assert_eq!(rig.pods.count("shop"), 2, "{:?}", rig.removals.lock());
    sleep(PROMISED).await;
    assert!(rig.removal("a").is_none() && !rig.driver.components.holds.has(&id("a"), "u-a"), "nothing is left to do");
    let rig = Rig::holding(None).await;
    rig.objects.put(waiting(object(Some("shop"), "a", &[HOLD])));
    sleep(PROMISED).await;
    assert_eq!(rig.pods.count("shop"), 2, "{:?}", rig.removals.lock());
    assert_eq!(rig.objects.patched().len(), 1, "none can be added to an object that is being deleted");
}

#[tokio::test(start_paused = true)]
async fn a_write_of_a_run_that_came_late_is_removed_too() {
    let rig = Rig::holding(None).await;
    rig.remove("a");
    sleep(LATE_WRITES - Duration::from_secs(1)).await;
    rig.hold("shop", 3, HOLD).await;
    sleep(PROMISED).await;
    assert_eq!(rig.pods.count("shop"), 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_kind_that_is_not_served_is_removed() {
    let state = tempfile::tempdir().unwrap();
    drop(Rig::holding(Some(state.path())).await);
    let rig = Rig::on(Some(state.path()), Vec::new(), frees, Some(CLEANUP), Rules::default(), Vec::new()).await;
    *rig.objects.failing.lock() = Some(("/reconcileplugins", 404));
    rig.hold("shop", 2, HOLD).await;
    sleep(Duration::from_secs(300)).await;
    assert!(rig.pods.sent.lock().is_empty(), "it is not known which objects there are");
    *rig.objects.failing.lock() = None;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.pods.count("shop"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_a_live_plugin_holds_stays_when_another_is_gone() {
    let rig = Rig::holding(None).await;
    let mut later = object(Some("shop"), "later", &["shop.example/*"]);
    later["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z".into();
    rig.objects.put(later);
    sleep(Duration::from_secs(5)).await;
    assert!(!rig.driver.components.holds.has(&id("later"), "u-later"), "it is refused");
    rig.remove("a");
    sleep(Duration::from_secs(300)).await;
    assert!(rig.pods.sent.lock().is_empty() && rig.driver.components.holds.has(&id("later"), "u-later"));
    let mut gone = rig.objects.all.lock()[0].clone();
    gone["metadata"]["deletionTimestamp"] = "2026-01-04T00:00:00Z".into();
    rig.objects.put(gone);
    rig.gone("later").await;
    assert_eq!(rig.pods.count("shop"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_was_created_again_keeps_its_finalizers_only() {
    for (finalizers, expected) in [(&[HOLD, "shop.example/b"][..], 0), (&["shop.example/b"], 2)] {
        let rig = Rig::holding(None).await;
        rig.remove("a");
        sleep(Duration::from_millis(100)).await;
        rig.objects.put(again(finalizers));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(rig.pods.count("shop"), expected, "{finalizers:?}");
        let holds = &rig.driver.components.holds;
        assert!(holds.has(&id("a"), "u-again") && !holds.has(&id("a"), "u-a"), "{finalizers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_wait_for_their_turns_keep_what_a_later_object_holds() {
    let rig = Rig::holding(None).await;
    rig.hold("shop", 1_000, HOLD).await;
    rig.remove("a");
    while rig.pods.count("shop") < 200 {
        sleep(INTERVAL).await;
    }
    rig.objects.put(again(&[HOLD]));
    while !rig.driver.components.holds.has(&id("a"), "u-again") {
        sleep(TURN / 4).await;
    }
    let before = rig.pods.count("shop");
    sleep(PROMISED).await;
    assert!(rig.pods.count("shop") <= before + 1, "{before} and {}", rig.pods.count("shop"));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_starts_cleans_up_after_objects_that_went_meanwhile() {
    for (suspended, objects) in
        [(false, vec![]), (true, vec![]), (false, vec![again(&["shop.example/b"])]), (false, vec![waiting(again(&[]))])]
    {
        let state = tempfile::tempdir().unwrap();
        let before = Rig::holding(Some(state.path())).await;
        if suspended {
            let mut suspended = held(object(Some("shop"), "a", &[HOLD]));
            suspended["spec"]["suspend"] = true.into();
            before.objects.put(suspended);
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(files(state.path()), 1, "{suspended}");
        let rig = Rig::restarted(state.path(), objects.clone()).await;
        sleep(PROMISED).await;
        assert_eq!(rig.pods.count("shop"), 2, "{suspended} {objects:?}");
        sleep(PROMISED).await;
        let held = Store::open(state.path()).unwrap().held().unwrap().0;
        assert!(
            held.iter().flat_map(|(_, held)| held.keys()).all(|uid| uid == "u-again"),
            "{suspended} {objects:?}: {held:?}"
        );
        assert!(!objects.is_empty() || files(state.path()) == 0, "{suspended}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_a_restart_interrupts_goes_on() {
    let state = tempfile::tempdir().unwrap();
    let rig = Rig::on(Some(state.path()), Vec::new(), refuses, Some(CLEANUP), Rules::default(), Vec::new()).await;
    give(&rig.driver, &id("a"), Idle);
    rig.objects.put(object(Some("shop"), "a", &[HOLD]));
    sleep(Duration::from_secs(10)).await;
    rig.hold("shop", 2, HOLD).await;
    rig.remove("a");
    sleep(Duration::from_secs(100)).await;
    let refused = Removal { pods: 2, refused: Some("no right".to_owned()) };
    assert_eq!((rig.removal("a"), files(state.path())), (Some(refused), 1), "its file stays");
    let rig = Rig::restarted(state.path(), Vec::new()).await;
    sleep(PROMISED).await;
    assert_eq!(rig.pods.count("shop"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_file_of_an_object_that_is_there_removes_nothing() {
    let state = tempfile::tempdir().unwrap();
    drop(Rig::holding(Some(state.path())).await);
    let rig = Rig::restarted(state.path(), vec![object(Some("shop"), "a", &[HOLD])]).await;
    sleep(Duration::from_secs(120)).await;
    assert!(rig.pods.sent.lock().is_empty());
    assert_eq!(rig.objects.patched(), [("a".to_owned(), json!([HELD]))], "its finalizer is put back");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_plugins_are_not_cleaned_up_fills_no_memory() {
    let long = |at: usize| KeyPattern(format!("{}/{at}", ["a".repeat(60).as_str(); 4].join(".")));
    let mut spec = podium_pods::testing::plugin(Some("shop"), "gone");
    for (finalizers, objects) in [(200, 100), (0, 300)] {
        let rig = Rig::on(None, Vec::new(), refuses, Some(CLEANUP), Rules::default(), Vec::new()).await;
        rig.hold("shop", 1, HOLD).await;
        spec.grants.write.finalizers = (0..finalizers).map(long).chain([KeyPattern(HOLD.to_owned())]).collect();
        let gone = |at| PluginSpec { id: id(&format!("gone-{at}")), ..spec.clone() };
        let gone: Vec<_> = (0..objects).map(|at| ("u-gone".to_owned(), Arc::new(gone(at)))).collect();
        rig.driver.components.holds.adopt(&gone, None, |_, _| true);
        rig.objects.put(object(Some("shop"), "a", &["own.example/a"]));
        rig.objects.put(object(Some("bank"), "b", &["own.example/b"]));
        sleep(Duration::from_secs(600)).await;
        assert_eq!(rig.objects.patched(), [("b".to_owned(), json!([HELD]))], "of another tenant");
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_fails_at_the_start_forgets_no_finalizer() {
    let state = tempfile::tempdir().unwrap();
    let before = Rig::holding(Some(state.path())).await;
    before.remove("a");
    drop(before);
    let directory = state.path().join("components");
    let away = state.path().join("away");
    let rig = Rig::on(Some(state.path()), Vec::new(), frees, Some(CLEANUP), Rules::default(), Vec::new()).await;
    std::fs::rename(&directory, &away).unwrap();
    rig.hold("shop", 2, HOLD).await;
    // The file of the same name waits for what the disk has of the object before.
    give(&rig.driver, &id("a"), Idle);
    rig.objects.put(again(&["shop.example/b"]));
    sleep(Duration::from_secs(120)).await;
    assert!(rig.pods.sent.lock().is_empty());
    std::fs::rename(&away, &directory).unwrap();
    sleep(Duration::from_secs(120)).await;
    assert_eq!(rig.pods.count("shop"), 2);
    let held = Store::open(state.path()).unwrap().held().unwrap().0;
    assert!(held.iter().flat_map(|(_, held)| held.keys()).eq(["u-again"]), "{held:?}");
}

#[tokio::test(start_paused = true)]
async fn an_ordinary_removal_leaves_no_file() {
    let state = tempfile::tempdir().unwrap();
    let rig = Rig::holding(Some(state.path())).await;
    rig.objects.put(deleting(held(object(Some("shop"), "a", &[HOLD]))));
    rig.gone("a").await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!((rig.pods.count("shop"), files(state.path())), (2, 0));
}

/// An object of which a host before said that it let it hold [`HOLD`].
pub(super) fn said(mut object: Value) -> Value {
    object["status"] = json!({ "finalizers": { "names": [HOLD], "since": "2026-01-01T00:00:00Z" } });
    object
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_host_before_says_what_a_plugin_may_hold() {
    let mut suspended = object(Some("shop"), "a", &[]);
    suspended["spec"]["suspend"] = true.into();
    for objects in [vec![said(waiting(suspended.clone()))], vec![said(waiting(object(Some("shop"), "a", &[])))]] {
        let rig = Rig::on(None, objects, frees, Some(CLEANUP), Rules::default(), Vec::new()).await;
        rig.hold("shop", 2, HOLD).await;
        sleep(PROMISED).await;
        assert_eq!(rig.pods.count("shop"), 2, "{:?}", rig.removals.lock());
    }
    let mut suspended = object(Some("shop"), "a", &[HOLD]);
    suspended["spec"]["suspend"] = true.into();
    let rig = Rig::on(None, vec![said(suspended)], frees, Some(CLEANUP), Rules::default(), Vec::new()).await;
    rig.hold("shop", 2, HOLD).await;
    sleep(PROMISED).await;
    assert_eq!(rig.objects.patched(), [("a".to_owned(), json!([HELD]))], "it was taken off, and is put back");
    assert_eq!(rig.pods.count("shop"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_another_replica_let_a_plugin_hold_is_known_from_its_status() {
    let mut object = object(Some("shop"), "a", &[HOLD]);
    object["spec"]["suspend"] = true.into();
    let rig = Rig::on(None, vec![object.clone()], frees, Some(CLEANUP), Rules::default(), Vec::new()).await;
    rig.hold("shop", 2, HOLD).await;
    sleep(PROMISED).await;
    assert!(rig.objects.patched().is_empty(), "it holds none");
    rig.objects.put(said(object));
    sleep(PROMISED).await;
    assert_eq!(rig.objects.patched(), [("a".to_owned(), json!([HELD]))]);
    rig.remove("a");
    sleep(PROMISED).await;
    assert_eq!(rig.pods.count("shop"), 2, "{:?}", rig.removals.lock());
}
