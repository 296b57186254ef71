//! Rules of custom resource definitions: they are established at once.

use serde_json::{Value, json};

use crate::{failure::Cause, kinds::Kinds, meta};

pub(super) fn prepare_create(definition: &mut Value, now: &str) {
    let spec = &mut definition["spec"];
    let kind = meta::text(spec, &["names", "kind"]).to_owned();
    meta::default(spec, &["names", "singular"], kind.to_lowercase());
    meta::default(spec, &["names", "listKind"], format!("{kind}List"));
    meta::default(spec, &["conversion"], json!({"strategy": "None"}));
    let names = spec["names"].clone();
    let stored: Vec<Value> = meta::list(spec, &["versions"])
        .iter()
        .filter(|v| v["storage"] == Value::Bool(true))
        .map(|v| v["name"].clone())
        .collect();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now,
        })
    };
    let status = json!({
        "acceptedNames": names,
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": stored,
    });
    meta::set(definition, &["status"], status);
}

pub(super) fn check(definition: &Value, causes: &mut Vec<Cause>) {
    let spec = &definition["spec"];
    let group = meta::text(spec, &["group"]);
    let plural = meta::text(spec, &["names", "plural"]);
    for (field, value) in [
        ("spec.group", group),
        ("spec.names.plural", plural),
        ("spec.names.kind", meta::text(spec, &["names", "kind"])),
        ("spec.scope", meta::text(spec, &["scope"])),
    ] {
        if value.is_empty() {
            causes.push(Cause::required(field, ""));
        }
    }
    if Kinds::is_built_in(group, plural) {
        causes.push(Cause::invalid("spec.group", &group.into(), "should be a domain with at least one dot"));
    }
    let expected = format!("{plural}.{group}");
    if meta::name(definition) != expected {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &meta::name(definition).into(), detail));
    }
    let stored = meta::list(spec, &["versions"]).iter().filter(|v| v["storage"] == Value::Bool(true)).count();
    if stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &spec["versions"], detail));
    }
}
