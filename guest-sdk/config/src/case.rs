//! The cases of `podium test`: Pods, and what a plugin does about them.

use podium_wire::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{field::Field, rules, schema, text::NonEmpty};

/// The most Pods of a case.
const MOST_PODS: usize = 1_000;
/// A week in seconds.
const MOST_SECONDS: u32 = 7 * 86_400;
/// How often a plugin may run on a Pod before it has to settle. The host slows a plugin at its tenth change of a field.
const RUNS: u32 = 8;

/// One case. A file has one or several, each a document of YAML.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Case {
    /// The claim of the case; no other case of the folder has this name.
    pub name: NonEmpty,
    /// The Pods, as kubectl get pod -o yaml prints them, or the name of a file with Pods, relative to this one. Name is
    /// required; the namespace is that of the plugin by default, and containers and the status are those of a new Pod.
    #[schemars(schema_with = "pods")]
    pub pods: Vec<Value>,
    /// Only runs on these Pods, NAME or NAMESPACE/NAME; the others are only read. By default all Pods that the plugin
    /// watches.
    #[serde(default)]
    pub on: Vec<NonEmpty>,
    /// Instead of spec.config of the plugin.
    #[serde(default)]
    #[schemars(schema_with = "schema::any_object")]
    pub config: Option<Map<String, Value>>,
    /// The objects of the plugin's inputs by their ids, such as `prices: { data: { cart: "3" } }`; a list for an input
    /// with a selector. An input without one is of an object that does not exist.
    #[serde(default)]
    #[schemars(schema_with = "schema::any_object")]
    pub inputs: Map<String, Value>,
    /// The time, 2026-01-01T00:00:00Z by default. A Pod without a creationTimestamp is created then.
    #[serde(default)]
    pub now: Option<String>,
    /// The state of the plugin before its first run, by key. A text is stored as it is, everything else as JSON.
    #[serde(default)]
    #[schemars(schema_with = "schema::any_object")]
    pub state: Map<String, Value>,
    /// How often the plugin may run on a Pod within a second before it has to settle.
    #[serde(default = "runs")]
    #[schemars(range(min = 1, max = 10))]
    pub runs: u32,
    /// The time that passes after the plugin has settled, in which it runs again if it asked for it or failed.
    #[serde(default)]
    #[schemars(range(min = 0, max = MOST_SECONDS))]
    pub then_seconds: u32,
    /// The expected effects; podium test --update writes them.
    #[serde(default)]
    pub expect: Option<Expect>,
}

/// The expected effects of all runs of a case. Effects that are left out are expected not to happen, except log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expect {
    /// The writes in their order, such as `set label team=web on shop/cart-0`.
    #[serde(default)]
    #[schemars(schema_with = "any_list")]
    pub writes: Vec<Value>,
    /// The Events in their order, such as `Warning MutableTag on shop/cart-0: the tag is latest`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// How the last run on each Pod ended: done, stop, requeue after 60s, failed: MESSAGE, unsettled, or not run. A
    /// mapping of Pods if they differ. By default done.
    #[serde(default = "done", skip_serializing_if = "is_done")]
    #[schemars(schema_with = "anything")]
    pub result: Value,
    /// The log, such as `info crowded node=a`; not compared if it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Vec<String>>,
}

impl Case {
    /// Returns the time in milliseconds since the epoch, if it is set.
    #[must_use]
    pub fn now_millis(&self) -> Option<i64> {
        millis(self.now.as_ref()?)
    }
}

/// Returns a time such as `2026-01-01T00:00:00Z` in milliseconds since the epoch; `None` for another text.
#[must_use]
pub fn millis(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|time| time.0).filter(|millis| *millis >= 0)
}

/// Reports what a schema cannot know.
pub(crate) fn rules(case: &Field<'_>) {
    let now = case.get("now");
    if now.text().is_some_and(|text| millis(text).is_none()) {
        now.problem("must be a time, such as 2026-01-01T00:00:00Z");
    }
    for pod in case.get("pods").items() {
        if !pod.is_mapping() && pod.text().is_none() {
            pod.problem("must be a Pod, such as { metadata: { name: web } }, or the name of a file");
        }
    }
    rules::config(&case.get("config"));
    let result = case.get("expect").get("result");
    if result.is_set() && !result.is_mapping() && result.text().is_none() {
        result.problem("must be a text, such as done, or a mapping of Pods to such texts");
    }
}

fn runs() -> u32 {
    RUNS
}

fn done() -> Value {
    "done".into()
}

fn is_done(result: &Value) -> bool {
    *result == done()
}

fn pods(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "minItems": 1, "maxItems": MOST_PODS, "items": true })
}

fn any_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": true })
}

fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({})
}

#[cfg(test)]
mod tests {
    use crate::{MAX_CONFIG_BYTES, cases};

    fn mistakes(yaml: &str) -> Vec<String> {
        let problems = cases(yaml).unwrap().remove(0).content.unwrap_err();
        problems.iter().map(|of| format!("{}:{}: {}", of.line.unwrap(), of.field, of.message)).collect()
    }

    #[test]
    fn a_case_has_defaults_and_its_lines() {
        let yaml = "name: a\npods: [a.yaml]\n---\nname: b\npods:\n- metadata: { name: x }\nexpect:\n  writes: []\n";
        let cases = cases(yaml).unwrap();
        let first = cases[0].content.as_ref().unwrap();
        assert_eq!((first.runs, first.now_millis(), &first.expect), (8, None, &None));
        let second = cases[1].content.as_ref().unwrap();
        assert_eq!(second.expect.as_ref().unwrap().result, "done");
        assert_eq!((cases[1].lines.line("name"), cases[1].lines.line("expect")), (4, 7));
    }

    #[test]
    fn each_mistake_has_its_line_and_what_to_do() {
        let yaml = "name: a\npods: [1]\nexpcet: {}\nnow: yesterday\nexpect:\n  write: []\n  result: 1\n";
        let said = mistakes(yaml).join("\n");
        for part in [
            "2:pods[0]: must be a Pod",
            "3:expcet: is not a known field; did you mean expect?",
            "4:now: must be a time, such as 2026",
            "6:expect.write: is not a known field; did you mean writes?",
            "7:expect.result: must be a text",
        ] {
            assert!(said.contains(part), "{part:?} in {said}");
        }
        assert!(mistakes("pods: []\n").join("\n").contains("1:name: is missing"));
        let large = format!("name: a\npods: [a.yaml]\nconfig: {{ text: {} }}\n", "x".repeat(MAX_CONFIG_BYTES));
        assert!(mistakes(&large).join("\n").contains("3:config: has 65547 bytes as JSON"));
    }
}
