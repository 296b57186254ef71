//! Injected faults as a plain client sees them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use std::time::Duration;

use common::{Client, MERGE, PODS, pod, revision, still};
use podium_devcluster::{Cluster, Garble, Refusal, Requests};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

const STREAM: &str = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

/// Opens a watch of 8 s from now on.
async fn watching(client: &Client) -> common::Watching {
    let (_, list) = client.get(PODS).await;
    client.watch(&format!("{PODS}?{}", resume(revision(&list)))).await
}

fn resume(revision: u64) -> String {
    format!("watch=1&allowWatchBookmarks=true&timeoutSeconds=8&resourceVersion={revision}")
}

fn create(cluster: &Cluster, names: &[&str]) {
    for name in names {
        cluster.create(pod(name)).unwrap();
    }
}

/// Returns the events until the end of the watch: type and name of each, and complete lines that are not events.
async fn received(watch: &mut common::Watching) -> Vec<String> {
    let mut received = Vec::new();
    while let Some(line) = watch.line().await {
        received.push(match serde_json::from_slice::<Value>(&line) {
            Err(_) => "nonsense".to_owned(),
            Ok(event) => {
                let name = event["object"]["metadata"]["name"].as_str().unwrap_or("-");
                format!("{} {name}", event["type"].as_str().unwrap())
            }
        });
    }
    received
}

