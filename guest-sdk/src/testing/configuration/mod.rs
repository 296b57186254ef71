//! A plugin's configuration as its own tests see it: scope, grants, config and the limit of writes. The whole file is
//! read by the host's rules, and refused where the host would refuse it; `tests/tests/test_host.rs` compares the two.

mod field;
mod grants;

use podium_wire::{Section, SectionSet, syntax};
use serde_json::Value;

use crate::Refused;
use field::{Field, Problems};
pub(super) use grants::{Grants, Pattern, WriteGrants};

const API_VERSION: &str = "podium.dev/v1alpha1";
/// The host's default of `spec.limits.writes`.
const WRITES: u32 = 20;
/// The most requirements of a selector.
const REQUIREMENTS: usize = 32;
/// The most values of a requirement.
const VALUES: usize = 64;

#[derive(Debug)]
pub(super) struct Configuration {
    /// None for a plugin of the whole cluster.
    pub(super) namespace: Option<String>,
    /// None grants everything.
    pub(super) grants: Option<Grants>,
    /// JSON text.
    pub(super) config: String,
    pub(super) writes: u32,
}

impl Default for Configuration {
    fn default() -> Self {
        Self { namespace: None, grants: None, config: "{}".to_owned(), writes: WRITES }
    }
}

impl Configuration {
    /// # Errors
    /// Everything that is wrong, a line each.
    pub(super) fn from_yaml(yaml: &str) -> Result<Self, String> {
        let documents: Vec<Value> =
            serde_saphyr::from_multiple(yaml).map_err(|error| format!("is not valid YAML: {error}"))?;
        let documents: Vec<_> = documents.iter().filter(|document| !document.is_null()).collect();
        let [document] = documents[..] else {
            return Err(format!("describes {} plugins; a test runs one", documents.len()));
        };
        let problems = Problems::default();
        let read = read(Field::root(document, &problems));
        let problems = problems.into_inner();
        match read {
            Some(configuration) if problems.is_empty() => Ok(configuration),
            _ => Err(problems.iter().map(|(field, text)| format!("{field}: {text}")).collect::<Vec<_>>().join("\n")),
        }
    }

    /// `None` if the plugin may read no Pods except its own.
    pub(super) fn readable(&self) -> Option<SectionSet> {
        let Some(grants) = &self.grants else { return Some(SectionSet::ALL) };
        grants.read.map(|_| grants.sections())
    }

    /// The sections of the Pod that a run is for.
    pub(super) fn sections(&self) -> SectionSet {
        self.grants.as_ref().map_or(SectionSet::ALL, Grants::sections)
    }

    pub(super) fn sees(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|own| own == namespace)
    }

    /// Whether a write is granted, as `covered` says of the grants.
    pub(super) fn granted(&self, covered: impl FnOnce(&WriteGrants) -> bool) -> Result<(), Refused> {
        if self.grants.as_ref().is_none_or(|grants| covered(&grants.write)) { Ok(()) } else { Err(Refused::NotGranted) }
    }

    pub(super) fn reads_live(&self) -> bool {
        self.grants.as_ref().is_none_or(|grants| grants.read.is_some_and(|read| read.live))
    }
}

fn read(document: Field<'_>) -> Option<Configuration> {
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
    let namespace = namespace(metadata, namespaced);
    if !spec.is_set() {
        spec.problem("is missing");
    }
    let mut spec = spec.fields();
    source(spec.get("source"));
    let account = (spec.get("serviceAccountName"), (!namespaced).then(|| spec.get("serviceAccountNamespace")));
    let grants = grants::grants(spec.get("grants"));
    watch(spec.get("watch"), &grants);
    let writes = limits(spec.get("limits"));
    spec.get("phase").word(&[("before", ()), ("main", ()), ("after", ())]);
    spec.get("after").list().iter().for_each(|name| drop(name.required_text()));
    let config = spec.get("config").mapping().map_or_else(|| "{}".to_owned(), Value::to_string);
    spec.finish();
    let namespace = namespace?;
    impersonate(&account.0, account.1.as_ref());
    Some(Configuration { namespace, grants: Some(grants), config, writes })
}

