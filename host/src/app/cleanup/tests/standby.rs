//! The removal of finalizers while another replica runs the plugins.

use podium_vocabulary::Shards;

use super::*;

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
