//! RBAC objects for one plugin: the rights of its ServiceAccount, and the right of the host to use this account.
//!
//! The rights are those of the requests that the host sends for a plugin; docs/operating.md lists them.

use std::collections::BTreeSet;

use podium_vocabulary::{Grant, Grants, Input, InputObjects, ObjectGrant, PluginSpec, PullSecret, Source, Tenant};
use serde_json::{Value, json};

use crate::args::Impersonation;

const GROUP: &str = "rbac.authorization.k8s.io";

/// One right: verbs on a resource of an API group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    group: String,
    resource: String,
    /// The only object; `None` for all of the resource.
    name: Option<String>,
    verbs: Vec<&'static str>,
}

impl Right {
    fn new(group: &str, resource: &str, verbs: &[&'static str]) -> Self {
        Self { group: group.to_owned(), resource: resource.to_owned(), name: None, verbs: verbs.to_vec() }
    }

    fn rule(&self) -> Value {
        self.with_verbs(&self.verbs.iter().map(|verb| (*verb).to_owned()).collect::<Vec<_>>())
    }

    fn with_verbs(&self, verbs: &[String]) -> Value {
        let mut rule = json!({"apiGroups": [self.group], "resources": [self.resource], "verbs": verbs});
        if let Some(name) = &self.name {
            rule["resourceNames"] = json!([name]);
        }
        rule
    }

    /// The right to use the right of an account that is impersonated.
    fn constrained(&self) -> Value {
        let verbs: Vec<_> = self.verbs.iter().map(|verb| format!("impersonate-on:serviceaccount:{verb}")).collect();
        self.with_verbs(&verbs)
    }
}

/// The rights that the requests of a plugin with these grants need.
pub(super) fn rights(grants: &Grants) -> Vec<Right> {
    let mut rights: Vec<Right> = Vec::new();
    for needed in Grant::ALL.into_iter().filter(|grant| grant.is_in(grants)).filter_map(Grant::right) {
        add(&mut rights, Right::new(needed.group, needed.resource, needed.verbs));
    }
    for (group, resource) in kinds(&grants.write.objects) {
        // Every user of the account could list the contents of all Secrets.
        let watches = if group.is_empty() && resource == "secrets" { &[][..] } else { &Grant::OBJECT_WATCH_VERBS };
        add(&mut rights, Right::new(group, resource, &[&Grant::OBJECT_VERBS, watches].concat()));
    }
    for (group, resource) in kinds(&grants.read_objects) {
        add(&mut rights, Right::new(group, resource, &Grant::READ_VERBS));
    }
    for (group, resource) in kinds(&grants.write.scale) {
        add(&mut rights, Right::new(group, &format!("{resource}/scale"), &Grant::SCALE_VERBS));
    }
    rights
}

/// Returns the group and the resource of each granted kind, each once.
fn kinds(grants: &[ObjectGrant]) -> BTreeSet<(&str, &str)> {
    grants.iter().map(|object| (group(&object.api_version), &*object.resource)).collect()
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// Adds a right, or its verbs to the right on the same resource.
fn add(rights: &mut Vec<Right>, needed: Right) {
    let is_same = |right: &&mut Right| right.group == needed.group && right.resource == needed.resource;
    match rights.iter_mut().find(is_same) {
        Some(right) => {
            let further: Vec<_> = needed.verbs.into_iter().filter(|verb| !right.verbs.contains(verb)).collect();
            right.verbs.extend(further);
        }
        None => rights.push(needed),
    }
}

/// The right to read the component, or the credentials for its registry, which the host does as the plugin's account,
/// in the account's namespace.
fn component(source: &Source, account: &Account) -> Option<Right> {
    let (resource, namespace, name) = match source {
        Source::ConfigMap { namespace, name, .. } => ("configmaps", namespace, name),
        Source::Oci { pull_secret: Some(PullSecret { account: _, namespace, name }), .. } => {
            ("secrets", namespace, name)
        }
        Source::Oci { pull_secret: None, .. } | Source::File(_) | Source::Inline(_) => return None,
    };
    (**namespace == *account.namespace)
        .then(|| Right { name: Some(name.clone()), ..Right::new("", resource, &["get"]) })
}

/// The right to read and watch an input, which the host does as the plugin's account, in the account's namespace.
fn input(input: &Input) -> Right {
    // A selector cannot be named in a role.
    let name = match &input.objects {
        InputObjects::Named(name) => Some(name.clone()),
        InputObjects::Labelled(_) => None,
    };
    Right { name, ..Right::new(group(&input.api_version), &input.resource, &["list", "watch"]) }
}

/// A ServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Account {
    /// The account of the plugin's requests: the configured one, or one that only this plugin has. That of a plugin of
    /// the cluster is in the host's namespace, where the chart's admission policies permit it.
    pub(crate) fn for_plugin(spec: &PluginSpec, host: &Self) -> Self {
        match spec.account() {
            Some((namespace, name)) => Self { namespace: namespace.to_owned(), name: name.to_owned() },
            None => {
                let namespace = spec.id.namespace.as_deref().unwrap_or(&host.namespace).to_owned();
                Self { namespace, name: name("plugin", spec) }
            }
        }
    }

    fn subject(&self) -> Value {
        json!({"kind": "ServiceAccount", "namespace": self.namespace, "name": self.name})
    }
}

/// Returns the name of an object that belongs to one plugin. The prefix depends on the scope and the part, and none
/// begins with another one, so the objects of different plugins have different names.
pub(crate) fn name(part: &str, spec: &PluginSpec) -> String {
    let scope = if spec.tenant() == Tenant::Cluster { "cluster-" } else { "" };
    format!("podium-{scope}{part}-{}", spec.id.name)
}

/// Returns the advice for a plugin whose objects are owned by the workloads of its Pods: whether they are is not in its
/// configuration or its imports, so these rights are not among [`objects`].
pub(super) fn owners(spec: &PluginSpec, impersonation: Impersonation) -> String {
    let rules = |verb: &str| {
        json!([
            {
                "apiGroups": ["apps"],
                "resources": ["replicasets", "deployments", "statefulsets", "daemonsets"],
                "verbs": [verb],
            },
            { "apiGroups": ["batch"], "resources": ["jobs", "cronjobs"], "verbs": [verb] },
        ])
    };
    let kind = if spec.tenant() == Tenant::Cluster { "ClusterRole" } else { "Role" };
    let host = match impersonation {
        Impersonation::Plain => String::new(),
        Impersonation::Constrained => {
            let rules = rules("impersonate-on:serviceaccount:get");
            format!(", and the rules {rules} to the {kind} {}", name("host", spec))
        }
    };
    format!(
        "if it applies objects with ObjectOwner::Workload, its account must get the controllers above its Pods; add \
         the rules {} to the {kind} {}{host}; for custom controllers add theirs",
        rules("get"),
        name("plugin", spec)
    )
}

/// Returns the objects to apply, in the order in which they depend on each other.
pub(super) fn objects(spec: &PluginSpec, host: &Account, impersonation: Impersonation) -> Vec<Value> {
    let account = Account::for_plugin(spec, host);
    let rights = rights(&spec.grants);
    let component = component(&spec.source, &account);
    let inputs: Vec<Right> = spec.inputs.iter().map(input).collect();
    let cluster = spec.tenant() == Tenant::Cluster;
    let of_host = name("host", spec);
    let mut objects = vec![json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"namespace": account.namespace, "name": account.name},
    })];
    if !rights.is_empty() {
        let rules = rights.iter().map(Right::rule).collect();
        objects.extend(bound(cluster, &account.namespace, &name("plugin", spec), rules, &account));
    }
    if let Some(component) = &component {
        let name = name("component", spec);
        objects.extend(bound(false, &account.namespace, &name, vec![component.rule()], &account));
    }
    if !inputs.is_empty() {
        let rules = inputs.iter().map(Right::rule).collect();
        objects.extend(bound(false, &account.namespace, &name("inputs", spec), rules, &account));
    }
    // The account is an object of its namespace, so the right to impersonate it is a Role there in both cases.
    match impersonation {
        Impersonation::Plain => {
            let named = json!({
                "apiGroups": [""],
                "resources": ["serviceaccounts"],
                "resourceNames": [account.name],
                "verbs": ["impersonate"],
            });
            objects.extend(bound(false, &account.namespace, &of_host, vec![named], host));
        }
        Impersonation::Constrained => {
            let named = json!({
                "apiGroups": ["authentication.k8s.io"],
                "resources": ["serviceaccounts"],
                "resourceNames": [account.name],
                "verbs": ["impersonate:serviceaccount"],
            });
            let used: Vec<_> = rights.iter().map(Right::constrained).collect();
            let own = component.iter().chain(&inputs).map(Right::constrained);
            let named = [named].into_iter().chain(own).collect();
            match cluster {
                true => {
                    objects.extend(bound(false, &account.namespace, &of_host, named, host));
                    if !used.is_empty() {
                        objects.extend(bound(true, &account.namespace, &of_host, used, host));
                    }
                }
                false => {
                    let rules = Vec::into_iter(named).chain(used).collect();
                    objects.extend(bound(false, &account.namespace, &of_host, rules, host));
                }
            }
        }
    }
    objects
}

