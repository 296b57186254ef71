//! The status of a plugin's object after it was applied: what it says about this version. Pure.

use podium_config::status::RETRIED;
use podium_host::config::Defined;
use podium_vocabulary::{Language, text};
use serde::Serialize;
use serde_json::Value;

/// The host's report about the version that was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum State {
    /// Nothing yet.
    Unseen,
    /// It is loaded, or the load is tried again.
    Loading,
    Suspended,
    /// It is not run.
    Refused,
    /// It runs, and has not run on a Pod.
    NotRun,
    Healthy,
    /// Runs fail, or writes are refused.
    Failing,
    /// The same, and all failures were there before.
    FailingBefore,
    /// Another version was applied meanwhile.
    Replaced,
}

/// A state in the host's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Report {
    pub(super) state: State,
    pub(super) reason: String,
    pub(super) message: String,
}

/// Reads an object's status. `applied` is the object as the apply returned it: its generation is the one that the
/// status has to be about, and its failures were there before.
pub(super) fn report(object: &Value, applied: &Value) -> Report {
    let generation = applied["metadata"]["generation"].as_i64().unwrap_or_default();
    if let Some(newer) = object["metadata"]["generation"].as_i64().filter(|newer| *newer > generation) {
        let message = format!("generation {newer}");
        return Report { state: State::Replaced, reason: String::new(), message };
    }
    let condition = |kind: &str| {
        let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|of| of["observedGeneration"] == generation).find(|of| of["type"] == kind)
    };
    let text = |of: &Value, field: &str| text::line(of[field].as_str().unwrap_or_default());
    let new = |state, of: &Value| Report { state, reason: text(of, "reason"), message: text(of, "message") };
    if let Some(suspended) = condition("Suspended").filter(|of| of["status"] == "True") {
        return new(State::Suspended, suspended);
    }
    let Some(ready) = condition("Ready") else { return new(State::Unseen, &Value::Null) };
    match ready["status"].as_str() {
        Some("True") => {}
        Some("False") if !text(ready, "message").contains(RETRIED) => return new(State::Refused, ready),
        _ => return new(State::Loading, ready),
    }
    let Some(healthy) = condition("Healthy") else { return new(State::NotRun, ready) };
    let failures = |of: &Value| of["status"]["failures"].as_array().cloned().unwrap_or_default();
    let before = failures(applied);
    match healthy["status"].as_str() {
        Some("True") => new(State::Healthy, healthy),
        Some("False") if failures(object).iter().all(|of| before.contains(of)) => new(State::FailingBefore, healthy),
        Some("False") => new(State::Failing, healthy),
        _ => new(State::NotRun, healthy),
    }
}

