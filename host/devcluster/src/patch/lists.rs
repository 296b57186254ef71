//! The merge strategy of each list of a known kind: by the key of its entries, as a set, or not at all.
//! Strategic-merge patch and server-side apply differ in places, as in the Kubernetes types. Lists that are not named
//! here are replaced.

use serde_json::Value;

/// How a list merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Entries are objects that are identified by these fields.
    Map(&'static [&'static str]),
    /// Entries are unique scalars.
    Set,
    /// The list is one value.
    Atomic,
}

/// The source of the merge strategies of an object's lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Schema<'a> {
    /// A kind of the table below.
    BuiltIn(&'a str),
    /// A custom resource: only the fields of every object, and those of its own schema.
    Custom(Option<&'a Value>),
}

use Merge::{Atomic, Map, Set};

/// (kind or "*", path, strategic merge, apply). A path is dotted; lists are passed through without an index.
const LISTS: &[(&str, &str, Merge, Merge)] = &[
    ("*", "metadata.finalizers", Set, Set),
    ("*", "metadata.ownerReferences", Map(&["uid"]), Map(&["uid"])),
    ("*", "metadata.managedFields", Atomic, Atomic),
    ("*", "status.conditions", Map(&["type"]), Map(&["type"])),
    ("Pod", "spec.containers", Map(&["name"]), Map(&["name"])),
    ("Pod", "spec.initContainers", Map(&["name"]), Map(&["name"])),
    ("Pod", "spec.ephemeralContainers", Map(&["name"]), Map(&["name"])),
    ("Pod", "spec.*.ports", Map(&["containerPort"]), Map(&["containerPort", "protocol"])),
    ("Pod", "spec.*.env", Map(&["name"]), Map(&["name"])),
    ("Pod", "spec.*.volumeMounts", Map(&["mountPath"]), Map(&["mountPath"])),
    ("Pod", "spec.*.volumeDevices", Map(&["devicePath"]), Map(&["devicePath"])),
    ("Pod", "spec.*.resources.claims", Atomic, Map(&["name"])),
    ("Pod", "spec.volumes", Map(&["name"]), Map(&["name"])),
    ("Pod", "spec.imagePullSecrets", Map(&["name"]), Map(&["name"])),
    ("Pod", "spec.hostAliases", Map(&["ip"]), Map(&["ip"])),
    ("Pod", "spec.schedulingGates", Map(&["name"]), Map(&["name"])),
    ("Pod", "spec.resourceClaims", Map(&["name"]), Map(&["name"])),
    ("Pod", "spec.topologySpreadConstraints", Map(&["topologyKey"]), Map(&["topologyKey", "whenUnsatisfiable"])),
    ("Pod", "status.podIPs", Map(&["ip"]), Map(&["ip"])),
    ("Pod", "status.hostIPs", Atomic, Atomic),
    ("Node", "spec.podCIDRs", Set, Set),
    ("Node", "status.addresses", Map(&["type"]), Map(&["type"])),
    ("ServiceAccount", "secrets", Map(&["name"]), Map(&["name"])),
];

/// Maps that server-side apply treats as one value, by their last segment.
const ATOMIC_MAPS: &[&str] = &[
    "nodeSelector",
    "labelSelector",
    "selector",
    "secretKeyRef",
    "configMapKeyRef",
    "fieldRef",
    "resourceFieldRef",
    "roleRef",
    "involvedObject",
    "regarding",
];

impl Schema<'_> {
    pub(crate) fn strategic(&self, path: &[String]) -> Merge {
        self.find(path).map_or(Atomic, |(strategic, _)| strategic)
    }

    pub(crate) fn apply(&self, path: &[String]) -> Merge {
        if let Self::Custom(Some(schema)) = self
            && path.first().is_none_or(|p| p != "metadata")
        {
            return custom(schema, path);
        }
        self.find(path).map_or(Atomic, |(_, apply)| apply)
    }

    /// Returns true if apply treats the map as one value.
    pub(crate) fn is_atomic_map(&self, path: &[String]) -> bool {
        match self {
            Self::BuiltIn(_) => path.last().is_some_and(|last| ATOMIC_MAPS.contains(&last.as_str())),
            Self::Custom(Some(schema)) => walk(schema, path).is_some_and(|s| s["x-kubernetes-map-type"] == "atomic"),
            Self::Custom(None) => false,
        }
    }

    fn has_template(&self) -> bool {
        matches!(self, Self::BuiltIn("Deployment" | "ReplicaSet" | "StatefulSet" | "Job"))
    }

    fn find(&self, path: &[String]) -> Option<(Merge, Merge)> {
        // A template is a Pod.
        let (of_template, path) = match path {
            [spec, template, rest @ ..] if self.has_template() && spec == "spec" && template == "template" => {
                (true, rest)
            }
            _ => (false, path),
        };
        LISTS
            .iter()
            .find(|(kind, pattern, ..)| {
                let kind_fits = match self {
                    Self::BuiltIn(_) if of_template => matches!(*kind, "*" | "Pod"),
                    Self::BuiltIn(name) => *kind == "*" || kind == name,
                    Self::Custom(_) => *kind == "*" && pattern.starts_with("metadata"),
                };
                kind_fits && fits(pattern, path)
            })
            .map(|(_, _, strategic, apply)| (*strategic, *apply))
    }
}

