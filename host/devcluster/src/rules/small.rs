//! Rules of the kinds that have few: Namespaces, Secrets, ConfigMaps, Leases, PodDisruptionBudgets.

use serde_json::{Value, json};

use crate::{failure::Cause, meta};

/// Adds the server's label. It counts as written by the author of the Namespace.
pub(super) fn label_namespace(object: &mut Value) {
    let name = meta::name(object).to_owned();
    meta::set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
}

pub(super) fn namespace(object: &mut Value) {
    meta::set(object, &["spec", "finalizers"], json!(["kubernetes"]));
    meta::set(object, &["status"], json!({"phase": "Active"}));
}

/// Moves `stringData`, which is write-only, to `data`.
pub(super) fn secret(object: &mut Value) {
    meta::default(object, &["type"], "Opaque");
    if let Some(Value::Object(plain)) = meta::remove(object, &["stringData"]) {
        for (key, value) in plain {
            let encoded = base64(value.as_str().unwrap_or_default().as_bytes());
            meta::set(object, &["data", &key], encoded);
        }
    }
    config_map(object);
}

/// Removes an empty map of data, which counts as absent and has no field manager.
pub(super) fn config_map(object: &mut Value) {
    for field in ["data", "binaryData"] {
        if object.get(field).and_then(Value::as_object).is_some_and(serde_json::Map::is_empty) {
            meta::remove(object, &[field]);
        }
    }
}

pub(super) fn budget(object: &mut Value) {
    let status = json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
    meta::set(object, &["status"], status);
}

pub(super) fn check_immutable(old: &Value, new: &Value, causes: &mut Vec<Cause>) {
    if old["immutable"] != Value::Bool(true) {
        return;
    }
    for field in ["data", "binaryData", "immutable"] {
        if old.get(field) != new.get(field) {
            causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
        }
    }
}

pub(super) fn check_lease(lease: &Value, causes: &mut Vec<Cause>) {
    if let Some(seconds) = meta::at(lease, &["spec", "leaseDurationSeconds"])
        && seconds.as_i64().is_none_or(|s| s <= 0)
    {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    if let Some(transitions) = meta::at(lease, &["spec", "leaseTransitions"])
        && transitions.as_i64().is_none_or(|t| t < 0)
    {
        causes.push(Cause::invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"));
    }
}

/// Encodes standard base64 with padding.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0usize, |group, byte| group << 8 | usize::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                out.push(char::from(ALPHABET[group >> (18 - 6 * place) & 63]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn string_data_of_a_secret_is_stored_encoded() {
        for (plain, encoded) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("abcd", "YWJjZA==")] {
            let mut object = json!({"stringData": {"k": plain}});
            secret(&mut object);
            assert_eq!(object, json!({"type": "Opaque", "data": {"k": encoded}}));
        }
    }
}
