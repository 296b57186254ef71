//! The watch against scripted responses, under paused time, with a real cache behind it.

use std::{sync::Arc, time::Duration};

use podium_encoding::Pool;
use podium_engine::dispatch::Lost;
use podium_pods::{
    cache::{self, Reader, Writer},
    pod::{Change, Observation, PodView, Record},
    testing::summary,
};
use tokio::sync::{mpsc, watch};

use super::wire::{Answer, Requests, answer, bookmark, end_of_list, event, page, pod, status, wire};
use crate::ApiError;
use crate::watch::{Counters, Watch, WatchOptions};

pub(super) struct Harness {
    observations: mpsc::Receiver<Observation>,
    writer: Writer,
    pub(super) reader: Reader,
    requests: Requests,
    pub(super) counters: Arc<Counters>,
    lost: watch::Sender<Lost>,
    task: tokio::task::JoinHandle<()>,
}

fn harness(answers: Vec<Answer>) -> Harness {
    rig_with(answers, WatchOptions::default())
}

pub(super) fn rig_with(answers: Vec<Answer>, options: WatchOptions) -> Harness {
    let (api, requests) = wire(answers);
    let (writer, reader) = cache::new(7);
    let watch = Watch::new(api, options, Arc::new(Pool::new(7)), Arc::new(reader.clone()), 7);
    let lost = watch::Sender::new(Lost::default());
    let watch = watch.listing_when(lost.subscribe());
    let counters = watch.counters();
    let (sender, observations) = mpsc::channel(16);
    let task = tokio::spawn(watch.run(sender));
    Harness { observations, writer, reader, requests, counters, lost, task }
}

/// Applies an observation to the cache.
pub(super) fn take(writer: &mut Writer, observation: Observation) -> Vec<Change> {
    match observation {
        Observation::Relisted { pods, revision } => return writer.relist(pods, revision).publish(),
        Observation::Events(events) => return writer.apply(events).publish(),
        Observation::RolledBack => writer.roll_back(),
        Observation::Bookmark(revision) => writer.bookmark(revision),
        Observation::Live => writer.set_live(),
        Observation::Stale(staleness) => writer.set_stale(staleness),
    }
    Vec::new()
}

impl Harness {
    /// Returns the next observation and its changes of the cache.
    pub(super) async fn next(&mut self) -> String {
        let observed = tokio::time::timeout(Duration::from_secs(120), self.observations.recv()).await;
        let observation = observed.expect("nothing more was observed").expect("the watch ended");
        let what = match &observation {
            Observation::Relisted { pods, revision } => format!("list of {} at {revision}:", pods.len()),
            Observation::Events(events) => format!("{} events:", events.len()),
            Observation::Bookmark(revision) => format!("bookmark {revision}"),
            Observation::Live => "live".to_owned(),
            Observation::RolledBack => "rolled back".to_owned(),
            Observation::Stale(staleness) => format!("stale: {}", staleness.reason),
        };
        let changes = take(&mut self.writer, observation);
        summary(&changes).iter().fold(what, |what, change| format!("{what} {change}"))
    }

    pub(super) async fn expect(&mut self, expected: &[&str]) {
        for expected in expected {
            assert_eq!(self.next().await, *expected);
        }
    }

    /// Returns the queries of the requests so far with their times.
    pub(super) fn requests(&self) -> Vec<(Duration, String)> {
        self.requests.lock().clone()
    }

    pub(super) fn query(&self, at: usize) -> String {
        self.requests()[at].1.clone()
    }
}

/// Returns a streaming list of these Pods.
pub(super) fn listing(revision: u64, pods: &[String]) -> Answer {
    let answer = pods.iter().fold(answer(200), |answer, pod| answer.line(&event("ADDED", pod)));
    answer.line(&end_of_list(revision)).hang()
}