/// A role and its binding, of the cluster or of a namespace.
fn bound(cluster: bool, namespace: &str, name: &str, rules: Vec<Value>, subject: &Account) -> [Value; 2] {
    let kind = if cluster { "ClusterRole" } else { "Role" };
    let metadata = if cluster { json!({"name": name}) } else { json!({"namespace": namespace, "name": name}) };
    let api_version = format!("{GROUP}/v1");
    [
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "rules": rules}),
        json!({
            "apiVersion": api_version,
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": {"apiGroup": GROUP, "kind": kind, "name": name},
            "subjects": [subject.subject()],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use podium_pods::testing;
    use podium_vocabulary::{KeyPattern, ReadGrants, WriteGrants};

    use super::*;

    fn host() -> Account {
        Account { namespace: "podium".into(), name: "podium-host".into() }
    }

    fn spec(namespace: Option<&str>) -> PluginSpec {
        let object = |api_version: &str, kind: &str, resource: &str| ObjectGrant {
            api_version: api_version.into(),
            kind: kind.into(),
            resource: resource.into(),
        };
        let write = WriteGrants {
            labels: vec![KeyPattern("a.example/*".into())],
            conditions: vec![KeyPattern("a.example/Ok".into())],
            evict: true,
            events: true,
            objects: vec![object("v1", "ConfigMap", "configmaps"), object("apps/v1", "Deployment", "deployments")],
            forced: Vec::new(),
            scale: vec![object("apps/v1", "StatefulSet", "statefulsets")],
            ..WriteGrants::default()
        };
        let read = Some(ReadGrants { sections: Default::default(), live: true });
        let read_objects = vec![object("v1", "ConfigMap", "configmaps"), object("batch/v1", "Job", "jobs")];
        PluginSpec { grants: Grants { read, read_objects, write }, ..testing::plugin(namespace, "tidy") }
    }

    fn verbs(objects: &[Value], kind: &str, name: &str) -> Vec<(String, Vec<String>)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let role = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name).unwrap();
        let rule = |rule: &Value| {
            let resource = format!("{}/{}", text(&rule["apiGroups"][0]), text(&rule["resources"][0]));
            (resource, rule["verbs"].as_array().unwrap().iter().map(text).collect())
        };
        role["rules"].as_array().unwrap().iter().map(rule).collect()
    }

    #[test]
    fn each_grant_is_the_right_of_its_request_and_no_other() {
        let objects = objects(&spec(Some("shop")), &host(), Impersonation::Plain);
        let rights = verbs(&objects, "Role", "podium-plugin-tidy");
        let expected = [
            ("/pods", &["get", "patch"][..]),
            ("/pods/status", &["patch"]),
            ("/pods/eviction", &["create"]),
            ("events.k8s.io/events", &["create", "patch"]),
            ("/configmaps", &["get", "create", "patch", "delete", "list", "watch"]),
            ("apps/deployments", &["get", "create", "patch", "delete", "list", "watch"]),
            ("batch/jobs", &["get"]),
            ("apps/statefulsets/scale", &["get", "patch"]),
        ];
        let expected: Vec<_> = expected
            .map(|(resource, verbs)| {
                (resource.to_owned(), verbs.iter().map(|verb| (*verb).to_owned()).collect::<Vec<_>>())
            })
            .into();
        assert_eq!(rights, expected);
        let impersonates = verbs(&objects, "Role", "podium-host-tidy");
        assert_eq!(impersonates, [("/serviceaccounts".to_owned(), vec!["impersonate".to_owned()])]);
        assert!(objects.iter().all(|object| object["metadata"]["namespace"] == "shop"), "{objects:#?}");
    }

    #[test]
    fn inputs_with_a_selector_need_all_objects() {
        let [id, api_version, kind, resource] = ["a", "v1", "ConfigMap", "configmaps"].map(str::to_owned);
        let objects = InputObjects::Labelled("a in (b)".to_owned());
        let right = input(&Input { id, api_version, kind, resource, objects, fields: Vec::new() });
        assert_eq!(right, Right::new("", "configmaps", &["list", "watch"]));
    }

    #[test]
    fn inputs_are_named_objects_of_the_accounts_namespace() {
        let [id, api_version, kind, resource, name] =
            ["a", "shop.example/v1", "PriceList", "pricelists", "prices"].map(str::to_owned);
        let named = InputObjects::Named(name);
        let input = Input { id, api_version, kind, resource, objects: named, fields: Vec::new() };
        for (namespace, of) in [(Some("shop"), "podium-inputs-tidy"), (None, "podium-cluster-inputs-tidy")] {
            let impersonate = Some("system:serviceaccount:shop:a".to_owned());
            let spec = PluginSpec { inputs: vec![input.clone()], impersonate, ..spec(namespace) };
            let objects = objects(&spec, &host(), Impersonation::Constrained);
            let role = objects.iter().find(|object| object["kind"] == "Role" && object["metadata"]["name"] == of);
            let expected = json!([{
                "apiGroups": ["shop.example"], "resources": ["pricelists"], "resourceNames": ["prices"],
                "verbs": ["list", "watch"],
            }]);
            assert_eq!((&role.unwrap()["rules"], &role.unwrap()["metadata"]["namespace"]), (&expected, &json!("shop")));
            let host = format!("podium-{}host-tidy", if namespace.is_some() { "" } else { "cluster-" });
            let used = verbs(&objects, "Role", &host);
            let verbs = ["list", "watch"].map(|verb| format!("impersonate-on:serviceaccount:{verb}"));
            assert!(used.contains(&("shop.example/pricelists".to_owned(), verbs.into())), "{used:?}");
        }
    }

    #[test]
    fn secrets_are_not_listed() {
        let api_version = "v1".to_owned();
        let secret = ObjectGrant { api_version, kind: "Secret".to_owned(), resource: "secrets".to_owned() };
        let mut grants = Grants::default();
        grants.write.objects = vec![secret];
        assert_eq!(rights(&grants), [Right::new("", "secrets", &["get", "create", "patch", "delete"])]);
    }

    #[test]
    fn a_cluster_plugin_has_cluster_rights_and_a_service_account() {
        let spec = PluginSpec { impersonate: Some("system:serviceaccount:ops:tidy".into()), ..spec(None) };
        let objects = objects(&spec, &host(), Impersonation::Constrained);
        let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        let roles = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
        assert_eq!(kinds, [&["ServiceAccount"][..], &roles].concat());
        let named = verbs(&objects, "Role", "podium-cluster-host-tidy");
        assert_eq!(
            named,
            [("authentication.k8s.io/serviceaccounts".to_owned(), vec!["impersonate:serviceaccount".to_owned()])]
        );
        let used = verbs(&objects, "ClusterRole", "podium-cluster-host-tidy");
        assert_eq!(used[1].1, ["impersonate-on:serviceaccount:patch"]);
    }

    #[test]
    fn the_account_may_read_the_component_or_its_pull_secret() {
        let text = |text: &str| text.into();
        let config_map = Source::ConfigMap {
            namespace: text("shop"),
            name: text("tidy-1"),
            key: text("plugin.wasm"),
            sha256: text("00"),
        };
        let secret = PullSecret {
            account: text("system:serviceaccount:shop:podium"),
            namespace: text("shop"),
            name: text("tidy-1"),
        };
        let oci = Source::Oci { image: text("registry.example/tidy:1"), pull_secret: Some(secret) };
        for (source, resource) in [(config_map, "configmaps"), (oci, "secrets")] {
            let spec = PluginSpec {
                source,
                impersonate: Some("system:serviceaccount:shop:tidy".into()),
                ..testing::plugin(Some("shop"), "tidy")
            };
            let objects = objects(&spec, &host(), Impersonation::Constrained);
            let rules = |name: &str| {
                let is_role = |object: &&Value| object["kind"] == "Role" && object["metadata"]["name"] == name;
                objects.iter().find(is_role).unwrap()["rules"].clone()
            };
            let rule = |verb: &str| {
                let mut rule = json!({"apiGroups": [""], "resources": [resource], "verbs": [verb]});
                rule["resourceNames"] = json!(["tidy-1"]);
                rule
            };
            assert_eq!(rules("podium-component-tidy"), json!([rule("get")]));
            assert_eq!(rules("podium-host-tidy")[1], rule("impersonate-on:serviceaccount:get"));
        }
    }

    #[test]
    fn no_two_plugins_and_no_two_parts_have_one_name() {
        let plugins = ["a", "component-a", "a-component", "cluster-a", "a.cluster", "cluster-plugin-a", "plugin-a"];
        let mut names = BTreeSet::new();
        for namespace in [None, Some("shop")] {
            for plugin in plugins {
                let spec = testing::plugin(namespace, plugin);
                names.extend(["plugin", "component", "host"].map(|part| name(part, &spec)));
                let account = Account::for_plugin(&PluginSpec { impersonate: None, ..spec }, &host());
                assert!(account.name.starts_with("podium-"), "the account of no other workload: {account:?}");
            }
        }
        assert_eq!(names.len(), 2 * 3 * plugins.len(), "{names:?}");
    }

    #[test]
    fn a_plugin_that_writes_nothing_has_an_account_and_no_right() {
        let spec = testing::plugin(Some("shop"), "tidy");
        let spec = PluginSpec { grants: Grants::default(), ..spec };
        let kinds: Vec<_> = objects(&spec, &host(), Impersonation::Plain)
            .iter()
            .map(|object| object["kind"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding"]);
    }
}
