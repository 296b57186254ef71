use super::*;

fn json(namespace: &str, name: &str) -> serde_json::Value {
    let metadata = json!({ "namespace": namespace, "name": name, "uid": format!("u-{name}") });
    json!({ "metadata": metadata, "spec": { "pod": { "name": "cart-0" } } })
}

fn read(json: &serde_json::Value) -> Report {
    Report::read(Kind::RunReport, &json.to_string()).unwrap()
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

/// Returns the requests that are due, in one line each.
fn due(reports: &mut Reports, now: Instant) -> Vec<String> {
    let described = |due: Due| match due {
        Due::Answer(report) => format!("answer {}/{}", report.key.namespace, report.key.name),
        Due::Delete(key) => format!("delete {}/{}", key.namespace, key.name),
        Due::List(namespace) => format!("list {namespace}"),
    };
    reports.due(now).into_iter().map(described).collect()
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
    let deleted = reports.found(&all[0].namespace, all.clone());
    assert_eq!(deleted, all[8..].iter().cloned().map(Due::Delete).collect::<Vec<_>>(), "all that are not known");
    // No list begins while deletions are under way.
    reports.ended(&all[0].namespace, false);
    applied(&mut reports, report("noisy", "last"), after(began, 6_000));
    assert_eq!(reports.namespaces["noisy"].under_way, 192);
    (0..192).for_each(|_| reports.ended(&all[0].namespace, false));
    assert!(!due(&mut reports, after(began, 6_000)).contains(&"list noisy".to_owned()), "the last one is known");
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
    assert_eq!(due(&mut reports, after(began, 119_999)), [""; 0]);
    assert_eq!(due(&mut reports, after(began, 120_000)), ["delete shop/a"]);
    reports.change(Change::Deleted(report("shop", "a").key), after(began, 120_001));
    (0..2).for_each(|_| reports.ended(&"shop".into(), false));
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
    let mut listed: Vec<_> = (0..1_000).map(answered).collect();
    Report::trim(&mut listed, &mut Trimming::default(), None);
    assert_eq!(listed.len(), KNOWN + 1);
    // One that waits for a finalizer of its tenant is forgotten.
    let mut deleting = json("shop", "r0000");
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    applied(&mut reports, read(&deleting), began);
    assert_eq!(reports.namespaces["shop"].known.len(), KNOWN - 1);
    let odd = json!({ "metadata": { "namespace": "a/b", "name": "y", "uid": "" } });
    let page = json!({ "items": [deleting, json("shop", "x"), odd] });
    assert_eq!(super::listed(page.to_string().as_bytes()).unwrap(), [report("shop", "x").key]);
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
        assert!(Report::read(Kind::RunReport, &json).is_err(), "{namespace}");
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
