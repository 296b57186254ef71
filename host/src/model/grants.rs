//! What a plugin may touch. Deny by default: an empty value grants nothing.

use std::sync::Arc;

use podium_wire::SectionSet;

/// Where a plugin lives: it sees and touches nothing outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Of a `ReconcilePlugin`.
    Namespace(Arc<str>),
    /// Of a `ClusterReconcilePlugin`.
    Cluster,
}

impl Scope {
    #[must_use]
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::Namespace(own) => &**own == namespace,
            Self::Cluster => true,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// None: the plugin sees the Pod that it is run for, with its lifecycle alone, and no other.
    pub read: Option<ReadGrants>,
    pub write: WriteGrants,
}

impl Grants {
    /// The sections that the plugin is given of any Pod. Lifecycle always is among them.
    #[must_use]
    pub fn sections(&self) -> SectionSet {
        let granted = self.read.as_ref().map_or(SectionSet::EMPTY, |read| read.sections);
        granted.with(podium_wire::Section::Lifecycle)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadGrants {
    pub sections: SectionSet,
    /// `pods.get-live`.
    pub live: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteGrants {
    pub labels: Vec<KeyPattern>,
    pub annotations: Vec<KeyPattern>,
    pub finalizers: Vec<KeyPattern>,
    pub conditions: Vec<KeyPattern>,
    pub events: bool,
    pub delete: bool,
    pub evict: bool,
    pub objects: Vec<ObjectGrant>,
}

/// A key, or with `*` at the end every key that begins so: `triage.shop.example/*`. The configuration does not accept
/// a `*` elsewhere, nor one without a domain before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern(pub String);

impl KeyPattern {
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => key.len() > prefix.len() && key.starts_with(prefix),
            None => self.0 == key,
        }
    }
}

/// A kind that `apply-object` and `delete-object` may touch, in the plugin's scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectGrant {
    pub api_version: String,
    pub kind: String,
}
