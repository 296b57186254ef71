//! The values in docs/limits.md are those of the constants that it names, and of the schema of plugins.

use std::{fs, io, path::Path};

use serde_json::Value;

fn read(file: &str) -> io::Result<String> {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file))
}

fn number(text: &str) -> Option<u64> {
    text.replace([',', '_'], "").parse().ok()
}

/// Returns the value of a constant; durations are in milliseconds.
fn constant(source: &str, name: &str) -> Option<u64> {
    let (_, rest) = source.split_once(&format!("const {name}: "))?;
    let value = rest.split_once(';')?.0.split_once('=')?.1.trim();
    if let Some(seconds) = value.strip_prefix("Duration::from_secs(") {
        return Some(number(seconds.strip_suffix(')')?)? * 1_000);
    }
    match value.split_once(" << ") {
        Some((left, bits)) => Some(number(left)? << number(bits)?),
        None => number(value),
    }
}

/// Returns the value at the start of a cell; durations are in milliseconds.
fn shown(cell: &str) -> Option<u64> {
    let mut words = cell.split_whitespace();
    let value = number(words.next()?)?;
    Some(match words.next() {
        Some("KiB") => value << 10,
        Some("MiB") => value << 20,
        Some("GiB") => value << 30,
        Some("s") => value * 1_000,
        _ => value,
    })
}

fn rows(page: &str) -> impl Iterator<Item = Vec<&str>> {
    page.lines().filter(|line| line.starts_with("| ")).map(|line| line.split('|').map(str::trim).collect())
}

#[test]
fn each_limit_of_the_page_is_that_of_its_constant() {
    let page = read("docs/limits.md").unwrap();
    let mut compared = 0;
    for row in rows(&page) {
        let Some((before, file)) = row.get(3).and_then(|cell| cell.split_once("` in `")) else { continue };
        let name = before.rsplit('`').next().unwrap();
        let file = file.trim_end_matches('`');
        let value = constant(&read(file).unwrap(), name);
        assert!(value.is_some() && shown(row[2]) == value, "{} is {}, and {name} of {file} {value:?}", row[1], row[2]);
        compared += 1;
    }
    assert!(compared > 60, "only {compared} rows name a constant");
}

#[test]
fn the_fields_of_the_page_have_the_numbers_of_the_schema() {
    let schema: Value = serde_json::from_str(&read("docs/plugin.schema.json").unwrap()).unwrap();
    let fields = limits(&schema).unwrap();
    let page = read("docs/limits.md").unwrap();
    for (name, field) in fields {
        let row = rows(&page).find(|row| row[1] == format!("`{name}`")).unwrap_or_else(|| panic!("no row for {name}"));
        for (cell, key) in row[2..].iter().zip(["default", "minimum", "maximum"]) {
            let expected = field.get(key).map(|value| value.to_string().replace('"', "`")).unwrap_or_default();
            assert_eq!(cell.trim_matches('`'), expected.trim_matches('`'), "{key} of {name}");
        }
    }
}

/// Returns the properties that have `cpuMillis`, wherever they are in the schema.
fn limits(schema: &Value) -> Option<&serde_json::Map<String, Value>> {
    match schema {
        Value::Object(members) if members.contains_key("cpuMillis") => Some(members),
        Value::Object(members) => members.values().find_map(limits),
        Value::Array(values) => values.iter().find_map(limits),
        _ => None,
    }
}