pub(super) fn watching() -> Answer {
    answer(200)
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_is_reported_at_its_end() {
    let listed = answer(200).line(&event("ADDED", &pod("a", 5))).wait(3).line(&event("ADDED", &pod("b", 4)));
    let listed = listed.line(&end_of_list(10)).hang();
    let mut harness = harness(vec![listed, watching().line(&event("MODIFIED", &pod("a", 11))).hang()]);
    harness.expect(&["list of 2 at 10: +a-uid@5 +b-uid@4", "live", "1 events: a-uid@5>11"]).await;
    assert_eq!(harness.reader.staleness(), None);
    let query = harness.query(0);
    for part in ["watch=1", "sendInitialEvents=true", "resourceVersionMatch=NotOlderThan", "allowWatchBookmarks=true"] {
        assert!(query.contains(part), "{query}");
    }
    assert_eq!(harness.query(1), "watch=1&allowWatchBookmarks=true&resourceVersion=10&timeoutSeconds=8");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_in_pages() {
    let mut harness = harness(vec![
        answer(422).bytes(&status(422, "Invalid", "FieldValueForbidden")),
        answer(200).bytes(&page(10, "to/ken=", &[pod("a", 5)])),
        answer(200).bytes(&page(10, "", &[pod("b", 6)])),
        answer(410).bytes(&status(410, "Expired", "")),
        answer(200).bytes(&page(20, "", &[pod("b", 6)])),
        watching().hang(),
    ]);
    harness
        .expect(&["list of 2 at 10: +a-uid@5 +b-uid@6", "stale: 410 Expired: no", "list of 1 at 20: -a-uid@5"])
        .await;
    harness.expect(&["live"]).await;
    assert_eq!(harness.query(1), "limit=500");
    assert_eq!(harness.query(2), "limit=500&continue=to/ken%3D");
    assert_eq!(harness.query(4), "limit=500&resourceVersion=10&resourceVersionMatch=NotOlderThan");
}

#[tokio::test(start_paused = true)]
async fn silent_initial_events_are_replaced_by_pages_within_15_s() {
    let mut harness = harness(vec![
        answer(200).line(&event("ADDED", &pod("a", 5))).hang(),
        answer(200).bytes(&page(10, "", &[pod("a", 5)])),
        watching().hang(),
    ]);
    harness.expect(&["list of 1 at 10: +a-uid@5", "live"]).await;
    assert_eq!(harness.requests()[1].0, Duration::from_secs(15));
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_the_end_of_a_list_is_replaced_by_pages() {
    let added = answer(200).line(&event("ADDED", &pod("a", 5)));
    for without in [added.clone(), added.line(&bookmark(9))] {
        let mut harness = harness(vec![without, answer(200).bytes(&page(10, "", &[pod("a", 6)])), watching().hang()]);
        harness.expect(&["list of 1 at 10: +a-uid@6", "live"]).await;
        assert_eq!(harness.requests()[1].0, Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn lost_history_costs_one_list_that_reports_missed_deletions() {
    for gone in
        [answer(410).bytes(&status(410, "Expired", "")), watching().line(&event("ERROR", &status(410, "Expired", "")))]
    {
        let mut harness = harness(vec![
            listing(10, &[pod("a", 5), pod("b", 6)]),
            gone,
            listing(30, &[pod("b", 6), pod("c", 25)]),
            watching().hang(),
        ]);
        harness.next().await;
        while harness.next().await != "list of 2 at 30: -a-uid@5 +c-uid@25" {}
        harness.expect(&["live"]).await;
        assert_eq!(harness.counters.lists(), 2);
        assert!(harness.query(2).contains("resourceVersion=10"), "an older list could be returned");
        assert_eq!(harness.reader.snapshot().get("shop", "b").unwrap().revision.0, 6);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_event_costs_a_list_and_further_ones_one_a_minute() {
    let mut answers = vec![listing(10, &[pod("a", 5)]), watching().hang(), listing(11, &[pod("a", 6)])];
    // Each is ended after 10 s.
    answers.extend(vec![watching().hang(); 6]);
    answers.extend([listing(12, &[pod("a", 7)]), watching().hang()]);
    let mut harness = harness(answers);
    harness.expect(&["list of 1 at 10: +a-uid@5", "live"]).await;
    let lost = "stale: the watch has lost an event of a write";
    let lose = |harness: &Harness, at| _ = harness.lost.send_replace(("a-uid".into(), podium_vocabulary::Revision(at)));
    // The list is as late as this proof.
    lose(&harness, 10);
    tokio::time::sleep(Duration::from_secs(1)).await;
    lose(&harness, 11);
    harness.expect(&[lost, "list of 1 at 11: a-uid@5>6", "live"]).await;
    // Proven again during the list.
    lose(&harness, 11);
    tokio::time::sleep(Duration::from_secs(30)).await;
    let at = tokio::time::Instant::now();
    lose(&harness, 12);
    while harness.next().await != "list of 1 at 12: a-uid@6>7" {}
    assert!(at.elapsed() >= Duration::from_secs(25), "{:?}", at.elapsed());
    assert_eq!(harness.counters.lists(), 3);
}

#[tokio::test(start_paused = true)]
async fn compacted_pages_are_restarted_and_finally_requested_as_one() {
    let first = || answer(200).bytes(&page(10, "t", &[pod("a", 5)]));
    let expired = || answer(410).bytes(&status(410, "Expired", ""));
    let whole = answer(200).bytes(&page(12, "", &[pod("a", 5), pod("b", 6)]));
    let mut harness = harness(vec![answer(400), first(), expired(), first(), expired(), whole, watching().hang()]);
    harness.expect(&["list of 2 at 12: +a-uid@5 +b-uid@6", "live"]).await;
    assert_eq!((harness.query(3).as_str(), harness.query(5).as_str()), ("limit=500", "limit=0"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_in_order_is_resumed_from_its_bookmark() {
    let mut harness = harness(vec![
        listing(10, &[]),
        watching().wait(8).line(&bookmark(40)),
        watching().wait(8).line(&bookmark(50)),
        watching().hang(),
    ]);
    harness.expect(&["list of 0 at 10:", "live", "bookmark 40", "bookmark 50"]).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(harness.query(2).contains("resourceVersion=40") && harness.query(3).contains("resourceVersion=50"));
    assert_eq!((harness.counters.lists(), harness.counters.watches()), (1, 3));
    assert_eq!(harness.reader.snapshot().revision().0, 50);
    assert_eq!(harness.reader.staleness(), None);
}

#[tokio::test(start_paused = true)]
async fn a_connection_lost_at_a_watchs_start_is_stale_after_a_second() {
    let mut harness = harness(vec![
        listing(10, &[]),
        watching().cut(),
        watching().cut(),
        watching().line(&event("ADDED", &pod("a", 11))).hang(),
    ]);
    harness.expect(&["list of 0 at 10:", "live", "1 events: +a-uid@11"]).await;
    let mut answers = vec![listing(10, &[])];
    answers.extend(vec![watching().cut(); 9]);
    let mut harness = self::harness(answers);
    let lost = "stale: the watch ended and was not back after 1 s";
    harness.expect(&["list of 0 at 10:", "live", lost]).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_silent_past_its_timeout_is_resumed_within_10_seconds() {
    let mut harness =
        harness(vec![listing(10, &[]), watching().hang(), watching().line(&event("ADDED", &pod("a", 11))).hang()]);
    let expected = ["list of 0 at 10:", "live", "stale: no bookmark for 10 s", "live", "1 events: +a-uid@11"];
    harness.expect(&expected).await;
    let requests = harness.requests();
    assert_eq!(requests[2].0 - requests[1].0, Duration::from_secs(10));
    assert!(requests[2].1.contains("resourceVersion=10"), "{requests:?}");
    assert_eq!(harness.counters.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_cut_within_an_event_loses_nothing_and_is_not_stale() {
    let half = event("ADDED", &pod("b", 12));
    let cut = watching().line(&event("ADDED", &pod("a", 11))).bytes(&half[..40]).cut();
    let mut harness = harness(vec![listing(10, &[]), cut, watching().line(&half).hang()]);
    harness.expect(&["list of 0 at 10:", "live", "1 events: +a-uid@11", "1 events: +b-uid@12"]).await;
    assert!(harness.query(2).contains("resourceVersion=11"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_not_back_after_a_second_is_stale_until_it_is() {
    let slow = watching().head_after(Duration::from_secs(3)).hang();
    let mut harness = harness(vec![listing(10, &[]), watching().wait(4).cut(), slow]);
    let stale = "stale: the watch ended and was not back after 1 s";
    harness.expect(&["list of 0 at 10:", "live", stale]).await;
    assert_eq!(harness.reader.staleness().unwrap().reason, stale.trim_start_matches("stale: "));
    harness.expect(&["live"]).await;
    assert_eq!(harness.reader.staleness(), None);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_event_leads_to_a_list_after_the_events_before_it() {
    for malformed in ["{\"type\":\"ADDED\",", r#"{"type":"ADDED","object":null}"#, r#"{"type":"ADDED"}"#, "\u{0}", "[]"]
    {
        let mut harness = harness(vec![
            listing(10, &[]),
            watching().line(&event("ADDED", &pod("a", 11))).line(malformed).line(&event("ADDED", &pod("b", 12))).hang(),
            listing(20, &[pod("a", 11), pod("b", 12)]),
            watching().hang(),
        ]);
        harness.expect(&["list of 0 at 10:", "live", "1 events: +a-uid@11"]).await;
        let stale = harness.next().await;
        assert!(stale.starts_with("stale: malformed"), "{stale}");
        harness.expect(&["list of 2 at 20: +b-uid@12", "live"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_for_patience_gets_it() {
    let busy = answer(429).retry_after(7).bytes(&status(429, "TooManyRequests", ""));
    let mut harness = harness(vec![busy, listing(10, &[]), watching().hang()]);
    harness.expect(&["stale: 429 TooManyRequests: no", "list of 0 at 10:", "live"]).await;
    let after = harness.requests()[1].0;
    assert!((Duration::from_secs(7)..Duration::from_secs(8)).contains(&after), "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failing_server_is_retried_with_growing_waits() {
    let mut answers = vec![listing(10, &[])];
    answers.extend((0..8).map(|_| answer(503)));
    answers.push(watching().hang());
    let mut harness = harness(answers);
    harness.expect(&["list of 0 at 10:", "stale: 503: ", "live"]).await;
    let requests = harness.requests();
    let waits: Vec<_> = requests[1..].windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(waits[0] <= Duration::from_millis(401) && waits[7] >= Duration::from_millis(2_500), "{waits:?}");
    assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(5_001)), "{waits:?}");
    assert_eq!(harness.counters.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_behind_is_waited_for_without_a_list() {
    let behind = || answer(504).bytes(&status(504, "Timeout", "ResourceVersionTooLarge"));
    let mut harness = harness(vec![listing(10, &[]), behind(), behind(), watching().hang()]);
    harness.expect(&["list of 0 at 10:", "stale: 504 Timeout: no", "live"]).await;
    assert_eq!(harness.counters.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_rolled_back_history_is_announced_and_applied() {
    let behind = || answer(504).bytes(&status(504, "Timeout", "ResourceVersionTooLarge"));
    let mut harness = harness(vec![
        listing(100, &[pod("a", 50), pod("b", 60), pod("c", 20)]),
        behind(),
        behind(),
        behind(),
        behind(),
        listing(40, &[pod("a", 30), pod("c", 20).replace(r#""at":"20""#, r#""at":"another 20""#)]),
        watching().line(&event("MODIFIED", &pod("a", 41))).hang(),
    ]);
    harness.expect(&["list of 3 at 100: +a-uid@50 +b-uid@60 +c-uid@20", "stale: 504 Timeout: no", "rolled back"]).await;
    harness.expect(&["list of 2 at 40: -b-uid@60 a-uid@50>30 c-uid@20>20", "live", "1 events: a-uid@30>41"]).await;
}

/// Returns a server whose history of revision 100 was set back to 40, as the first answer to a revision check shows.
fn set_back() -> Vec<Answer> {
    vec![
        listing(100, &[pod("a", 50), pod("phantom", 55)]),
        watching().wait(4).cut(),
        watching().wait(3),
        answer(200).bytes(&page(40, "t", &[pod("a", 30)])),
    ]
}

const SET_BACK: [&str; 3] =
    ["list of 2 at 100: +a-uid@50 +phantom-uid@55", "live", "stale: the API server is at revision 40, before 100"];

#[tokio::test(start_paused = true)]
async fn a_rollback_behind_a_lost_connection_is_detected() {
    let mut answers = set_back();
    answers.extend([listing(40, &[pod("a", 30)]), watching().hang()]);
    let mut harness = harness(answers);
    harness.expect(&SET_BACK).await;
    harness.expect(&["rolled back", "list of 1 at 40: -phantom-uid@55 a-uid@50>30", "live"]).await;
    let requests = harness.requests();
    assert!(requests[2].1.ends_with("resourceVersion=100&timeoutSeconds=3"), "{requests:?}");
    assert_eq!(requests[3].1, "limit=1");
    assert!(requests[4].0 - requests[3].0 <= Duration::from_millis(401), "{requests:?}");
    assert!(!requests[4].1.contains("resourceVersion="), "{requests:?}");
    assert!(requests[5].1.ends_with("resourceVersion=40&timeoutSeconds=8"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_proven_rollback_is_announced_although_the_new_history_has_caught_up() {
    let failures: [&[Answer]; 4] = [
        &[],
        &[answer(503), answer(503), answer(503), answer(503), answer(503), answer(503)],
        &[answer(410)],
        &[answer(504).bytes(&status(504, "Timeout", "ResourceVersionTooLarge"))],
    ];
    for failures in failures {
        let mut answers = set_back();
        answers.extend_from_slice(failures);
        // The same revisions as before with other states.
        let another = pod("a", 50).replace(r#""at":"50""#, r#""at":"another 50""#);
        answers.extend([listing(130, &[another, pod("b", 60)]), watching().hang()]);
        let mut harness = harness(answers);
        harness.expect(&SET_BACK).await;
        let mut observed = harness.next().await;
        while observed.starts_with("stale") {
            observed = harness.next().await;
        }
        assert_eq!(observed, "rolled back", "{failures:?}");
        harness.expect(&["list of 2 at 130: -phantom-uid@55 a-uid@50>50 +b-uid@60", "live"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollback_proven_by_a_page_is_announced_after_the_list_failed() {
    let behind = || answer(504).bytes(&status(504, "Timeout", "ResourceVersionTooLarge"));
    let mut answers = vec![answer(400), answer(200).bytes(&page(100, "", &[pod("a", 50)]))];
    answers.extend((0..4).map(|_| behind()));
    let first = answer(200).bytes(&page(40, "t", &[pod("a", 30)]));
    answers.extend([first, answer(503), answer(200).bytes(&page(130, "", &[pod("a", 110)])), watching().hang()]);
    let mut harness = harness(answers);
    harness.expect(&["list of 1 at 100: +a-uid@50", "stale: 504 Timeout: no", "stale: 503: ", "rolled back"]).await;
    harness.expect(&["list of 1 at 130: a-uid@50>110", "live"]).await;
    assert_eq!(harness.query(6), "limit=500", "a list of any revision");
}

#[tokio::test(start_paused = true)]
async fn an_idle_cluster_costs_a_revision_check_every_fourth_watch() {
    let quiet = || watching().wait(8);
    let present = || answer(200).bytes(&page(10, "", &[]));
    let round = || [quiet(), quiet(), quiet(), quiet(), present()];
    let mut harness =
        harness([vec![listing(10, &[])], round().to_vec(), round().to_vec(), vec![watching().hang()]].concat());
    harness.expect(&["list of 0 at 10:", "live"]).await;
    tokio::time::sleep(Duration::from_secs(65)).await;
    let asked: Vec<_> = harness.requests().iter().map(|(_, query)| query.len() < 10).collect();
    assert_eq!(asked, [false, false, false, false, false, true, false, false, false, false, true, false]);
    assert_eq!((harness.counters.lists(), harness.reader.staleness()), (1, None));
}

#[tokio::test(start_paused = true)]
async fn an_older_list_of_a_lagging_replica_is_not_applied() {
    let mut harness = harness(vec![
        listing(10, &[pod("a", 5)]),
        answer(410),
        listing(7, &[pod("ghost", 3)]),
        listing(12, &[pod("a", 5)]),
        watching().hang(),
    ]);
    harness.expect(&["list of 1 at 10: +a-uid@5", "stale: 410: "]).await;
    harness.expect(&["stale: a list of revision 7 is older than 10", "list of 1 at 12:", "live"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_goes_backwards_leads_to_a_list() {
    let again = event("ADDED", &pod("a", 11));
    let mut harness = harness(vec![
        listing(10, &[]),
        watching().line(&again).line(&again).line(&event("ADDED", &pod("b", 8))).hang(),
        listing(20, &[pod("a", 11), pod("b", 8)]),
        watching().hang(),
    ]);
    harness.expect(&["list of 0 at 10:", "live", "2 events: +a-uid@11"]).await;
    harness.expect(&["stale: the watch went back from revision 11 to 8", "list of 2 at 20: +b-uid@8", "live"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_pod_keeps_its_last_state_and_costs_no_list() {
    let bad = |revision| pod("a", revision).replacen("{", r#"{"spec":{"containers":7},"#, 1);
    let mut harness = harness(vec![
        listing(10, &[pod("a", 5)]),
        watching().line(&event("MODIFIED", &bad(11))).line(&event("ADDED", &pod("b", 12))).hang(),
    ]);
    harness.expect(&["list of 1 at 10: +a-uid@5", "live", "1 events: +b-uid@12"]).await;
    assert_eq!((harness.counters.unreadable(), harness.counters.lists()), (1, 1));
    assert_eq!(harness.reader.snapshot().get("shop", "a").unwrap().revision.0, 5);
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_pod_is_gone_only_after_its_deletion() {
    let bad = |revision| pod("a", revision).replacen("{", r#"{"spec":{"containers":7},"#, 1);
    let mut harness = harness(vec![
        listing(10, &[pod("a", 5)]),
        answer(410),
        listing(20, &[bad(15)]),
        watching().line(&event("DELETED", &bad(21))).hang(),
        listing(25, &[]),
        watching().hang(),
    ]);
    harness.expect(&["list of 1 at 10: +a-uid@5", "stale: 410: ", "list of 1 at 20:", "live"]).await;
    harness.expect(&["stale: the deletion of shop/a cannot be decoded", "list of 0 at 25: -a-uid@5", "live"]).await;
}

#[tokio::test(start_paused = true)]
async fn undecoded_pods_are_counted_until_their_next_state_or_list() {
    let bad = |name, revision| pod(name, revision).replacen("{", r#"{"spec":{"containers":7},"#, 1);
    let expired = || watching().line(&event("ERROR", &status(410, "Expired", "")));
    let end = watching()
        .wait(1)
        .line(&event("MODIFIED", &bad("b", 11)))
        .line(&event("MODIFIED", &bad("b", 12)))
        .wait(1)
        .line(&event("MODIFIED", &pod("a", 13)))
        .wait(1)
        .line(&event("DELETED", &pod("b", 14)))
        .wait(1)
        .line(&event("MODIFIED", &bad("c", 15)))
        .line(&event("MODIFIED", &bad("d", 16)))
        .line(&event("ERROR", &status(410, "Expired", "")));
    let mut harness = harness(vec![
        listing(10, &[bad("a", 5), pod("b", 6)]),
        end,
        // A list that fails changes nothing.
        answer(200).line(&event("ADDED", &pod("c", 19))).cut(),
        answer(200).bytes(&page(20, "", &[bad("d", 16), pod("e", 17)])),
        expired(),
        listing(30, &[pod("e", 17)]),
        watching().hang(),
    ]);
    let mut counts = Vec::new();
    for expected in [
        "list of 2 at 10: +b-uid@6",
        "live",
        "bookmark 12",
        "1 events: +a-uid@13",
        "1 events: b-uid@6>14 -b-uid@14",
        "bookmark 16",
        "stale: 410 Expired: no",
        "list of 2 at 20: -a-uid@13 +e-uid@17",
        "live",
        "stale: 410 Expired: no",
        "list of 1 at 30:",
    ] {
        assert_eq!(harness.next().await, expected);
        let of_namespace = |namespace| harness.counters.undecoded(namespace);
        assert_eq!((of_namespace(None), of_namespace(Some("sho"))), (of_namespace(Some("shop")), 0));
        counts.push(of_namespace(None));
    }
    assert_eq!(counts, [1, 1, 2, 1, 0, 2, 2, 1, 1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_list_does_not_decode_unchanged_pods_again() {
    let mut harness = harness(vec![
        listing(10, &[pod("a", 5), pod("b", 6)]),
        answer(410),
        listing(20, &[pod("a", 5), pod("b", 16), pod("c", 17)]),
    ]);
    harness.expect(&["list of 2 at 10: +a-uid@5 +b-uid@6", "stale: 410: "]).await;
    let Some(Observation::Relisted { pods, .. }) = harness.observations.recv().await else { panic!("no list") };
    let read = |pod: &Record| pod.pod().key.name.to_string();
    assert_eq!((pods.held.len(), pods.read.iter().map(read).collect()), (1, vec!["b".to_owned(), "c".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_pod_deleted_before_a_lists_end_is_not_listed() {
    let bad = |name, revision| pod(name, revision).replacen("{", r#"{"spec":{"containers":7},"#, 1);
    let listed = answer(200)
        .line(&event("ADDED", &bad("gone", 5)))
        .line(&event("ADDED", &bad("kept", 6)))
        .line(&event("ADDED", &bad("mended", 7)))
        .line(&event("ADDED", &pod("first", 8)))
        .line(&event("MODIFIED", &bad("late", 11)))
        .line(&event("DELETED", &pod("gone", 12)))
        .line(&event("DELETED", &pod("late", 13)))
        .line(&event("MODIFIED", &pod("mended", 14)))
        .line(&end_of_list(20))
        .hang();
    let mut harness = harness(vec![listed, watching().hang()]);
    let Some(Observation::Relisted { pods, .. }) = harness.observations.recv().await else { panic!("no list") };
    let held = pods.held.clone().sorted();
    let held = ["gone", "kept", "mended", "late"].map(|name| held.contains(&format!("{name}-uid")));
    assert_eq!((held, pods.read.len()), ([false, true, false, false], 2));
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_one_namespace_asks_for_no_other() {
    let options = WatchOptions { namespace: Some("shop".to_owned()), ..WatchOptions::default() };
    let mut harness = rig_with(vec![answer(400), answer(200).bytes(&page(10, "", &[])), watching().hang()], options);
    harness.expect(&["list of 0 at 10:", "live"]).await;
    for (_, target) in harness.requests() {
        assert!(target.starts_with("/api/v1/namespaces/shop/pods?"), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_an_unknown_type_are_passed_over() {
    let unknown = watching().line(&event("PURGED", &pod("a", 11))).line(&event("ADDED", &pod("b", 12))).hang();
    let mut harness = harness(vec![listing(10, &[]), unknown]);
    harness.expect(&["list of 0 at 10:", "live", "1 events: +b-uid@12"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_watch_ends_when_the_receiver_is_dropped() {
    let Harness { observations, task, .. } = harness(vec![answer(500)]);
    drop(observations);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn waits_grow_for_server_errors_only() {
    for (sent, grow) in [(false, false), (true, true)] {
        let (api, _) = wire(Vec::new());
        let (_, reader) = cache::new(7);
        let mut watch = Watch::new(api, WatchOptions::default(), Arc::new(Pool::new(7)), Arc::new(reader), 7);
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            watch.after_error(&ApiError::Transport { sent, message: String::new() });
            longest = longest.max(watch.retries.wait(None));
        }
        assert_eq!(longest > Duration::from_millis(400), grow, "{longest:?}");
    }
}
