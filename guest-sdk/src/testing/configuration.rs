//! The parts of a plugin's configuration that its tests see: scope, grants, watch, config, and the limits of writes and
//! host calls. It is parsed by the host's own schema, with the same errors.

use std::{collections::BTreeMap, path::Path};

use podium_config::{Document, Problem};
use podium_vocabulary::{
    Grants, Input, InputObjects, Limits, PluginSpec, Scope, WatchSpec, authz::lacking_sections, with_inputs,
};
use podium_wire::SectionSet;
use serde_json::{Value, json};

use super::authz;
use crate::pods::Query;

#[derive(Debug)]
pub(super) struct Configuration {
    pub(super) scope: Scope,
    /// `None` grants everything.
    pub(super) grants: Option<Grants>,
    /// `None` watches everything.
    pub(super) watch: Option<WatchSpec>,
    /// JSON text.
    pub(super) config: String,
    pub(super) inputs: Vec<Input>,
    pub(super) writes: u32,
    pub(super) calls: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        let Limits { writes, host_calls: calls, .. } = Limits::default();
        let config = "{}".to_owned();
        Self { scope: Scope::Cluster, grants: None, watch: None, config, inputs: Vec::new(), writes, calls }
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
        let spec = podium_config::spec(content.map_err(problems)?, Path::new(""));
        let scope = spec.scope();
        let PluginSpec { grants, watch, config, inputs, limits, .. } = spec;
        let Limits { writes, host_calls: calls, .. } = limits;
        Ok(Self { scope, grants: Some(grants), watch: Some(watch), config: config.to_string(), inputs, writes, calls })
    }

    /// Returns the configuration of a run: `config` with the objects of the inputs.
    pub(super) fn with_inputs(&self, objects: &BTreeMap<String, Option<Value>>) -> String {
        let without = |input: &Input| match input.objects {
            InputObjects::Named(_) => Value::Null,
            InputObjects::Labelled(_) => json!([]),
        };
        let mut members: BTreeMap<&str, Value> = self.inputs.iter().map(|input| (&*input.id, without(input))).collect();
        for (id, object) in objects {
            let Some(object) = object else {
                members.entry(id).or_default();
                continue;
            };
            let pruned = match (self.inputs.iter().find(|input| input.id == *id), object) {
                (None, object) => object.clone(),
                (Some(input), Value::Array(objects)) => objects.iter().map(|object| input.prune(object)).collect(),
                (Some(input), object) => input.prune(object),
            };
            members.insert(id, pruned);
        }
        if members.is_empty() { self.config.clone() } else { with_inputs(&self.config, &json!(members).to_string()) }
    }

    /// Returns the readable sections; `None` if the plugin may read no Pods except the run's own.
    pub(super) fn readable(&self) -> Option<SectionSet> {
        let is_granted = self.grants.as_ref().is_none_or(|grants| grants.read.is_some());
        is_granted.then(|| self.sections())
    }

    /// Returns the sections of the run's own Pod.
    pub(super) fn sections(&self) -> SectionSet {
        self.grants.as_ref().map_or(SectionSet::ALL, Grants::sections)
    }

    /// The sections that a search needs and that are not granted.
    pub(super) fn lacks(&self, query: &Query) -> Vec<&'static str> {
        self.grants.as_ref().map_or(Vec::new(), |grants| lacking_sections(grants, &authz::query(query)))
    }

    pub(super) fn reads_live(&self) -> bool {
        self.grants.as_ref().is_none_or(|grants| grants.read.as_ref().is_some_and(|read| read.live))
    }
}