/// The plugin's namespace, where it has one; nothing where its metadata is wrong.
fn namespace(metadata: Field<'_>, namespaced: bool) -> Option<Option<String>> {
    let mut metadata = metadata.fields();
    let (name, namespace) = (metadata.get("name"), metadata.get("namespace"));
    metadata.get("labels").texts();
    metadata.get("annotations").texts();
    metadata.finish();
    let checked_name = name.checked(name.required_text(), syntax::dns_subdomain);
    let namespace = match (namespaced, namespace.is_set()) {
        (true, true) => Some(namespace.checked(namespace.text(), syntax::dns_label)?),
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
    checked_name.map(|_| namespace)
}

/// A test needs no component, so none is looked for.
fn source(field: Field<'_>) {
    let mut source = field.fields();
    let (file, oci) = (source.get("file"), source.get("oci"));
    source.finish();
    if oci.is_set() {
        oci.problem("images are not supported by this release; fetch the component and use source.file");
        return;
    }
    file.required_text();
}

fn impersonate(name: &Field<'_>, own: Option<&Field<'_>>) {
    name.checked(name.text(), syntax::dns_subdomain);
    match own {
        None => {}
        Some(own) if own.is_set() != name.is_set() => {
            let missing = if own.is_set() { name } else { own };
            missing.problem("serviceAccountName and serviceAccountNamespace go together; set both or none");
        }
        Some(own) => drop(own.checked(own.text(), syntax::dns_label)),
    }
}

fn watch(field: Field<'_>, grants: &Grants) {
    let mut watch = field.fields();
    selector(watch.get("selector"));
    let sections_field = watch.get("sections");
    let sections: SectionSet =
        if sections_field.is_set() { grants::sections(&sections_field) } else { grants.sections() };
    let ungranted: Vec<&str> =
        sections.iter().filter(|section| !grants.sections().contains(*section)).map(Section::name).collect();
    if !ungranted.is_empty() {
        let ungranted = ungranted.join(", ");
        sections_field.problem(format!(
            "{ungranted} cannot be watched without being granted; add it to spec.grants.read.pods.sections"
        ));
    }
    watch.get("resyncSeconds").number(10, 604_800);
    watch.finish();
}

fn selector(whole: Field<'_>) {
    let mut selector = whole.clone().fields();
    let labels = selector.get("matchLabels").texts();
    for (key, value) in &labels {
        if let Err(rule) = syntax::qualified_name(key) {
            value.problem(format!("label key {} {rule}", syntax::quoted(key)));
        }
        value.checked(value.text(), syntax::label_value);
    }
    let expressions = selector.get("matchExpressions").list();
    let count = labels.len() + expressions.len();
    if count > REQUIREMENTS {
        whole.problem(format!("has {count} requirements, labels and expressions together; at most {REQUIREMENTS}"));
    }
    expressions.into_iter().for_each(requirement);
    selector.finish();
}

fn requirement(field: Field<'_>) {
    let mut fields = field.fields();
    let (key, operator, values) = (fields.get("key"), fields.get("operator"), fields.get("values"));
    fields.finish();
    if !operator.is_set() {
        operator.problem("is missing; use one of In, NotIn, Exists, DoesNotExist");
    }
    let given = values.list();
    if given.len() > VALUES {
        values.problem(format!("has {} values; at most {VALUES}", given.len()));
    }
    for value in &given {
        value.checked(value.text(), syntax::label_value);
    }
    key.checked(key.required_text(), syntax::qualified_name);
    match operator.word(&[("In", true), ("NotIn", true), ("Exists", false), ("DoesNotExist", false)]) {
        Some(true) if given.is_empty() => values.problem("In and NotIn need at least one value"),
        Some(false) if !given.is_empty() => values.problem("Exists and DoesNotExist take no values; remove them"),
        _ => {}
    }
}

/// The limit of writes. The bounds of the others are the host's.
fn limits(field: Field<'_>) -> u32 {
    let mut limits = field.fields();
    limits.get("class").word(&[("native", ()), ("interpreter", ())]);
    limits.get("memoryMiB").number(1, 256);
    let cpu = limits.get("cpuMillis").number(1, 10_000).unwrap_or(20);
    let wall = limits.get("wallMillis").number(10, 60_000).unwrap_or(2_000);
    limits.get("hostCalls").number(1, 1_000_000);
    let writes = limits.get("writes").number(0, 1_000).and_then(|writes| u32::try_from(writes).ok());
    limits.get("logKiB").number(0, 1_024);
    if cpu > wall {
        limits.get("cpuMillis").problem("is more than wallMillis, which includes it; lower it or raise wallMillis");
    }
    limits.finish();
    writes.unwrap_or(WRITES)
}
