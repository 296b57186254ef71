//! A label selector that is evaluated often.

use std::collections::BTreeMap;

use super::{LabelOperator, LabelRequirement, LabelSelector};

/// A label selector with sorted values, so that an evaluation of many values takes a few comparisons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expressions(Vec<LabelRequirement>);

impl From<&LabelSelector> for Expressions {
    fn from(selector: &LabelSelector) -> Self {
        let mut requirements = selector.0.clone();
        requirements.iter_mut().for_each(|requirement| requirement.values.sort_unstable());
        Self(requirements)
    }
}

impl Expressions {
    /// Returns true if labels meet all conditions, as [`LabelSelector::matches`] does.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|LabelRequirement { key, operator, values }| {
            let value = labels.get(key);
            let is_listed = |value: &String| values.binary_search(value).is_ok();
            match operator {
                LabelOperator::Exists => value.is_some(),
                LabelOperator::Absent => value.is_none(),
                LabelOperator::In => value.is_some_and(is_listed),
                LabelOperator::NotIn => !value.is_some_and(is_listed),
            }
        })
    }

    /// Returns true if every Pod matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conditions.
    #[must_use]
    pub fn requirements(&self) -> &[LabelRequirement] {
        &self.0
    }
}
