//! Writes the observed effects into the files of cases, and changes nothing else in them.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

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
    let is_changed = |(case, expect): &&(&Located, Expect)| case.case.expect.as_ref() != Some(expect);
    let mut files: BTreeMap<&PathBuf, Vec<&(&Located, Expect)>> = BTreeMap::new();
    updates.iter().filter(is_changed).for_each(|update| files.entry(&update.0.file).or_default().push(update));
    // All are made before the first is written.
    let made = files.iter().map(|(file, updates)| after(file, updates)).collect::<anyhow::Result<Vec<_>>>()?;
    for (file, after) in files.keys().zip(made) {
        write_whole(file, after.as_bytes()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(files.into_keys().cloned().collect())
}

/// Returns the new text of a file.
fn after(file: &Path, updates: &[&(&Located, Expect)]) -> anyhow::Result<String> {
    let shown = file.display();
    let before = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    if updates.iter().any(|(case, _)| *case.text != *before) {
        bail!("{shown}: was changed while its cases ran; run podium test --update again");
    }
    let line_end = if before.contains("\r\n") { "\r\n" } else { "\n" };
    let mut lines: Vec<String> = before.split_inclusive('\n').map(str::to_owned).collect();
    if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
        *last += line_end;
    }
    // From the last case to the first, so that the lines of the others stay.
    updates.iter().rev().for_each(|(case, expect)| replace(&mut lines, case, expect, line_end));
    let after = lines.concat();
    let read = cases::parse(file, &after, &mut Vec::new());
    for (case, expect) in updates {
        let found = read.iter().find(|other| other.name() == case.name());
        if found.is_none_or(|found| found.case.expect.as_ref() != Some(expect) || !is_same(found, case)) {
            bail!(
                "{shown}:{}: cannot be updated: write each field of the case on lines of its own, and expect last",
                case.line
            );
        }
    }
    Ok(after)
}

/// Compares cases without their expected effects.
fn is_same(one: &Located, other: &Located) -> bool {
    let rest = |of: &Located| podium_config::Case { expect: None, ..of.case.clone() };
    rest(one) == rest(other)
}

/// Replaces the lines of `expect`, or adds them at the end of the document.
fn replace(lines: &mut Vec<String>, case: &Located, expect: &Expect, line_end: &str) {
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
    let block = shown(expect).into_iter().map(|line| format!("  {line}{line_end}"));
    let block: Vec<String> = std::iter::once(format!("expect:{line_end}")).chain(block).collect();
    lines.splice(start.min(lines.len())..end.min(lines.len()), block);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FLOW: &str = "{ name: a, pods: [{ metadata: { name: x } }], expect: {} }\n";
    const PLAIN: &str = "name: b\npods: [x.yaml]\nexpect: {}\n";

    fn written(file: &Path, text: &str) -> Vec<Located> {
        std::fs::write(file, text).unwrap();
        let mut problems = Vec::new();
        let cases = cases::parse(file, text, &mut problems);
        assert!(problems.is_empty(), "{problems:?}");
        cases
    }

    fn new() -> Expect {
        Expect {
            writes: vec!["set label a=b on shop/x".into(), json!({ "apply x": { "object": { "data": null } } })],
            events: vec!["Warning A on shop/x: b: c".to_owned()],
            result: "requeue after 60s".into(),
            log: None,
        }
    }

    fn updated(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        let cases = written(&file, text);
        let updates: Vec<_> = cases.iter().map(|case| (case, new())).collect();
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
        let said = updated(FLOW);
        assert!(said.contains("a.yaml:1: cannot be updated"), "{said}");
    }

    #[test]
    fn line_ends_stay_and_a_file_without_a_changed_case_is_not_written() {
        let after = updated(&format!("{PLAIN}\nnow: 2026-01-01T00:00:00Z").replace('\n', "\r\n"));
        assert_eq!(after.lines().count(), after.matches("\r\n").count(), "{after:?}");
        assert!(after.starts_with("name: b\r\npods: [x.yaml]\r\nexpect:\r\n  writes:\r\n"), "{after:?}");
        assert!(after.ends_with("\r\n\r\nnow: 2026-01-01T00:00:00Z\r\n"), "{after:?}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.yaml");
        for text in [PLAIN.replace('\n', "\r\n"), PLAIN.trim_end().to_owned()] {
            let cases = written(&file, &text);
            let same = cases[0].case.expect.clone().unwrap();
            assert!(write(&[(&cases[0], same)]).unwrap().is_empty());
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }

    #[test]
    fn no_file_is_written_if_one_cannot_be_updated_or_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["a.yaml", "b.yaml"].map(|name| folder.path().join(name));
        let cases = [written(&first, PLAIN), written(&second, FLOW)].concat();
        let said = |cases: &[Located]| {
            let updates: Vec<_> = cases.iter().map(|case| (case, new())).collect();
            write(&updates).unwrap_err().to_string()
        };
        assert!(said(&cases).contains("b.yaml:1: cannot be updated"));
        assert_eq!(std::fs::read_to_string(&first).unwrap(), PLAIN);
        std::fs::write(&first, format!("# A line more.\n{PLAIN}")).unwrap();
        let error = said(&cases[..1]);
        assert!(error.ends_with("a.yaml: was changed while its cases ran; run podium test --update again"), "{error}");
    }
}