/// Returns file and line that a message is about: in the script, or of a field of plugin.yaml.
pub(super) fn place(message: &str, defined: &Defined) -> Option<String> {
    let name = defined.spec.language.map_or("", Language::file);
    let script = defined.file.with_file_name(name);
    let in_script = |start: &str| Some(message.split_once(start)?.1).filter(|_| !name.is_empty() && script.is_file());
    let shown = |place: &str| {
        let place = place.split(|other: char| !other.is_ascii_digit() && other != ':').next().unwrap_or_default();
        Some(format!("{}:{}", text::path(&script), place.trim_end_matches(':')))
    };
    if let Some(place) = in_script(&format!("({name}:")) {
        return shown(place);
    }
    if let Some(place) = in_script("spec.source.script.inline: line ").filter(|rest| rest.contains(", column ")) {
        return shown(&place.replacen(", column ", ":", 1));
    }
    let mut words = message.split(' ').map(|word| word.trim_end_matches([':', ';', ',']));
    let field = words.find(|word| ["spec.", "metadata."].iter().any(|start| word.starts_with(start)))?;
    Some(format!("{}:{}", text::path(&defined.file), defined.lines.line(field)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugin;

    /// An object of generation 2 with conditions `(type, status, reason, message)` of a generation.
    fn object(generation: i64, conditions: &[[&str; 4]], failures: &[&str]) -> Value {
        let condition = |[kind, status, reason, message]: &[&str; 4]| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "observedGeneration": generation,
            })
        };
        let conditions: Vec<_> = conditions.iter().map(condition).collect();
        let failures: Vec<_> = failures.iter().map(|message| json!({ "message": message, "since": "x" })).collect();
        json!({ "metadata": { "generation": 2 }, "status": { "conditions": conditions, "failures": failures } })
    }

    #[test]
    fn only_conditions_of_the_applied_generation_count() {
        let applied = object(1, &[], &[]);
        let state = |generation, conditions: &[[&str; 4]]| report(&object(generation, conditions, &[]), &applied).state;
        let [ready, healthy] = [["Ready", "True", "Running", ""], ["Healthy", "True", "NoFailures", ""]];
        assert_eq!(state(1, &[ready, healthy]), State::Unseen);
        assert_eq!(state(2, &[ready, healthy]), State::Healthy);
        assert_eq!(state(3, &[ready, healthy]), State::Unseen, "it is about a later one");
        let mut newer = object(2, &[ready, healthy], &[]);
        newer["metadata"]["generation"] = 3.into();
        let replaced = report(&newer, &applied);
        assert_eq!((replaced.state, &*replaced.message), (State::Replaced, "generation 3"));
        assert_eq!(state(2, &[ready]), State::NotRun);
        assert_eq!(state(2, &[ready, ["Healthy", "Unknown", "NotRun", ""]]), State::NotRun);
        assert_eq!(state(2, &[["Suspended", "True", "Suspended", ""]]), State::Suspended);
        assert_eq!(state(2, &[]), State::Unseen);
        assert_eq!(report(&json!({ "status": 7 }), &json!({})).state, State::Unseen);
    }

    #[test]
    fn a_failure_that_may_pass_is_waited_for() {
        let reported = |status, message: &str| {
            let object = object(2, &[["Ready", status, "ConfigMapForbidden", message]], &[]);
            report(&object, &object)
        };
        let passing = format!("no right; {RETRIED}; no version runs");
        assert_eq!(reported("False", &passing).state, State::Loading);
        assert_eq!(reported("Unknown", "").state, State::Loading);
        let refused = reported("False", "no right; no version runs\u{7}");
        assert_eq!(refused.state, State::Refused);
        assert_eq!((&*refused.reason, &*refused.message), ("ConfigMapForbidden", r"no right; no version runs\u0007"));
    }

    #[test]
    fn failures_of_before_the_deployment_are_told_apart() {
        let of = |failures: &[&str]| {
            object(2, &[["Ready", "True", "Running", ""], ["Healthy", "False", "RunsFail", "why"]], failures)
        };
        assert_eq!(report(&of(&["a"]), &of(&["a", "b"])).state, State::FailingBefore);
        assert_eq!(report(&of(&["a", "c"]), &of(&["a", "b"])).state, State::Failing);
        assert_eq!(report(&of(&["a"]), &json!({ "metadata": { "generation": 2 } })).state, State::Failing);
    }

    #[test]
    fn a_message_has_its_line_in_the_script_or_in_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plugin.yaml");
        let yaml = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: { name: a, namespace: shop }\n\
            spec:\n  limits:\n    writes: 20\n  source:\n    script: { language: javascript, inline: x }\n";
        std::fs::write(&file, yaml).unwrap();
        let defined = plugin::read(&[file], None).unwrap().remove(0);
        let place = |message: &str| place(message, &defined).map(|place| place.rsplit('/').next().unwrap().to_owned());
        assert_eq!(place("not permitted: spec.limits.writes is 20").as_deref(), Some("plugin.yaml:6"));
        assert_eq!(place("the runner is missing"), None);
        assert_eq!(place(""), None);
        let message = "spec.source.script.inline: line 3, column 14: SyntaxError: unexpected token";
        assert_eq!(place(message).as_deref(), Some("plugin.yaml:8"));
        std::fs::write(folder.path().join("plugin.js"), "").unwrap();
        assert_eq!(place(message).as_deref(), Some("plugin.js:3:14"));
        assert_eq!(place("retry on pod a: Error: no team (plugin.js:10:9); see").as_deref(), Some("plugin.js:10:9"));

        std::fs::write(folder.path().join("plugin.py"), "").unwrap();
        let spec = podium_vocabulary::PluginSpec { language: Some(Language::Python), ..defined.spec.clone() };
        let python = Defined { spec, ..defined };
        let found = super::place("retry on pod a: KeyError: 'team' (plugin.py:10:9); see", &python).unwrap();
        assert!(found.ends_with("/plugin.py:10:9"), "{found}");
    }
}
