//! The files of the Helm chart that are generated: the schema of `policy` in values.schema.json, so that Helm refuses a
//! policy that the host would refuse, and the default values as JSON, which templates read for values that are null.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::*;

fn chart(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart").join(file)
}

/// Compares a generated file, which `PODIUM_RENEW_SCHEMAS=1 cargo test -p podium-config checked_in` writes.
fn assert_current(file: &str, expected: &str) {
    if std::env::var_os("PODIUM_RENEW_SCHEMAS").is_some() {
        fs::write(chart(file), expected).unwrap();
    }
    let is_current = fs::read_to_string(chart(file)).unwrap_or_default() == expected;
    assert!(is_current, "deploy/chart/{file} is old; renew it with `just schemas`");
}

/// The last definition of the schema is generated, and people write everything before it.
#[test]
fn the_checked_in_schema_of_values_has_that_of_the_policy() {
    let text = fs::read_to_string(chart("values.schema.json")).unwrap();
    let (by_people, _) = text.split_once("    \"policy\": {\n      \"additionalProperties\"").unwrap();
    let policy = format!("{:#}", policy_schema()["properties"]["spec"]).replace('\n', "\n    ");
    assert_current("values.schema.json", &format!("{by_people}    \"policy\": {policy}\n  }}\n}}\n"));
    let schema: Value = serde_json::from_str(&fs::read_to_string(chart("values.schema.json")).unwrap()).unwrap();
    assert_eq!(schema["properties"]["policy"]["$ref"], "#/definitions/policy");
}

#[test]
fn the_checked_in_defaults_of_the_chart_are_its_values() {
    let values = fs::read_to_string(chart("values.yaml")).unwrap();
    let defaults = yaml::documents(&values).unwrap()[0].json();
    assert_current("defaults.json", &format!("{defaults}\n"));
}
