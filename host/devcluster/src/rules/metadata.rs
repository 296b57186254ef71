//! Rules of metadata for all kinds.

use serde_json::Value;

use crate::{failure::Cause, kinds::Kind, meta};

const QUALIFIED: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
pub(super) const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
    and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
/// The most bytes of all keys and values of annotations together.
const ANNOTATIONS_BYTES: usize = 256 * 1024;

pub(super) fn check(kind: &Kind, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = meta::name(object);
    // RBAC names are path segments of any form.
    let free = kind.group == "rbac.authorization.k8s.io";
    if name.is_empty() {
        causes.push(Cause::required("metadata.name", "name or generateName is required"));
    } else if kind.is_grouped("apps", "statefulsets") && !is_label(name) {
        causes.push(Cause::invalid("metadata.name", &name.into(), LABEL));
    } else if !free && !is_subdomain(name) {
        causes.push(Cause::invalid("metadata.name", &name.into(), SUBDOMAIN));
    }
    for (key, value) in map(object, "labels") {
        check_key("metadata.labels", key, &mut causes);
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            causes.push(Cause::invalid("metadata.labels", &value.into(), "must be no more than 63 bytes"));
        } else if !value.is_empty() && !is_name_part(value) {
            causes.push(Cause::invalid("metadata.labels", &value.into(), LABEL_VALUE));
        }
    }
    let mut bytes = 0;
    for (key, value) in map(object, "annotations") {
        // Upper case counts as lower case, also in the prefix.
        let wrong = unqualified(&key.to_lowercase());
        causes.extend(wrong.iter().map(|detail| Cause::invalid("metadata.annotations", &key.as_str().into(), detail)));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATIONS_BYTES {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATIONS_BYTES));
    }
    let finalizers = meta::finalizers(object).iter().map(|finalizer| finalizer.as_str().unwrap_or_default());
    for finalizer in finalizers.clone() {
        check_key("metadata.finalizers", finalizer, &mut causes);
    }
    // Custom resources are only checked by the generic rules.
    for (index, finalizer) in finalizers.enumerate().filter(|_| !kind.custom) {
        let standard = matches!(finalizer, "orphan" | "foregroundDeletion" | "kubernetes");
        if !finalizer.contains('/') && !standard {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("metadata.finalizers[{index}]"), &finalizer.into(), detail));
        }
    }
    for (index, owner) in meta::list(object, &["metadata", "ownerReferences"]).iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if meta::text(owner, &[field]).is_empty() {
                let field = format!("metadata.ownerReferences[{index}].{field}");
                causes.push(Cause::invalid(field, &"".into(), "must not be empty"));
            }
        }
    }
    causes
}

pub(super) fn check_update(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let before = meta::at(old, &["metadata", field]);
        let after = meta::at(new, &["metadata", field]);
        if before != after {
            let after = after.unwrap_or(&Value::Null);
            causes.push(Cause::invalid(format!("metadata.{field}"), after, "field is immutable"));
        }
    }
    if meta::is_terminating(old) {
        let known = meta::finalizers(old);
        let added: Vec<String> = meta::finalizers(new)
            .iter()
            .filter(|f| !known.contains(f))
            .map(|f| format!("\"{}\"", f.as_str().unwrap_or_default()))
            .collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
}

fn map<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    meta::at(object, &["metadata", field]).and_then(Value::as_object).into_iter().flatten()
}

fn check_key(field: &str, key: &str, causes: &mut Vec<Cause>) {
    causes.extend(unqualified(key).iter().map(|detail| Cause::invalid(field, &key.into(), detail)));
}

/// Returns the errors in a name that may have a DNS subdomain and `/` as prefix.
pub(super) fn unqualified(key: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [prefix, name] => {
            if prefix.is_empty() {
                wrong.push("prefix part must be non-empty".into());
            } else if !is_subdomain(prefix) {
                wrong.push(format!("prefix part {SUBDOMAIN}"));
            }
            *name
        }
        [name] => *name,
        _ => {
            let detail = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {QUALIFIED} {detail}")];
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    } else if name.len() > 63 {
        wrong.push("name part must be no more than 63 bytes".into());
    }
    if !is_name_part(name) {
        wrong.push(format!("name part {QUALIFIED}"));
    }
    wrong
}

fn is_name_part(text: &str) -> bool {
    let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    alphanumeric(text.chars().next())
        && alphanumeric(text.chars().last())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

pub(super) fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !text.is_empty()
        && text.chars().all(|c| plain(c) || c == '-')
        && text.chars().next().is_some_and(plain)
        && text.chars().last().is_some_and(plain)
}
