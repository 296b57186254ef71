//! One document: a `ReconcilePlugin` or a `ClusterReconcilePlugin` to a [`PluginSpec`].

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use podium_pods::model::{
    LabelOperator, LabelRequirement, LabelSelector, LimitClass, Limits, Phase, PluginId, PluginSpec, WatchSpec, syntax,
};

use super::{
    node::{Field, Node, Problem, Problems},
    write,
};

const API_VERSION: &str = "podium.dev/v1alpha1";
/// Every run is given a copy.
const MAX_CONFIG_BYTES: usize = 64 << 10;

/// # Errors
/// With everything that is wrong.
pub(super) fn read(document: &Node, directory: &Path) -> Result<PluginSpec, Vec<Problem>> {
    let problems = Problems::default();
    let spec = spec(Field::root(document, &problems), directory);
    match (problems.into_inner(), spec) {
        (problems, Some(spec)) if problems.is_empty() => Ok(spec),
        (problems, _) => Err(problems),
    }
}

fn spec(document: Field<'_>, directory: &Path) -> Option<PluginSpec> {
    let mut document = document.fields();
    let api_version = document.get("apiVersion");
    if api_version.required_text().is_some_and(|text| text != API_VERSION) {
        api_version.problem(format!("must be {API_VERSION}"));
    }
    let kind = document.get("kind");
    if !kind.is_set() {
        kind.problem("is missing; use ReconcilePlugin or ClusterReconcilePlugin");
    }
    let namespaced = kind.word(&[("ReconcilePlugin", true), ("ClusterReconcilePlugin", false)]);
    let metadata = document.get("metadata");
    let spec = document.get("spec");
    document.finish();
    // Without a kind it is not known what else must be there.
    let namespaced = namespaced?;
    let id = id(metadata, namespaced);
    if !spec.is_set() {
        spec.problem("is missing");
    }
    let mut spec = spec.fields();
    let source = source(spec.get("source"), directory);
    let account = (spec.get("serviceAccountName"), (!namespaced).then(|| spec.get("serviceAccountNamespace")));
    let grants = write::grants(spec.get("grants"));
    let watch = watch(spec.get("watch"), &grants);
    let limits = limits(spec.get("limits"));
    let phases = [("before", Phase::Before), ("main", Phase::Main), ("after", Phase::After)];
    let phase = spec.get("phase").word(&phases).unwrap_or_default();
    let after = spec.get("after").list().iter().filter_map(Field::required_text).collect();
    let config = config(&spec.get("config"));
    spec.finish();
    let id = id?;
    let impersonate = impersonate(&account.0, account.1.as_ref(), id.namespace.as_deref());
    Some(PluginSpec { impersonate, source: source?, id, watch, grants, limits, phase, after, config })
}

/// As JSON, which each run is given.
fn config(field: &Field<'_>) -> String {
    let config = field.mapping().map_or_else(|| "{}".to_owned(), |config| config.to_string());
    if config.len() > MAX_CONFIG_BYTES {
        let bytes = config.len();
        field.problem(format!("has {bytes} bytes as JSON, aliases expanded; at most {MAX_CONFIG_BYTES}"));
    }
    config
}

fn checked(field: &Field<'_>, text: Option<String>, check: fn(&str) -> Result<(), &'static str>) -> Option<String> {
    let text = text?;
    match check(&text) {
        Ok(()) => Some(text),
        Err(rule) => {
            field.problem(format!("{} {rule}", syntax::quoted(&text)));
            None
        }
    }
}

fn id(metadata: Field<'_>, namespaced: bool) -> Option<PluginId> {
    let mut metadata = metadata.fields();
    let (name, namespace) = (metadata.get("name"), metadata.get("namespace"));
    // For people and their tools.
    metadata.get("labels").texts();
    metadata.get("annotations").texts();
    metadata.finish();
    let checked_name = checked(&name, name.required_text(), syntax::dns_subdomain);
    let namespace = match (namespaced, namespace.is_set()) {
        (true, true) => Some(checked(&namespace, namespace.text(), syntax::dns_label)?.into()),
        (true, false) => {
            namespace.problem(
                "is missing: a ReconcilePlugin lives in a namespace; for all of them there is ClusterReconcilePlugin",
            );
            return None;
        }
        (false, true) => {
            namespace.problem("a ClusterReconcilePlugin has no namespace; remove it, or use ReconcilePlugin");
            return None;
        }
        (false, false) => None,
    };
    Some(PluginId { namespace, name: checked_name?.into() })
}

fn source(field: Field<'_>, directory: &Path) -> Option<PathBuf> {
    let mut source = field.fields();
    let (file, oci) = (source.get("file"), source.get("oci"));
    source.finish();
    if oci.is_set() {
        oci.problem("images are not supported by this release; fetch the component and use source.file");
        return None;
    }
    // Whether the component is there is looked at when it is loaded: it may come later.
    Some(directory.join(file.required_text()?))
}

