//! Rules between fields of one document, which a schema cannot express, or not in a message that helps a person. The
//! collecting pass reports values that are wrong by themselves; these rules skip such values.

use std::collections::{BTreeMap, BTreeSet};

use podium_vocabulary::Relation;
use podium_wire::{Section as PodSection, SectionSet, syntax::quoted};

use crate::{
    cluster_kinds,
    field::Field,
    plugin::{Limits, MAX_CONFIG_BYTES, MOST_REQUIREMENTS, Section},
};

/// The rules of a plugin's configuration.
pub(crate) fn plugin(document: &Field<'_>) {
    let spec = document.get("spec");
    match document.get("kind").text() {
        Some("ReconcilePlugin") => of_namespace(document, &spec),
        Some("ClusterReconcilePlugin") => of_cluster(document, &spec),
        Some("Policy") => document.get("kind").problem(
            "a Policy is no plugin: name its file with --policy, and move it out of the directories of plugins",
        ),
        // Without a kind it is not known what else must be there.
        _ => {}
    }
    source(&spec.get("source"));
    pull_secret(&spec);
    watched_sections(&spec);
    related(&spec);
    selector(&spec.get("watch").get("selector"));
    let grants = spec.get("grants");
    objects(&grants.get("read").get("objects"));
    objects(&grants.get("write").get("objects"));
    objects(&grants.get("write").get("scale"));
    as_account(&spec);
    limits(&spec.get("limits"), spec.get("source").get("script").is_set());
    inputs(&spec);
    forced(&spec);
    config(&spec.get("config"));
}

fn source(source: &Field<'_>) {
    one_place(source, &["file", "configMap", "oci", "script"], "a file, a configMap, oci or a script");
    one_place(&source.get("script"), &["inline", "configMap"], "inline or a configMap");
}

fn one_place(source: &Field<'_>, places: &[&str], named: &str) {
    match places.iter().filter(|place| source.get(place).is_set()).count() {
        0 if source.is_mapping() => source.get(places[0]).problem(format!("is missing: name {named}")),
        0 | 1 => {}
        _ => source.problem(format!("has more than one place; name {named}")),
    }
}

/// A Secret is never read as the host's own account: its right would be every tenant's.
fn pull_secret(spec: &Field<'_>) {
    let account = spec.get("serviceAccountName");
    if spec.get("source").get("oci").get("pullSecretName").is_set() && !account.is_set() {
        account.problem("is missing: source.oci.pullSecretName is read as this account");
    }
}

/// Inputs are read as the plugin's account, never as the host's own, and are in one member of the configuration.
fn inputs(spec: &Field<'_>) {
    let inputs = spec.get("inputs");
    let items = inputs.items();
    if items.is_empty() {
        return;
    }
    let account = spec.get("serviceAccountName");
    if !account.is_set() {
        account.problem("is missing: spec.inputs are read as this account");
    }
    let mut ids = BTreeSet::new();
    for input in &items {
        let id = input.get("id");
        if id.text().is_some_and(|text| !ids.insert(text.to_owned())) {
            id.problem("is the id of an input before; choose another one");
        }
        if let Some(version) = input.get("apiVersion").text()
            && let Some(kind) = input.get("kind").text().and_then(|text| cluster_kinds::find(version, text))
        {
            let message = format!("{kind} objects have no namespace, and inputs are of the account's namespace");
            input.get("kind").problem(message);
        }
        let labels = input.get("selector");
        selector(&labels);
        let bytes = bytes_of(&labels);
        if bytes > MOST_SELECTOR_BYTES {
            labels.problem(format!("has {bytes} bytes of keys and values; at most {MOST_SELECTOR_BYTES}, for a query"));
        }
        match (input.get("name").is_set(), input.get("selector").is_set()) {
            (false, false) => input.problem("names no object; set name, or selector for those with some labels"),
            (true, true) => input.problem("has name and selector; remove one of them"),
            _ => {}
        }
    }
}

/// The most bytes of the selector of an input. The API server's limit of a request is some times as much.
const MOST_SELECTOR_BYTES: usize = 8 << 10;

/// Objects are read and scaled as the plugin's account, never as the host's own.
fn as_account(spec: &Field<'_>) {
    let account = spec.get("serviceAccountName");
    for (access, list, verb) in [("read", "objects", "read"), ("write", "scale", "scaled")] {
        if !spec.get("grants").get(access).get(list).items().is_empty() && !account.is_set() {
            account.problem(format!("is missing: objects of spec.grants.{access}.{list} are {verb} as this account"));
            return;
        }
    }
}

/// Fields of other managers are taken with the rights of the plugin's account, never with the host's.
fn forced(spec: &Field<'_>) {
    let account = spec.get("serviceAccountName");
    let objects = spec.get("grants").get("write").get("objects");
    if objects.items().iter().any(|grant| grant.get("force").flag() == Some(true)) && !account.is_set() {
        account.problem("is missing: force: true in spec.grants.write.objects takes fields as this account");
    }
}

