//! [`Grant`]: the fields below `spec.grants`, each with what it means to the API server: one table for the check of a
//! component's imports, for messages, for suggestions and for RBAC.

use crate::{Grants, ReadGrants, WriteGrants};

/// A field below `spec.grants`. The permission itself, with its keys and kinds, is in [`Grants`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// Reads of the cache.
    Read,
    /// Reads of Pods of the API server.
    Live,
    /// Reads of objects of other kinds.
    ReadObjects,
    /// Labels of Pods.
    Labels,
    /// Annotations of Pods.
    Annotations,
    /// Finalizers of Pods.
    Finalizers,
    /// Conditions of Pods.
    Conditions,
    /// Deletion of Pods.
    Delete,
    /// Eviction of Pods.
    Evict,
    /// Objects of other kinds.
    Objects,
    /// Replicas of objects of other kinds.
    Scale,
    /// Events about Pods.
    Events,
}

/// The right that the requests of a grant need, on a resource that the grant implies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// The API group.
    pub group: &'static str,
    /// The resource, with its subresource.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

impl Grant {
    /// All grants.
    pub const ALL: [Self; 12] = [
        Self::Read,
        Self::Live,
        Self::ReadObjects,
        Self::Labels,
        Self::Annotations,
        Self::Finalizers,
        Self::Conditions,
        Self::Delete,
        Self::Evict,
        Self::Objects,
        Self::Scale,
        Self::Events,
    ];

    /// The verbs on the kinds of [`Grant::ReadObjects`].
    pub const READ_VERBS: [&str; 1] = ["get"];
    /// The verbs on the kinds of [`Grant::Objects`].
    pub const OBJECT_VERBS: [&str; 4] = ["get", "create", "patch", "delete"];
    /// The verbs on the subresource `scale` of the kinds of [`Grant::Scale`].
    pub const SCALE_VERBS: [&str; 2] = ["get", "patch"];
    /// The verbs of RBAC by which the host finds out that another client has changed such objects.
    pub const OBJECT_WATCH_VERBS: [&str; 2] = ["list", "watch"];

    /// Returns the name of the field, an example of its value, and the right that its requests need: `None` if the host
    /// has it (reads of the cache), or if the value names the resources (objects).
    const fn entry(self) -> (&'static str, &'static str, Option<Right>) {
        const CONFIG_MAPS: &str = "[{ apiVersion: v1, kind: ConfigMap, resource: configmaps }]";
        const fn right(group: &'static str, resource: &'static str, verbs: &'static [&'static str]) -> Option<Right> {
            Some(Right { group, resource, verbs })
        }
        match self {
            Self::Read => ("read.pods", "{ sections: [labels] }", None),
            Self::Live => ("read.pods.live", "true", right("", "pods", &["get"])),
            Self::ReadObjects => ("read.objects", CONFIG_MAPS, None),
            Self::Labels => ("write.labels", "[example.com/my-label]", right("", "pods", &["patch"])),
            Self::Annotations => ("write.annotations", "[example.com/my-annotation]", right("", "pods", &["patch"])),
            Self::Finalizers => ("write.finalizers", "[example.com/my-finalizer]", right("", "pods", &["patch"])),
            Self::Conditions => ("write.conditions", "[example.com/MyCondition]", right("", "pods/status", &["patch"])),
            Self::Delete => ("write.delete", "true", right("", "pods", &["delete"])),
            Self::Evict => ("write.evict", "true", right("", "pods/eviction", &["create"])),
            Self::Objects => ("write.objects", CONFIG_MAPS, None),
            Self::Scale => ("write.scale", "[{ apiVersion: apps/v1, kind: Deployment, resource: deployments }]", None),
            Self::Events => ("write.events", "true", right("events.k8s.io", "events", &["create", "patch"])),
        }
    }

    /// Returns the name of the field below `spec.grants`, such as `write.labels`.
    #[must_use]
    pub const fn field(self) -> &'static str {
        self.entry().0
    }

    /// Returns an example of its value, in YAML.
    #[must_use]
    pub const fn example(self) -> &'static str {
        self.entry().1
    }

    /// Returns the right that its requests need, if it is on a resource that the grant implies.
    #[must_use]
    pub const fn right(self) -> Option<Right> {
        self.entry().2
    }

    /// Returns true if some of it is granted.
    #[must_use]
    pub fn is_in(self, grants: &Grants) -> bool {
        let Grants { read, read_objects, write } = grants;
        // Without `objects` nothing is forced.
        let WriteGrants {
            labels,
            annotations,
            finalizers,
            conditions,
            events,
            delete,
            evict,
            objects,
            forced: _,
            scale,
        } = write;
        match self {
            Self::Read => read.is_some(),
            Self::Live => matches!(read, Some(ReadGrants { live: true, .. })),
            Self::ReadObjects => !read_objects.is_empty(),
            Self::Labels => !labels.is_empty(),
            Self::Annotations => !annotations.is_empty(),
            Self::Finalizers => !finalizers.is_empty(),
            Self::Conditions => !conditions.is_empty(),
            Self::Delete => *delete,
            Self::Evict => *evict,
            Self::Objects => !objects.is_empty(),
            Self::Scale => !scale.is_empty(),
            Self::Events => *events,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_grants_are_listed_in_their_order() {
        for (at, grant) in Grant::ALL.into_iter().enumerate() {
            assert_eq!(grant as usize, at, "{grant:?}");
        }
        // The compiler refuses this without a grant that is new, and the line before finds it missing in the list.
        let WriteGrants {
            labels: _,
            annotations: _,
            finalizers: _,
            conditions: _,
            events: _,
            delete: _,
            evict: _,
            objects: _,
            forced: _,
            scale: _,
        } = WriteGrants::default();
        let writes = Grant::ALL.into_iter().filter(|grant| grant.field().starts_with("write."));
        assert_eq!(writes.count(), 9);
    }

    /// The chart's policies warn an author of each grant that the plugin's account has no right to.
    #[test]
    fn the_admission_policies_name_each_grant_with_its_right() {
        let policies = include_str!("../../../deploy/chart/templates/admission-plugins.yaml");
        for grant in Grant::ALL.into_iter().filter(|grant| *grant != Grant::Read) {
            let right = match grant.right() {
                Some(Right { resource, verbs, .. }) => format!("{} {resource}'", verbs[0]),
                None if grant == Grant::ReadObjects => "get all of '".to_owned(),
                None if grant == Grant::Scale => format!("{} all of '", Grant::SCALE_VERBS.join(" and ")),
                None => "patch all of '".to_owned(),
            };
            let message = format!("'spec.grants.{}: ' + variables.user + ' may not {right}", grant.field());
            assert_eq!(policies.matches(&message).count(), 2, "for one namespace and for the cluster: {message}");
        }
    }
}
