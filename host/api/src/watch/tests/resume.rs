//! Starts from a checkpoint against scripted responses, under paused time, with a real cache behind the watch.

use std::time::Duration;

use podium_pods::{
    pod::Checkpoint,
    testing::{self, cached},
};
use podium_vocabulary::Revision;

use super::{
    scenarios::{Harness, listing, rig_from, rig_of, watching},
    wire::{Answer, answer, bookmark, event, page, pod, status},
};
use crate::watch::WatchOptions;

/// Returns a checkpoint of the Pods a@5, b@6 and c@9 at revision 10, in the form of [`pod`].
fn checkpoint() -> Checkpoint {
    let pods = [("a", 5), ("b", 6), ("c", 9)];
    let pods = pods.map(|(name, revision)| cached(&testing::pod(name, &format!("{name}-uid"), revision, "x")).into());
    Checkpoint { pods: pods.into(), revision: Revision(10), cluster: None }
}

/// Returns the responses to the reads of the checkpoint's Pods by name.
fn spread(pods: [Option<String>; 3]) -> Vec<Answer> {
    pods.map(|pod| pod.map_or(answer(404), |pod| answer(200).bytes(&pod))).into()
}

fn unchanged() -> Vec<Answer> {
    spread([Some(pod("a", 5)), Some(pod("b", 6)), Some(pod("c", 9))])
}

/// Starts from a checkpoint on a server with these first Pods and these further responses.
fn warm(revision: u64, sample: &[String], answers: Vec<Answer>) -> Harness {
    let sample = answer(200).bytes(&page(revision, "more", sample));
    rig_from([vec![sample], answers].concat(), WatchOptions::default(), Some(checkpoint()))
}

fn usual(answers: Vec<Answer>) -> Harness {
    warm(20, &[pod("a", 5), pod("b", 6)], [unchanged(), answers].concat())
}

