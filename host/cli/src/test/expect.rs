//! The expected effects of a case, compared with those that a host had.

use std::collections::BTreeMap;

use podium_config::case::Expect;
use serde_json::Value;

use super::{cases::Located, diff};
use crate::offline::{Observed, Request};

/// Returns the effects in the form in which a case expects them. The log is compared only if the case has it.
pub(super) fn of_runs(observed: &Observed, case: &Located) -> Expect {
    let has_log = case.case.expect.as_ref().is_some_and(|expect| expect.log.is_some());
    Expect {
        writes: observed.runs.iter().flat_map(|ran| ran.writes.clone()).collect(),
        events: observed.requests.iter().filter_map(Request::event).collect(),
        result: result(observed),
        log: has_log.then(|| observed.log.clone()),
    }
}

/// Returns the result of the last run on each Pod, `not run` of those that it was to run on: one text if all have the
/// same.
fn result(observed: &Observed) -> Value {
    let missing = observed.not_run.keys().map(|pod| (&**pod, "not run"));
    let last: BTreeMap<_, _> = missing.chain(observed.runs.iter().map(|ran| (&*ran.pod, &*ran.result))).collect();
    let mut results = last.values();
    match results.next() {
        None => "not run".into(),
        Some(first) if results.all(|other| other == first) => (*first).into(),
        Some(_) => last.into_iter().map(|(pod, result)| (pod.to_owned(), Value::from(result))).collect(),
    }
}

/// Returns the difference as lines; empty if there is none.
pub(super) fn difference(case: &Located, observed: &Observed) -> Vec<String> {
    let Some(expected) = &case.case.expect else {
        let mut lines = vec!["expect is missing; podium test --update writes this one:".to_owned()];
        lines.extend(diff::lines(&[], &shown(&of_runs(observed, case))));
        return lines;
    };
    let found = of_runs(observed, case);
    if *expected == found { Vec::new() } else { diff::lines(&shown(expected), &shown(&found)) }
}

/// Returns the lines of YAML below `expect`.
pub(super) fn shown(expect: &Expect) -> Vec<String> {
    // All of it is JSON, which YAML can contain.
    serde_saphyr::to_string(expect).unwrap_or_default().lines().map(str::to_owned).collect()
}