fn fits(pattern: &str, path: &[String]) -> bool {
    let mut parts = pattern.split('.');
    let all = path.iter().all(|step| parts.next().is_some_and(|part| part == "*" || part == step));
    all && parts.next().is_none()
}

fn walk<'a>(schema: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(schema, |schema, step| {
        let schema = schema.get("items").unwrap_or(schema);
        schema.get("properties").and_then(|p| p.get(step)).or_else(|| schema.get("additionalProperties"))
    })
}

/// Lists of a custom resource merge by `type` or `name` only where the schema says so with those keys.
fn custom(schema: &Value, path: &[String]) -> Merge {
    const KEYS: &[&[&str]] = &[&["name"], &["type"], &["key"], &["id"], &["uid"]];
    let Some(list) = walk(schema, path) else { return Atomic };
    match list["x-kubernetes-list-type"].as_str() {
        Some("set") => Set,
        Some("map") => {
            let keys = list["x-kubernetes-list-map-keys"].as_array().map(Vec::as_slice).unwrap_or_default();
            KEYS.iter()
                .find(|known| known.len() == keys.len() && known.iter().zip(keys).all(|(a, b)| b == a))
                .map_or(Atomic, |known| Map(known))
        }
        _ => Atomic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<String> {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn lists_merge_by_the_keys_of_the_kubernetes_types() {
        let pod = Schema::BuiltIn("Pod");
        assert_eq!(pod.strategic(&path("spec.containers.ports")), Map(&["containerPort"]));
        assert_eq!(pod.apply(&path("spec.containers.ports")), Map(&["containerPort", "protocol"]));
        assert_eq!(pod.strategic(&path("spec.tolerations")), Atomic);
        assert_eq!(pod.strategic(&path("metadata.finalizers")), Set);
        let job = Schema::BuiltIn("Job");
        assert_eq!(job.strategic(&path("spec.template.spec.containers")), Map(&["name"]));
        assert_eq!(pod.strategic(&path("spec.template.spec.containers")), Atomic);
        assert_eq!(Schema::Custom(None).apply(&path("status.conditions")), Atomic);
        assert_eq!(Schema::Custom(None).apply(&path("metadata.finalizers")), Set);
    }

    #[test]
    fn a_custom_resource_merges_lists_as_its_schema_says() {
        let schema = serde_json::json!({"properties": {"status": {"properties": {"conditions": {
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}}}}});
        let custom = Schema::Custom(Some(&schema));
        assert_eq!(custom.apply(&path("status.conditions")), Map(&["type"]));
        assert_eq!(custom.apply(&path("spec.items")), Atomic);
    }
}
