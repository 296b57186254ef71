//! Lists of plugin objects that come late, or not at first.

use super::*;

async fn failing(objects: Vec<Value>, of: &'static str, code: u16) -> Rig {
    let rig = Rig::started(objects, frees).await;
    *rig.objects.failing.lock() = Some((of, code));
    rig
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_before_the_plugins_of_the_platform_are_known() {
    let platform = held(object(None, "guard", &["platform.example/*"]));
    let forged = deleting(held(object(Some("shop"), "forged", &["platform.example/hold"])));
    let rig = failing(vec![platform, forged], "/clusterreconcileplugins", 500).await;
    rig.hold("shop", 2, "platform.example/hold").await;
    sleep(Duration::from_secs(120)).await;
    assert!(rig.pods.sent.lock().is_empty() && rig.objects.has("forged"), "{:?}", rig.pods.sent.lock());
    *rig.objects.failing.lock() = None;
    rig.gone("forged").await;
    assert!(rig.pods.sent.lock().is_empty(), "{:?}", rig.pods.sent.lock());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_at_first_loses_no_holds() {
    let rig = failing(shop(), "/reconcileplugins", 404).await;
    rig.hold("shop", 2, HOLD).await;
    sleep(Duration::from_secs(20)).await;
    *rig.objects.failing.lock() = None;
    rig.gone("a").await;
    assert_eq!(rig.pods.count("shop"), 2);
}

#[tokio::test(start_paused = true)]
async fn the_plugins_own_account_is_tried_again_after_both_were_refused() {
    let rig = Rig::started(shop(), refuses).await;
    rig.hold("shop", 1, HOLD).await;
    sleep(Duration::from_secs(600)).await;
    let sent = rig.pods.sent.lock();
    let own = sent.iter().filter(|(account, ..)| account.ends_with(":own")).count();
    assert!(own >= 3 && 2 * own >= sent.len(), "{sent:?}");
}
