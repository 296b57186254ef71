mod argo;

use podium_pods::testing::{NASTY, assert_clean};
use serde_json::json;

use super::*;

fn facts(state: State) -> Facts {
    Facts { has_run: true, ..Facts::new(3, state) }
}

const RUNNING: State = State::Running { unprobed: false };

fn active(generation: i64) -> Option<ActiveVersion> {
    let imports = vec!["podium:reconcile/pods@0.1.0.get".to_owned()];
    Some(ActiveVersion {
        generation: Some(generation),
        sha256: "ab".to_owned(),
        imports,
        image: None,
        runner: None,
        stored: None,
        grants: json!({}),
    })
}

fn failed(step: Step, reason: &'static str) -> State {
    State::Failed { step, reason, message: "why".to_owned(), retried: false }
}

/// The conditions as `Type=Status Reason`.
fn listed(status: &Value) -> Vec<String> {
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap().to_owned();
    let listed = |of: &Value| format!("{}={} {}", text(of, "type"), text(of, "status"), text(of, "reason"));
    status["conditions"].as_array().unwrap().iter().map(listed).collect()
}

#[test]
fn a_plugin_that_runs_has_every_condition_and_its_version() {
    let status = status(&Facts { active: active(3), ..facts(RUNNING) }, &Value::Null, 7_999).unwrap();
    let expected = [
        "Fetched=True Fetched",
        "Verified=True NotRequired",
        "Compiled=True Compiled",
        "Granted=True Granted",
        "Ready=True Running",
        "Healthy=True NoFailures",
    ];
    assert_eq!(listed(&status), expected);
    assert_eq!(status["active"]["digest"], "sha256:ab");
    assert_eq!((&status["active"]["generation"], &status["observedGeneration"]), (&json!(3), &json!(3)));
    for condition in status["conditions"].as_array().unwrap() {
        assert_eq!(condition["observedGeneration"], 3);
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:07Z");
    }
}

#[test]
fn a_step_that_failed_is_false_and_those_behind_it_are_unknown() {
    let ready_is = |state: State| listed(&status(&facts(state), &Value::Null, 0).unwrap());
    let unmatched = ready_is(failed(Step::Fetched, "DigestMismatch"));
    assert_eq!(unmatched[0], "Fetched=False DigestMismatch");
    assert_eq!((&*unmatched[2], &*unmatched[4]), ("Compiled=Unknown NotAttempted", "Ready=False DigestMismatch"));
    let exceeded = ready_is(failed(Step::Granted, "GrantsExceeded"));
    assert_eq!((&*exceeded[0], &*exceeded[3]), ("Fetched=True Fetched", "Granted=False GrantsExceeded"));
    let forbidden = ready_is(failed(Step::Granted, "PolicyForbids"));
    assert_eq!((&*forbidden[0], &*forbidden[3]), ("Fetched=Unknown NotAttempted", "Granted=False PolicyForbids"));
    assert_eq!(
        ready_is(failed(Step::Ready, "InvalidSpec"))[3..5],
        ["Granted=Unknown NotAttempted", "Ready=False InvalidSpec"]
    );
    assert_eq!(ready_is(failed(Step::Ready, "RolledBack"))[3..5], ["Granted=True Granted", "Ready=False RolledBack"]);
    assert_eq!(ready_is(State::Running { unprobed: true })[4], "Ready=True Unprobed");
    assert_eq!(ready_is(State::NameTaken)[4], "Ready=False NameTaken");
}

/// The rules of kstatus for a kind that it does not know: it has observed the generation, and has no condition
/// Ready that is not True.
fn is_settled(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().unwrap();
    let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
    status["observedGeneration"] == 3 && ready.is_none_or(|ready| ready["status"] == "True")
}

#[test]
fn a_plugin_is_settled_when_it_runs_or_is_suspended_and_not_otherwise() {
    let of = |state: State| status(&facts(state), &Value::Null, 0).unwrap();
    let suspended = of(State::Suspended);
    assert!(is_settled(&suspended) && listed(&suspended)[4] == "Suspended=True Suspended", "{suspended}");
    assert!(is_settled(&of(RUNNING)) && is_settled(&of(State::Running { unprobed: true })));
    let removing = State::Removing { pods: 1, refused: None };
    for state in [State::Loading, removing, State::NameTaken, failed(Step::Fetched, "DigestMismatch")] {
        assert!(!is_settled(&of(state.clone())), "{state:?}");
    }
}

#[test]
fn a_plugin_before_others_that_another_replica_runs_says_so() {
    let facts = Facts { active: active(3), unordered: true, ..facts(RUNNING) };
    let status = status(&facts, &Value::Null, 0).unwrap();
    assert_eq!(listed(&status)[6..], ["OrderNotGuaranteed=True ReplicasShareNamespaces"]);
}

