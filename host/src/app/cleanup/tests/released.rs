//! Claims about Pods that are being deleted, and held by a plugin whose object stays.

use super::{
    super::super::life::tests::{Idle, give},
    *,
};
use crate::objects::Released;

fn with(field: &str, value: Value) -> Value {
    let mut object = held(object(Some("shop"), "a", &[HOLD]));
    object["spec"][field] = value;
    object
}

fn ending() -> Option<Value> {
    Some(json!({ "deletionTimestamp": "2026-01-02T00:00:00Z" }))
}

impl Rig {
    /// A cleanup beside one object, and namespaces with this metadata.
    async fn beside(object: Value, namespace: Option<Value>) -> Self {
        let rig = Self::started(vec![object], frees).await;
        *rig.objects.namespace.lock() = namespace;
        sleep(Duration::from_secs(1)).await;
        rig
    }

    /// A cleanup beside the object `a`, whose plugin runs.
    async fn running() -> Self {
        let rig = Self::beside(object(Some("bank"), "other", &[]), ending()).await;
        give(&rig.driver, &id("a"), Idle);
        rig.objects.put(object(Some("shop"), "a", &[HOLD]));
        sleep(Duration::from_secs(2)).await;
        assert!(rig.driver.read(&id("a"), |plugin| plugin.running().is_some()).unwrap());
        rig
    }

