//! Converts the configuration of a plugin into its [`PluginSpec`].

use std::{path::Path, time::Duration};

use podium_vocabulary::{
    Grants, Input, InputObjects, KeyPattern, LabelOperator, LabelRequirement, LabelSelector, Language, LimitClass,
    Limits, ObjectGrant, Phase, PluginId, PluginSpec, PullSecret, ReadGrants, Related, Relation, RequestRates, Source,
    WatchSpec, WriteGrants,
};
use podium_wire::SectionSet;

use crate::{
    DnsSubdomain, MOST_INPUTS, MOST_MEMORY_MIB, MOST_REQUIREMENTS, MOST_VALUES, Plugin,
    plugin::{self, Class, Kind, Operator, RelatedBy, Script, Section},
};

// The host reserves as much as a configuration may request.
const _: () = assert!((MOST_MEMORY_MIB as usize) << 20 == Limits::MOST_MEMORY_BYTES);
const _: () = assert!(MOST_REQUIREMENTS == LabelSelector::MOST_REQUIREMENTS);
const _: () = assert!(MOST_INPUTS == Input::MOST);
const _: () = assert!(MOST_VALUES == LabelSelector::MOST_VALUES);

/// Converts a plugin. `directory` is the base of relative paths of components. Whether the component exists is
/// checked when it is loaded, because it may be created later.
#[must_use]
pub fn spec(plugin: Plugin, directory: &Path) -> PluginSpec {
    let Plugin { api_version: _, kind, metadata, spec } = plugin;
    let namespace = match kind {
        Kind::ReconcilePlugin => metadata.namespace,
        Kind::ClusterReconcilePlugin => None,
    };
    let account = |name: DnsSubdomain| {
        let namespace = namespace.as_ref().or(spec.service_account_namespace.as_ref())?;
        Some(format!("system:serviceaccount:{}:{}", &**namespace, &*name))
    };
    let grants = grants(spec.grants);
    let own_namespace = namespace.as_ref().or(spec.service_account_namespace.as_ref());
    let own_namespace = own_namespace.map(|namespace| (**namespace).to_owned()).unwrap_or_default();
    let impersonate = spec.service_account_name.and_then(account);
    let language = spec.source.script.as_ref().map(|script| script.language.into());
    let mut limits = limits(&spec.limits);
    if language.is_some() {
        limits.class = LimitClass::Interpreter;
    }
    PluginSpec {
        id: PluginId { namespace: namespace.as_deref().map(Into::into), name: (*metadata.name).into() },
        source: source(spec.source, directory, own_namespace, impersonate.as_ref()),
        language,
        impersonate,
        suspend: spec.suspend,
        watch: watch(spec.watch, &grants),
        grants,
        limits,
        phase: match spec.phase {
            plugin::Phase::Before => Phase::Before,
            plugin::Phase::Main => Phase::Main,
            plugin::Phase::After => Phase::After,
        },
        after: spec.after.into_iter().map(Into::into).collect(),
        state_group: spec.state_group.map(String::from),
        release_after: spec.finalizers.release_after_seconds.map(|seconds| Duration::from_secs(seconds.into())),
        config: serde_json::Value::Object(spec.config).to_string().into(),
        inputs: spec.inputs.into_iter().map(input).collect(),
    }
}

fn input(input: plugin::Input) -> Input {
    let plugin::Input { id, api_version, kind, resource, name, selector: labels, fields } = input;
    // The rules of the configuration demand one of them.
    let objects = match name {
        Some(name) => InputObjects::Named(name.into()),
        None => InputObjects::Labelled(selector(labels.unwrap_or_default()).to_string()),
    };
    let default = || Input::DEFAULT_FIELDS.map(str::to_owned).to_vec();
    Input {
        id: id.into(),
        api_version: api_version.into(),
        kind: kind.into(),
        resource: resource.into(),
        objects,
        fields: fields.map_or_else(default, |fields| fields.into_iter().map(Into::into).collect()),
    }
}

/// The rules of the configuration demand exactly one of the places, a namespace for a ConfigMap or a Secret, and an
/// account for a Secret.
fn source(source: plugin::Source, directory: &Path, namespace: String, account: Option<&String>) -> Source {
    let plugin::Source { file, config_map, oci, script } = source;
    let script = match script {
        Some(Script { inline: Some(text), .. }) => return Source::Inline(String::from(text).into()),
        script => script.and_then(|script| script.config_map),
    };
    match (config_map.or(script), oci) {
        (Some(of), _) => {
            Source::ConfigMap { namespace, name: of.name.into(), key: of.key.into(), sha256: of.sha256.into() }
        }
        (None, Some(of)) => Source::Oci {
            image: of.image.into(),
            pull_secret: of.pull_secret_name.zip(account).map(|(name, account)| PullSecret {
                account: account.clone(),
                namespace,
                name: name.into(),
            }),
        },
        (None, None) => Source::File(file.map(|file| directory.join(&*file)).unwrap_or_default()),
    }
}

impl From<plugin::Language> for Language {
    fn from(language: plugin::Language) -> Self {
        match language {
            plugin::Language::JavaScript => Self::JavaScript,
            plugin::Language::Python => Self::Python,
        }
    }
}

