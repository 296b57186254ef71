//! The benchmark of the queue with few keys: a process for each subject, as in a measurement.

use std::process::Command;

#[test]
fn every_figure_of_both_queues_is_measured_and_no_key_is_lost() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podium-bench"));
    let output = command.args(["queue", "--keys", "50,300", "--repeats", "2", "--output", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report.as_array().unwrap();
    let names: Vec<_> =
        rows.iter().map(|row| (row["keys"].as_u64().unwrap(), row["subject"].as_str().unwrap())).collect();
    assert_eq!(names, [(50, "podium"), (50, "kube-rs"), (300, "podium"), (300, "kube-rs")]);
    for row in rows {
        assert_eq!(row["runs"].as_array().unwrap().len(), 2);
        for figure in ["add", "merge", "cycle", "take"] {
            assert!(row["runs"][1][figure].as_f64().is_some_and(|rate| rate > 0.0), "{figure} of {row}");
        }
    }
}