/// The rules of a policy.
pub(crate) fn policy(document: &Field<'_>) {
    let spec = document.get("spec");
    let mut hosts = BTreeSet::new();
    for registry in spec.get("registries").items() {
        let host = registry.get("host");
        if host.text().is_some_and(|text| !hosts.insert(text.to_ascii_lowercase())) {
            host.problem("is listed already; merge both entries");
        }
        if registry.get("plainHttp").flag() == Some(true) && registry.get("caFile").is_set() {
            registry.get("caFile").problem("is for https; remove it, or plainHttp");
        }
    }
    let defaults = spec.get("defaults");
    let namespaces = spec.get("namespaces");
    let of_namespaces = namespaces.entries().iter().map(|(name, node)| namespaces.entry(name, node));
    for section in [defaults.clone(), spec.get("cluster")].into_iter().chain(of_namespaces) {
        signed(&section.get("images"), &defaults.get("images"));
    }
}

/// A section that requires signatures has keys, of its own or of the defaults: otherwise it would refuse every image.
fn signed(images: &Field<'_>, defaults: &Field<'_>) {
    let own = |name: &str| Some(images.get(name)).filter(Field::is_set);
    let required = own("signatureRequired").unwrap_or_else(|| defaults.get("signatureRequired")).flag() == Some(true);
    let keys = own("signatureKeys").unwrap_or_else(|| defaults.get("signatureKeys"));
    let place = own("signatureRequired").or_else(|| own("signatureKeys"));
    if let Some(place) = place.filter(|_| required && keys.items().is_empty()) {
        place.problem("needs a key: add the public keys that images may be signed with to signatureKeys");
    }
}

fn of_namespace(document: &Field<'_>, spec: &Field<'_>) {
    let metadata = document.get("metadata");
    let namespace = metadata.get("namespace");
    if metadata.is_mapping() && !namespace.is_set() {
        namespace.problem(
            "is missing: a ReconcilePlugin lives in a namespace; for all of them there is ClusterReconcilePlugin",
        );
    }
    let own = spec.get("serviceAccountNamespace");
    if own.is_set() {
        own.problem("is for a ClusterReconcilePlugin; remove it: a ReconcilePlugin uses accounts of its own namespace");
    }
    for (access, list, verb) in KINDS {
        for grant in spec.get("grants").get(access).get(list).items() {
            namespaced(&grant, verb);
        }
    }
}

/// The lists of kinds below the grants, with the verb of the third person.
pub(crate) const KINDS: [(&str, &str, &str); 3] =
    [("read", "objects", "reads"), ("write", "objects", "writes"), ("write", "scale", "scales")];

/// The API server refuses objects of these kinds too, but only when the plugin first reads or writes one.
fn namespaced(grant: &Field<'_>, verb: &str) {
    let Some(version) = grant.get("apiVersion").text() else { return };
    for name in ["kind", "resource"] {
        let field = grant.get(name);
        let Some(kind) = field.text().and_then(|text| cluster_kinds::find(version, text)) else { continue };
        field.problem(format!(
            "{kind} objects have no namespace, and a ReconcilePlugin {verb} objects of its own namespace only; remove \
             the grant, or use ClusterReconcilePlugin"
        ));
        // One mistake, whichever field has it.
        return;
    }
}

fn of_cluster(document: &Field<'_>, spec: &Field<'_>) {
    let namespace = document.get("metadata").get("namespace");
    if namespace.is_set() {
        namespace.problem("a ClusterReconcilePlugin has no namespace; remove it, or use ReconcilePlugin");
    }
    let name = spec.get("serviceAccountName");
    let own = spec.get("serviceAccountNamespace");
    let source = spec.get("source");
    let config_map = source.get("configMap").is_set() || source.get("script").get("configMap").is_set();
    if config_map && !own.is_set() {
        own.problem("is missing: the ConfigMap of a ClusterReconcilePlugin is one of its account's namespace");
    }
    if own.is_set() != name.is_set() {
        let missing = if own.is_set() { name } else { own };
        missing.problem("serviceAccountName and serviceAccountNamespace go together; set both or none");
    }
}

fn sections(field: &Field<'_>) -> SectionSet {
    field.items().iter().filter_map(|item| Section::named(item.text()?)).collect()
}

fn watched_sections(spec: &Field<'_>) {
    let granted = sections(&spec.get("grants").get("read").get("pods").get("sections")).with(PodSection::Lifecycle);
    let field = spec.get("watch").get("sections");
    let ungranted = sections(&field).iter().filter(|section| !granted.contains(*section));
    let ungranted: Vec<&str> = ungranted.map(PodSection::name).collect();
    if !ungranted.is_empty() {
        let ungranted = ungranted.join(", ");
        field.problem(format!(
            "{ungranted} cannot be watched without being granted; add it to spec.grants.read.pods.sections"
        ));
    }
}

