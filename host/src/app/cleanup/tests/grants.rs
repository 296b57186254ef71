//! Claims about which finalizers are removed, and when.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_refused_plugin_has_no_finalizers_of_another_one_removed() {
    let platform = || held(object(None, "guard", &["platform.example/*"]));
    let forged = || held(object(Some("shop"), "forged", &["platform.example/hold", "own.example/hold"]));
    // As the object is after a restart of the host, when nothing is known of it.
    let rig = Rig::started(vec![platform(), deleting(forged())], frees).await;
    rig.hold("shop", 2, "platform.example/hold").await;
    rig.gone("forged").await;
    assert!(rig.pods.sent.lock().is_empty(), "{:?}", rig.pods.sent.lock());
    // Made while the host runs: then not even a finalizer without a plugin is removed.
    rig.hold("shop", 1, "own.example/hold").await;
    rig.objects.put(forged());
    sleep(Duration::from_secs(10)).await;
    rig.objects.put(deleting(forged()));
    rig.gone("forged").await;
    assert!(rig.pods.sent.lock().is_empty(), "{:?}", rig.pods.sent.lock());
    // A mistake in the platform's object leaves its finalizers to it.
    let mut mistaken = platform();
    mistaken["spec"]["watch"] = json!(7);
    let accepted = Rig::started(vec![mistaken, deleting(forged())], frees).await;
    accepted.hold("shop", 2, "platform.example/hold").await;
    accepted.gone("forged").await;
    assert!(accepted.pods.sent.lock().is_empty(), "{:?}", accepted.pods.sent.lock());
    accepted.objects.put(deleting(platform()));
    accepted.gone("guard").await;
    assert_eq!(accepted.pods.count("shop"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_later_plugin_keeps_no_finalizer_from_being_removed() {
    // It is refused, because the one that is being deleted has the finalizer.
    let mut later = object(Some("shop"), "later", &[HOLD]);
    later["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z".into();
    let mut elsewhere = object(Some("bank"), "elsewhere", &[HOLD]);
    elsewhere["metadata"]["creationTimestamp"] = "2025-01-01T00:00:00Z".into();
    let rig = Rig::started(vec![later, elsewhere, shop().remove(0)], frees).await;
    rig.hold("shop", 2, HOLD).await;
    rig.gone("a").await;
    assert_eq!(rig.pods.count("shop"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_version_beside_a_later_conflict_keeps_its_finalizers() {
    for namespace in [Some("shop"), None] {
        let rig = Rig::beside_earlier(namespace).await;
        rig.hold("shop", 2, HOLD).await;
        rig.objects.put(deleting(held(object(namespace, "a", &[HOLD]))));
        rig.gone("a").await;
        assert!(rig.pods.sent.lock().is_empty(), "{:?}", rig.pods.sent.lock());
        sleep(Duration::from_secs(10)).await;
        let is_loaded = |plugin: &Plugin<_>| matches!(plugin.shown(), podium_life::Shown::Running { .. });
        assert!(rig.driver.read(&id("later"), is_loaded).unwrap(), "the finalizer belongs to it now");
        rig.remove("later");
        sleep(PROMISED).await;
        assert_eq!(rig.pods.count("shop"), 2);
    }
}

pub(super) fn policy(file: &Path) -> Rules {
    let yaml = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  namespaces: { shop: { excluded: true } }\n";
    std::fs::write(file, yaml).unwrap();
    Rules { policy: Some(Policy::read(file).unwrap()), ..Rules::default() }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_in_a_namespace_that_the_policy_excludes() {
    let directory = tempfile::tempdir().unwrap();
    let rules = policy(&directory.path().join("policy.yaml"));
    let objects = [shop(), vec![deleting(held(object(Some("bank"), "b", &[HOLD])))]].concat();
    let rig = Rig::with(objects, frees, Some(CLEANUP), rules, Vec::new()).await;
    rig.hold("shop", 2, HOLD).await;
    rig.hold("bank", 2, HOLD).await;
    rig.gone("b").await;
    assert_eq!((rig.pods.count("shop"), rig.pods.count("bank")), (0, 2));
    let Removal { pods: 2, refused: Some(refused) } = rig.removal("a").unwrap() else { unreachable!("it is refused") };
    assert!(refused.contains("policy.yaml: spec.namespaces.shop.excluded)"), "{refused}");
    rig.hold_all("shop", 2, &[]).await;
    rig.gone("a").await;
}

#[tokio::test(start_paused = true)]
async fn finalizers_that_are_not_granted_any_more_hold_the_object() {
    let rig = Rig::started(vec![deleting(held(object(Some("shop"), "a", &["a.k8s.io/hold", HOLD])))], refuses).await;
    rig.hold("shop", 2, "a.k8s.io/hold").await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.removal("a").unwrap().pods, 2);
    assert!(rig.objects.patched().is_empty());
    rig.hold_all("shop", 2, &[]).await;
    assert!(rig.gone("a").await < 2 * SCAN, "at the next look, whatever the back-off");
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_not_judged_on_a_stale_cache() {
    let rig = Rig::started(shop(), frees).await;
    rig.observe.send(Observation::Stale(Staleness { reason: "no watch".into() })).await.unwrap();
    sleep(Duration::from_secs(600)).await;
    assert!(rig.objects.patched().is_empty(), "pods of before the failure are not known");
    rig.hold("shop", 1, HOLD).await;
    sleep(Duration::from_secs(60)).await;
    assert!(rig.pods.sent.lock().is_empty() && rig.objects.patched().is_empty());
    rig.observe.send(Observation::Live).await.unwrap();
    rig.gone("a").await;
    assert_eq!(rig.pods.count("shop"), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_waits_for_pods_that_cannot_be_decoded() {
    let platform = deleting(held(object(None, "platform", &["platform.example/hold"])));
    let rig = Rig::started([shop(), vec![platform]].concat(), frees).await;
    *rig.undecoded.lock() = Some("shop");
    sleep(Duration::from_secs(600)).await;
    assert!(rig.objects.patched().is_empty());
    let refused = rig.removal("a").unwrap().refused;
    assert_eq!(refused.as_deref(), Some("the host cannot decode pods that may have some"));
    *rig.undecoded.lock() = Some("bank");
    assert!(rig.gone("a").await < Duration::from_secs(30), "it sees no pods of the namespace");
    sleep(Duration::from_secs(600)).await;
    assert!(rig.objects.has("platform"), "it sees those of all");
    *rig.undecoded.lock() = None;
    rig.gone("platform").await;
}

#[tokio::test(start_paused = true)]
async fn late_writes_are_waited_for_from_the_unload_on() {
    let rig = Rig::started(Vec::new(), frees).await;
    sleep(Duration::from_secs(1)).await;
    let mut spec = podium_pods::testing::plugin(Some("shop"), "a");
    spec.source = podium_vocabulary::Source::File("/nowhere/a.wasm".into());
    // Its unload takes a minute.
    load(&rig.driver, spec.clone()).await;
    rig.driver.components.holds.adopt(&[("u-a".to_owned(), spec.into())], None, |_, _| true);
    rig.objects.put(shop().remove(0));
    sleep(Duration::from_secs(60)).await;
    assert!(rig.objects.patched().is_empty());
    rig.driver.unload(&id("a")).await;
    let waited = rig.gone("a").await;
    assert!((LATE_WRITES..LATE_WRITES + 2 * SCAN).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_name_a_file_has_leaves_only_the_files_finalizers() {
    let mut spec = podium_pods::testing::plugin(Some("shop"), "a");
    spec.source = podium_vocabulary::Source::File("/nowhere/a.wasm".into());
    spec.grants.write.finalizers = vec![podium_vocabulary::KeyPattern(HOLD.to_owned())];
    for (finalizers, expected) in [(&[HOLD][..], 0), (&[HOLD, "shop.example/b"], 2)] {
        let objects = vec![deleting(held(object(Some("shop"), "a", finalizers)))];
        let rig = Rig::with(objects, frees, Some(CLEANUP), Rules::default(), vec![spec.clone()]).await;
        load(&rig.driver, spec.clone()).await;
        rig.hold_all("shop", 2, finalizers).await;
        rig.gone("a").await;
        assert_eq!(rig.pods.count("shop"), expected);
        let sent = rig.pods.sent.lock().clone();
        assert!(sent.iter().all(|(.., write)| !write.contains(HOLD)), "the file's plugin keeps it: {sent:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_object_that_the_host_accepted_gets_its_finalizer() {
    let mut refused = object(Some("shop"), "refused", &["shop.example/a"]);
    refused["spec"]["watch"] = json!(7);
    let rig = Rig::started(vec![refused, object(Some("shop"), "a", &[HOLD])], frees).await;
    sleep(Duration::from_secs(60)).await;
    let has_held = |name: &str, uid: &str| rig.driver.components.holds.has(&id(name), uid);
    assert!(has_held("a", "u-a") && !has_held("refused", "u-refused"));
    let patched = rig.objects.patched();
    assert!(patched.iter().all(|(name, _)| name == "a"), "{patched:?}");
    // An object of the same name and spec is another one.
    let mut again = object(Some("shop"), "a", &[HOLD]);
    again["metadata"]["uid"] = "u-again".into();
    rig.objects.put(again);
    sleep(Duration::from_secs(60)).await;
    assert!(has_held("a", "u-again") && !has_held("a", "u-a"));
    assert_eq!(rig.objects.all.lock()[1]["metadata"]["finalizers"], json!([HELD]));
}
