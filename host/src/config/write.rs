//! `spec.grants`: what may be read and written, in words that cannot grant more than they seem to.

use podium_pods::model::{Grants, KeyPattern, ObjectGrant, ReadGrants, WriteGrants, syntax};
use podium_wire::{Section, SectionSet};

use super::node::Field;

pub(super) fn grants(field: Field<'_>) -> Grants {
    let mut grants = field.fields();
    let read = read(grants.get("read"));
    let write = write(grants.get("write"));
    grants.finish();
    Grants { read, write }
}

fn read(field: Field<'_>) -> Option<ReadGrants> {
    let mut read = field.fields();
    let pods = read.get("pods");
    read.finish();
    let granted = pods.is_set();
    let mut pods = pods.fields();
    let grants = ReadGrants { sections: sections(&pods.get("sections")), live: pods.get("live").flag() };
    pods.finish();
    granted.then_some(grants)
}

pub(super) fn sections(field: &Field<'_>) -> SectionSet {
    let words = Section::ALL.map(|section| (section.name(), section));
    field.list().into_iter().filter_map(|field| field.word(&words)).collect()
}

fn write(field: Field<'_>) -> WriteGrants {
    let mut write = field.fields();
    let grants = WriteGrants {
        labels: patterns(&write.get("labels"), |_| None),
        annotations: patterns(&write.get("annotations"), |key| {
            syntax::is_forbidden_key(key).then_some("belongs to kubectl and cannot be granted; remove it")
        }),
        finalizers: patterns(&write.get("finalizers"), |key| {
            (!key.contains('/')).then_some("must have a domain, such as shop.example/cleanup")
        }),
        conditions: patterns(&write.get("conditions"), |key| {
            let builtin = syntax::is_builtin_condition(key);
            builtin.then_some("belongs to Kubernetes and cannot be granted; choose a type of your own domain")
        }),
        events: write.get("events").flag(),
        delete: write.get("delete").flag(),
        evict: write.get("evict").flag(),
        objects: write.get("objects").list().into_iter().filter_map(object).collect(),
    };
    write.finish();
    grants
}

fn patterns(field: &Field<'_>, refuse: fn(&str) -> Option<&'static str>) -> Vec<KeyPattern> {
    let pattern = |field: Field<'_>| {
        let text = field.required_text()?;
        match pattern_problem(&text).or_else(|| refuse(&text).map(str::to_owned)) {
            Some(rule) => {
                field.problem(format!("{} {rule}", syntax::quoted(&text)));
                None
            }
            None => Some(KeyPattern(text)),
        }
    };
    field.list().into_iter().filter_map(pattern).collect()
}

/// A key, or the beginning of one with its domain and a `*`.
fn pattern_problem(pattern: &str) -> Option<String> {
    let Some(prefix) = pattern.strip_suffix('*') else {
        if pattern.contains('*') {
            return Some("may have a '*' only at its end".to_owned());
        }
        return syntax::qualified_name(pattern).err().map(str::to_owned);
    };
    let Some((domain, begun)) = prefix.split_once('/') else {
        return Some("may have a '*' only after a domain and '/', such as shop.example/*".to_owned());
    };
    // What follows may be anything valid, so the beginning is judged with one letter behind it.
    if prefix.contains('*') {
        return Some("may have a '*' only at its end".to_owned());
    }
    if syntax::is_reserved_domain(domain) {
        return Some("is of a domain of Kubernetes' own, whose keys are granted one by one; name the keys".to_owned());
    }
    syntax::qualified_name(&format!("{domain}/{begun}a")).err().map(str::to_owned)
}

fn object(field: Field<'_>) -> Option<ObjectGrant> {
    let mut fields = field.clone().fields();
    let (api_version, kind) = (fields.get("apiVersion"), fields.get("kind"));
    fields.finish();
    let checked = |field: &Field<'_>, check: fn(&str) -> Result<(), &'static str>| {
        let text = field.required_text()?;
        check(&text).map_err(|rule| field.problem(format!("{} {rule}", syntax::quoted(&text)))).ok()?;
        Some(text)
    };
    let grant = ObjectGrant {
        api_version: checked(&api_version, syntax::api_version)?,
        kind: checked(&kind, syntax::upper_camel_case)?,
    };
    if grant.kind == "Pod" {
        kind.problem("Pods are not written as objects; grant labels, annotations, conditions, delete or evict instead");
        return None;
    }
    Some(grant)
}
