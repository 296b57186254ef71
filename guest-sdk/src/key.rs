//! Identifiers: one incarnation of a Pod, and an object that is not a Pod.

use std::fmt;

/// One incarnation of a Pod. A Pod deleted and created again has another uid, and a write to the old one never reaches
/// the new one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// The namespace.
    pub namespace: String,
    /// The name, which a later incarnation may have again.
    pub name: String,
    /// The uid, which no other incarnation has.
    pub uid: String,
}

impl PodKey {
    /// Returns a key of its three parts.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, uid: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }
}

impl fmt::Display for PodKey {
    /// Formats `namespace/name`, for people, who rarely need the uid.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// The owner of an applied object: Kubernetes deletes the object after its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectOwner<'a> {
    /// The Pod.
    Pod(&'a PodKey),
    /// The Pod's top workload, such as its Deployment or StatefulSet, or the Pod itself if it has no controller. For
    /// one object for each workload: the runs on all its Pods apply it with the same owner. The plugin's ServiceAccount
    /// needs the verb `get` on the kinds, of a Deployment on `replicasets` and `deployments`; otherwise the write is
    /// [`WriteResult::Forbidden`](crate::WriteResult::Forbidden) with the missing rule.
    Workload(&'a PodKey),
}

impl<'a> ObjectOwner<'a> {
    /// Returns the Pod that is the owner, or whose workload is.
    #[must_use]
    pub const fn pod(self) -> &'a PodKey {
        match self {
            Self::Pod(key) | Self::Workload(key) => key,
        }
    }
}

/// An object that is not a Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// Group and version, such as "v1" or "apps/v1".
    pub api_version: String,
    /// The kind, such as "ConfigMap".
    pub kind: String,
    /// `None` for a kind without namespaces.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl ObjectRef {
    /// Returns an object in a namespace: `ObjectRef::new("v1", "ConfigMap", "shop", "summary")`.
    #[must_use]
    pub fn new(
        api_version: impl Into<String>,
        kind: impl Into<String>,
        namespace: impl Into<String>,
        name: impl Into<String>,
    ) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        write!(formatter, "{} {} {namespace}/{}", self.api_version, self.kind, self.name)
    }
}