fn with_missing(missing: &[(&str, &str)], shown: &Value, second: u64) -> Value {
    let missing = missing.iter().map(|(id, reason)| ((*id).to_owned(), (*reason).into())).collect();
    let state = failed(Step::Granted, "InputForbidden");
    let facts = Facts { active: active(2), missing_inputs: Some(missing), ..facts(state) };
    status(&facts, shown, second * 1_000).unwrap()
}

#[test]
fn inputs_ready_names_each_input_that_runs_do_not_receive() {
    let all = with_missing(&[], &Value::Null, 0);
    assert_eq!(listed(&all)[6], "InputsReady=True Received");
    assert_eq!(all["conditions"][6]["observedGeneration"], 2, "of the version that runs");
    let long = NASTY.repeat(1_000);
    let ids: Vec<String> = (0..8).map(|at| format!("{at}{}", "i".repeat(62))).collect();
    let missing: Vec<(&str, &str)> = ids.iter().map(|id| (&**id, &*long)).collect();
    let none = with_missing(&missing, &all, 0);
    assert_eq!(listed(&none)[6], "InputsReady=False NotReceived");
    let message = none["conditions"][6]["message"].as_str().unwrap();
    assert!(ids.iter().all(|id| message.contains(&format!("{id}: "))), "{message}");
    assert_clean(message, 2 << 10);
}

#[test]
fn an_input_that_comes_and_goes_changes_the_status_once_in_a_minute() {
    let mut shown = with_missing(&[("prices", "is too large")], &Value::Null, 100);
    let mut changes = Vec::new();
    for second in 101..300 {
        let missing = [[].as_slice(), &[("prices", "is forbidden")]][second as usize / 5 % 2];
        let next = with_missing(missing, &shown, second);
        if next != shown {
            changes.push((second, listed(&next)[6].clone()));
        }
        shown = next;
    }
    let expected = [(160, "True Received"), (165, "False NotReceived"), (230, "True Received")];
    let expected = expected.map(|(second, text)| (second, format!("InputsReady={text}")));
    assert_eq!(changes[..3], expected);
    assert!(changes.len() <= 6, "{changes:?}");
}

#[test]
fn healthy_names_the_oldest_failure_and_is_unknown_before_a_run() {
    let failing = |reason: &str, message: &str| Failing {
        reason: reason.into(),
        message: message.into(),
        pod: "shop/a".into(),
        since: "2026-01-01T00:00:00Z".into(),
        is_of_before: false,
    };
    let running = || Facts { active: active(3), ..facts(RUNNING) };
    let healthy = |facts: Facts, shown: &Value| {
        let status = status(&facts, shown, 0).unwrap();
        (listed(&status)[5].clone(), status["conditions"][5]["message"].as_str().unwrap().to_owned())
    };
    let never = Facts { has_run: false, ..running() };
    let first = status(&never, &Value::Null, 0).unwrap();
    assert_eq!(listed(&first)[5], "Healthy=Unknown NotRun");
    assert_eq!(healthy(never.clone(), &first).0, "Healthy=Unknown NotRun");
    let well = status(&running(), &first, 0).unwrap();
    assert_eq!(healthy(never, &well).0, "Healthy=True NoFailures", "it ran before the host's start");
    assert_eq!(healthy(facts(State::Suspended), &well).0, "Healthy=Unknown NotRunning");
    let refused = vec![failing("forbidden", "set label"), failing("retry", "no team")];
    let (listed, message) = healthy(Facts { failing: refused, ..running() }, &well);
    assert_eq!(listed, "Healthy=False WritesRefused");
    assert!(message.starts_with("forbidden on pod shop/a: set label; grant the plugin's account"), "{message}");
    assert!(message.ends_with("; 1 more in status.failures"), "{message}");
    // A version that goes on beside a spec that cannot be loaded may fail too.
    let beside = Facts { failing: vec![failing("cpu", "used up")], ..running() };
    let beside = Facts { state: failed(Step::Fetched, "DigestMismatch"), ..beside };
    assert_eq!(healthy(beside, &well).0, "Healthy=False RunsFail");
}