fn impersonate(name: &Field<'_>, own: Option<&Field<'_>>, namespace: Option<&str>) -> Option<String> {
    let account = checked(name, name.text(), syntax::dns_subdomain);
    let namespace = match own {
        None => namespace.map(str::to_owned),
        Some(own) if own.is_set() != name.is_set() => {
            let missing = if own.is_set() { name } else { own };
            missing.problem("serviceAccountName and serviceAccountNamespace go together; set both or none");
            return None;
        }
        Some(own) => checked(own, own.text(), syntax::dns_label),
    };
    Some(format!("system:serviceaccount:{}:{}", namespace?, account?))
}

fn watch(field: Field<'_>, grants: &podium_pods::model::Grants) -> WatchSpec {
    let mut watch = field.fields();
    let selector = selector(watch.get("selector"));
    let sections_field = watch.get("sections");
    let sections = if sections_field.is_set() { write::sections(&sections_field) } else { grants.sections() };
    let ungranted: Vec<&str> =
        sections.iter().filter(|section| !grants.sections().contains(*section)).map(|section| section.name()).collect();
    if !ungranted.is_empty() {
        let ungranted = ungranted.join(", ");
        sections_field.problem(format!(
            "{ungranted} cannot be watched without being granted; add it to spec.grants.read.pods.sections"
        ));
    }
    let resync = watch.get("resyncSeconds").number(10, 604_800).map(Duration::from_secs);
    watch.finish();
    WatchSpec { selector, sections, resync }
}

fn selector(whole: Field<'_>) -> LabelSelector {
    let mut selector = whole.clone().fields();
    let mut requirements = Vec::new();
    for (key, value) in selector.get("matchLabels").texts() {
        if let Err(rule) = syntax::qualified_name(&key) {
            value.problem(format!("label key {} {rule}", syntax::quoted(&key)));
        }
        let values = checked(&value, value.text(), syntax::label_value).into_iter().collect();
        requirements.push(LabelRequirement { key, operator: LabelOperator::In, values });
    }
    let expressions = selector.get("matchExpressions").list();
    let (count, most) = (requirements.len() + expressions.len(), LabelSelector::MOST_REQUIREMENTS);
    if count > most {
        whole.problem(format!("has {count} requirements, labels and expressions together; at most {most}"));
    }
    requirements.extend(expressions.into_iter().filter_map(requirement));
    selector.finish();
    LabelSelector(requirements)
}

fn requirement(field: Field<'_>) -> Option<LabelRequirement> {
    let mut fields = field.fields();
    let (key, operator, values) = (fields.get("key"), fields.get("operator"), fields.get("values"));
    fields.finish();
    let operators = [
        ("In", LabelOperator::In),
        ("NotIn", LabelOperator::NotIn),
        ("Exists", LabelOperator::Exists),
        ("DoesNotExist", LabelOperator::Absent),
    ];
    if !operator.is_set() {
        operator.problem("is missing; use one of In, NotIn, Exists, DoesNotExist");
    }
    let given = values.list();
    let (count, most) = (given.len(), LabelSelector::MOST_VALUES);
    if count > most {
        values.problem(format!("has {count} values; at most {most}"));
    }
    let texts: Vec<String> =
        given.iter().filter_map(|value| checked(value, value.text(), syntax::label_value)).collect();
    let (checked_key, word) = (checked(&key, key.required_text(), syntax::qualified_name), operator.word(&operators));
    match word? {
        LabelOperator::In | LabelOperator::NotIn if given.is_empty() => {
            values.problem("In and NotIn need at least one value");
        }
        LabelOperator::Exists | LabelOperator::Absent if !given.is_empty() => {
            values.problem("Exists and DoesNotExist take no values; remove them");
        }
        _ => {}
    }
    Some(LabelRequirement { key: checked_key?, operator: word?, values: texts })
}

/// The bounds keep one plugin from taking what hundreds share; docs/configuration.md repeats them.
fn limits(field: Field<'_>) -> Limits {
    let mut limits = field.fields();
    let default = Limits::default();
    let classes = [("native", LimitClass::Native), ("interpreter", LimitClass::Interpreter)];
    let class = limits.get("class").word(&classes).unwrap_or_default();
    let mut number = |name, least, most| limits.get(name).number(least, most);
    // The conversions below lose nothing: each is bounded far below 2^32 before it is scaled.
    let size =
        |number: Option<u64>, shift: u32, default: usize| number.map_or(default, |number| (number as usize) << shift);
    let count = |number: Option<u64>, default: u32| number.map_or(default, |number| number as u32);
    let memory_bytes = size(number("memoryMiB", 1, (Limits::MOST_MEMORY_BYTES >> 20) as u64), 20, default.memory_bytes);
    let cpu = number("cpuMillis", 1, 10_000).map_or(default.cpu, Duration::from_millis);
    let wall = number("wallMillis", 10, 60_000).map_or(default.wall, Duration::from_millis);
    let host_calls = count(number("hostCalls", 1, 1_000_000), default.host_calls);
    let writes = count(number("writes", 0, 1_000), default.writes);
    let log_bytes = size(number("logKiB", 0, 1_024), 10, default.log_bytes);
    if cpu > wall {
        limits.get("cpuMillis").problem("is more than wallMillis, which includes it; lower it or raise wallMillis");
    }
    limits.finish();
    Limits { class, memory_bytes, cpu, wall, host_calls, writes, log_bytes }
}
