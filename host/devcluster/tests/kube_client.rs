//! kube clients work against the cluster: typed calls and watchers, in the process and on a socket.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use std::{collections::BTreeSet, pin::pin, time::Duration};

use common::{alive, pod, still};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::watcher::{self, Event, watcher},
};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn typed_calls_work_in_the_process() {
    let cluster = still();
    let pods: Api<Pod> = Api::namespaced(Client::new(cluster.service(), "default"), "default");
    let made = pods.create(&PostParams::default(), &serde_json::from_value(pod("a")).unwrap()).await.unwrap();
    let uid = made.metadata.uid.unwrap();
    let patch = json!({"metadata": {"uid": uid, "labels": {"k": "v"}}});
    let patched = pods.patch("a", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    assert_eq!(patched.metadata.labels.unwrap()["k"], "v");
    let list = pods.list(&ListParams::default().labels("k=v")).await.unwrap();
    assert_eq!(list.items.len(), 1);
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    let error = pods.get("a").await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 404 && status.reason == "NotFound"));
    cluster.shutdown().await;
}

async fn names_seen(client: Client, config: watcher::Config) -> Vec<String> {
    let pods: Api<Pod> = Api::all(client);
    let mut events = pin!(watcher(pods, config));
    let mut names = Vec::new();
    while let Some(event) = events.try_next().await.unwrap() {
        match event {
            Event::InitApply(pod) => names.push(pod.metadata.name.unwrap()),
            Event::InitDone => break,
            _ => {}
        }
    }
    names
}

#[tokio::test(start_paused = true)]
async fn both_ways_of_a_watcher_to_begin_see_every_pod() {
    let cluster = still();
    for index in 0..25 {
        cluster.create(pod(&format!("p-{index:02}"))).unwrap();
    }
    let expected: Vec<String> = (0..25).map(|index| format!("p-{index:02}")).collect();
    let client = || Client::new(cluster.service(), "default");
    assert_eq!(names_seen(client(), watcher::Config::default().streaming_lists()).await, expected);
    assert_eq!(names_seen(client(), watcher::Config::default().page_size(10)).await, expected);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_watcher_survives_cut_watches_and_an_expired_history() {
    let cluster = alive();
    let server = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let config = kube::Config::new(format!("http://{}", server.addr()).parse().unwrap());
    let pods: Api<Pod> = Api::all(Client::try_from(config).unwrap());
    let mut events = pin!(watcher(pods, watcher::Config::default()));
    let mut seen = BTreeSet::new();
    for round in 0..3 {
        cluster.create(pod(&format!("p-{round}"))).unwrap();
        let wanted = format!("p-{round}");
        let waiting = async {
            while !seen.contains(&wanted) {
                // After a cut or an expired watch the watcher begins again.
                if let Ok(Event::Apply(pod) | Event::InitApply(pod)) = events.next().await.unwrap() {
                    seen.insert(pod.metadata.name.unwrap());
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap();
        cluster.faults().compact();
        cluster.faults().next_watch_gone();
        cluster.faults().disconnect_watches();
    }
    server.stop().await;
    cluster.shutdown().await;
}
