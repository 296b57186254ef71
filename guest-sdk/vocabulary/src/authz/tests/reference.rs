//! The rules of docs/configuration.md and wit/podium.wit written a second time, with nothing of the code that they are
//! compared with: texts letter by letter, lists in full, no attention to speed.

use serde_json::Value;

use crate::{Action, Event, Grants, KeyPattern, ObjectGrant, ObjectOwner, ObjectRef, PodKey, Scope};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    Allowed,
    NotGranted,
    Invalid,
}

pub(super) fn write(scope: &Scope, grants: &Grants, action: &Action) -> Verdict {
    let write = &grants.write;
    let (valid, granted) = match action {
        Action::SetLabel { target, key, value } => {
            (is_pod(target) && is_key(key) && is_label_value(value), may_change(&write.labels, key))
        }
        Action::RemoveLabel { target, key } => (is_pod(target) && is_key(key), may_change(&write.labels, key)),
        Action::SetAnnotation { target, key, value } => {
            (is_pod(target) && is_key(key) && value.len() <= 65_536, may_change(&write.annotations, key))
        }
        Action::RemoveAnnotation { target, key } => {
            (is_pod(target) && is_key(key), may_change(&write.annotations, key))
        }
        Action::AddFinalizer { target, name } | Action::RemoveFinalizer { target, name } => {
            (is_pod(target) && is_finalizer(name), is_granted(&write.finalizers, name))
        }
        Action::SetCondition { target, condition_type, status: _, reason, message } => (
            is_pod(target) && is_key(condition_type) && is_reason(reason) && message.len() <= 32_768,
            !CONDITIONS.contains(&&**condition_type) && is_granted(&write.conditions, condition_type),
        ),
        Action::RemoveCondition { target, condition_type } => (
            is_pod(target) && is_key(condition_type),
            !CONDITIONS.contains(&&**condition_type) && is_granted(&write.conditions, condition_type),
        ),
        Action::DeletePod { target, grace_seconds: _ } => (is_pod(target), write.delete),
        Action::EvictPod { target } => (is_pod(target), write.evict),
        Action::DeleteObject { object, uid } => (
            is_object(object) && uid.as_ref().is_none_or(|uid| is_uid(uid)),
            may_reach(scope, &grants.write.objects, object),
        ),
        Action::Scale { object, replicas } => {
            (is_object(object) && *replicas < 1 << 31, may_reach(scope, &write.scale, object))
        }
        Action::ApplyObject { object, body, owner } => {
            let owned = match owner {
                None => true,
                Some(ObjectOwner::Pod(owner) | ObjectOwner::Workload(owner)) => {
                    is_pod(owner) && object.namespace.as_ref().is_some_and(|own| **own == *owner.namespace)
                }
            };
            (
                is_object(object) && owned && is_body(object, body),
                may_reach(scope, &grants.write.objects, object) && may_carry(grants, body),
            )
        }
    };
    verdict(valid, granted && action.pod().is_none_or(|target| sees(scope, &target.namespace)))
}

pub(super) fn event(scope: &Scope, grants: &Grants, event: &Event) -> Verdict {
    let note = (1..=1_024).contains(&event.note.len());
    let valid = is_pod(&event.target) && is_capitalised(&event.reason) && is_capitalised(&event.action) && note;
    verdict(valid, grants.write.events && sees(scope, &event.target.namespace))
}

pub(super) fn read(scope: &Scope, grants: &Grants, object: &ObjectRef) -> Verdict {
    let valid = is_object(object) && object.kind != "Pod" && object.kind != "Secret";
    verdict(valid, object.resource != "secrets" && may_reach(scope, &grants.read_objects, object))
}

fn verdict(valid: bool, granted: bool) -> Verdict {
    match (valid, granted) {
        (false, _) => Verdict::Invalid,
        (true, false) => Verdict::NotGranted,
        (true, true) => Verdict::Allowed,
    }
}

fn sees(scope: &Scope, namespace: &str) -> bool {
    match scope {
        Scope::Cluster => true,
        Scope::Namespace(own) => **own == *namespace,
    }
}

fn may_reach(scope: &Scope, grants: &[ObjectGrant], object: &ObjectRef) -> bool {
    let mut named = false;
    for grant in grants {
        named |=
            (&grant.api_version, &grant.kind, &grant.resource) == (&object.api_version, &object.kind, &object.resource);
    }
    // A text that is no name of a resource would be a path: `configmaps/../pods`.
    named
        && object.kind != "Pod"
        && object.resource != "pods"
        && is_word(&object.resource, 63)
        && match (&object.namespace, scope) {
            (Some(namespace), _) => sees(scope, namespace),
            (None, Scope::Cluster) => true,
            (None, Scope::Namespace(_)) => false,
        }
}

