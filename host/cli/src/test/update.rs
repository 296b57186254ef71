//! Writes the observed effects into the files of cases, and changes nothing else in them.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context, bail};
use podium_config::case::Expect;

use super::{
    cases::{self, Located},
    expect::shown,
};
use crate::build::write_whole;

/// Replaces the expected effects of cases. Returns the files that changed.
///
/// # Errors
/// Returns an error if a file cannot be written, or is in a form in which the lines of a case cannot be replaced.
pub(super) fn write(updates: &[(&Located, Expect)]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files: BTreeMap<&PathBuf, Vec<&(&Located, Expect)>> = BTreeMap::new();
    updates.iter().for_each(|update| files.entry(&update.0.file).or_default().push(update));
    let mut changed = Vec::new();
    for (file, updates) in files {
        let before = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut lines: Vec<String> = before.lines().map(str::to_owned).collect();
        // From the last case to the first, so that the lines of the others stay.
        for (case, expect) in updates.iter().rev().filter(|(case, expect)| case.case.expect.as_ref() != Some(expect)) {
            replace(&mut lines, case, expect);
        }
        let after = lines.join("\n") + "\n";
        if after == before {
            continue;
        }
        let read = cases::parse(file, &after, &mut Vec::new());
        for (case, expect) in updates {
            let found = read.iter().find(|other| other.name() == case.name());
            if found.is_none_or(|found| found.case.expect.as_ref() != Some(expect) || !is_same(found, case)) {
                bail!(
                    "{}:{}: cannot be updated: write each field of the case on lines of its own, and expect last",
                    file.display(),
                    case.line
                );
            }
        }
        write_whole(file, after.as_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
        changed.push(file.clone());
    }
    Ok(changed)
}

/// Compares cases without their expected effects.
fn is_same(one: &Located, other: &Located) -> bool {
    let rest = |of: &Located| podium_config::Case { expect: None, ..of.case.clone() };
    rest(one) == rest(other)
}

/// Replaces the lines of `expect`, or adds them at the end of the document.
fn replace(lines: &mut Vec<String>, case: &Located, expect: &Expect) {
    let begin = usize::try_from(case.expect.unwrap_or(case.line)).unwrap_or(usize::MAX);
    // Counted from 1, so this is the line after it.
    let rest = lines.get(begin..).unwrap_or_default();
    let is_end = |line: &String| match case.expect {
        // A field or a comment at the left margin.
        Some(_) => line.chars().next().is_some_and(|first| !first.is_whitespace()),
        None => line.starts_with("---") || line.starts_with("..."),
    };
    let mut end = begin + rest.iter().position(is_end).unwrap_or(rest.len());
    // Empty lines in front of the next field stay.
    while end > begin && lines.get(end - 1).is_some_and(|line| line.trim().is_empty()) {
        end -= 1;
    }
    let start = if case.expect.is_some() { begin - 1 } else { end };
    let block = shown(expect).into_iter().map(|line| format!("  {line}"));
    let block: Vec<String> = std::iter::once("expect:".to_owned()).chain(block).collect();
    lines.splice(start.min(lines.len())..end.min(lines.len()), block);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn updated(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        std::fs::write(&file, text).unwrap();
        let mut problems = Vec::new();
        let cases = cases::parse(&file, text, &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        let expect = Expect {
            writes: vec!["set label a=b on shop/x".into(), json!({ "apply x": { "object": { "data": null } } })],
            events: vec!["Warning A on shop/x: b: c".to_owned()],
            result: "requeue after 60s".into(),
            log: None,
        };
        let updates: Vec<_> = cases.iter().map(|case| (case, expect.clone())).collect();
        write(&updates).map_or_else(|error| error.to_string(), |_| std::fs::read_to_string(&file).unwrap())
    }

    #[test]
    fn only_the_lines_of_expect_change_in_each_document() {
        let first = "# Cases.\nname: a\nexpect: { writes: [old] }\n\n# The Pods.\npods:\n- metadata: { name: x }\n";
        let second = "---\nname: b\npods:\n- metadata: { name: x }\n";
        let after = updated(&format!("{first}{second}"));
        assert!(after.starts_with("# Cases.\nname: a\nexpect:\n"), "{after}");
        assert!(after.contains("\n\n# The Pods.\npods:\n- metadata: { name: x }\n---\nname: b\n"), "{after}");
        assert_eq!(after.matches("\nexpect:\n").count(), 2, "{after}");
        assert!(after.contains("requeue after 60s") && !after.contains("old"), "{after}");
        assert_eq!(updated(&after), after, "the second update changes nothing");
    }

    #[test]
    fn a_case_on_one_line_is_left_as_it_is() {
        let said = updated("{ name: a, pods: [{ metadata: { name: x } }], expect: {} }\n");
        assert!(said.contains("a.yaml:1: cannot be updated"), "{said}");
    }
}