#[test]
fn an_image_is_shown_with_digest_signature_and_origin() {
    let image = Some("registry.example/a:1@sha256:cd".to_owned());
    let stored = Some("the registry is away".to_owned());
    let version = active(3).map(|version| ActiveVersion { image, stored, ..version });
    let status = status(&Facts { active: version, signed: true, ..facts(RUNNING) }, &Value::Null, 0).unwrap();
    assert_eq!(status["active"]["image"], "registry.example/a:1@sha256:cd");
    assert_eq!(listed(&status)[..2], ["Fetched=True Stored", "Verified=True Verified"]);
    assert_eq!(status["conditions"][0]["message"], "the registry is away");
    let ready = |status: &Value| (listed(status)[4].clone(), status["conditions"][4]["message"].clone());
    assert_eq!(ready(&status), ("Ready=True Stored".to_owned(), json!("the registry is away")));
    let stored = active(3).map(|version| ActiveVersion { stored: Some("it is away".to_owned()), ..version });
    let unprobed = Facts { active: stored, ..facts(State::Running { unprobed: true }) };
    let both = "it is away; no pod matched, so this version was not tried before it runs";
    let status = super::status(&unprobed, &Value::Null, 0).unwrap();
    assert_eq!(ready(&status), ("Ready=True Stored".to_owned(), json!(both)));
    let unsigned = failed(Step::Verified, "SignatureMissing");
    let status = super::status(&Facts { signed: true, ..facts(unsigned) }, &Value::Null, 0).unwrap();
    assert_eq!(
        listed(&status)[..3],
        ["Fetched=True Fetched", "Verified=False SignatureMissing", "Compiled=Unknown NotAttempted",]
    );
}

#[test]
fn ready_says_which_version_goes_on() {
    let message = |active| {
        let state = State::Failed { step: Step::Fetched, reason: "A", message: "why".into(), retried: true };
        let status = status(&Facts { active, ..facts(state) }, &Value::Null, 0).unwrap();
        status["conditions"][4]["message"].as_str().unwrap().to_owned()
    };
    assert_eq!(message(active(2)), "why; it is tried again with back-off; the version of generation 2 goes on");
    assert_eq!(message(None), "why; it is tried again with back-off; no version runs");
}

#[test]
fn a_condition_has_a_new_time_only_when_it_changes() {
    let first = status(&facts(RUNNING), &Value::Null, 1_000).unwrap();
    assert_eq!(status(&facts(RUNNING), &first, 9_000), Some(first.clone()), "the same in every byte");
    let second = status(&facts(failed(Step::Compiled, "InvalidComponent")), &first, 9_000).unwrap();
    let times: Vec<_> =
        second["conditions"].as_array().unwrap().iter().map(|of| of["lastTransitionTime"].as_str().unwrap()).collect();
    let old = "1970-01-01T00:00:01Z";
    let new = "1970-01-01T00:00:09Z";
    assert_eq!(times, [old, old, new, new, new, old]);
}

#[test]
fn a_load_under_way_changes_only_ready_of_the_status_before() {
    let new = status(&facts(State::Loading), &Value::Null, 0).unwrap();
    assert_eq!(listed(&new)[4], "Ready=Unknown Loading");
    let [reason, message, pod, since] = ["retry", "no team", "shop/a", "2026-01-01T00:00:00Z"].map(str::to_owned);
    let failing = vec![Failing { reason, message, pod, since, is_of_before: false }];
    let runs = Facts { active: active(3), failing, ..facts(RUNNING) };
    for before in [runs, facts(State::Suspended), facts(failed(Step::Fetched, "A"))] {
        let before = status(&before, &Value::Null, 1_000).unwrap();
        let loading = Facts { generation: 4, active: active(3), ..facts(State::Loading) };
        let shown = status(&loading, &before, 9_000).unwrap();
        assert_eq!(status(&loading, &shown, 20_000), Some(shown.clone()), "the same in every byte");
        let mut expected = before;
        expected["conditions"][4] = json!({
            "type": "Ready", "status": "Unknown", "reason": "Loading", "observedGeneration": 4,
            "message": "the load of this spec has not ended; the version of generation 3 goes on",
            "lastTransitionTime": "1970-01-01T00:00:09Z",
        });
        assert_eq!(shown, expected);
    }
    assert_eq!(status(&facts(State::Loading), &json!({ "conditions": [7] }), 0), None, "of another client");
}

#[test]
fn hostile_texts_are_escaped_and_bounded() {
    let text = NASTY.repeat(1_000);
    let state = State::Failed { step: Step::Fetched, reason: "A", message: text.clone(), retried: true };
    let refused = vec![Refusal { account: None, verb: "patch".into(), resource: text.clone(), namespace: None }; 100];
    let [reason, message, pod, since] = [(); 4].map(|()| text.clone());
    let failing = vec![Failing { reason, message, pod, since, is_of_before: true }];
    let active = active(3);
    let status = status(&Facts { active, failing, refused, ..facts(state) }, &Value::Null, 0).unwrap();
    for field in ["reason", "message", "pod", "since"] {
        assert_clean(status["failures"][0][field].as_str().unwrap(), 1 << 10);
    }
    assert_clean(status["conditions"][5]["message"].as_str().unwrap(), 4 << 10);
    assert_eq!(failures(&status).len(), 1);
    assert_clean(status["conditions"][4]["message"].as_str().unwrap(), 4 << 10);
    assert_eq!(status["refusedWrites"].as_array().unwrap().len(), MAX_REFUSED);
    assert_clean(status["refusedWrites"][0]["message"].as_str().unwrap(), 4 << 10);
}