#[tokio::test(start_paused = true)]
async fn a_swallowed_watch_stays_open_and_later_ones_work() {
    let cluster = still();
    let client = Client::new(&cluster);
    let mut zombie = watching(&client).await;
    cluster.faults().swallow_watches();
    let mut well = watching(&client).await;
    create(&cluster, &["a"]);
    assert_eq!(well.event().await.0, "ADDED");
    let an_hour = Duration::from_secs(3600);
    assert!(timeout(an_hour, zombie.next()).await.is_err(), "neither an event, a bookmark nor the end");
    cluster.faults().disconnect_watches();
    assert!(zombie.next().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn events_are_duplicated_swapped_or_damaged_as_requested() {
    let cluster = still();
    let client = Client::new(&cluster);
    let mut watch = watching(&client).await;
    for how in [Garble::Duplicate, Garble::Swap] {
        cluster.faults().garble(how, 1);
    }
    create(&cluster, &["a", "b", "c"]);
    for name in ["a", "a", "c", "b"] {
        assert_eq!(watch.event().await.1["metadata"]["name"], name);
    }
    cluster.faults().garble(Garble::Malformed, 1);
    cluster.faults().garble(Garble::Null, 1);
    create(&cluster, &["d", "e", "f"]);
    assert_eq!(received(&mut watch).await, ["nonsense", "ADDED -", "ADDED f", "BOOKMARK -"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_held_for_reordering_is_sent_before_the_bookmark() {
    let cluster = still();
    let client = Client::new(&cluster);
    let mut watch = watching(&client).await;
    cluster.faults().garble(Garble::Swap, 1);
    create(&cluster, &["a"]);
    assert_eq!(received(&mut watch).await, ["ADDED a", "BOOKMARK -"]);
}

#[tokio::test(start_paused = true)]
async fn one_event_is_dropped_or_late_and_the_others_are_not() {
    let cluster = still();
    let client = Client::new(&cluster);
    let mut watch = watching(&client).await;
    cluster.faults().garble_after(1, Garble::Drop);
    cluster.faults().garble_after(1, Garble::Late(2));
    create(&cluster, &["a", "b", "c", "d"]);
    for name in ["a", "c"] {
        assert_eq!(watch.event().await.1["metadata"]["name"], name);
    }
    assert!(timeout(Duration::from_secs(1), watch.event()).await.is_err(), "d is sent before two more have come");
    create(&cluster, &["e", "f", "g"]);
    for name in ["d", "e", "f", "g"] {
        assert_eq!(watch.event().await.1["metadata"]["name"], name);
    }
    cluster.faults().garble(Garble::Late(5), 1);
    create(&cluster, &["h", "i"]);
    assert_eq!(received(&mut watch).await, ["ADDED h", "ADDED i", "BOOKMARK -"]);
}

#[tokio::test(start_paused = true)]
async fn a_truncated_stream_ends_in_the_middle_of_an_event() {
    let cluster = still();
    let client = Client::new(&cluster);
    let mut watch = watching(&client).await;
    cluster.faults().garble(Garble::Truncate, 1);
    create(&cluster, &["a", "b"]);
    assert!(watch.line().await.is_none(), "no whole line");
    assert!(watch.rest().starts_with(b"{\"type\":\"ADDED\""));
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_without_its_end_bookmark_goes_on_as_a_watch() {
    let cluster = still();
    let client = Client::new(&cluster);
    create(&cluster, &["a"]);
    cluster.faults().without_end_bookmark(1);
    let mut list = client.watch(&format!("{PODS}?{STREAM}")).await;
    assert_eq!(list.event().await.0, "ADDED");
    create(&cluster, &["b"]);
    assert_eq!(list.event().await.1["metadata"]["name"], "b");
    let mut list = client.watch(&format!("{PODS}?{STREAM}")).await;
    for expected in ["ADDED", "ADDED", "BOOKMARK"] {
        assert_eq!(list.event().await.0, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_refused_by_kind_as_often_as_asked_for() {
    let cluster = still();
    let client = Client::new(&cluster);
    let faults = cluster.faults();
    faults.refuse(Requests::Lists, Refusal::Internal, 2);
    faults.refuse(Requests::Lists, Refusal::Unavailable, 1);
    faults.refuse(Requests::Writes, Refusal::TooManyRequests { retry_after_seconds: 7 }, 1);
    for code in [500, 500, 503, 200] {
        assert_eq!(client.get(PODS).await.0, code);
    }
    let refused = client.post_response(PODS, pod("a")).await;
    assert_eq!((refused.status().as_u16(), &refused.headers()["retry-after"]), (429, &"7".parse().unwrap()));
    assert_eq!(client.post(PODS, pod("a")).await.0, 201);
    faults.refuse(Requests::All, Refusal::RevisionTooLarge, 1);
    let (code, status) = client.get(&format!("{PODS}/a")).await;
    assert_eq!((code, &status["details"]["causes"][0]["reason"]), (504, &json!("ResourceVersionTooLarge")));
    faults.refuse(Requests::All, Refusal::Internal, 9);
    faults.heal();
    assert_eq!(client.get(&format!("{PODS}/a")).await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn an_expired_history_is_the_first_event_of_n_watches() {
    let cluster = still();
    let client = Client::new(&cluster);
    cluster.faults().refuse(Requests::Watches, Refusal::Gone, 2);
    for _ in 0..2 {
        let mut watch = watching(&client).await;
        let (event, status) = watch.event().await;
        assert_eq!((event.as_str(), &status["code"]), ("ERROR", &json!(410)));
        assert!(watch.next().await.unwrap().is_none());
    }
    let mut list = client.watch(&format!("{PODS}?{STREAM}")).await;
    assert_eq!(list.event().await.0, "BOOKMARK", "a streaming list is no such watch");
    create(&cluster, &["a"]);
    assert_eq!(watching(&client).await.event().await.0, "BOOKMARK");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_cut_was_done() {
    let cluster = still();
    let client = Client::new(&cluster);
    cluster.faults().cut_answers(1);
    assert!(client.try_post(PODS, pod("a")).await.is_err());
    assert_eq!(client.get(&format!("{PODS}/a")).await.0, 200);
    assert_eq!(client.try_post(PODS, pod("b")).await.unwrap(), 201);
}

#[tokio::test]
async fn a_cut_response_closes_the_connection_before_its_first_byte() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let cluster = still();
    let server = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    cluster.faults().cut_answers(1);
    let mut socket = tokio::net::TcpStream::connect(server.addr()).await.unwrap();
    let body = pod("a").to_string();
    let head = format!("POST {PODS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n");
    socket.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "");
    assert_eq!(cluster.list("pods").1.len(), 1);
    server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lagging_replica_answers_from_the_past_until_it_catches_up() {
    let cluster = still();
    let client = Client::new(&cluster);
    create(&cluster, &["a"]);
    let then = cluster.faults().save();
    create(&cluster, &["b"]);
    let (_, now) = client.get(PODS).await;
    cluster.faults().lag(&then);
    let (_, past) = client.get(&format!("{PODS}?resourceVersion=0")).await;
    assert_eq!((past["items"].as_array().unwrap().len(), revision(&past) < revision(&now)), (1, true));
    let (code, _) = client.get(&format!("{PODS}?resourceVersion={}", revision(&now))).await;
    assert_eq!(code, 504, "it has not come so far");
    assert_eq!(revision(&client.get(PODS).await.1), revision(&now), "a list of the newest state is one");
    let mut list = client.watch(&format!("{PODS}?{STREAM}")).await;
    assert_eq!(list.event().await.1["code"], 504);
    // A watch from a revision ahead of the replica receives nothing; a watch from an older revision receives all that
    // the replica has.
    let mut ahead = client.watch(&format!("{PODS}?{}", resume(revision(&now)))).await;
    assert_eq!(received(&mut ahead).await, [""; 0]);
    let mut behind = client.watch(&format!("{PODS}?{}", resume(revision(&past)))).await;
    create(&cluster, &["c"]);
    assert!(timeout(Duration::from_secs(7), behind.next()).await.is_err());
    cluster.faults().catch_up();
    assert_eq!(received(&mut behind).await, ["ADDED b", "ADDED c", "BOOKMARK -"]);
    assert_eq!(client.get(PODS).await.1["items"].as_array().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_restored_cluster_assigns_its_revisions_a_second_time() {
    let cluster = still();
    let client = Client::new(&cluster);
    // Waits until the cluster's own work at its start is done.
    client.until("/api/v1/namespaces/default/serviceaccounts/default", |code, _| code == 200).await;
    create(&cluster, &["a"]);
    let then = cluster.faults().save();
    create(&cluster, &["b"]);
    client.patch(&format!("{PODS}/a"), MERGE, json!({"metadata": {"labels": {"app": "other"}}})).await;
    let (_, lost) = client.get(PODS).await;
    let mut watch = watching(&client).await;
    cluster.faults().restore(&then);
    assert!(watch.next().await.is_err(), "the server was restarted");
    let (_, list) = client.get(PODS).await;
    assert!(revision(&list) < revision(&lost));
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["metadata"]["labels"]["app"], "web");
    // Lost events are not sent, and the watch ends without a bookmark.
    let mut watch = client.watch(&format!("{PODS}?{}", resume(revision(&lost)))).await;
    let began = Instant::now();
    assert_eq!(received(&mut watch).await, [""; 0]);
    assert_eq!(began.elapsed(), Duration::from_secs(8));
    create(&cluster, &["c"]);
    let (_, pod) = client.get(&format!("{PODS}/c")).await;
    assert!(revision(&pod) <= revision(&lost));
}

#[tokio::test(start_paused = true)]
async fn a_restored_cluster_lives_on() {
    let cluster = common::alive();
    let client = Client::new(&cluster);
    let then = cluster.faults().save();
    create(&cluster, &["a"]);
    client.until(&format!("{PODS}/a"), |_, pod| pod["status"]["phase"] == "Running").await;
    cluster.faults().restore(&then);
    assert_eq!(client.get(&format!("{PODS}/a")).await.0, 404);
    create(&cluster, &["b"]);
    client.until(&format!("{PODS}/b"), |_, pod| pod["status"]["phase"] == "Running").await;
}
