//! Lists against scripted responses: each of them ends, wherever the response is cut. Under paused
//! time, with a real cache behind the watch.

use std::time::Duration;

use podium_engine::fixtures::{Warnings, log_to};

use super::{
    scenarios::{Harness, listing, rig_with, watching},
    wire::{Answer, answer, bookmark, end_of_list, event, page, pod, status},
};
use crate::watch::WatchOptions;

fn harness(answers: Vec<Answer>) -> Harness {
    rig_with(answers, WatchOptions::default())
}

fn added(name: &str, revision: u64) -> String {
    event("ADDED", &pod(name, revision))
}

#[tokio::test(start_paused = true)]
async fn a_cut_streaming_list_is_replaced_by_pages() {
    let cut = || answer(200).line(&added("a", 5)).wait(10).cut();
    let gone = || answer(410).bytes(&status(410, "Expired", ""));
    let mut harness = harness(vec![
        cut(),
        answer(200).bytes(&page(10, "", &[pod("a", 5)])),
        gone(),
        cut(),
        answer(200).bytes(&page(20, "", &[pod("a", 5)])),
        gone(),
        answer(200).bytes(&page(30, "", &[pod("a", 5)])),
        watching().hang(),
    ]);
    let relisted = "stale: 410 Expired: no";
    harness.expect(&["list of 1 at 10: +a-uid@5", relisted, "list of 1 at 20:", "list of 1 at 30:", "live"]).await;
    let streamed: Vec<_> = harness.requests().iter().map(|(_, query)| query.contains("sendInitialEvents")).collect();
    assert_eq!(streamed, [true, false, false, true, false, false, false, false]);
    assert_eq!(harness.requests()[1].0, Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_never_begins_is_replaced_by_pages() {
    let answers = vec![
        answer(200).hang().head_after(Duration::from_secs(60)),
        answer(500),
        answer(200).bytes(&page(10, "", &[pod("a", 5)])),
        watching().hang(),
    ];
    let mut harness = harness(answers);
    harness.expect(&["stale: no answer within 5 s", "stale: 500: ", "list of 1 at 10: +a-uid@5", "live"]).await;
}

#[tokio::test(start_paused = true)]
async fn changes_during_the_initial_events_belong_to_the_list() {
    let again =
        |name: &str, uid: &str, revision| event("ADDED", &pod(name, revision).replace(&format!("{name}-uid"), uid));
    let listed = answer(200)
        .line(&added("a", 5))
        .line(&added("b", 6))
        .line(&added("c", 7))
        .line(&added("d", 8))
        .line(&added("d", 9))
        .line(&event("MODIFIED", &pod("a", 11)))
        .line(&event("DELETED", &pod("b", 12)))
        .line(&event("DELETED", &pod("c", 13)))
        .line(&again("c", "second", 14))
        .line(&added("e", 15))
        .line(&event("MODIFIED", &pod("a", 16)))
        .line(&end_of_list(20))
        .hang();
    let mut harness = harness(vec![listed, watching().hang()]);
    harness.expect(&["list of 5 at 20: +a-uid@16 +second@14 +d-uid@9 +e-uid@15", "live"]).await;
    assert_eq!((harness.counters.lists(), harness.requests().len()), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn changes_during_initial_events_are_reported_for_cached_pods() {
    let unreadable = pod("d", 28).replacen("{", r#"{"spec":{"containers":7},"#, 1);
    let again = answer(200)
        .line(&added("a", 5))
        .line(&added("b", 6))
        .line(&added("c", 7))
        .line(&added("d", 8))
        .line(&event("MODIFIED", &pod("a", 25)))
        .line(&event("DELETED", &pod("b", 26)))
        .line(&event("MODIFIED", &unreadable))
        .line(&end_of_list(30))
        .hang();
    let first = listing(10, &[pod("a", 5), pod("b", 6), pod("c", 7), pod("d", 8)]);
    let mut harness = harness(vec![first, answer(410), again, watching().hang()]);
    harness.next().await;
    harness.expect(&["stale: 410: ", "list of 3 at 30: -b-uid@6 a-uid@5>25", "live"]).await;
    assert_eq!(harness.counters.unreadable(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_change_within_a_list_keeps_the_cached_state() {
    let unreadable = pod("b", 26).replacen("{", r#"{"spec":{"containers":7},"#, 1);
    let again = answer(200)
        .line(&added("a", 5))
        .line(&event("MODIFIED", &pod("a", 25)))
        .line(&event("ADDED", &unreadable))
        .line(&end_of_list(30))
        .hang();
    let first = listing(10, &[pod("a", 5), pod("b", 6)]);
    let mut harness = harness(vec![first, answer(410), again, watching().hang()]);
    harness.next().await;
    harness.expect(&["stale: 410: ", "list of 2 at 30: a-uid@5>25", "live"]).await;
    assert_eq!(harness.counters.unreadable(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_deletion_within_a_list_causes_another_list() {
    let unreadable = pod("b", 12).replacen("{", r#"{"spec":{"containers":7},"#, 1);
    let cut_short = answer(200)
        .line(&added("a", 5))
        .line(&added("b", 6))
        .line(&event("DELETED", &unreadable))
        .line(&end_of_list(20))
        .hang();
    let mut harness = harness(vec![cut_short, listing(30, &[pod("a", 5)]), watching().hang()]);
    assert!(harness.next().await.starts_with("stale: the deletion of shop/b"));
    harness.expect(&["list of 1 at 30: +a-uid@5", "live"]).await;
}

#[tokio::test(start_paused = true)]
async fn failed_pages_become_smaller_and_are_not_repeated() {
    let first = || answer(200).bytes(&page(10, "next", &[pod("a", 5)]));
    let mut harness = harness(vec![
        answer(400),
        first(),
        // The second page is requested with a quarter of the size.
        answer(200).bytes(r#"{"kind":"PodList","items":[{"#).wait(14).cut(),
        answer(200).head_after(Duration::from_secs(20)),
        answer(200).bytes(&page(10, "", &[pod("b", 6)])),
        watching().hang(),
    ]);
    harness.expect(&["list of 2 at 10: +a-uid@5 +b-uid@6", "live"]).await;
    let queries: Vec<_> = harness.requests()[1..5].iter().map(|(_, query)| query.clone()).collect();
    assert_eq!(queries, ["limit=500", "limit=500&continue=next", "limit=250&continue=next", "limit=125&continue=next"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_refused_as_too_large_is_requested_at_half_the_size() {
    for code in [408, 413, 504] {
        let small = answer(200).bytes(&page(10, "", &[pod("a", 5)]));
        let mut harness = harness(vec![answer(400), answer(code), small, watching().hang()]);
        harness.expect(&["list of 1 at 10: +a-uid@5", "live"]).await;
        assert_eq!((&*harness.query(1), &*harness.query(2)), ("limit=500", "limit=250"), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn pages_that_never_arrive_shrink_to_one_pod_with_back_off() {
    let mut answers = vec![answer(400)];
    answers.extend(vec![answer(200).head_after(Duration::from_secs(20)); 11]);
    answers.extend([answer(200).bytes(&page(10, "", &[pod("a", 5)])), watching().hang()]);
    let options = WatchOptions { page_deadline: Duration::from_secs(5), ..WatchOptions::default() };
    let mut harness = rig_with(answers, options);
    harness.expect(&["stale: no answer within 5 s", "list of 1 at 10: +a-uid@5", "live"]).await;
    let limits: Vec<_> = harness.requests()[1..13].iter().map(|(_, query)| query.clone()).collect();
    let expected = [500, 250, 125, 62, 31, 15, 7, 3, 1, 1, 1, 1].map(|limit| format!("limit={limit}"));
    assert_eq!(limits, expected);
}

#[tokio::test(start_paused = true)]
async fn a_list_has_no_limit_of_size_or_time_while_bytes_arrive() {
    let first = || answer(200).bytes(&page(10, "t", &[pod("a", 5)]));
    let expired = || answer(410).bytes(&status(410, "Expired", ""));
    // 160 MiB in 80 s.
    let note = "<".repeat(1 << 20);
    let mut whole = answer(200).bytes(r#"{"kind":"PodList","metadata":{"resourceVersion":"12"},"items":["#);
    for index in 0..160 {
        let pod = pod(&format!("p{index}"), 6).replace(r#""at":"6""#, &format!(r#""at":"{note}""#));
        whole = whole.wait(index % 2).bytes(&pod).bytes(if index < 159 { "," } else { "]}" });
    }
    let answers = vec![answer(400), first(), expired(), first(), expired(), whole, watching().hang()];
    let mut harness = harness(answers);
    let listed = harness.next().await;
    assert!(listed.starts_with("list of 160 at 12:"), "{}", &listed[..60]);
    assert_eq!(harness.query(5), "limit=0");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_always_refused_leads_to_a_list() {
    let stream_error = || watching().line(&event("ERROR", &status(500, "InternalError", "")));
    for refused in [answer(400), answer(403), answer(500), stream_error()] {
        let mut answers = vec![listing(10, &[])];
        answers.extend(vec![refused; 5]);
        answers.extend([listing(20, &[pod("a", 15)]), watching().hang()]);
        let mut harness = harness(answers);
        while harness.next().await != "list of 1 at 20: +a-uid@15" {}
        assert_eq!((harness.counters.lists(), harness.counters.watches()), (2, 6));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_is_logged_in_growing_intervals() {
    let warnings = Warnings::default();
    let _logged = log_to(warnings.clone());
    let mut harness = harness(vec![answer(503); 40]);
    while harness.requests().len() < 40 {
        let _ = tokio::time::timeout(Duration::from_secs(1), harness.next()).await;
    }
    let logged = warnings.count();
    assert!((2..=5).contains(&logged), "{logged} of 40 failures");
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_server_is_not_asked_for_a_list() {
    for code in [429, 502, 503, 504] {
        let mut answers = vec![listing(10, &[])];
        answers.extend(vec![answer(code); 12]);
        answers.push(watching().line(&bookmark(11)).hang());
        let mut harness = harness(answers);
        while harness.next().await != "bookmark 11" {}
        assert_eq!((harness.counters.lists(), harness.counters.watches()), (1, 13), "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_whose_watches_are_refused_at_once_become_rare() {
    for refused in
        [answer(410).bytes(&status(410, "Expired", "")), watching().line(&event("ERROR", &status(410, "Expired", "")))]
    {
        let list = |revision| answer(200).bytes(&page(revision, "", &[pod("a", 5)]));
        let refusals = (0..20).flat_map(|at| [list(10 + at), refused.clone()]);
        let works = [list(90), watching().line(&bookmark(91)), refused.clone(), list(92), watching().hang()];
        let mut harness = harness(std::iter::once(answer(422)).chain(refusals).chain(works).collect());
        while !harness.next().await.starts_with("list of 1 at 90") {}
        let lists: Vec<_> = harness.requests().into_iter().filter(|(_, query)| query.starts_with("limit=")).collect();
        let apart: Vec<_> = lists.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        assert!(apart[..16].iter().all(|apart| *apart <= Duration::from_secs(5)), "{apart:?}");
        let rare = Duration::from_secs(15)..=Duration::from_secs(30);
        assert!(apart[16..20].iter().all(|apart| rare.contains(apart)), "{apart:?}");
        // A watch that worked makes the distance short again.
        let began = tokio::time::Instant::now();
        while !harness.next().await.starts_with("list of 1 at 92") {}
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_lost_again_and_again_delays_no_list_beyond_5_s() {
    let lost = || watching().wait(2).line(&event("ERROR", &status(410, "Expired", "")));
    let refused = || answer(410).bytes(&status(410, "Expired", ""));
    let list = |revision| answer(200).bytes(&page(revision, "", &[pod("a", 5)]));
    let rounds = (0..24).flat_map(|at| [list(10 + at * 2), refused(), list(11 + at * 2), lost()]);
    let mut harness = harness(std::iter::once(answer(422)).chain(rounds).chain([list(90)]).collect());
    while !harness.next().await.starts_with("list of 1 at 90") {}
    let times: Vec<_> = harness.requests().into_iter().map(|(time, _)| time).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= Duration::from_secs(7)), "{times:?}");
}
