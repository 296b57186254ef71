use super::*;

fn json(namespace: &str, name: &str) -> serde_json::Value {
    let metadata = json!({ "namespace": namespace, "name": name, "uid": format!("u-{name}") });
    json!({ "metadata": metadata, "spec": { "pod": { "name": "cart-0" } } })
}

fn read(json: &serde_json::Value) -> Report {
    Report::read(&Kind::RunReport, &json.to_string()).unwrap()
}

fn report(namespace: &str, name: &str) -> Report {
    read(&json(namespace, name))
}

fn after(began: Instant, millis: u64) -> Instant {
    began + Duration::from_millis(millis)
}

fn applied(reports: &mut Reports, report: Report, now: Instant) {
    reports.change(Change::Applied(Box::new(report)), now);
}

fn page(keys: &[Key], next: &str) -> Option<Page> {
    Some(Page { keys: keys.to_vec(), next: next.to_owned() })
}

fn ended(reports: &mut Reports, namespace: &str, deletions: usize) {
    (0..deletions).for_each(|_| reports.ended(&namespace.into(), false));
}

/// Returns the requests that are due, in one line each.
fn due(reports: &mut Reports, now: Instant) -> Vec<String> {
    let described = |due: Due| match due {
        Due::Answer(report) => format!("answer {}/{}", report.key.namespace, report.key.name),
        Due::Delete(key) => format!("delete {}/{}", key.namespace, key.name),
        Due::List(namespace, next) => format!("list {namespace}{next}"),
    };
    reports.due(now, Shards::ALL).into_iter().map(described).collect()
}

#[tokio::test(start_paused = true)]
async fn of_200_reports_8_wait_and_a_neighbours_is_answered_at_once() {
    let began = Instant::now();
    let mut reports = Reports::new(began);
    (0..200).for_each(|at| applied(&mut reports, report("noisy", &format!("r{at:03}")), began));
    applied(&mut reports, report("quiet", "mine"), began);
    let of_noisy = &reports.namespaces["noisy"];
    assert_eq!((of_noisy.known.len(), of_noisy.waiting.len()), (8, 8));
    assert_eq!(due(&mut reports, began), ["answer noisy/r000", "answer quiet/mine", "list noisy"]);
    assert_eq!(due(&mut reports, after(began, 900)), [""; 0]);
    assert_eq!(due(&mut reports, after(began, 1_000)), ["answer noisy/r001"]);

    let all: Vec<_> = (0..200).map(|at| report("noisy", &format!("r{at:03}")).key).collect();
    let noisy = &all[0].namespace;
    let now = after(began, 1_500);
    let deleted = reports.found(noisy, page(&all[..32], "-2"), now);
    assert_eq!(deleted, all[8..32].iter().cloned().map(Due::Delete).collect::<Vec<_>>(), "all that are not known");
    // The next page is due after the deletions of this one. A report that comes meanwhile is not lost.
    ["late0", "late1", "late2"].iter().for_each(|name| applied(&mut reports, report("noisy", name), now));
    ended(&mut reports, "noisy", 23);
    assert_eq!(due(&mut reports, now), [""; 0]);
    ended(&mut reports, "noisy", 1);
    assert_eq!(due(&mut reports, now), ["list noisy-2"]);
    // Objects that wait for finalizers do not hide those behind them.
    assert_eq!(reports.found(noisy, page(&[], "-3"), now), []);
    assert_eq!(due(&mut reports, now), ["list noisy-3"]);
    assert_eq!(reports.found(noisy, page(&all[199..], ""), now).len(), 1);
    ended(&mut reports, "noisy", 1);
    assert!(!due(&mut reports, after(began, 4_900)).contains(&"list noisy".to_owned()));
    assert!(due(&mut reports, after(began, 5_000)).contains(&"list noisy".to_owned()), "of the last one");
}