fn sections(sections: &[Section]) -> SectionSet {
    sections.iter().map(|section| section.0).collect()
}

fn watch(watch: plugin::Watch, grants: &Grants) -> WatchSpec {
    WatchSpec {
        selector: selector(watch.selector),
        sections: watch.sections.as_deref().map_or_else(|| grants.sections(), sections),
        resync: watch.resync_seconds.map(|seconds| Duration::from_secs(seconds.into())),
        related: watch.related.map(related),
    }
}

fn related(plugin::Related { by, label, debounce_seconds }: plugin::Related) -> Related {
    let by = match by {
        RelatedBy::Workload => Relation::Workload,
        RelatedBy::Node => Relation::Node,
        // The rules of the configuration demand the key.
        RelatedBy::Label => Relation::Label(label.map(Into::into).unwrap_or_default()),
    };
    Related { by, debounce: Duration::from_secs(debounce_seconds.unwrap_or(1).into()) }
}

fn selector(selector: plugin::Selector) -> LabelSelector {
    let labels = selector.match_labels.into_iter().map(|(key, value)| LabelRequirement {
        key: key.into(),
        operator: LabelOperator::In,
        values: vec![value.into()],
    });
    let expressions = selector.match_expressions.into_iter().map(|requirement| LabelRequirement {
        key: requirement.key.into(),
        operator: match requirement.operator {
            Operator::In => LabelOperator::In,
            Operator::NotIn => LabelOperator::NotIn,
            Operator::Exists => LabelOperator::Exists,
            Operator::DoesNotExist => LabelOperator::Absent,
        },
        values: requirement.values.into_iter().map(Into::into).collect(),
    });
    LabelSelector(labels.chain(expressions).collect())
}

fn grants(grants: plugin::Grants) -> Grants {
    let plugin::Grants { read, write } = grants;
    let readable = |plugin::ReadGrant { api_version, kind, resource }: plugin::ReadGrant| ObjectGrant {
        api_version: api_version.into(),
        kind: kind.into(),
        resource: resource.into(),
    };
    let read_objects = read.objects.into_iter().map(readable).collect();
    let read = read.pods.map(|pods| ReadGrants { sections: sections(&pods.sections), live: pods.live });
    let object = |grant: &plugin::ObjectGrant| ObjectGrant {
        api_version: grant.api_version.clone().into(),
        kind: grant.kind.clone().into(),
        resource: grant.resource.clone().into(),
    };
    let scaled = |plugin::ScaleGrant { api_version, kind, resource }: plugin::ScaleGrant| ObjectGrant {
        api_version: api_version.into(),
        kind: kind.into(),
        resource: resource.into(),
    };
    let write = WriteGrants {
        labels: patterns(write.labels),
        annotations: patterns(write.annotations),
        finalizers: patterns(write.finalizers),
        conditions: patterns(write.conditions),
        events: write.events,
        delete: write.delete,
        evict: write.evict,
        objects: write.objects.iter().map(object).collect(),
        forced: write.objects.iter().filter(|grant| grant.force).map(object).collect(),
        scale: write.scale.into_iter().map(scaled).collect(),
    };
    Grants { read, read_objects, write }
}

fn patterns<T: Into<String>>(patterns: Vec<T>) -> Vec<KeyPattern> {
    patterns.into_iter().map(|pattern| KeyPattern(pattern.into())).collect()
}

fn limits(limits: &plugin::Limits) -> Limits {
    Limits {
        class: match limits.class {
            Class::Native => LimitClass::Native,
            Class::Interpreter => LimitClass::Interpreter,
        },
        memory_bytes: usize::from(limits.memory_mib) << 20,
        cpu: Duration::from_millis(limits.cpu_millis.into()),
        wall: Duration::from_millis(limits.wall_millis.into()),
        host_calls: limits.host_calls,
        writes: limits.writes,
        // The schema's bound is far below the overflow of this shift.
        log_bytes: (limits.log_kib as usize) << 10,
        reuse: limits.reuse,
        requests: RequestRates {
            writes: limits.writes_per_second,
            live_reads: limits.live_reads_per_second,
            events: limits.events_per_second,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The rules refuse such a plugin before; here no rule has read it.
    #[test]
    fn without_an_account_no_secret_is_named() {
        let named = |account: Option<&str>| {
            let plugin = json!({
                "apiVersion": "podium.dev/v1alpha1",
                "kind": "ReconcilePlugin",
                "metadata": { "name": "tidy", "namespace": "shop" },
                "spec": {
                    "source": { "oci": { "image": "registry.example/tidy:1", "pullSecretName": "pull" } },
                    "serviceAccountName": account,
                    "grants": {},
                },
            });
            match spec(serde_json::from_value(plugin).unwrap(), Path::new("")).source {
                Source::Oci { pull_secret, .. } => pull_secret.map(|secret| secret.account),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(named(Some("podium")).as_deref(), Some("system:serviceaccount:shop:podium"));
        assert_eq!(named(None), None);
    }
}
