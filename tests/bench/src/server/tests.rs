//! kube-rs' watcher verifies that this behaves like an API server.

use std::collections::BTreeMap;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::ListParams,
    runtime::watcher::{self, Event as Seen, watcher},
};

use super::*;

const PODS: usize = 30;
/// Timeout; a successful test takes a second.
const PATIENCE: Duration = Duration::from_secs(30);

fn served() -> (Server, Client) {
    // A second call finds it installed.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let server = start(&Options { pods: PODS, ..Options::default() }, Serving::default()).unwrap();
    let client = Client::try_from(Config::new(url(&server).parse().unwrap())).unwrap();
    (server, client)
}

fn url(server: &Server) -> String {
    format!("http://{}", server.address)
}

async fn control(client: &Client, order: &str) -> String {
    let request = ::http::Request::post(format!("/control/{order}")).body(Vec::new()).unwrap();
    client.request_text(request).await.unwrap()
}

/// Returns the revisions by name, as a client of the watcher stores them, after this many events and a second list.
async fn follow(client: Client, config: watcher::Config, count: usize) -> BTreeMap<String, String> {
    let mut seen = watcher(Api::<Pod>::all(client.clone()), config).boxed();
    let mut pods = BTreeMap::new();
    let mut events = 0;
    let mut lists = 0;
    while events < count || lists < 2 {
        match seen.next().await.unwrap() {
            Ok(Seen::Init) => pods.clear(),
            Ok(Seen::InitApply(pod)) => {
                pods.insert(pod.metadata.name.unwrap(), pod.metadata.resource_version.unwrap());
            }
            Ok(Seen::InitDone) => {
                lists += 1;
                assert_eq!(pods.len(), PODS);
                if lists == 1 {
                    control(&client, &format!("prepare?count={count}")).await;
                    control(&client, "send?rate=0").await;
                }
            }
            Ok(Seen::Apply(pod)) => {
                events += 1;
                pods.insert(pod.metadata.name.unwrap(), pod.metadata.resource_version.unwrap());
                if events == count {
                    control(&client, "gone").await;
                }
            }
            Ok(Seen::Delete(pod)) => panic!("nothing was deleted: {pod:?}"),
            // 410, after which it lists again.
            Err(error) => assert!(error.to_string().contains("Expired"), "{error}"),
        }
    }
    pods
}

/// Returns what the server itself would list now.
async fn listed(client: &Client) -> BTreeMap<String, String> {
    let mut parameters = ListParams::default().limit(7);
    let mut pods = BTreeMap::new();
    loop {
        let page = Api::<Pod>::all(client.clone()).list(&parameters).await.unwrap();
        assert!(page.items.len() <= 7);
        for pod in page.items {
            assert!(pods.insert(pod.metadata.name.unwrap(), pod.metadata.resource_version.unwrap()).is_none());
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters = parameters.continue_token(&token),
            None => return pods,
        }
    }
}

#[tokio::test]
async fn kube_follows_a_streaming_list_its_events_and_a_lost_history() {
    let (_server, client) = served();
    let following = follow(client.clone(), watcher::Config::default().streaming_lists(), 50);
    let pods = tokio::time::timeout(PATIENCE, following).await.expect("no second list");
    assert_eq!(pods, listed(&client).await);
}

#[tokio::test]
async fn kube_follows_a_paged_list_its_events_and_a_lost_history() {
    let (_server, client) = served();
    let following = follow(client.clone(), watcher::Config::default().page_size(7), 50);
    let pods = tokio::time::timeout(PATIENCE, following).await.expect("no second list");
    assert_eq!(pods, listed(&client).await);
}

#[tokio::test]
async fn every_event_has_the_time_at_which_it_was_written() {
    let (_server, client) = served();
    let before = monotonic::now();
    let last: u64 = control(&client, "prepare?count=20").await.parse().unwrap();
    let mut seen = watcher(Api::<Pod>::all(client.clone()), watcher::Config::default().streaming_lists()).boxed();
    while !matches!(seen.next().await.unwrap().unwrap(), Seen::InitDone) {}
    let begun = monotonic::now();
    control(&client, "send?rate=1000").await;
    let mut arrived = BTreeMap::new();
    while arrived.len() < 20 {
        if let Seen::Apply(pod) = seen.next().await.unwrap().unwrap() {
            arrived.insert(pod.metadata.resource_version.unwrap().parse().unwrap(), monotonic::now());
        }
    }
    assert_eq!(arrived.last_key_value().map(|(revision, _)| *revision), Some(last));
    let times = control(&client, "times").await;
    let times: Vec<(u64, u64)> = times
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(revision, time)| (revision.parse().unwrap(), time.parse().unwrap()))
        .collect();
    assert_eq!(times.len(), 20);
    // 0 if the connection has not recorded the last one yet.
    for (at, (revision, time)) in times.iter().enumerate().filter(|(_, (_, time))| *time > 0) {
        assert!(before < *time && *time <= arrived[revision], "{revision}: {time}");
        // A busy machine may be late with any of them, but never early.
        let due = begun + at as u64 * 1_000_000;
        assert!(*time >= due, "event {at} of 1,000 in a second was written {} ns early", due - *time);
    }
}
