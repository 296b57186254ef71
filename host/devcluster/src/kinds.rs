//! The table of served resources: group, version, kind, resource and behaviour. Custom resource definitions add to it
//! and remove from it. It contains no objects.

use std::sync::Arc;

use serde_json::Value;

use crate::meta;

/// One served resource in one version.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kind {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Whether only /status can change the status.
    pub(crate) status: bool,
    /// Subresources other than status, in the order of discovery.
    pub(crate) subresources: Vec<Subresource>,
    /// Whether it comes from a custom resource definition.
    pub(crate) custom: bool,
    /// The version's OpenAPI schema; only for a custom resource.
    pub(crate) schema: Option<Arc<Value>>,
    /// Extra columns for kubectl; only for a custom resource.
    pub(crate) columns: Vec<Value>,
    /// Whether it only answers POST and stores nothing.
    pub(crate) review: bool,
}

/// A subresource other than status.
#[derive(Clone, Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) group_version: (&'static str, &'static str),
    pub(crate) verbs: &'static [&'static str],
}

impl Kind {
    /// Returns the name under which objects are stored. Versions of one resource share it, and so do both versions of
    /// Events.
    pub(crate) fn resource(&self) -> String {
        if self.group == "events.k8s.io" { "events".into() } else { self.qualified() }
    }

    /// Returns the name in error messages: `leases.coordination.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns group, version and kind in Go's format: `/v1, Kind=Pod`.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}, Kind={}", self.group, self.version, self.kind)
    }

    /// Returns true if this is the core group's resource of that name.
    pub(crate) fn is(&self, core_plural: &str) -> bool {
        self.group.is_empty() && self.plural == core_plural
    }

    pub(crate) fn is_grouped(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Returns true if metadata.generation counts changes of the spec.
    pub(crate) fn has_generation(&self) -> bool {
        self.custom
            || self.is("pods")
            || self.runs_pods()
            || self.is_grouped("policy", "poddisruptionbudgets")
            || self.is_grouped("apiextensions.k8s.io", "customresourcedefinitions")
    }

    /// Returns true for the kinds with a template of Pods.
    pub(crate) fn runs_pods(&self) -> bool {
        matches!(&*self.group, "apps" | "batch") && self.plural != "controllerrevisions" && !self.custom
    }

    /// Returns true if an update without resourceVersion is accepted.
    pub(crate) fn allows_unconditional_update(&self) -> bool {
        !(self.custom || self.group == "coordination.k8s.io" || self.group == "policy")
    }

    /// Returns true if one request can delete all objects, or those of a selector.
    pub(crate) fn has_delete_collection(&self) -> bool {
        !self.is("namespaces")
    }

    /// Returns true if a deletion that is complete at once returns the object instead of a `Status`.
    pub(crate) fn returns_deleted(&self) -> bool {
        self.is("pods") || self.is("namespaces") || self.is("serviceaccounts")
    }
}

/// All kinds served now.
#[derive(Clone, Debug)]
pub(crate) struct Kinds {
    kinds: Vec<Arc<Kind>>,
}

const BUILT_IN: &[(&str, &str, &str, &str, &str, bool, bool)] = &[
    // group, version, kind, plural, short names, namespaced, status
    ("", "v1", "ConfigMap", "configmaps", "cm", true, false),
    ("", "v1", "Event", "events", "ev", true, false),
    ("", "v1", "Namespace", "namespaces", "ns", false, true),
    ("", "v1", "Node", "nodes", "no", false, true),
    ("", "v1", "Pod", "pods", "po", true, true),
    ("", "v1", "Secret", "secrets", "", true, false),
    ("", "v1", "ServiceAccount", "serviceaccounts", "sa", true, false),
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "crd crds", false, true),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", "", true, false),
    ("apps", "v1", "Deployment", "deployments", "deploy", true, true),
    ("apps", "v1", "ReplicaSet", "replicasets", "rs", true, true),
    ("apps", "v1", "StatefulSet", "statefulsets", "sts", true, true),
    ("batch", "v1", "Job", "jobs", "", true, true),
    ("coordination.k8s.io", "v1", "Lease", "leases", "", true, false),
    ("events.k8s.io", "v1", "Event", "events", "ev", true, false),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", true, true),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "", false, false),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "", false, false),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "", true, false),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", "", true, false),
];

