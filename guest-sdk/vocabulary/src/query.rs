//! Queries to the cache.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use serde::{Deserialize, Serialize};

/// An operator of a Kubernetes label selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabelOperator {
    /// The label is present, with any value.
    Exists,
    /// The label is not present.
    #[serde(rename = "DoesNotExist")]
    Absent,
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is not present.
    NotIn,
}

/// One condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelRequirement {
    /// The label's key.
    pub key: String,
    /// How the label is compared.
    pub operator: LabelOperator,
    /// The values for `In` and `NotIn`; empty for the others.
    pub values: Vec<String>,
}

impl LabelRequirement {
    /// Returns true if labels meet the condition.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            LabelOperator::Exists => value.is_some(),
            LabelOperator::Absent => value.is_none(),
            LabelOperator::In => value.is_some_and(|value| self.values.contains(value)),
            LabelOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
        }
    }
}

/// All requirements must hold; an empty selector matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(pub Vec<LabelRequirement>);

impl LabelSelector {
    /// The most requirements of a selector, in a query and in a configuration: each is evaluated for each event.
    pub const MOST_REQUIREMENTS: usize = 32;
    /// The most values of a requirement.
    pub const MOST_VALUES: usize = 64;

    /// Returns true if labels meet all conditions.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

impl fmt::Display for LabelSelector {
    /// Formats the API server's syntax of a label selector: `tier in (a,b),!legacy`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, LabelRequirement { key, operator, values }) in self.0.iter().enumerate() {
            formatter.write_str(if at > 0 { "," } else { "" })?;
            // Some empty values beside each other are a mistake in this syntax.
            let values = values.iter().map(String::as_str).collect::<BTreeSet<_>>();
            let values = values.into_iter().collect::<Vec<_>>().join(",");
            match operator {
                LabelOperator::Exists => formatter.write_str(key)?,
                LabelOperator::Absent => write!(formatter, "!{key}")?,
                LabelOperator::In => write!(formatter, "{key} in ({values})")?,
                LabelOperator::NotIn => write!(formatter, "{key} notin ({values})")?,
            }
        }
        Ok(())
    }
}

/// A filter for Pods: every field that is set must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodQuery {
    /// Pods of this namespace.
    pub namespace: Option<Arc<str>>,
    /// Pods on this node.
    pub node: Option<Arc<str>>,
    /// Pods with an owner of this uid, or, for a text with a slash, of this workload: `Deployment/web`.
    pub owner_uid: Option<Arc<str>>,
    /// Pods in this phase, such as `Running`.
    pub phase: Option<Arc<str>>,
    /// Pods with these labels.
    pub labels: LabelSelector,
}

/// The last Pod of a page, by (namespace, name). The next page begins after it, regardless of changes in between.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The Pod's namespace.
    pub namespace: Arc<str>,
    /// The Pod's name.
    pub name: Arc<str>,
}

impl Cursor {
    /// The most bytes of a namespace or a name.
    const NAME_BYTES: usize = 253;

    /// Parses the text of a cursor. A guest stores this text, so it can be anything; returns `None` if it is not a
    /// cursor.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_name = |part: &str| {
            !part.is_empty()
                && part.len() <= Self::NAME_BYTES
                && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte))
        };
        let (namespace, name) = text.split_once('/')?;
        (is_name(namespace) && is_name(name)).then(|| Self { namespace: namespace.into(), name: name.into() })
    }
}

impl fmt::Display for Cursor {
    /// Formats the text that [`Cursor::parse`] accepts.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_a_cursor_is_accepted() {
        let cursor = Cursor { namespace: "shop".into(), name: "cart-0".into() };
        assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        for hostile in ["", "/", "a/", "/b", "shop", "a/b/c", "a/../b", "A/b", "a/b\0", &"a/".repeat(500)] {
            assert_eq!(Cursor::parse(hostile), None, "{hostile:?}");
        }
    }
}