/// A group reveals the sections that have its value.
fn related(spec: &Field<'_>) {
    let related = spec.get("watch").get("related");
    let label = related.get("label");
    let by = related.get("by");
    let relation = match by.text() {
        Some("workload") => Relation::Workload,
        Some("node") => Relation::Node,
        Some("label") => Relation::Label(String::new()),
        _ => return,
    };
    match (&relation, label.is_set()) {
        (Relation::Label(_), false) => label.problem("is missing: name the label whose value the Pods have in common"),
        (Relation::Workload | Relation::Node, true) => label.problem("is for by: label; remove it, or set by: label"),
        _ => {}
    }
    let granted = sections(&spec.get("grants").get("read").get("pods").get("sections"));
    let lacking = relation.sections().iter().filter(|section| !granted.contains(*section));
    let lacking: Vec<&str> = lacking.map(PodSection::name).collect();
    if !lacking.is_empty() && !granted.contains(PodSection::Full) {
        let lacking = lacking.join(", ");
        by.problem(format!("needs {lacking}, which the groups reveal; add it to spec.grants.read.pods.sections"));
    }
}

/// The bytes of the texts of a selector, which a request has.
fn bytes_of(selector: &Field<'_>) -> usize {
    let length = |field: &Field<'_>| field.text().map_or(0, str::len);
    let labels = selector.get("matchLabels");
    let labels: usize = labels.entries().iter().map(|(key, _)| key.len() + length(&labels.get(key))).sum();
    let expressions = selector.get("matchExpressions");
    let expressions: usize = expressions
        .items()
        .iter()
        .map(|one| length(&one.get("key")) + one.get("values").items().iter().map(length).sum::<usize>())
        .sum();
    labels + expressions
}

fn selector(selector: &Field<'_>) {
    let expressions = selector.get("matchExpressions").items();
    let count = selector.get("matchLabels").entries().len() + expressions.len();
    if count > MOST_REQUIREMENTS {
        selector
            .problem(format!("has {count} requirements, labels and expressions together; at most {MOST_REQUIREMENTS}"));
    }
    for expression in &expressions {
        let values = expression.get("values");
        match expression.get("operator").text() {
            Some("In" | "NotIn") if values.items().is_empty() => values.problem("In and NotIn need at least one value"),
            Some("Exists" | "DoesNotExist") if !values.items().is_empty() => {
                values.problem("Exists and DoesNotExist take no values; remove them");
            }
            _ => {}
        }
    }
}

/// A request for a kind is sent to one path, and requests to one path are of one kind: the host orders and remembers
/// writes by kind, resource and name together. In one pass, because a file may have tens of thousands of grants.
fn objects(objects: &Field<'_>) {
    let mut resources = BTreeMap::new();
    let mut kinds = BTreeMap::new();
    for grant in objects.items() {
        let [version, kind, resource] = ["apiVersion", "kind", "resource"].map(|name| grant.get(name));
        let (Some(version), Some(own_kind), Some(own_resource)) = (version.text(), kind.text(), resource.text()) else {
            continue;
        };
        let granted = *resources.entry((version, own_kind)).or_insert(own_resource);
        if granted != own_resource {
            resource.problem(format!(
                "{own_kind} is granted with the resource {} already, and a kind has one; remove one of the grants",
                quoted(granted)
            ));
            continue;
        }
        let granted = *kinds.entry((version, own_resource)).or_insert(own_kind);
        if granted != own_kind {
            kind.problem(format!(
                "{} is granted with the kind {} already, and a resource has one; remove one of the grants",
                quoted(own_resource),
                quoted(granted)
            ));
        }
    }
}

fn limits(limits: &Field<'_>, script: bool) {
    let default = Limits::default();
    let cpu = limits.get("cpuMillis");
    let wall = limits.get("wallMillis").number().unwrap_or(default.wall_millis.into());
    if cpu.number().unwrap_or(default.cpu_millis.into()) > wall {
        cpu.problem("is more than wallMillis, which includes it; lower it or raise wallMillis");
    }
    let reuse = limits.get("reuse");
    let interpreter = script || limits.get("class").text() == Some("interpreter");
    if interpreter && reuse.number().is_some_and(|runs| runs > 1) && limits.get("reuseInterpreter").flag() != Some(true)
    {
        reuse.problem(
            "is above 1 in class interpreter or of a script, where all variables of the plugin and its libraries carry \
             over from run to run; remove it, or set reuseInterpreter: true too",
        );
    }
}

/// Reports a configuration of a plugin that the host would refuse.
pub(crate) fn config(config: &Field<'_>) {
    let bytes = config.json().map_or(0, |config| config.to_string().len());
    if bytes > MAX_CONFIG_BYTES {
        config.problem(format!("has {bytes} bytes as JSON, aliases expanded; at most {MAX_CONFIG_BYTES}"));
    }
    // Also as null, which would be there twice.
    if config.entries().iter().any(|(name, _)| name == "inputs") {
        config.get("inputs").problem("is the place of the objects of spec.inputs; name this member otherwise");
    }
    private_names(config);
}

/// serde_json parses the text of a member with such a name as JSON, and uses the result instead of the mapping.
fn private_names(field: &Field<'_>) {
    for item in field.items() {
        private_names(&item);
    }
    for (name, node) in field.entries() {
        let entry = field.entry(name, node);
        if name.starts_with("$serde_json::private::") {
            entry.problem("is a name that the JSON library of the host reserves; use another one");
        }
        private_names(&entry);
    }
}
