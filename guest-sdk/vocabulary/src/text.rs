//! Bounds and escapes for text from outside: from guests, and from servers that answer requests.

use std::path::Path;

/// Shared with the SDK's test host.
pub use podium_wire::text::{Escaped, MESSAGE_BYTES, bounded, cut, escape, for_people, line};

/// The most bytes of a name in a message.
const NAME_BYTES: usize = 128;
/// The most names of a list in a message.
const NAMES: usize = 10;

/// Returns the plural of a kind in lower case, by the rule that names most resources, of Kubernetes and of custom kinds
/// (in client-go: `meta.UnsafeGuessKindToResource`).
#[must_use]
pub fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if kind.ends_with('s') => format!("{kind}es"),
        None => format!("{kind}s"),
    }
}

/// Returns a name as part of one line, of at most 128 bytes.
#[must_use]
pub fn name(name: &str) -> String {
    bounded(name, NAME_BYTES)
}

/// Returns the path of a file as part of one line, of at most 2 KiB.
#[must_use]
pub fn path(path: &Path) -> String {
    bounded(&path.to_string_lossy(), MESSAGE_BYTES)
}

/// Returns names separated by commas, at most 10 of them; "nothing" if there are none.
#[must_use]
pub fn names<T: AsRef<str>>(names: &[T]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let mut shown: Vec<String> = names.iter().take(NAMES).map(|one| name(one.as_ref())).collect();
    if names.len() > NAMES {
        shown.push(format!("and {} more", names.len() - NAMES));
    }
    shown.join(", ")
}

/// A budget in bytes for several texts; texts that exceed it are left out.
#[derive(Debug)]
pub struct TextBudget(usize);

impl TextBudget {
    /// Returns a budget of this many bytes.
    #[must_use]
    pub const fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Empties a text that does not fit into the rest of the budget.
    pub fn take(&mut self, text: &mut String) {
        match self.0.checked_sub(text.len()) {
            Some(left) => self.0 = left,
            None => *text = String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_messages_are_bounded_whatever_they_consist_of() {
        for long in ["a", "\n", "é", "\u{202e}"].map(|character| character.repeat(100_000)) {
            assert!(name(&long).len() <= NAME_BYTES && line(&long).len() <= MESSAGE_BYTES);
            assert!(names(&vec![long; 88]).len() <= NAMES * (NAME_BYTES + 2) + 20);
        }
        assert_eq!(names(&["a", "b"]), "a, b");
        assert_eq!(names::<&str>(&[]), "nothing");
        assert!(names(&["x"; 12]).ends_with("x, and 2 more"));
    }
}
