//! Where the fields of a document are, for mistakes that are found after the document was read. Only fields that rules
//! outside of this crate are about: mappings down to `spec.limits.memoryMiB`, and nothing inside lists.

use std::collections::BTreeMap;

use crate::yaml::{Content, Node};

/// Names in the longest path, such as `spec.limits.memoryMiB`.
const DEPTH: usize = 3;

/// The lines of a document's fields, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lines {
    document: u64,
    /// By the field's path.
    fields: BTreeMap<String, u64>,
}

impl Lines {
    pub(crate) fn new(node: &Node) -> Self {
        let mut lines = Self { document: node.line(), fields: BTreeMap::new() };
        lines.add("", node, DEPTH);
        lines
    }

    fn add(&mut self, path: &str, node: &Node, depth: usize) {
        let Content::Map(entries) = node.content() else { return };
        for (name, node) in entries.iter().take_while(|_| depth > 0) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.add(&path, node, depth - 1);
            self.fields.insert(path, node.line());
        }
    }

    /// Returns the line of the field with this path, such as `spec.limits.memoryMiB`. For one that is not in the
    /// document it is the line of the nearest field around it, or that where the document begins.
    #[must_use]
    pub fn line(&self, field: &str) -> u64 {
        let mut path = field;
        loop {
            match (self.fields.get(path), path.rsplit_once('.')) {
                (Some(line), _) => return *line,
                (None, Some((around, _))) => path = around,
                (None, None) => return self.document,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::plugins;

    #[test]
    fn a_field_that_is_missing_has_the_line_of_the_field_around_it() {
        let yaml = "kind: X\n---\nkind: Y\nspec:\n  limits:\n    writes: 100\n  source:\n    file: a\n";
        let lines = &plugins(yaml).unwrap()[1].lines;
        assert_eq!(lines.line("spec.limits.writes"), 6);
        assert_eq!(lines.line("spec.limits.cpuMillis"), lines.line("spec.limits"));
        assert_eq!(lines.line("spec.serviceAccountName"), lines.line("spec"));
        assert_eq!((lines.line("metadata.namespace"), lines.line("")), (3, 3));
    }
}