/// Labels and annotations are free except those that need an exact grant on Pods. Templates of other objects are under
/// the same rules, and their finalizers are as on Pods.
fn may_carry(grants: &Grants, body: &Value) -> bool {
    let keys = |field: &str| {
        let mut keys = Vec::<String>::new();
        for map in in_every_metadata(body, field).into_iter().filter_map(Value::as_object) {
            keys.extend(map.keys().cloned());
        }
        keys
    };
    for (field, patterns) in [("labels", &grants.write.labels), ("annotations", &grants.write.annotations)] {
        for key in keys(field) {
            if is_never(&key) || is_reserved(&key) && !is_granted(patterns, &key) {
                return false;
            }
        }
    }
    finalizers(body).iter().all(|name| name.as_str().is_some_and(|name| is_granted(&grants.write.finalizers, name)))
}

fn is_body(object: &ObjectRef, body: &Value) -> bool {
    let Some(metadata) = body.get("metadata").and_then(Value::as_object) else { return false };
    let namespace = metadata.get("namespace").cloned();
    let named = body["apiVersion"] == *object.api_version
        && body["kind"] == *object.kind
        && body["metadata"]["name"] == *object.name
        && namespace == object.namespace.clone().map(Value::from);
    let known = ["name", "namespace", "labels", "annotations"];
    let only_known = metadata.keys().all(|field| known.contains(&&**field));
    let maps_of = |field: &str, is_value: &dyn Fn(&str) -> bool| {
        in_every_metadata(body, field).into_iter().all(|found| match found {
            Value::Null => true,
            Value::Object(map) => map.iter().all(|(key, value)| is_key(key) && value.as_str().is_some_and(is_value)),
            _ => false,
        })
    };
    let listed = in_every_metadata(body, "finalizers").iter().all(|list| list.is_array() || list.is_null());
    named
        && only_known
        && body.get("status").is_none()
        && maps_of("labels", &is_label_value)
        && maps_of("annotations", &|value| value.len() <= 65_536)
        && listed
        && finalizers(body).iter().all(|name| name.as_str().is_some_and(is_finalizer))
        && levels(body) <= 100
        && all_members(body).iter().all(|name| !is_directive(name))
        && all_numbers(body).iter().all(|number| is_in_range(number))
}

/// Everything below a value, itself included.
fn below(value: &Value) -> Vec<&Value> {
    let mut all = vec![value];
    let mut next = 0;
    while next < all.len() {
        match all[next] {
            Value::Array(values) => all.extend(values),
            Value::Object(members) => all.extend(members.values()),
            _ => {}
        }
        next += 1;
    }
    all
}

fn all_members(body: &Value) -> Vec<&String> {
    below(body).into_iter().filter_map(Value::as_object).flat_map(|members| members.keys()).collect()
}

fn all_numbers(body: &Value) -> Vec<String> {
    below(body).into_iter().filter(|value| value.is_number()).map(Value::to_string).collect()
}

/// A field of the object's metadata and of that of all templates in it.
fn in_every_metadata<'a>(body: &'a Value, field: &str) -> Vec<&'a Value> {
    below(body)
        .into_iter()
        .filter_map(|value| value.get("metadata"))
        .filter_map(|metadata| metadata.get(field))
        .collect()
}

fn finalizers(body: &Value) -> Vec<&Value> {
    in_every_metadata(body, "finalizers").into_iter().filter_map(Value::as_array).flatten().collect()
}

fn levels(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(levels).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(levels).max().unwrap_or(0),
        _ => 0,
    }
}

fn is_directive(name: &str) -> bool {
    ["$patch", "$retainKeys", "$setElementOrder", "$deleteFromPrimitiveList"]
        .iter()
        .any(|directive| name == *directive || name.starts_with(&format!("{directive}/")))
}

fn is_in_range(number: &str) -> bool {
    match number.parse::<i128>() {
        Ok(whole) => whole >= i128::from(i64::MIN) && whole <= i128::from(i64::MAX),
        Err(_) => {
            number.parse::<f64>().is_ok_and(|float| float > -9.223372036854775e18 && float < 9.223372036854775e18)
        }
    }
}

