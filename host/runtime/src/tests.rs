//! docs/threat-model.md names everything that a component can reach: no less and no more than the host has.

use std::collections::BTreeSet;

use podium_vocabulary::{Function, INTERFACES};

use super::{inspect::FEATURES, wasi};

/// Lines of the section that this file checks.
fn section() -> Vec<&'static str> {
    let (_, section) = include_str!("../../../docs/threat-model.md").split_once("## What remains reachable\n").unwrap();
    section.split("\n## ").next().unwrap().lines().collect()
}

/// The texts in backticks.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn quoted_behind(start: &str) -> BTreeSet<String> {
    let line = section().into_iter().find_map(|line| line.strip_prefix(start));
    quoted(line.unwrap_or_else(|| panic!("no line begins with {start}")))
}

#[test]
fn the_threat_model_names_the_permitted_webassembly_features() {
    let features = FEATURES.iter_names().map(|(name, _)| name.to_lowercase().replace('_', "-")).collect();
    assert_eq!(quoted_behind("WebAssembly features: "), features);
}

#[test]
fn the_threat_model_names_the_wasi_interfaces_that_are_linked() {
    assert_eq!(quoted_behind("WASI 0.2: "), wasi::INTERFACES.into_iter().map(str::to_owned).collect());
}

#[test]
fn the_threat_model_names_each_host_function_and_its_grant() {
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(quoted).collect();
        let [functions, grant] = cells.as_slice() else { panic!("{line}") };
        let grant = grant.first().cloned().unwrap_or_default();
        functions.iter().map(|function| (function.clone(), grant.clone())).collect::<Vec<_>>()
    };
    let rows: BTreeSet<_> = section().into_iter().filter(|line| line.starts_with("| `")).flat_map(row).collect();
    let functions = INTERFACES.into_iter().flat_map(|interface| {
        Function::in_interface(interface).map(move |function| {
            let grant = function.grant().map_or(String::new(), |grant| format!("grants.{}", grant.field()));
            (format!("{interface}.{}", function.name()), grant)
        })
    });
    assert_eq!(rows, functions.collect());
}
