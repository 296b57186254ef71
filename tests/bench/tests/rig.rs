//! The whole benchmark with few Pods: server, subjects and driver are processes, as in a measurement.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::{Command, Output};

fn compare(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podium-bench"));
    command.args(["compare", "--pods", "60", "--events", "100", "--repeats", "1", "--settle", "0"]);
    command.args(["--rate", "200,1000", "--seconds", "1"]).args(arguments).output().unwrap()
}

#[test]
fn every_figure_of_podium_and_of_kube_rs_is_measured() {
    let subjects = ["podium", "podium-cache", "kube-rs"];
    let output = compare(&["--subjects", &subjects.join(","), "--output", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["pods"], &report["events"]), (&60.into(), &100.into()));
    for (at, subject) in subjects.iter().enumerate() {
        assert_eq!(report["subjects"][at]["subject"], *subject);
        let run = &report["subjects"][at]["runs"][0];
        // Times below a tick of the kernel's clock may be zero with so few Pods.
        for figure in ["event_cpu_micros", "start_cpu_micros_per_pod", "bytes_per_pod", "bytes_per_pod_after_events"] {
            assert!(run[figure].as_f64().is_some_and(|value| value >= 0.0), "{figure} of {run}");
        }
        let paced = &run["rates"][0];
        assert_eq!((&paced["rate"], run["rates"].as_array().unwrap().len()), (&200.into(), 2));
        for (of, figure) in [(run, "start_wall_seconds"), (run, "get_micros"), (paced, "event_cpu_micros")] {
            assert!(of[figure].as_f64().is_some_and(|value| value > 0.0), "{figure} of {of}");
        }
        assert!(run["relist_peak_ratio"].as_f64().is_some_and(|ratio| ratio >= 0.9), "{run}");
        assert!(paced["latency_p50_micros"].as_f64().is_some_and(|micros| micros > 0.0), "{run}");
        assert!(paced["latency_p50_micros"].as_f64() <= paced["latency_p99_micros"].as_f64(), "{run}");
    }
}

#[test]
fn populations_run_one_after_the_other_with_a_row_each() {
    let output = compare(&["--subjects", "podium,kube-rs", "--population", "cni,churn", "--output", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |at: usize| {
        let row = &report["subjects"][at];
        (row["population"].as_str().unwrap(), row["subject"].as_str().unwrap())
    };
    let rows: Vec<_> = (0..report["subjects"].as_array().unwrap().len()).map(row).collect();
    assert_eq!(rows, [("cni", "podium"), ("cni", "kube-rs"), ("churn", "podium"), ("churn", "kube-rs")]);
    let own = |at: usize| report["subjects"][at]["runs"][0]["own_bytes_per_pod"].as_f64().unwrap();
    assert!(own(0) > 50.0 && own(2) == 0.0, "{} and {}", own(0), own(2));
}

#[test]
fn an_unknown_population_is_an_error_that_lists_the_known_ones() {
    let output = compare(&["--population", "chrun"]);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("status, annotation") && said.contains("all"), "{said}");
}

#[test]
fn podium_and_kube_rs_follow_over_tls() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: there is no openssl to make a certificate");
        return;
    }
    let output = compare(&["--subjects", "podium,kube-rs", "--output", "json", "--tls"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["tls"], report["subjects"].as_array().unwrap().len()), (&true.into(), 2));
}

/// Runs a comparison. The driver fails if a Pod of the list or an event was not seen, or if no list followed the lost
/// history.
fn all_is_seen_by(subject: &str, arguments: &[&str]) {
    let output = compare(&[&["--subjects", subject, "--output", "json"], arguments].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let measured = &report["subjects"][0];
    assert_eq!((&measured["subject"], &measured["runs"][0]["get_micros"]), (&subject.into(), &0.0.into()));
    assert!(
        measured["runs"][0]["rates"][0]["latency_p50_micros"].as_f64().is_some_and(|micros| micros > 0.0),
        "{measured}"
    );
}

#[test]
fn the_subject_wire_receives_all_events() {
    all_is_seen_by("wire", &[]);
}

#[test]
fn the_subject_wire_receives_all_events_in_protobuf() {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("SKIPPED: no `go` on the PATH, so there is no protobuf to send");
        return;
    }
    let peer = concat!(env!("CARGO_TARGET_TMPDIR"), "/peer");
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/go");
    let built = Command::new("go").args(["build", "-o", peer, "."]).current_dir(sources).status().unwrap();
    assert!(built.success(), "the peer does not build");
    all_is_seen_by("wire-protobuf", &["--go", peer]);
}

#[test]
fn an_unknown_subject_is_an_error_that_lists_the_known_ones() {
    let output = compare(&["--subjects", "podiun"]);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("there is no subject podiun; there are podium, podium-cache"), "{said}");
}
