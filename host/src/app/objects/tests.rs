//! Claims about starts and changes that meet.

use std::{convert::Infallible, time::Duration};

use http::{Request, Response};
use http_body_util::Full;
use kube::client::Body;
use podium_engine::status::LoadState;
use podium_life::Shown;
use serde_json::json;

use super::{super::life::tests, *};

mod changes;
mod hangs;
mod many;

/// Answers lists with these bodies, and no watch.
fn api(namespaced: Option<String>, cluster: Option<String>) -> Api {
    let service = tower::service_fn(move |request: Request<Body>| {
        let is_cluster = request.uri().path().ends_with("/clusterreconcileplugins");
        let body = if is_cluster { cluster.clone() } else { namespaced.clone() };
        let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=1"));
        async move {
            if is_watch {
                std::future::pending::<()>().await;
            }
            let code = if body.is_some() { 200 } else { 404 };
            let body = Full::new(bytes::Bytes::from(body.unwrap_or_default()));
            Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Api::new(kube::Client::new(service, "default"), Duration::from_secs(5))
}

fn list(names: &[&str]) -> Option<String> {
    let item = |name: &&str| {
        let (namespace, name) = name.split_once('/').unwrap_or(("shop", name));
        let source = json!({ "configMap": { "name": "slow", "key": "a", "sha256": "0".repeat(64) } });
        json!({
            "metadata": { "name": name, "namespace": namespace, "uid": format!("u-{name}"), "generation": 4 },
            "spec": { "source": source },
        })
    };
    let items: Vec<_> = names.iter().map(item).collect();
    Some(json!({ "metadata": { "resourceVersion": "7" }, "items": items }).to_string())
}

#[tokio::test(start_paused = true)]
async fn the_start_waits_for_an_attempt_of_each_object_and_not_for_success() {
    let (driver, _observe) = tests::driver().await;
    let api = api(list(&["a", "b"]), list(&[]));
    let (follower, mut started) = Follower::new(driver.clone(), &api, None, [], 1);
    let known = follower.known();
    tokio::spawn(follower.run());
    // The API server answers for a ConfigMap after 3 s.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!*started.borrow());
    started.wait_for(|started| *started).await.unwrap();
    let states: Vec<_> = driver.plugins().into_iter().map(|plugin| plugin.load).collect();
    assert!(matches!(states[..], [LoadState::Waiting { .. }, LoadState::Waiting { .. }]), "{states:?}");
    let id = driver.plugins()[0].id.clone();
    let generation = driver.read(&id, |plugin| {
        assert!(matches!(plugin.shown(), Shown::Waiting(failure, 1) if failure.step().1 == "ConfigMapNotFound"));
        plugin.generation()
    });
    assert_eq!((generation, known.lock().is_listed), (Some(Some(4)), true));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_first_attempt_does_not_end_delays_the_start_by_5_min() {
    let (driver, _observe) = tests::driver().await;
    let id = |namespace: &str, name: &str| PluginId { namespace: Some(namespace.into()), name: name.into() };
    tests::give(&driver, &id("bank", "quick"), tests::Idle);
    // Its compilation does not end.
    driver.components.given.lock().insert(id("shop", "stuck"), None);
    let api = api(list(&["bank/quick", "shop/stuck"]), list(&[]));
    let (follower, started) = Follower::new(driver.clone(), &api, None, [], 1);
    tokio::spawn(follower.run());
    tokio::time::sleep(FIRST_ATTEMPTS - Duration::from_secs(5)).await;
    let states = || driver.plugins().into_iter().map(|plugin| plugin.load).collect::<Vec<_>>();
    assert_eq!((states(), *started.borrow()), (vec![LoadState::Loaded, LoadState::Loading], false));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!((states(), *started.borrow()), (vec![LoadState::Loaded, LoadState::Loading], true));
}

#[tokio::test(start_paused = true)]
async fn another_policy_decides_again_about_objects_that_do_not_change() {
    let (driver, _observe) = tests::driver().await;
    let (follower, mut started) = Follower::new(driver.clone(), &api(list(&["a", "b"]), list(&[])), None, [], 1);
    let known = follower.known();
    tokio::spawn(follower.run());
    started.wait_for(|started| *started).await.unwrap();
    let names = || driver.plugins().into_iter().map(|plugin| plugin.id.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(), ["a", "b"]);
    driver.set_policy(policy("{ namespaces: { shop: { maxPlugins: 1 } } }"), None);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let refused = known.lock().desired.decided().filter(|(_, decision)| !decision.acts()).count();
    assert_eq!((names(), refused), (vec!["a".to_owned()], 1));
}

fn policy(rules: &str) -> Policy {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("policy.yaml");
    std::fs::write(&file, format!("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {rules}\n")).unwrap();
    Policy::read(&file).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_start_does_not_wait_for_a_kind_that_is_not_served() {
    let (driver, _observe) = tests::driver().await;
    let (follower, mut started) = Follower::new(driver.clone(), &api(None, None), None, [], 1);
    tokio::spawn(follower.run());
    started.wait_for(|started| *started).await.unwrap();

    let (follower, started) = Follower::new(driver, &api(Some("no list".into()), None), None, [], 1);
    tokio::spawn(follower.run());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!*started.borrow(), "the namespaced kind is served and cannot be listed");
}