const REVIEWS: &[(&str, &str, &str, bool)] = &[
    ("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", false),
    ("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false),
    ("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", false),
];

impl Default for Kinds {
    fn default() -> Self {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let mut kinds: Vec<Kind> = BUILT_IN
            .iter()
            .map(|&(group, version, kind, plural, short_names, namespaced, status)| Kind {
                group: group.into(),
                version: version.into(),
                kind: kind.into(),
                plural: plural.into(),
                singular: kind.to_lowercase(),
                short_names: words(short_names),
                categories: match plural {
                    "pods" | "deployments" | "replicasets" | "statefulsets" | "jobs" => words("all"),
                    "customresourcedefinitions" => words("api-extensions"),
                    _ => Vec::new(),
                },
                namespaced,
                status,
                subresources: subresources(plural),
                ..Kind::default()
            })
            .collect();
        kinds.extend(REVIEWS.iter().map(|&(group, kind, plural, namespaced)| Kind {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            namespaced,
            review: true,
            ..Kind::default()
        }));
        Self { kinds: kinds.into_iter().map(Arc::new).collect() }
    }
}

fn subresources(plural: &str) -> Vec<Subresource> {
    let sub = |name, kind, group_version, verbs| Subresource { name, kind, group_version, verbs };
    match plural {
        "pods" => vec![
            sub("binding", "Binding", ("", "v1"), &["create"]),
            sub("eviction", "Eviction", ("policy", "v1"), &["create"]),
            sub("log", "Pod", ("", "v1"), &["get"]),
        ],
        "deployments" | "replicasets" | "statefulsets" => {
            vec![sub("scale", "Scale", ("autoscaling", "v1"), &["get", "patch", "update"])]
        }
        _ => Vec::new(),
    }
}

impl Kinds {
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.kinds.iter().find(|k| k.group == group && k.version == version && k.plural == plural).cloned()
    }

    /// Returns the kind of an `apiVersion` and `kind`.
    pub(crate) fn of_object(&self, api_version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.kinds.iter().find(|k| k.kind == kind && k.api_version() == api_version).cloned()
    }

    /// Returns true if the resource is served without a definition.
    pub(crate) fn is_built_in(group: &str, plural: &str) -> bool {
        BUILT_IN.iter().any(|(its_group, _, _, its_plural, ..)| (*its_group, *its_plural) == (group, plural))
    }

    /// Returns all kinds in the order of discovery: the core group first, then groups by name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.iter()
    }

    pub(crate) fn retain(&mut self, offered: impl Fn(&Kind) -> bool) {
        self.kinds.retain(|kind| offered(kind));
    }

    /// Returns one kind for each storage name.
    pub(crate) fn stored(&self) -> Vec<Arc<Kind>> {
        let mut seen = std::collections::BTreeSet::new();
        self.kinds.iter().filter(|k| !k.review && seen.insert(k.resource())).cloned().collect()
    }

    /// Serves the kinds of a definition, replacing those that it served before.
    pub(crate) fn define(&mut self, definition: &Value) {
        self.undefine(definition);
        let spec = &definition["spec"];
        let words = |path: &[&str]| -> Vec<String> {
            meta::list(spec, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let kind = meta::text(spec, &["names", "kind"]);
        let singular = meta::text(spec, &["names", "singular"]);
        for version in meta::list(spec, &["versions"]) {
            if version["served"] != Value::Bool(true) {
                continue;
            }
            self.kinds.push(Arc::new(Kind {
                group: meta::text(spec, &["group"]).into(),
                version: meta::text(version, &["name"]).into(),
                kind: kind.into(),
                plural: meta::text(spec, &["names", "plural"]).into(),
                singular: if singular.is_empty() { kind.to_lowercase() } else { singular.into() },
                short_names: words(&["names", "shortNames"]),
                categories: words(&["names", "categories"]),
                namespaced: meta::text(spec, &["scope"]) == "Namespaced",
                status: meta::at(version, &["subresources", "status"]).is_some_and(Value::is_object),
                custom: true,
                schema: meta::at(version, &["schema", "openAPIV3Schema"]).cloned().map(Arc::new),
                columns: meta::list(version, &["additionalPrinterColumns"]).to_vec(),
                ..Kind::default()
            }));
        }
        self.kinds.sort_by(|a, b| a.group.cmp(&b.group));
    }

    pub(crate) fn undefine(&mut self, definition: &Value) {
        let group = meta::text(definition, &["spec", "group"]);
        let plural = meta::text(definition, &["spec", "names", "plural"]);
        self.kinds.retain(|k| !(k.custom && k.group == group && k.plural == plural));
    }
}