    /// A cleanup beside the object `a`, whose plugin does not run, and `later`, which is refused because of the
    /// finalizer of `a` and goes on in its version.
    pub(super) async fn beside_earlier(namespace: Option<&str>) -> Self {
        let rig = Self::started(Vec::new(), frees).await;
        give(&rig.driver, &id("later"), Idle);
        let mut later = object(Some("shop"), "later", &[HOLD]);
        later["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z".into();
        rig.objects.put(later);
        sleep(Duration::from_secs(5)).await;
        rig.objects.put(object(namespace, "a", &[HOLD]));
        sleep(Duration::from_secs(5)).await;
        let state = rig.driver.read(&id("later"), |plugin| {
            (plugin.running().is_some(), matches!(plugin.shown(), podium_life::Shown::Refused(_)))
        });
        assert_eq!(state, Some((true, true)));
        let earlier = PluginId { namespace: namespace.map(Into::into), ..id("a") };
        assert!(rig.driver.components.holds.has(&earlier, "u-a"));
        rig
    }

    /// Adds Pods that are being deleted, with a finalizer of others and this one.
    async fn hold_deleting(&self, namespace: &str, count: usize, finalizer: &str) {
        self.hold_in_grace(namespace, count, finalizer, 0).await;
    }

    async fn hold_in_grace(&self, namespace: &str, count: usize, finalizer: &str, until_millis: i64) {
        let held = |index: usize| {
            let mut pod = podium_wire::Pod::default();
            let name = format!("cart-{index}");
            pod.header.namespace = namespace.into();
            pod.header.uid = format!("u-{namespace}-{name}");
            pod.header.name = name;
            pod.header.resource_version = (self.revision.fetch_add(1, Relaxed) + 1).to_string();
            pod.lifecycle.finalizers = vec!["bank.example/other".to_owned(), finalizer.to_owned()];
            pod.lifecycle.deletion_timestamp = Some(podium_wire::Timestamp(until_millis));
            PodEvent::applied(Arc::new(CachedPod::new(&pod).unwrap()))
        };
        self.observe.send(Observation::Events((0..count).map(held).collect())).await.unwrap();
    }

    /// Returns after how many seconds a number of Pods were written to; `None` if that takes more than an hour.
    async fn freed(&self, namespace: &str, count: usize) -> Option<u64> {
        for second in 0..3_600 {
            if self.pods.count(namespace) >= count {
                return Some(second);
            }
            sleep(Duration::from_secs(1)).await;
        }
        None
    }

    fn released(&self) -> Option<Released> {
        self.releases.lock().get(&id("a")).map(|(released, _)| released.clone())
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_ends_has_no_pods_of_a_plugin_that_does_not_run() {
    let mistaken = with("watch", json!(7));
    for object in [with("suspend", true.into()), mistaken, with("config", json!({}))] {
        let rig = Rig::beside(object.clone(), ending()).await;
        rig.hold_deleting("shop", 40, HOLD).await;
        rig.hold_deleting("bank", 3, HOLD).await;
        let seconds = rig.freed("shop", 40).await.unwrap();
        assert!((60..90).contains(&seconds), "{seconds} {object}");
        assert_eq!(rig.released(), Some(Released::NamespaceEnds));
        sleep(Duration::from_secs(60)).await;
        assert_eq!((rig.pods.count("shop"), rig.pods.count("bank")), (40, 0), "each once, and none elsewhere");
        assert!(rig.objects.has("a") && rig.removals.lock().is_empty(), "its object stays");
        sleep(Duration::from_secs(700)).await;
        assert_eq!(rig.released(), None, "it is not shown for ever");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_ends_has_no_pods_of_an_object_beyond_the_bounds() {
    let created = |mut object: Value, at: &str| {
        object["metadata"]["creationTimestamp"] = at.into();
        object
    };
    let older = || created(object(Some("shop"), "older", &[]), "2025-01-01T00:00:00Z");
    let directory = tempfile::tempdir().unwrap();
    let policy = |most: u32| {
        let file = directory.path().join("policy.yaml");
        let spec = format!("{{ namespaces: {{ shop: {{ maxPlugins: {most} }} }} }}");
        std::fs::write(&file, format!("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {spec}\n")).unwrap();
        Policy::read(&file).unwrap()
    };
    let large = with("config", json!({ "a": "x".repeat(300 << 10) }));
    for (object, most) in [(with("config", json!({})), 1), (large, 2)] {
        let rules = Rules { policy: Some(policy(most)), ..Rules::default() };
        let rig = Rig::with(vec![older(), object], frees, Some(CLEANUP), rules, Vec::new()).await;
        *rig.objects.namespace.lock() = ending();
        rig.hold_deleting("shop", 2, HOLD).await;
        let seconds = rig.freed("shop", 2).await.unwrap_or_else(|| panic!("of {most}"));
        assert!((60..95).contains(&seconds), "{seconds}");
        assert_eq!(rig.released(), Some(Released::NamespaceEnds));
    }
    let rig = Rig::running().await;
    rig.objects.put(older());
    sleep(Duration::from_secs(2)).await;
    rig.driver.set_policy(policy(1), None);
    rig.hold_deleting("shop", 2, HOLD).await;
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((60..95).contains(&seconds), "{seconds}");
    assert!(rig.driver.read(&id("a"), |_| ()).is_none(), "it is not loaded");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_runs_has_ten_minutes_unless_rbac_refuses_it() {
    let rig = Rig::running().await;
    rig.hold_deleting("shop", 2, HOLD).await;
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((600..630).contains(&seconds), "{seconds}");

    let rig = Rig::running().await;
    *rig.forbidden.lock() = true;
    rig.hold_deleting("shop", 2, HOLD).await;
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((60..90).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_moment_without_runs_does_not_shorten_the_ten_minutes() {
    let rig = Rig::running().await;
    rig.hold_deleting("shop", 2, HOLD).await;
    for _ in 0..4 {
        sleep(Duration::from_secs(75)).await;
        *rig.forbidden.lock() = true;
        sleep(Duration::from_secs(45)).await;
        *rig.forbidden.lock() = false;
    }
    assert_eq!(rig.pods.count("shop"), 0);
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((120..150).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn the_shown_reason_is_that_of_the_pods_that_were_released() {
    let rig = Rig::running().await;
    rig.objects.put(with("finalizers", json!({ "releaseAfterSeconds": 120 })));
    rig.hold_deleting("shop", 2, HOLD).await;
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((120..150).contains(&seconds), "{seconds}");
    assert_eq!(rig.released(), Some(Released::AfterSeconds), "the namespace ends too, and has more time");

    let gone = |_: &PodKey| Answer::Gone;
    let rig = Rig::started(vec![with("suspend", true.into())], gone).await;
    *rig.objects.namespace.lock() = ending();
    sleep(Duration::from_secs(1)).await;
    rig.hold_deleting("shop", 2, HOLD).await;
    assert!(rig.freed("shop", 2).await.is_some());
    sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.released(), None, "the pods were gone before");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_not_answered_delays_few_others() {
    let mut platform = held(object(None, "guard", &[HOLD]));
    platform["spec"]["suspend"] = true.into();
    let rig = Rig::beside(platform, ending()).await;
    for number in 0..40 {
        rig.hold_deleting(&format!("hangs-{number}"), 1, HOLD).await;
    }
    rig.hold_deleting("shop", 2, HOLD).await;
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((60..130).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_version_that_goes_on_beside_a_refused_spec_has_ten_minutes() {
    let rig = Rig::running().await;
    rig.objects.put(with("watch", json!(7)));
    sleep(Duration::from_secs(2)).await;
    let state = rig.driver.read(&id("a"), |plugin| {
        (plugin.running().is_some(), matches!(plugin.shown(), podium_life::Shown::Refused(_)))
    });
    assert_eq!(state, Some((true, true)));
    rig.hold_deleting("shop", 2, HOLD).await;
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((600..630).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_version_beside_an_earlier_plugin_that_does_not_run_has_ten_minutes() {
    for namespace in [Some("shop"), None] {
        let rig = Rig::beside_earlier(namespace).await;
        *rig.objects.namespace.lock() = ending();
        rig.hold_deleting("shop", 2, HOLD).await;
        let seconds = rig.freed("shop", 2).await.unwrap();
        assert!((600..630).contains(&seconds), "{seconds}");
    }
}

#[tokio::test(start_paused = true)]
async fn times_begin_when_the_grace_period_is_over() {
    let rig = Rig::beside(with("suspend", true.into()), ending()).await;
    let now = i64::try_from(rig.driver.dispatch.clock.now_millis()).unwrap();
    rig.hold_in_grace("shop", 2, HOLD, now + 1_800_000).await;
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((1_860..1_890).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_mistake_elsewhere_in_the_spec_leaves_the_time_of_the_release() {
    let mut object = with("watch", json!(7));
    object["spec"]["finalizers"] = json!({ "releaseAfterSeconds": 120 });
    let rig = Rig::beside(object, Some(json!({}))).await;
    rig.hold_deleting("shop", 2, HOLD).await;
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((120..150).contains(&seconds), "{seconds}");
}

#[tokio::test(start_paused = true)]
async fn elsewhere_nothing_is_released_unless_the_spec_says_so() {
    let rig = Rig::beside(with("suspend", true.into()), Some(json!({}))).await;
    rig.hold_deleting("shop", 2, HOLD).await;
    assert_eq!((rig.freed("shop", 1).await, rig.released()), (None, None));

    let mut after = with("finalizers", json!({ "releaseAfterSeconds": 120 }));
    after["spec"]["suspend"] = true.into();
    let rig = Rig::beside(after.clone(), Some(json!({}))).await;
    rig.hold("shop", 2, HOLD).await;
    assert_eq!(rig.freed("shop", 1).await, None, "they are not being deleted");
    rig.hold_deleting("shop", 2, HOLD).await;
    let seconds = rig.freed("shop", 2).await.unwrap();
    assert!((120..150).contains(&seconds), "{seconds}");
    assert_eq!(rig.released(), Some(Released::AfterSeconds));
}

#[tokio::test(start_paused = true)]
async fn only_the_namespaces_of_pods_that_are_held_for_long_are_asked_for() {
    let rig = Rig::beside(with("suspend", true.into()), Some(json!({}))).await;
    rig.hold("shop", 2, HOLD).await;
    rig.hold_deleting("bank", 2, HOLD).await;
    sleep(Duration::from_secs(600)).await;
    assert!(rig.objects.asked.lock().is_empty());
    rig.hold_deleting("shop", 50, HOLD).await;
    sleep(Duration::from_secs(29)).await;
    assert!(rig.objects.asked.lock().is_empty());
    sleep(Duration::from_secs(300)).await;
    let asked = rig.objects.asked.lock().clone();
    assert!((2..12).contains(&asked.len()) && asked.iter().all(|name| name == "shop"), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_see_namespaces_the_command_is_shown() {
    let rig = Rig::beside(with("suspend", true.into()), None).await;
    rig.hold_deleting("shop", 2, HOLD).await;
    sleep(Duration::from_secs(120)).await;
    let Some(Released::NamespaceForbidden(message)) = rig.released() else { unreachable!("{:?}", rig.released()) };
    assert!(message.ends_with("kubectl --namespace shop delete reconcileplugin a"), "{message}");
    assert_eq!(rig.pods.count("shop"), 0);
    *rig.objects.namespace.lock() = ending();
    assert!(rig.freed("shop", 2).await.unwrap() < 60);
}

#[tokio::test(start_paused = true)]
async fn a_plugin_releases_no_finalizer_of_another_one_or_of_an_excluded_tenant() {
    // Not loaded, so that it releases nothing itself.
    let mut platform = object(None, "guard", &["platform.example/*"]);
    platform["spec"]["suspend"] = true.into();
    let mut forged = held(object(Some("shop"), "a", &["platform.example/hold"]));
    forged["spec"]["suspend"] = true.into();
    let rig = Rig::beside(forged, ending()).await;
    rig.objects.put(platform);
    rig.hold_deleting("shop", 2, "platform.example/hold").await;
    assert_eq!(rig.freed("shop", 1).await, None);

    let directory = tempfile::tempdir().unwrap();
    let rules = grants::policy(&directory.path().join("policy.yaml"));
    let rig = Rig::with(vec![with("suspend", true.into())], frees, Some(CLEANUP), rules, Vec::new()).await;
    *rig.objects.namespace.lock() = ending();
    rig.hold_deleting("shop", 2, HOLD).await;
    assert_eq!(rig.freed("shop", 1).await, None);
}