#[tokio::test(start_paused = true)]
async fn changes_since_the_checkpoint_and_the_rest_are_one_list() {
    let changed = watching()
        .line(&event("MODIFIED", &pod("b", 12)))
        .line(&event("ADDED", &pod("d", 13)))
        .line(&event("DELETED", &pod("c", 15)))
        .line(&event("MODIFIED", &pod("d", 21)))
        .line(&event("MODIFIED", &pod("d", 22)));
    let mut harness = usual(vec![changed.hang(), watching().line(&event("MODIFIED", &pod("a", 23))).hang()]);
    harness.expect(&["list of 3 at 22: +a-uid@5 +b-uid@12 +d-uid@22", "live", "1 events: a-uid@5>23"]).await;
    assert_eq!(harness.query(0), "limit=20");
    assert_eq!(
        [1, 2, 3].map(|at| harness.query(at)),
        ["a", "b", "c"].map(|name| format!("/api/v1/namespaces/shop/pods/{name}"))
    );
    assert_eq!(harness.query(4), "watch=1&allowWatchBookmarks=true&resourceVersion=10&timeoutSeconds=3");
    assert_eq!(harness.query(5), "watch=1&allowWatchBookmarks=true&resourceVersion=22&timeoutSeconds=8");
    assert_eq!((harness.counters.lists(), harness.counters.watches()), (0, 2));
    assert_eq!(
        harness.reader.snapshot().iter().map(|pod| pod.key.name.to_string()).collect::<Vec<_>>(),
        ["a", "b", "d"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_or_an_equal_revision_confirms_a_checkpoint() {
    let mut harness = usual(vec![watching().wait(1).line(&bookmark(25)).hang(), watching().hang()]);
    harness.expect(&["list of 3 at 25: +a-uid@5 +b-uid@6 +c-uid@9", "live"]).await;
    assert_eq!(harness.requests()[5].0, Duration::from_secs(1));
    let mut harness = warm(10, &[pod("a", 5)], [unchanged(), vec![watching().hang()]].concat());
    harness.expect(&["list of 3 at 10: +a-uid@5 +b-uid@6 +c-uid@9", "live"]).await;
    assert_eq!(harness.requests().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_from_before_the_start_does_not_suffice() {
    let mut harness = usual(vec![
        watching().line(&event("DELETED", &pod("c", 12))).wait(1).line(&bookmark(19)),
        watching().wait(1).line(&bookmark(20)),
        watching().hang(),
    ]);
    harness.expect(&["list of 2 at 20: +a-uid@5 +b-uid@6", "live"]).await;
    assert!(harness.query(5).contains("resourceVersion=19&"));
}

#[tokio::test(start_paused = true)]
async fn recreated_and_short_lived_pods_end_in_their_last_state() {
    let named = |name: &str, uid: &str, revision| pod(name, revision).replace(&format!("{name}-uid"), uid);
    let changed = watching()
        .line(&event("DELETED", &pod("a", 11)))
        .line(&event("ADDED", &named("a", "second", 12)))
        .line(&event("DELETED", &pod("b", 13)))
        .line(&event("ADDED", &named("b", "other", 14)))
        .line(&event("DELETED", &named("b", "other", 15)))
        .line(&event("ADDED", &pod("d", 16)))
        .line(&event("DELETED", &pod("d", 20)));
    let mut harness = usual(vec![changed.hang(), watching().hang()]);
    harness.expect(&["list of 2 at 20: +second@12 +c-uid@9", "live"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_newer_than_the_checkpoint_of_an_earlier_version_stays() {
    let mut saved = checkpoint();
    saved.pods[2] = cached(&testing::pod("c", "c-uid", 14, "x")).into();
    let answers = vec![
        answer(200).bytes(&page(20, "", &[pod("a", 5), pod("b", 6), pod("c", 14)])),
        answer(200).bytes(&pod("a", 5)),
        answer(200).bytes(&pod("b", 6)),
        answer(200).bytes(&pod("c", 14)),
        watching().line(&event("MODIFIED", &pod("c", 11))).line(&event("MODIFIED", &pod("c", 14))).line(&bookmark(20)),
        watching().hang(),
    ];
    let mut harness = rig_from(answers, WatchOptions::default(), Some(saved));
    harness.expect(&["list of 3 at 20: +a-uid@5 +b-uid@6 +c-uid@14", "live"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_another_cluster_is_replaced_by_a_list() {
    let [other, gone] = [Some(pod("b", 6).replace("b-uid", "other")), None];
    let of_others: [(u64, Vec<String>, [Option<String>; 3]); 8] = [
        // Mismatches of the first Pods: another incarnation, another revision, a Pod that the checkpoint lacks, an
        // older server.
        (20, vec![pod("a", 5).replace("a-uid", "other")], [const { None }; 3]),
        (20, vec![pod("a", 5), pod("b", 7)], [const { None }; 3]),
        (20, vec![pod("a", 5), pod("aa", 4)], [const { None }; 3]),
        (9, vec![pod("a", 5)], [const { None }; 3]),
        // Mismatches of the other Pods: another incarnation, another revision, an older one, no Pod at all.
        (20, vec![pod("a", 5)], [Some(pod("a", 5)), other, gone]),
        (20, vec![pod("a", 5)], [Some(pod("a", 5)), Some(pod("b", 6)), Some(pod("c", 10))]),
        (20, vec![pod("a", 5)], [Some(pod("a", 5)), Some(pod("b", 6)), Some(pod("c", 8))]),
        (20, vec![pod("new", 11)], [const { None }; 3]),
    ];
    for (revision, first, named) in of_others {
        let asked =
            if named.iter().all(Option::is_none) && first[0] != pod("new", 11) { vec![] } else { spread(named) };
        let list = vec![listing(30, &[pod("z", 7)]), watching().hang()];
        let mut harness = warm(revision, &first, [asked, list].concat());
        harness.expect(&["list of 1 at 30: +z-uid@7", "live"]).await;
        assert_eq!(harness.requests()[1].0, Duration::ZERO, "{first:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_used_although_all_first_pods_changed() {
    let changed = |name: &str, uid: &str, revision| pod(name, revision).replace(&format!("{name}-uid"), uid);
    let first = [changed("a", "second", 11), pod("aa", 12), pod("ab", 13)];
    let now = spread([Some(first[0].clone()), None, Some(pod("c", 14))]);
    let events = watching()
        .line(&event("DELETED", &pod("a", 11)))
        .line(&event("ADDED", &first[0]))
        .line(&event("ADDED", &first[1]))
        .line(&event("ADDED", &first[2]))
        .line(&event("MODIFIED", &pod("c", 14)))
        .line(&event("DELETED", &pod("b", 15)))
        .line(&bookmark(20))
        .hang();
    let mut harness = warm(20, &first, [now, vec![events, watching().hang()]].concat());
    harness.expect(&["list of 4 at 20: +second@11 +aa-uid@12 +ab-uid@13 +c-uid@14", "live"]).await;
    assert_eq!(harness.counters.lists(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_clusters_uid_decides_about_a_checkpoint_without_pods() {
    let of = |saved: &str| Checkpoint { cluster: Some(saved.into()), ..checkpoint() };
    let list = vec![listing(30, &[pod("z", 7)]), watching().hang()];
    let mut harness = rig_of(list, WatchOptions::default(), Some(of("other")), Some("this".into()));
    harness.expect(&["list of 1 at 30: +z-uid@7", "live"]).await;

    let gone = ["a", "b", "c"].iter().zip(12..).map(|(name, at)| event("DELETED", &pod(name, at)));
    let events = gone.fold(watching(), |events, gone| events.line(&gone)).line(&bookmark(20));
    let sample = answer(200).bytes(&page(20, "", &[]));
    let answers = [vec![sample], spread([None, None, None]), vec![events, watching().hang()]].concat();
    let mut harness = rig_of(answers, WatchOptions::default(), Some(of("this")), Some("this".into()));
    harness.expect(&["list of 0 at 20:", "live"]).await;
    assert_eq!(harness.counters.lists(), 0);
}

#[tokio::test(start_paused = true)]
async fn after_three_cut_watches_a_checkpoint_is_replaced_by_a_list() {
    let attempt =
        || [vec![answer(200).bytes(&page(20, "", &[pod("a", 5)]))], unchanged(), vec![watching().cut()]].concat();
    let list = vec![listing(30, &[pod("b", 25)]), watching().hang()];
    let answers = [attempt(), attempt(), attempt(), list].concat();
    let mut harness = rig_from(answers, WatchOptions::default(), Some(checkpoint()));
    while harness.next().await != "list of 1 at 30: +b-uid@25" {}
    assert_eq!((harness.counters.lists(), harness.counters.watches()), (1, 3 + 1));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_whose_watches_are_cut_continues_at_each_cut() {
    let mut harness = usual(vec![
        watching().line(&event("MODIFIED", &pod("b", 12))).cut(),
        watching().line(&event("DELETED", &pod("c", 15))).cut(),
        watching().line(&bookmark(20)).hang(),
        watching().hang(),
    ]);
    harness.expect(&["list of 2 at 20: +a-uid@5 +b-uid@12", "live"]).await;
    assert!(harness.query(5).contains("resourceVersion=12&") && harness.query(6).contains("resourceVersion=15&"));
}

#[tokio::test(start_paused = true)]
async fn lost_history_and_undecodable_pods_end_in_a_list_at_once() {
    let broken = pod("b", 12).replace(r#""annotations":{"at":"12"}"#, r#""annotations":7"#);
    let useless = [
        answer(410).bytes(&status(410, "Expired", "")),
        watching().line(&event("MODIFIED", &pod("b", 12))).line(&event("ERROR", &status(410, "Expired", ""))),
        watching().line("no event"),
        watching().line(&event("MODIFIED", &broken)),
        watching().line(&event("MODIFIED", &pod("b", 12))).line(&event("MODIFIED", &pod("b", 11))),
        watching(),
    ];
    for answered in useless {
        let mut harness = usual(vec![answered, listing(30, &[pod("b", 25)]), watching().hang()]);
        harness.expect(&["list of 1 at 30: +b-uid@25", "live"]).await;
        assert_eq!((harness.requests()[5].0, harness.counters.lists()), (Duration::ZERO, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_catch_up_in_15_s_is_replaced_by_a_list() {
    let mut harness = usual(vec![watching().hang(), listing(30, &[pod("b", 25)]), watching().hang()]);
    harness.expect(&["list of 1 at 30: +b-uid@25", "live"]).await;
    assert_eq!(harness.requests()[5].0, Duration::from_secs(15));
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_server_does_not_cost_the_checkpoint() {
    let mut answers = vec![answer(503).bytes(&status(503, "ServiceUnavailable", "")); 5];
    answers.push(answer(200).bytes(&page(20, "", &[pod("a", 5)])));
    answers.extend(unchanged());
    answers.push(watching().cut());
    answers.push(answer(200).bytes(&page(21, "", &[pod("a", 5)])));
    answers.extend(unchanged());
    answers.push(watching().line(&event("DELETED", &pod("b", 12))).line(&bookmark(21)).hang());
    answers.push(watching().hang());
    let mut harness = rig_from(answers, WatchOptions::default(), Some(checkpoint()));
    assert!(harness.next().await.starts_with("stale: 503"));
    assert!(harness.next().await.starts_with("stale: "));
    harness.expect(&["list of 2 at 21: +a-uid@5 +c-uid@9", "live"]).await;
    assert_eq!(harness.counters.lists(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_a_rolled_back_history_hides_no_pod() {
    // etcd was restored to before revision 5 and has advanced past 10 since: a, b and c never existed, and a watch
    // from 10 does not show it.
    let saved = Checkpoint { cluster: Some("this".into()), ..checkpoint() };
    let sample = answer(200).bytes(&page(20, "", &[pod("new", 18)]));
    let events = watching().line(&event("ADDED", &pod("new", 18))).line(&bookmark(20));
    let list = vec![listing(30, &[pod("new", 18)]), watching().hang()];
    let answers = [vec![sample], spread([None, None, None]), vec![events], list].concat();
    let mut harness = rig_of(answers, WatchOptions::default(), Some(saved), Some("this".into()));
    harness.expect(&["list of 1 at 30: +new-uid@18", "live"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_vanished_without_an_event_refutes_the_checkpoint() {
    let events = |event: String| watching().line(&event).line(&bookmark(20)).hang();
    let second = pod("b", 14).replace("b-uid", "second");
    for (event, used) in [
        (event("DELETED", &pod("b", 14)), "list of 2 at 20: +a-uid@5 +c-uid@9"),
        (event("ADDED", &second), "list of 3 at 20: +a-uid@5 +second@14 +c-uid@9"),
        (event("MODIFIED", &pod("b", 14)), "list of 1 at 30: +z-uid@7"),
        (event("DELETED", &pod("x", 14)), "list of 1 at 30: +z-uid@7"),
    ] {
        let now = spread([Some(pod("a", 5)), None, Some(pod("c", 9))]);
        let then = if used.contains("z-uid") { listing(30, &[pod("z", 7)]) } else { watching().hang() };
        let mut harness = warm(20, &[pod("a", 5)], [now, vec![events(event), then, watching().hang()]].concat());
        harness.expect(&[used, "live"]).await;
    }
}
