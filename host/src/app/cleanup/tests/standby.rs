//! The removal of finalizers while another replica runs the plugins.

use podium_vocabulary::Shards;

use super::{
    gone::{files, said, waiting},
    *,
};

#[tokio::test(start_paused = true)]
async fn a_standby_removes_no_finalizer_and_goes_on_after_the_holder() {
    let missing = object(Some("shop"), "b", &["shop.example/other"]);
    let rig = Rig::started([shop(), vec![held(missing.clone())]].concat(), frees).await;
    rig.driver.feed(Event::Owned(Shards::NONE));
    rig.hold("shop", 2, HOLD).await;
    sleep(Duration::from_secs(10)).await;
    rig.objects.put(missing);
    sleep(Duration::from_secs(600)).await;
    assert_eq!((rig.pods.sent.lock().len(), rig.objects.patched().len(), rig.removal("a")), (0, 0, None));
    rig.driver.feed(Event::Owned(Shards::ALL));
    rig.gone("a").await;
    assert_eq!(rig.pods.count("shop"), 2);
    // At least that the other replica let hold finalizers before this one was started.
    assert!(rig.objects.patched().contains(&("b".to_owned(), json!([HELD]))), "{:?}", rig.objects.patched());
}

impl Rig {
    /// A standby of a host that let `a` hold finalizers of Pods, and was the holder before with this state directory.
    async fn standby(state: Option<&Path>) -> Self {
        if let Some(state) = state {
            drop(Rig::holding(Some(state)).await);
        }
        let objects = vec![said(held(object(Some("shop"), "a", &[HOLD])))];
        let rig = Self::on(state, objects, frees, Some(CLEANUP), Rules::default(), Vec::new()).await;
        rig.driver.feed(Event::Owned(Shards::NONE));
        sleep(Duration::from_secs(5)).await;
        assert!(rig.knows_a());
        rig
    }

    fn knows_a(&self) -> bool {
        self.driver.components.holds.has(&id("a"), "u-a")
    }

    /// Returns the number of writes to Pods on which other controllers put the finalizer, after it took over.
    async fn writes_after_taking_over(&self) -> usize {
        self.hold("shop", 2, HOLD).await;
        self.driver.feed(Event::Owned(Shards::ALL));
        sleep(PROMISED).await;
        self.pods.sent.lock().len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_knows_nothing_of_an_object_that_the_holder_released() {
    for (is_gone, has_disk) in [(true, false), (true, true), (false, false), (false, true)] {
        let state = tempfile::tempdir().unwrap();
        let rig = Rig::standby(has_disk.then(|| state.path())).await;
        rig.objects.put(said(deleting(held(object(Some("shop"), "a", &[HOLD])))));
        sleep(Duration::from_secs(5)).await;
        assert!(rig.knows_a(), "the holder may have to be followed");
        if is_gone {
            rig.remove("a");
        } else {
            for revision in ["8", "9"] {
                let mut waiting = said(waiting(object(Some("shop"), "a", &[HOLD])));
                waiting["metadata"]["resourceVersion"] = revision.into();
                rig.objects.put(waiting);
                sleep(Duration::from_secs(5)).await;
            }
        }
        sleep(Duration::from_secs(5)).await;
        assert!(!rig.knows_a(), "{is_gone} {has_disk}");
        assert!(!has_disk || files(state.path()) == 0, "{is_gone}");
        assert_eq!(rig.writes_after_taking_over().await, 0, "{is_gone} {has_disk}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_knows_an_object_that_lost_the_hosts_finalizer_for_an_hour() {
    for (minutes, expected) in [(50, true), (70, false)] {
        let state = tempfile::tempdir().unwrap();
        let rig = Rig::standby(Some(state.path())).await;
        rig.remove("a");
        sleep(Duration::from_secs(minutes * 60)).await;
        assert_eq!((rig.knows_a(), files(state.path())), (expected, usize::from(expected)), "{minutes}");
        assert_eq!(rig.writes_after_taking_over().await > 0, expected, "{minutes}");
    }
}
