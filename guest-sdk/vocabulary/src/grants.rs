//! The permissions of a plugin. Deny by default: an empty value grants nothing.

use std::sync::Arc;

use podium_wire::SectionSet;

/// The scope of a plugin, which sees and writes nothing outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The namespace of a `ReconcilePlugin`.
    Namespace(Arc<str>),
    /// The whole cluster, for a `ClusterReconcilePlugin`.
    Cluster,
}

impl Scope {
    /// Returns true if a namespace is in the scope.
    #[must_use]
    pub fn contains(&self, namespace: &str) -> bool {
        match self {
            Self::Namespace(own) => &**own == namespace,
            Self::Cluster => true,
        }
    }
}

/// The permissions in a plugin's configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    /// Read access to Pods. With `None` the plugin sees only the Pod of the run, with only its lifecycle.
    pub read: Option<ReadGrants>,
    /// Kinds of other objects that may be read from the API server.
    pub read_objects: Vec<ObjectGrant>,
    /// Write access.
    pub write: WriteGrants,
}

impl Grants {
    /// Returns the sections that the plugin receives of any Pod. Lifecycle is always among them.
    #[must_use]
    pub fn sections(&self) -> SectionSet {
        let granted = self.read.as_ref().map_or(SectionSet::EMPTY, |read| read.sections);
        granted.with(podium_wire::Section::Lifecycle)
    }

    /// Returns true if everything that `other` grants is granted here too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let read = match (&self.read, &other.read) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(other)) => other.sections.is_subset_of(own.sections) && own.live >= other.live,
        };
        read && covers(&self.read_objects, &other.read_objects) && self.write.covers(&other.write)
    }
}

/// The permissions to read Pods in a plugin's scope.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadGrants {
    /// The sections that a plugin receives; others are absent.
    pub sections: SectionSet,
    /// Permits `pods.get-live`.
    pub live: bool,
}

/// The permissions to write. Nothing is granted by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteGrants {
    /// Keys of labels of Pods that may be set and removed.
    pub labels: Vec<KeyPattern>,
    /// Keys of annotations of Pods that may be set and removed.
    pub annotations: Vec<KeyPattern>,
    /// Finalizers of Pods that may be added and removed.
    pub finalizers: Vec<KeyPattern>,
    /// Types of conditions of Pods that may be set and removed.
    pub conditions: Vec<KeyPattern>,
    /// Permits emitting Events.
    pub events: bool,
    /// Permits deleting Pods.
    pub delete: bool,
    /// Permits evicting Pods.
    pub evict: bool,
    /// Kinds of other objects that may be applied and deleted.
    pub objects: Vec<ObjectGrant>,
    /// Those of them whose fields an apply takes from other managers, also in an object that it did not create.
    pub forced: Vec<ObjectGrant>,
    /// Kinds of other objects whose replicas may be set.
    pub scale: Vec<ObjectGrant>,
}

impl WriteGrants {
    fn covers(&self, other: &Self) -> bool {
        let Self { labels, annotations, finalizers, conditions, events, delete, evict, objects, forced, scale } = self;
        let keys = [
            (labels, &other.labels),
            (annotations, &other.annotations),
            (finalizers, &other.finalizers),
            (conditions, &other.conditions),
        ];
        let covered = |(own, other): (&Vec<KeyPattern>, &Vec<KeyPattern>)| {
            other.iter().all(|pattern| own.iter().any(|own| own.covers(pattern)))
        };
        keys.into_iter().all(covered)
            && *events >= other.events
            && *delete >= other.delete
            && *evict >= other.evict
            && covers(objects, &other.objects)
            && covers(forced, &other.forced)
            && covers(scale, &other.scale)
    }
}

fn covers(own: &[ObjectGrant], other: &[ObjectGrant]) -> bool {
    other.iter().all(|grant| own.contains(grant))
}

/// A key, or a prefix with `*` at the end: `triage.shop.example/*`. The configuration accepts no `*` elsewhere, and
/// none without a domain before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPattern(pub String);

