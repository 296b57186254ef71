use serde_json::json;

use super::*;
use crate::admin::{Listed, PluginOnPod, Run};

fn run(number: u64, message: usize) -> Run {
    serde_json::from_value(json!({
        "number": number, "plugin": "shop/hello", "pod": "shop/cart", "uid": "1", "deleted": false,
        "causes": ["labels"], "writtenBy": null, "attempt": 1, "millisAgo": 0, "waitedMicros": 1,
        "tookMicros": 2_400, "cpuMicros": 300, "fuel": 9, "hostCalls": 1, "result": "trap",
        "requeueAfterMillis": null, "message": "\"".repeat(message), "writesUnlisted": 0, "writes": [],
    }))
    .unwrap()
}

fn report(plugins: u64, runs: u64, message: usize) -> PodRuns {
    let plugin = |at: u64| PluginOnPod {
        plugin: format!("shop/p{at:02}"),
        state: Some("loaded".to_owned()),
        reasons: Vec::new(),
        runs: (0..runs).map(|number| run(1_000 - number, message)).collect(),
    };
    let plugins = Listed::new((0..plugins).map(plugin).collect(), 3, |of: &PluginOnPod| of.plugin.clone());
    PodRuns { pod: "shop/cart".to_owned(), uid: None, revision: None, stale: None, plugins }
}

#[test]
fn a_report_has_at_most_32_kib_and_the_latest_runs_of_all_plugins() {
    let small = report(2, 5, 100);
    assert_eq!(bounded(small.clone()), (small, false));

    let (cut, truncated) = bounded(report(10, 20, 500));
    assert!(truncated && serde_json::to_vec(&cut).unwrap().len() <= MOST_BYTES);
    assert!(serde_json::to_vec(&cut).unwrap().len() > MOST_BYTES - 2_000, "what fits is there");
    assert_eq!((cut.plugins.items.len(), cut.plugins.left_out), (10, 3));
    let counts: Vec<_> = cut.plugins.items.iter().map(|of| of.runs.len()).collect();
    assert!(counts.iter().all(|count| (counts[0] - 1..=counts[0]).contains(count)), "{counts:?}");
    assert!(cut.plugins.items.iter().all(|of| of.runs[0].number == 1_000), "the latest");

    let mut wide = report(100, 0, 0);
    wide.plugins.items.iter_mut().for_each(|of| of.state = Some("x".repeat(1_000)));
    let (cut, truncated) = bounded(wide);
    let kept = cut.plugins.items.len();
    let left = cut.plugins.left_out;
    assert!(truncated && kept > 25 && kept + left == 103, "{kept} {left}");
    assert!(serde_json::to_vec(&cut).unwrap().len() <= MOST_BYTES);
}

#[test]
fn an_answer_is_sent_again_unless_it_can_never_be_written() {
    let of = |code: u16| ApiError::from_status(json!({ "kind": "Status", "code": code }).to_string().as_bytes());
    for code in [403, 404, 409, 413, 422] {
        assert!(!is_transient(&of(code)), "{code}");
    }
    for code in [401, 429, 500, 503] {
        assert!(is_transient(&of(code)), "{code}");
    }
    assert!(is_transient(&ApiError::Malformed(String::new())));
}
