//! `spec.grants`, by the host's rules.

use podium_wire::{Section, SectionSet, syntax};

use super::field::Field;

#[derive(Debug, Clone, Default)]
pub(in crate::testing) struct Grants {
    /// None: the plugin sees the Pod that it is run for, with its lifecycle alone, and no other.
    pub(in crate::testing) read: Option<ReadGrants>,
    pub(in crate::testing) write: WriteGrants,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::testing) struct ReadGrants {
    pub(in crate::testing) sections: SectionSet,
    pub(in crate::testing) live: bool,
}

#[derive(Debug, Clone, Default)]
pub(in crate::testing) struct WriteGrants {
    pub(in crate::testing) labels: Vec<Pattern>,
    pub(in crate::testing) annotations: Vec<Pattern>,
    pub(in crate::testing) finalizers: Vec<Pattern>,
    pub(in crate::testing) conditions: Vec<Pattern>,
    pub(in crate::testing) events: bool,
    pub(in crate::testing) delete: bool,
    pub(in crate::testing) evict: bool,
    /// apiVersion and kind.
    pub(in crate::testing) objects: Vec<(String, String)>,
}

/// A key, or with `*` at the end every key that begins so.
#[derive(Debug, Clone)]
pub(in crate::testing) struct Pattern(String);

impl Pattern {
    /// Whether the patterns cover a valid key. A wildcard covers no key of Kubernetes' own.
    pub(in crate::testing) fn cover(patterns: &[Self], key: &str) -> bool {
        patterns.iter().any(|pattern| match pattern.0.strip_suffix('*') {
            Some(prefix) => {
                prefix.contains('/')
                    && !syntax::is_reserved_key(key)
                    && key.len() > prefix.len()
                    && key.starts_with(prefix)
            }
            None => pattern.0 == key,
        })
    }
}

impl Grants {
    /// The sections that the plugin is given of any Pod.
    pub(in crate::testing) fn sections(&self) -> SectionSet {
        self.read.map_or(SectionSet::EMPTY, |read| read.sections).with(Section::Lifecycle)
    }
}

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

fn patterns(field: &Field<'_>, refuse: fn(&str) -> Option<&'static str>) -> Vec<Pattern> {
    let pattern = |field: Field<'_>| {
        let text = field.required_text()?;
        if let Some(rule) = pattern_problem(&text).or_else(|| refuse(&text).map(str::to_owned)) {
            field.problem(format!("{} {rule}", syntax::quoted(&text)));
            return None;
        }
        Some(Pattern(text))
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
    if prefix.contains('*') {
        return Some("may have a '*' only at its end".to_owned());
    }
    if syntax::is_reserved_domain(domain) {
        return Some("is of a domain of Kubernetes' own, whose keys are granted one by one; name the keys".to_owned());
    }
    // What follows may be anything valid, so the beginning is judged with one letter behind it.
    syntax::qualified_name(&format!("{domain}/{begun}a")).err().map(str::to_owned)
}

fn object(field: Field<'_>) -> Option<(String, String)> {
    let mut fields = field.fields();
    let (api_version, kind) = (fields.get("apiVersion"), fields.get("kind"));
    fields.finish();
    let version = api_version.checked(api_version.required_text(), syntax::api_version)?;
    let kind_text = kind.checked(kind.required_text(), syntax::upper_camel_case)?;
    if kind_text == "Pod" {
        kind.problem("Pods are not written as objects; grant labels, annotations, conditions, delete or evict instead");
        return None;
    }
    Some((version, kind_text))
}
