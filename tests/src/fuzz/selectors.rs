//! Plugin configuration: any text as a file, and any JSON as its `spec.watch.selector`, which must select the same
//! Pods as a plain implementation.

#![expect(clippy::unwrap_used, reason = "a panic is a finding")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use podium_host::config::{self, Configurations, Defined};
use podium_vocabulary::LabelSelector;
use serde_json::{Value, json};

type Labels = BTreeMap<String, String>;

pub fn run(input: &[u8]) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plugins.yaml");
    let loaded = load(&file, input);
    for error in loaded.errors.iter().chain(&loaded.warnings) {
        assert!(error.file == file && !error.message.is_empty() && !error.to_string().is_empty());
    }
    let Ok(selector) = serde_json::from_slice::<Value>(input) else { return };
    let component = directory.path().join("a.wasm");
    fs::write(&component, "").unwrap();
    let document = json!({
        "apiVersion": "podium.dev/v1alpha1", "kind": "ClusterReconcilePlugin", "metadata": {"name": "a"},
        "spec": {"source": {"file": "a.wasm"}, "watch": {"selector": selector}},
    });
    let Configurations { plugins, errors, .. } = load(&file, document.to_string().as_bytes());
    match plugins.as_slice() {
        [Defined { spec, .. }] => {
            assert!(errors.is_empty(), "{errors:?}");
            for labels in around(&selector) {
                let LabelSelector(requirements) = &spec.watch.selector;
                assert_eq!(
                    spec.watch.selector.matches(&labels),
                    plain(&selector, &labels),
                    "{requirements:?} {labels:?}"
                );
            }
        }
        _ => assert!(plugins.is_empty() && !errors.is_empty(), "left out without a word"),
    }
}

fn load(file: &Path, text: &[u8]) -> Configurations {
    fs::write(file, text).unwrap();
    config::load(&[PathBuf::from(file)])
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Matches as Kubernetes does: all of `matchLabels` and of `matchExpressions`.
fn plain(selector: &Value, labels: &Labels) -> bool {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    equal.into_iter().all(|(key, value)| labels.get(key).map(String::as_str) == value.as_str())
        && expressions.all(|expression| {
            let value = expression["key"].as_str().and_then(|key| labels.get(key));
            let named = value.is_some_and(|value| texts(&expression["values"]).any(|wanted| wanted == value));
            match expression["operator"].as_str() {
                Some("In") => named,
                Some("NotIn") => !named,
                Some("Exists") => value.is_some(),
                Some("DoesNotExist") => value.is_none(),
                _ => false,
            }
        })
}

/// Returns labels near a selector: each of its keys without a value, with one that it names, with another.
fn around(selector: &Value) -> Vec<Labels> {
    let equal = selector["matchLabels"].as_object().into_iter().flatten();
    let equal = equal.map(|(key, value)| (key.as_str(), value.as_str().into_iter().collect()));
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    let expressions = expressions
        .filter_map(|expression| Some((expression["key"].as_str()?, texts(&expression["values"]).collect())));
    let mut all = vec![Labels::new()];
    // Six keys with three values are 4,096 sets of labels.
    for (key, mut values) in equal.chain::<Vec<(&str, Vec<&str>)>>(expressions.collect()).take(6) {
        values.truncate(2);
        values.push("another");
        let with = |labels: &Labels, value: &str| {
            let mut labels = labels.clone();
            labels.insert(key.to_owned(), value.to_owned());
            labels
        };
        let more: Vec<_> = all.iter().flat_map(|labels| values.iter().map(move |value| with(labels, value))).collect();
        all.extend(more);
        all.truncate(512);
    }
    all
}
