//! Relations between Pods: a plugin that has one runs for groups of Pods, and not for each Pod.
//!
//! In queue and journal a group has the place of a Pod: its key is made from its relation and value, such as
//! `workload/Deployment/web`. No uid of a Pod has a slash, and each uid of a group has some.

use std::{sync::Arc, time::Duration};

use podium_wire::{Section, SectionSet};

use super::{LabelOperator, LabelRequirement, PodKey, PodQuery, Scope};

/// The groups that a plugin runs for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Related {
    /// The value that the Pods of a group have in common.
    pub by: Relation,
    /// The least time from the start of a run for a group to the next one.
    pub debounce: Duration,
}

/// A value that the Pods of a group have in common, beside their namespace. A Pod without a value is in no group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relation {
    /// The workload, as [`Workload::owner_text`](podium_wire::Workload::owner_text) returns it.
    Workload,
    /// The node. The Pods of all namespaces on a node are one group of a plugin of the cluster.
    Node,
    /// The value of the label with this key.
    Label(String),
}

/// The most bytes of a value that makes a group: a kind of 63, a slash and a name of 253.
const MOST_VALUE_BYTES: usize = 317;

impl Relation {
    /// Returns the sections that have the value. A relation is a search, so a plugin needs them.
    #[must_use]
    pub fn sections(&self) -> SectionSet {
        match self {
            Self::Workload => SectionSet::EMPTY.with(Section::Owners).with(Section::Labels),
            Self::Node => SectionSet::EMPTY.with(Section::Spec),
            Self::Label(_) => SectionSet::EMPTY.with(Section::Labels),
        }
    }

    /// Returns the key of the group of the Pods of this namespace that have the value, for a plugin of this scope;
    /// `None` for a value of more than 317 bytes, which a hostile owner may have.
    #[must_use]
    pub fn group(&self, scope: &Scope, namespace: &Arc<str>, value: &str) -> Option<PodKey> {
        if value.len() > MOST_VALUE_BYTES {
            return None;
        }
        let namespace = match self {
            Self::Node if *scope == Scope::Cluster => "".into(),
            Self::Workload | Self::Node | Self::Label(_) => namespace.clone(),
        };
        let name = format!("{}{value}", self.prefix());
        let uid = format!("{namespace}/{name}");
        Some(PodKey { namespace, name: name.into(), uid: uid.into() })
    }

    /// Returns the search of the Pods of a group; `None` for a Pod and for a group of another relation.
    #[must_use]
    pub fn members(&self, group: &PodKey) -> Option<PodQuery> {
        let value = group.name.strip_prefix(&*self.prefix()).filter(|_| is_group(&group.uid))?;
        let namespace = Some(group.namespace.clone()).filter(|namespace| !namespace.is_empty());
        let all = PodQuery { namespace, ..PodQuery::default() };
        Some(match self {
            Self::Workload => PodQuery { owner_uid: Some(value.into()), ..all },
            Self::Node => PodQuery { node: Some(value.into()), ..all },
            Self::Label(key) => {
                let values = vec![value.to_owned()];
                let requirement = LabelRequirement { key: key.clone(), operator: LabelOperator::In, values };
                PodQuery { labels: super::LabelSelector(vec![requirement]), ..all }
            }
        })
    }

    fn prefix(&self) -> String {
        match self {
            Self::Workload => "workload/".to_owned(),
            Self::Node => "node/".to_owned(),
            Self::Label(key) => format!("label/{key}="),
        }
    }
}

/// Returns true for the uid of a group's key.
#[must_use]
pub fn is_group(uid: &str) -> bool {
    uid.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_again_by_its_key_and_only_by_its_own_relation() {
        let shop = Scope::Namespace("shop".into());
        let label = |key: &str| Relation::Label(key.to_owned());
        let relations = [Relation::Workload, Relation::Node, label("app"), label("app.kubernetes.io/name")];
        for scope in [&shop, &Scope::Cluster] {
            for (at, relation) in relations.iter().enumerate() {
                let group = relation.group(scope, &"shop".into(), "Deployment/web").unwrap();
                assert!(is_group(&group.uid));
                for (other, query) in relations.iter().map(|other| other.members(&group)).enumerate() {
                    assert_eq!(query.is_some(), at == other, "{group} by {relation:?}");
                    let spans = *relation == Relation::Node && *scope == Scope::Cluster;
                    assert!(query.is_none_or(|query| query.namespace.is_none() == spans));
                }
            }
        }
        let long = "x".repeat(MOST_VALUE_BYTES + 1);
        assert_eq!(Relation::Workload.group(&shop, &"shop".into(), &long), None);
        let pod = PodKey::new("shop", "workload/x", "0b1c2d3e-4f50-6172-8394-a5b6c7d8e9fa");
        assert_eq!(Relation::Workload.members(&pod), None);
    }
}
