//! The difference of two texts by lines.

/// The most lines on a side that are compared; longer texts are shown whole.
const MOST: usize = 2_000;

/// Returns all lines, those of one side only with `-` or `+` in front, and those of both with a space.
pub(super) fn lines(old: &[String], new: &[String]) -> Vec<String> {
    let line = |sign: char, line: &String| format!("{sign} {line}");
    if old.len().max(new.len()) > MOST {
        return old.iter().map(|of| line('-', of)).chain(new.iter().map(|of| line('+', of))).collect();
    }
    let common = common(old, new);
    let mut lines = Vec::new();
    let mut at = 0;
    let mut other = 0;
    while at < old.len() || other < new.len() {
        if at < old.len() && other < new.len() && old[at] == new[other] {
            lines.push(line(' ', &old[at]));
            at += 1;
            other += 1;
        } else if other == new.len() || (at < old.len() && common[at + 1][other] >= common[at][other + 1]) {
            lines.push(line('-', &old[at]));
            at += 1;
        } else {
            lines.push(line('+', &new[other]));
            other += 1;
        }
    }
    lines
}

/// Returns the number of lines that the rests of both have in common, by their beginnings.
fn common(old: &[String], new: &[String]) -> Vec<Vec<u32>> {
    let mut table = vec![vec![0; new.len() + 1]; old.len() + 1];
    for at in (0..old.len()).rev() {
        for other in (0..new.len()).rev() {
            table[at][other] = match old[at] == new[other] {
                true => table[at + 1][other + 1] + 1,
                false => table[at + 1][other].max(table[at][other + 1]),
            };
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(old: &str, new: &str) -> String {
        let lines = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        super::lines(&lines(old), &lines(new)).join("|")
    }

    #[test]
    fn a_line_that_moved_or_changed_is_shown_between_those_that_stayed() {
        assert_eq!(diff("a b c", "a b c"), "  a|  b|  c");
        assert_eq!(diff("a b c", "a x c d"), "  a|- b|+ x|  c|+ d");
        assert_eq!(diff("", "a"), "+ a");
        assert_eq!(diff("a", ""), "- a");
        let long: Vec<String> = (0..=MOST).map(|at| at.to_string()).collect();
        assert_eq!(lines(&long, &[]).len(), long.len());
    }
}