#[tokio::test(start_paused = true)]
async fn one_page_is_listed_at_a_time_by_turns_and_one_that_fails_not_soon() {
    let began = Instant::now();
    let mut reports = Reports::new(began);
    for namespace in ["a", "b"] {
        (0..9).for_each(|at| applied(&mut reports, report(namespace, &format!("r{at}")), began));
    }
    assert_eq!(due(&mut reports, began)[2..], ["list a"]);
    assert_eq!(due(&mut reports, began), [""; 0]);
    reports.found(&"a".into(), page(&[], "-2"), began);
    assert_eq!(due(&mut reports, began), ["list b"]);
    assert_eq!(reports.found(&"b".into(), None, began), []);
    assert_eq!(due(&mut reports, began), ["list a-2"]);
    reports.found(&"a".into(), None, began);
    let lists = |of: Vec<String>| of.into_iter().filter(|of| of.starts_with("list")).collect::<Vec<_>>();
    assert_eq!(lists(due(&mut reports, after(began, 59_999))), [""; 0]);
    // From the first page.
    due(&mut reports, after(began, 60_000));
    (0..2).for_each(|_| ["a", "b"].iter().for_each(|of| ended(&mut reports, of, 9)));
    assert_eq!(lists(due(&mut reports, after(began, 60_100))), ["list b"]);
    // The end of a page is known also when its namespace is not.
    reports.change(Change::Absent, began);
    reports.found(&"b".into(), page(&[], ""), began);
    assert!(!reports.is_listing);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_was_not_written_is_the_last_of_its_namespace() {
    let began = Instant::now();
    let mut reports = Reports::new(began);
    ["a", "b"].iter().for_each(|name| applied(&mut reports, report("shop", name), began));
    assert_eq!(due(&mut reports, began), ["answer shop/a"]);
    reports.not_answered(report("shop", "a"));
    assert_eq!(due(&mut reports, after(began, 1_000)), ["answer shop/b"]);
    assert_eq!(due(&mut reports, after(began, 2_000)), ["answer shop/a"]);
    reports.change(Change::Deleted(report("shop", "a").key), after(began, 2_500));
    reports.not_answered(report("shop", "a"));
    assert_eq!(due(&mut reports, after(began, 3_000)), [""; 0], "it is gone");
}

#[tokio::test(start_paused = true)]
async fn reports_are_not_deleted_twice_while_deletions_are_under_way() {
    let began = Instant::now();
    let mut reports = Reports::new(began);
    applied(&mut reports, report("shop", "a"), began);
    applied(&mut reports, report("shop", "b"), after(began, 1_000));
    due(&mut reports, began);
    assert_eq!(due(&mut reports, after(began, 60_000)).last().unwrap(), "delete shop/a");
    due(&mut reports, after(began, 60_500));
    assert_eq!(due(&mut reports, after(began, 200_000)), [""; 0]);
    ended(&mut reports, "shop", 1);
    assert_eq!(due(&mut reports, after(began, 200_000)), ["delete shop/a", "delete shop/b"]);
}

#[tokio::test(start_paused = true)]
async fn a_standby_forgets_namespaces_without_reports() {
    let began = Instant::now();
    let mut reports = Reports::new(began);
    applied(&mut reports, report("shop", "a"), began);
    reports.prune(began);
    assert!(!reports.is_empty());
    reports.change(Change::Deleted(report("shop", "a").key), began);
    reports.prune(began);
    assert!(reports.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_report_is_deleted_60_s_after_it_was_made_and_again_if_that_fails() {
    let began = Instant::now();
    let mut reports = Reports::new(began);
    applied(&mut reports, report("shop", "a"), began);
    assert_eq!(due(&mut reports, began), ["answer shop/a"]);
    // The answer, and the same object after another list, change nothing.
    let mut answered = json("shop", "a");
    answered["status"] = json!({ "answeredAt": "2026-01-01T00:00:00Z" });
    applied(&mut reports, read(&answered), after(began, 100));
    reports.change(Change::Listed(vec![read(&answered)]), after(began, 30_000));
    assert_eq!(due(&mut reports, after(began, 59_999)), [""; 0]);
    assert_eq!(due(&mut reports, after(began, 60_000)), ["delete shop/a"]);
    ended(&mut reports, "shop", 1);
    assert_eq!(due(&mut reports, after(began, 119_999)), [""; 0]);
    assert_eq!(due(&mut reports, after(began, 120_000)), ["delete shop/a"]);
    reports.change(Change::Deleted(report("shop", "a").key), after(began, 120_001));
    ended(&mut reports, "shop", 1);
    assert_eq!(due(&mut reports, after(began, 120_002)), [""; 0]);
    assert!(reports.is_empty(), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_report_that_was_not_answered_within_its_minute_is_not_answered() {
    let began = Instant::now();
    let mut reports = Reports::new(began);
    applied(&mut reports, report("shop", "a"), began);
    // A standby asks for nothing until it runs the plugins.
    let late = due(&mut reports, after(began, 60_000));
    assert_eq!(late, ["answer shop/a", "delete shop/a"], "both in its last moment");
    applied(&mut reports, report("shop", "b"), after(began, 60_000));
    reports.change(Change::Deleted(report("shop", "b").key), after(began, 60_500));
    assert_eq!(due(&mut reports, after(began, 61_000)), [""; 0], "deleted by its owner");
}

#[tokio::test(start_paused = true)]
async fn the_answers_of_the_host_are_shared_in_turns() {
    let began = Instant::now();
    let mut reports = Reports::new(began);
    for namespace in 0..50 {
        (0..3).for_each(|at| applied(&mut reports, report(&format!("n{namespace:02}"), &format!("r{at}")), began));
    }
    let all: Vec<Vec<String>> = (0..4).map(|second| due(&mut reports, after(began, second * 1_000))).collect();
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [20, 20, 20, 20]);
    let first: BTreeSet<&String> = all[..2].iter().flatten().collect();
    assert!(first.iter().all(|answer| answer.ends_with("/r0")) && first.len() == 40, "{first:?}");
    assert_eq!(&all[2][..10], (40..50).map(|at| format!("answer n{at}/r0")).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn answered_reports_of_another_writer_are_bounded_too() {
    let began = Instant::now();
    let mut reports = Reports::new(began);
    let answered = |at: usize| {
        let mut json = json("shop", &format!("r{at:04}"));
        json["status"] = json!({});
        read(&json)
    };
    reports.change(Change::Listed((0..1_000).map(answered).collect()), began);
    assert_eq!(reports.namespaces["shop"].known.len(), KNOWN);
    assert_eq!(due(&mut reports, began), ["list shop"]);
    let mut deleting = json("shop", "r0000");
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    // Those that wait for finalizers are in no one's way.
    let mut listed = vec![read(&deleting); 500];
    listed.extend((0..1_000).map(answered));
    Report::trim(&mut listed, &mut Trimming::default(), None);
    assert!(listed.len() == KNOWN + 1 && listed.iter().all(|report| report.is_answered));
    // One that waits for a finalizer of its tenant is forgotten.
    applied(&mut reports, read(&deleting), began);
    assert_eq!(reports.namespaces["shop"].known.len(), KNOWN - 1);
    let odd = json!({ "metadata": { "namespace": "a/b", "name": "y", "uid": "" } });
    let page_of = json!({ "metadata": { "continue": "2+" }, "items": [deleting, json("shop", "x"), odd] });
    let listed = super::listed(page_of.to_string().as_bytes()).unwrap();
    assert_eq!(Some(listed), page(&[report("shop", "x").key], "2+"));
    let uri = |next: &str| list("shop", next).unwrap().uri().to_string();
    let first = "/apis/podium.dev/v1alpha1/namespaces/shop/runreports?limit=32";
    assert_eq!((uri(""), uri("2+")), (first.to_owned(), format!("{first}&continue=2%2B")));
}

#[test]
fn a_question_that_tries_other_namespaces_is_refused_with_its_field() {
    for (spec, message) in [
        (json!({ "pod": { "name": "../other/cart" } }), "spec: "),
        (json!({ "pod": { "name": "cart" }, "plugin": "other/secret" }), "spec: "),
        (json!({ "pod": { "name": "" } }), "must not be empty"),
        (json!({ "pod": { "name": "\u{1b}[2J" } }), "spec: "),
        (json!({}), "missing field `pod`"),
        (json!({ "pod": { "name": "x".repeat(300_000) } }), "spec: "),
    ] {
        let report = read(&json!({ "metadata": json("shop", "a")["metadata"], "spec": spec }));
        let refusal = report.spec.unwrap_err();
        assert!(refusal.contains(message) && refusal.len() < 2_200 && !refusal.contains('\u{1b}'), "{refusal}");
    }
    for namespace in ["a/b", "..", ""] {
        let json = json(namespace, "a").to_string();
        assert!(Report::read(&Kind::RunReport, &json).is_err(), "{namespace}");
    }
}

#[test]
fn requests_reach_this_object_and_no_later_one_of_its_name() {
    let key = report("shop", "a").key;
    let status = Status { answered_at: "2026-01-01T00:00:00Z".to_owned(), report: None, truncated: false, error: None };
    let answer = key.answer(&status).unwrap();
    let path = "/apis/podium.dev/v1alpha1/namespaces/shop/runreports/a";
    assert_eq!(answer.uri().to_string(), format!("{path}/status?fieldManager=podium-host&force=true"));
    let body: serde_json::Value = serde_json::from_slice(answer.body()).unwrap();
    assert_eq!((&body["metadata"]["uid"], &body["kind"]), (&json!("u-a"), &json!("RunReport")));
    let delete = key.delete().unwrap();
    let body: serde_json::Value = serde_json::from_slice(delete.body()).unwrap();
    assert_eq!((delete.uri().path(), &body["preconditions"]["uid"]), (path, &json!("u-a")));
}
