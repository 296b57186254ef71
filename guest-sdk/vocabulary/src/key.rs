//! Identifiers of Pods, revisions and plugins.

use std::{fmt, sync::Arc};

/// The identity of one incarnation of a Pod. A Pod that is deleted and created again has another uid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// The Pod's namespace.
    pub namespace: Arc<str>,
    /// The name in its namespace.
    pub name: Arc<str>,
    /// The uid, which no other Pod has at any time.
    pub uid: Arc<str>,
}

impl PodKey {
    /// Returns the key of a Pod.
    #[must_use]
    pub fn new(namespace: &str, name: &str, uid: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }
}

impl fmt::Display for PodKey {
    /// Formats `namespace/name`, for people, who rarely need the uid.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.namespace, self.name)
    }
}

/// A resourceVersion that can be compared: the API server guarantees this for its own kinds since 1.35 (KEP-5504), and
/// etcd's revisions have always been 63-bit counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// A resourceVersion that is not a decimal number of at most 64 bits, or has leading zeros.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("resourceVersion {0:?} is not a number that can be compared")]
pub struct RevisionError(pub String);

impl Revision {
    /// # Errors
    /// See [`RevisionError`].
    pub fn parse(text: &str) -> Result<Self, RevisionError> {
        let canonical = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        match text.parse() {
            Ok(revision) if canonical => Ok(Self(revision)),
            _ => Err(RevisionError(text.to_owned())),
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A plugin's name in the configuration: namespaced (a `ReconcilePlugin`) or not (a `ClusterReconcilePlugin`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PluginId {
    /// `None` for a `ClusterReconcilePlugin`.
    pub namespace: Option<Arc<str>>,
    /// The name in its namespace.
    pub name: Arc<str>,
}

impl PluginId {
    /// Returns the owner of the plugin.
    #[must_use]
    pub fn tenant(&self) -> Tenant {
        self.namespace.clone().map_or(Tenant::Cluster, Tenant::Namespace)
    }

    /// Returns the tenant that is charged for the plugin's runs and loads.
    #[must_use]
    pub fn payer(&self) -> Payer {
        let is_of_cluster = self.namespace.is_none();
        (self.tenant(), is_of_cluster.then(|| self.name.clone()))
    }
}

/// A tenant that is charged: a namespace, or one plugin that has the scope of the cluster.
pub type Payer = (Tenant, Option<Arc<str>>);

/// The owner of plugins. Memory, log lines and other resources are counted by tenant, and the platform's policy has
/// bounds for tenants.
/// The Pods that a plugin reaches are its [`Scope`](super::Scope).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tenant {
    /// All `ReconcilePlugin`s of a namespace.
    Namespace(Arc<str>),
    /// All `ClusterReconcilePlugin`s.
    Cluster,
}

impl fmt::Display for Tenant {
    /// Formats `namespace shop`, or `the cluster`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(formatter, "namespace {namespace}"),
            Self::Cluster => formatter.write_str("the cluster"),
        }
    }
}

impl fmt::Display for PluginId {
    /// Formats `namespace/name`, or `name` for a plugin of the whole cluster: the value of the metrics' label
    /// `controller`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(formatter, "{namespace}/{}", self.name),
            None => self.name.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn revisions_with_leading_zeros_signs_or_letters_are_refused() {
        for text in ["", "00", "01", "+1", "-1", "1a", "99999999999999999999"] {
            assert!(Revision::parse(text).is_err(), "{text}");
        }
        assert_eq!(Revision::parse("0"), Ok(Revision(0)));
        assert!(Revision::parse("9").unwrap() < Revision::parse("10").unwrap());
    }

    #[test]
    fn plugins_of_a_namespace_are_one_tenant() {
        let id =
            |namespace: Option<&str>, name: &str| PluginId { namespace: namespace.map(Into::into), name: name.into() };
        assert_eq!(id(Some("shop"), "a").tenant(), id(Some("shop"), "b").tenant());
        assert_ne!(id(Some("shop"), "a").tenant(), id(Some("bank"), "a").tenant());
        assert_eq!(id(None, "a").tenant(), id(None, "b").tenant());
        let names = [id(Some("shop"), "a"), id(None, "a")].map(|id| id.tenant().to_string());
        assert_eq!(names, ["namespace shop", "the cluster"]);
    }
}