impl KeyPattern {
    /// Returns true if a key is one of those that the pattern permits.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => key.len() > prefix.len() && key.starts_with(prefix),
            None => self.0 == key,
        }
    }

    /// Returns true if every key that `other` matches is matched here too.
    fn covers(&self, other: &Self) -> bool {
        match other.0.strip_suffix('*') {
            Some(prefix) => self.0.strip_suffix('*').is_some_and(|own| prefix.starts_with(own)),
            None => self.matches(&other.0),
        }
    }
}

/// A granted kind of objects other than Pods, in the plugin's scope.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectGrant {
    /// Group and version, such as `apps/v1`.
    pub api_version: String,
    /// The kind, such as `Deployment`.
    pub kind: String,
    /// The plural of the kind, in paths of the API.
    pub resource: String,
}

impl ObjectGrant {
    /// Returns the resource of a kind, or `None` if the kind is not among the grants.
    #[must_use]
    pub fn resource<'a>(grants: &'a [Self], api_version: &str, kind: &str) -> Option<&'a str> {
        let grant = grants.iter().find(|grant| grant.api_version == api_version && grant.kind == kind)?;
        Some(&grant.resource)
    }
}

#[cfg(test)]
mod tests {
    use podium_wire::Section;

    use super::*;

    fn labels(patterns: &[&str]) -> Grants {
        let labels = patterns.iter().map(|pattern| KeyPattern((*pattern).into())).collect();
        Grants { write: WriteGrants { labels, ..WriteGrants::default() }, ..Grants::default() }
    }

    #[test]
    fn a_pattern_covers_exactly_the_narrower_patterns() {
        let wide = labels(&["a.example/*"]);
        for (other, covered) in [
            (labels(&[]), true),
            (labels(&["a.example/*"]), true),
            (labels(&["a.example/b", "a.example/c*"]), true),
            (labels(&["a.example/b", "b.example/b"]), false),
            (labels(&["a.exampl*"]), false),
        ] {
            assert_eq!(wide.covers(&other), covered, "{other:?}");
        }
        assert!(!labels(&["a.example/b"]).covers(&wide), "one key does not cover all of its domain");
    }

    #[test]
    fn a_removed_grant_is_not_covered() {
        let read = |sections, live| Grants { read: Some(ReadGrants { sections, live }), ..Grants::default() };
        let some = SectionSet::EMPTY.with(Section::Labels);
        let more = SectionSet::EMPTY.with(Section::Status);
        let more = some.union(more);
        assert!(read(more, true).covers(&read(some, false)));
        assert!(!read(some, true).covers(&read(more, true)), "a section");
        assert!(!read(some, false).covers(&read(some, true)), "live reads");
        assert!(!Grants::default().covers(&read(SectionSet::EMPTY, false)), "reads");
        let config_map =
            ObjectGrant { api_version: "v1".into(), kind: "ConfigMap".into(), resource: "configmaps".into() };
        for write in [
            WriteGrants { events: true, ..WriteGrants::default() },
            WriteGrants { delete: true, ..WriteGrants::default() },
            WriteGrants { evict: true, ..WriteGrants::default() },
            WriteGrants { objects: vec![config_map.clone()], ..WriteGrants::default() },
            WriteGrants { scale: vec![config_map.clone()], ..WriteGrants::default() },
        ] {
            let granted = Grants { write, ..Grants::default() };
            assert!(granted.covers(&granted) && granted.covers(&Grants::default()));
            assert!(!Grants::default().covers(&granted), "{granted:?}");
        }
        let mut granted = Grants { read_objects: vec![config_map], ..Grants::default() };
        assert!(granted.covers(&granted) && !Grants::default().covers(&granted));
        std::mem::swap(&mut granted.read_objects, &mut granted.write.objects);
        assert!(!Grants { read_objects: granted.write.objects.clone(), ..Grants::default() }.covers(&granted));
    }
}