fn is_object(object: &ObjectRef) -> bool {
    let version = match object.api_version.split('/').collect::<Vec<_>>()[..] {
        [version] => is_word(version, 63),
        [group, version] => is_domain(group) && is_word(version, 63),
        _ => false,
    };
    let namespace = object.namespace.as_ref().is_none_or(|namespace| is_word(namespace, 63));
    version && is_capitalised(&object.kind) && namespace && is_domain(&object.name)
}

fn is_pod(target: &PodKey) -> bool {
    is_word(&target.namespace, 63) && is_domain(&target.name) && is_uid(&target.uid)
}

fn is_uid(uid: &str) -> bool {
    (1..=128).contains(&uid.chars().count()) && uid.chars().all(|letter| ('!'..='~').contains(&letter))
}

/// A DNS label.
fn is_word(text: &str, longest: usize) -> bool {
    let letters: Vec<char> = text.chars().collect();
    (1..=longest).contains(&letters.len())
        && letters.iter().all(|letter| matches!(letter, 'a'..='z' | '0'..='9' | '-'))
        && letters[0] != '-'
        && letters[letters.len() - 1] != '-'
}

/// A DNS subdomain, whose words have no limit of length.
fn is_domain(text: &str) -> bool {
    text.chars().count() <= 253 && text.split('.').all(|word| is_word(word, 253))
}

/// The name in a key, and a label value that is not empty.
fn is_name(text: &str) -> bool {
    let letters: Vec<char> = text.chars().collect();
    let plain = |letter: &char| matches!(letter, 'a'..='z' | 'A'..='Z' | '0'..='9');
    (1..=63).contains(&letters.len())
        && letters.iter().all(|letter| plain(letter) || matches!(letter, '-' | '_' | '.'))
        && plain(&letters[0])
        && plain(&letters[letters.len() - 1])
}

fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

fn is_key(key: &str) -> bool {
    match key.split('/').collect::<Vec<_>>()[..] {
        [name] => is_name(name),
        [domain, name] => is_domain(domain) && is_name(name),
        _ => false,
    }
}

fn is_finalizer(name: &str) -> bool {
    is_key(name) && name.contains('/')
}

fn is_capitalised(word: &str) -> bool {
    let letters: Vec<char> = word.chars().collect();
    (1..=128).contains(&letters.len())
        && letters[0].is_ascii_uppercase()
        && letters.iter().all(|letter| matches!(letter, 'a'..='z' | 'A'..='Z' | '0'..='9'))
}

/// Returns whether a condition may have this reason: empty, or by the pattern of `metav1.Condition`,
/// `^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`.
fn is_reason(reason: &str) -> bool {
    let letters: Vec<char> = reason.chars().collect();
    let Some((first, last)) = letters.first().zip(letters.last()) else { return true };
    letters.len() <= 1_024
        && first.is_ascii_alphabetic()
        && letters.iter().all(|letter| letter.is_ascii_alphanumeric() || "_,:".contains(*letter))
        && !",:".contains(*last)
}

/// Returns whether a plugin may change the label or annotation with this key.
fn may_change(patterns: &[KeyPattern], key: &str) -> bool {
    !is_never(key) && is_granted(patterns, key)
}

fn is_granted(patterns: &[KeyPattern], key: &str) -> bool {
    let mut granted = false;
    for KeyPattern(pattern) in patterns {
        let letters: Vec<char> = pattern.chars().collect();
        granted |= match letters.split_last() {
            // `*` stands for one letter or more, after a domain.
            Some(('*', begin)) => {
                let begin: String = begin.iter().collect();
                let begins = key.starts_with(&begin) && key != begin;
                begin.contains('/') && begins && !is_reserved(key)
            }
            _ => pattern == key,
        };
    }
    granted
}

fn is_reserved(key: &str) -> bool {
    let plain =
        ["pod-template-hash", "pod-template-generation", "controller-revision-hash", "controller-uid", "job-name"];
    let Some((domain, _)) = key.split_once('/') else { return plain.contains(&key) };
    let words: Vec<&str> = domain.split('.').collect();
    words == ["podium", "dev"] || words.ends_with(&["kubernetes", "io"]) || words.ends_with(&["k8s", "io"])
}

fn is_never(key: &str) -> bool {
    key == "kubectl.kubernetes.io/last-applied-configuration" || key.starts_with("podium.dev/applied-")
}

const CONDITIONS: [&str; 10] = [
    "AllContainersRestarting",
    "ContainersReady",
    "DisruptionTarget",
    "Initialized",
    "PodHasNetwork",
    "PodReadyToStartContainers",
    "PodResizeInProgress",
    "PodResizePending",
    "PodScheduled",
    "Ready",
];
