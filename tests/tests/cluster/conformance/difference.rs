//! A readable difference between two conversations.

use std::fmt::Write as _;

use crate::conformance::exchange::Step;

/// Unchanged lines shown around a difference.
const CONTEXT: usize = 3;

/// Returns the differences; empty if both are equal.
pub(crate) fn between(scenario: &str, real: &[Step], ours: &[Step]) -> String {
    let mut report = String::new();
    for (index, step) in real.iter().enumerate() {
        let Some(other) = ours.get(index) else {
            let _ = writeln!(report, "## {scenario}: {}\nnot reached on devcluster", step.what);
            break;
        };
        if step != other {
            let _ = writeln!(report, "## {scenario}: {}", step.what);
            report += &lines(&step.answer, &other.answer);
        }
    }
    report
}

fn lines(real: &str, ours: &str) -> String {
    let (real, ours): (Vec<&str>, Vec<&str>) = (real.lines().collect(), ours.lines().collect());
    // common[i][j]: the length of the longest common subsequence of real[i..] and ours[j..].
    let mut common = vec![vec![0_usize; ours.len() + 1]; real.len() + 1];
    for (i, line) in real.iter().enumerate().rev() {
        for (j, other) in ours.iter().enumerate().rev() {
            common[i][j] =
                if line == other { common[i + 1][j + 1] + 1 } else { common[i + 1][j].max(common[i][j + 1]) };
        }
    }
    let mut marked: Vec<(char, &str)> = Vec::new();
    let (mut i, mut j) = (0, 0);
    while i < real.len() || j < ours.len() {
        if i < real.len() && j < ours.len() && real[i] == ours[j] {
            marked.push((' ', real[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == ours.len() || (i < real.len() && common[i + 1][j] >= common[i][j + 1]) {
            marked.push(('-', real[i]));
            i += 1;
        } else {
            marked.push(('+', ours[j]));
            j += 1;
        }
    }
    let near = |at: usize| {
        let window = at.saturating_sub(CONTEXT)..(at + CONTEXT + 1).min(marked.len());
        marked[window].iter().any(|(mark, _)| *mark != ' ')
    };
    let mut text = String::new();
    for (at, (mark, line)) in marked.iter().enumerate() {
        if near(at) {
            let _ = writeln!(text, "{mark} {line}");
        }
    }
    text
}

#[test]
fn a_difference_names_the_step_and_both_lines() {
    let step = |answer: &str| vec![Step { what: "get it".into(), answer: answer.into() }];
    let (same, other) = (step("200\na\nb"), step("200\na\nc"));
    assert_eq!(between("pods", &same, &same), "");
    assert_eq!(between("pods", &same, &other), "## pods: get it\n  200\n  a\n- b\n+ c\n");
    assert_eq!(between("pods", &same, &[]), "## pods: get it\nnot reached on devcluster\n");
}
