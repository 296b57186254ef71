//! The parts of a plugin's configuration that its tests see: scope, grants, config and the limit of writes. It is
//! parsed by the host's own schema, with the same errors.

use std::ops::Deref;

use podium_config::{
    Document, Plugin, Problem,
    plugin::{Grants, Limits, WriteGrants},
};
use podium_wire::{Section, SectionSet, syntax};
use serde_json::Value;

use crate::{CallError, pods::Query};

#[derive(Debug)]
pub(super) struct Configuration {
    /// `None` for a plugin with the scope of the cluster.
    pub(super) namespace: Option<String>,
    /// `None` grants everything.
    pub(super) grants: Option<Grants>,
    /// JSON text.
    pub(super) config: String,
    pub(super) writes: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { namespace: None, grants: None, config: "{}".to_owned(), writes: Limits::default().writes }
    }
}

impl Configuration {
    /// # Errors
    /// Parses a configuration. The error has one line per mistake.
    pub(super) fn from_yaml(yaml: &str) -> Result<Self, String> {
        let mut documents = podium_config::plugins(yaml).map_err(|problem| problem.message)?;
        let count = documents.len();
        let (Some(Document { content, .. }), 1) = (documents.pop(), count) else {
            return Err(format!("describes {count} plugins; a test runs one"));
        };
        let line = |Problem { field, message, .. }: &Problem| format!("{field}: {message}");
        let problems = |problems: Vec<Problem>| problems.iter().map(line).collect::<Vec<_>>().join("\n");
        let Plugin { metadata, spec, .. } = content.map_err(problems)?;
        Ok(Self {
            namespace: metadata.namespace.map(Into::into),
            grants: Some(spec.grants),
            config: Value::Object(spec.config).to_string(),
            writes: spec.limits.writes,
        })
    }

    /// Returns the readable sections; `None` if the plugin may read no Pods except the run's own.
    pub(super) fn readable(&self) -> Option<SectionSet> {
        let Some(grants) = &self.grants else { return Some(SectionSet::ALL) };
        grants.read.pods.as_ref().map(|_| self.sections())
    }

    /// Returns the sections of the run's own Pod.
    pub(super) fn sections(&self) -> SectionSet {
        let Some(grants) = &self.grants else { return SectionSet::ALL };
        let granted = grants.read.pods.iter().flat_map(|pods| &pods.sections);
        granted.map(|section| section.0).collect::<SectionSet>().with(Section::Lifecycle)
    }

    /// The sections that a search needs and that are not granted.
    pub(super) fn lacks(&self, query: &Query) -> Vec<&'static str> {
        let sections = self.sections();
        let asked = [
            (query.node.is_some(), Section::Spec),
            (query.owner_uid.is_some(), Section::Owners),
            (query.phase.is_some(), Section::Status),
            (!query.labels.is_empty(), Section::Labels),
        ];
        let is_granted = |section| sections.contains(section) || sections.contains(Section::Full);
        let lacking = asked.into_iter().filter(|(asked, section)| *asked && !is_granted(*section));
        lacking.map(|(_, section)| section.name()).collect()
    }

    pub(super) fn sees(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// Returns an error if `covered` is false for the grants.
    pub(super) fn granted(&self, covered: impl FnOnce(&WriteGrants) -> bool) -> Result<(), CallError> {
        if self.grants.as_ref().is_none_or(|grants| covered(&grants.write)) {
            Ok(())
        } else {
            Err(CallError::NotGranted)
        }
    }

    pub(super) fn reads_live(&self) -> bool {
        self.grants.as_ref().is_none_or(|grants| grants.read.pods.as_ref().is_some_and(|pods| pods.live))
    }
}

/// Returns true if the patterns cover a valid key. A wildcard covers no reserved key of Kubernetes.
pub(super) fn cover<T: Deref<Target = str>>(patterns: &[T], key: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => {
            prefix.contains('/') && !syntax::is_reserved_key(key) && key.len() > prefix.len() && key.starts_with(prefix)
        }
        None => **pattern == *key,
    })
}
