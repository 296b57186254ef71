//! What of a plugin's configuration matters to its own tests: scope, grants, config and the limit of writes. The host
//! checks the rest when it loads the file.

use podium_wire::{Section, SectionSet};
use serde::Deserialize;
use serde_json::Value;

use crate::Refused;

/// The host's default of `spec.limits.writes`.
const WRITES: usize = 20;

/// A plugin's configuration as the tests see it.
#[derive(Debug)]
pub(super) struct Configuration {
    /// None for a plugin of the whole cluster.
    pub(super) namespace: Option<String>,
    /// None grants everything.
    pub(super) grants: Option<Grants>,
    /// JSON text.
    pub(super) config: String,
    pub(super) writes: usize,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { namespace: None, grants: None, config: "{}".to_owned(), writes: WRITES }
    }
}

impl Configuration {
    /// # Errors
    /// A text that names what is wrong.
    pub(super) fn from_yaml(yaml: &str) -> Result<Self, String> {
        let file: File = serde_saphyr::from_str(yaml).map_err(|error| error.to_string())?;
        let namespace = match (file.kind.as_str(), file.metadata.namespace) {
            ("ReconcilePlugin", Some(namespace)) => Some(namespace),
            ("ReconcilePlugin", None) => return Err("a ReconcilePlugin needs metadata.namespace".to_owned()),
            ("ClusterReconcilePlugin", None) => None,
            ("ClusterReconcilePlugin", Some(_)) => {
                return Err("a ClusterReconcilePlugin has no metadata.namespace".to_owned());
            }
            (kind, _) => return Err(format!("kind {kind:?} is no plugin")),
        };
        Ok(Self {
            namespace,
            grants: Some(file.spec.grants),
            config: file.spec.config.map_or_else(|| "{}".to_owned(), |config| config.to_string()),
            writes: file.spec.limits.writes.unwrap_or(WRITES),
        })
    }

    /// None where the plugin may read no Pods but its own.
    pub(super) fn readable(&self) -> Option<SectionSet> {
        let Some(grants) = &self.grants else { return Some(SectionSet::ALL) };
        let read = grants.read.pods.as_ref()?;
        Some(read.sections.iter().map(|section| section.section()).collect::<SectionSet>().with(Section::Lifecycle))
    }

    /// The sections of the Pod that a run is for.
    pub(super) fn sections(&self) -> SectionSet {
        self.readable().unwrap_or_default().with(Section::Lifecycle)
    }

    pub(super) fn sees(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    pub(super) fn granted(&self, grant: impl FnOnce(&Grants) -> bool) -> Result<(), Refused> {
        if self.grants.as_ref().is_none_or(grant) { Ok(()) } else { Err(Refused::NotGranted) }
    }
}

#[derive(Debug, Deserialize)]
struct File {
    kind: String,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    namespace: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Spec {
    #[serde(default)]
    grants: Grants,
    #[serde(default)]
    limits: Limits,
    config: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Limits {
    writes: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Grants {
    pub(super) read: Read,
    pub(super) write: Writes,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Read {
    pub(super) pods: Option<ReadPods>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ReadPods {
    sections: Vec<SectionName>,
    pub(super) live: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SectionName {
    Labels,
    Annotations,
    Owners,
    Lifecycle,
    Spec,
    Status,
    Full,
}

impl SectionName {
    fn section(self) -> Section {
        match self {
            Self::Labels => Section::Labels,
            Self::Annotations => Section::Annotations,
            Self::Owners => Section::Owners,
            Self::Lifecycle => Section::Lifecycle,
            Self::Spec => Section::Spec,
            Self::Status => Section::Status,
            Self::Full => Section::Full,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Writes {
    pub(super) labels: Vec<Pattern>,
    pub(super) annotations: Vec<Pattern>,
    pub(super) finalizers: Vec<Pattern>,
    pub(super) conditions: Vec<Pattern>,
    pub(super) events: bool,
    pub(super) delete: bool,
    pub(super) evict: bool,
    pub(super) objects: Vec<ObjectKind>,
}

/// A key, or with `*` at the end every key that begins so.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Pattern(String);

impl Pattern {
    pub(super) fn any(patterns: &[Self], key: &str) -> bool {
        patterns.iter().any(|pattern| match pattern.0.strip_suffix('*') {
            Some(prefix) => key.len() > prefix.len() && key.starts_with(prefix),
            None => pattern.0 == key,
        })
    }
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ObjectKind {
    pub(super) api_version: String,
    pub(super) kind: String,
}
