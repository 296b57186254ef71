//! The platform's policy from its file, and the comparison of plugins with it. Pure except for the reading of the file.

mod images;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use podium_config::{
    Problem,
    plugin::Class,
    policy::{Ceilings, Requests, Rules, Spec},
};
use podium_registry::signature::Key;
use podium_vocabulary::{Language, LimitClass, Limits, PluginSpec, RequestRates, Tenant, text};

use super::{ConfigError, file::FileError};

/// Reads a file of at most 1 MiB.
pub(crate) type ReadFile<'a> = &'a mut dyn FnMut(&Path) -> Result<Vec<u8>, FileError>;

/// A policy that was read, with its file for messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    file: PathBuf,
    spec: Arc<Spec>,
    /// The keys of signatures, by their texts.
    keys: Arc<BTreeMap<String, Key>>,
}

/// One of [`Limits`], in the form of a configuration and of a policy.
struct LimitField {
    field: &'static str,
    value: fn(&Limits) -> u64,
    ceiling: fn(&Ceilings) -> Option<u64>,
}

const LIMITS: [LimitField; 10] = [
    LimitField {
        field: "memoryMiB",
        value: |limits| (limits.memory_bytes >> 20) as u64,
        ceiling: |most| most.memory_mib.map(Into::into),
    },
    LimitField {
        field: "cpuMillis",
        value: |limits| u64::try_from(limits.cpu.as_millis()).unwrap_or(u64::MAX),
        ceiling: |most| most.cpu_millis.map(Into::into),
    },
    LimitField {
        field: "wallMillis",
        value: |limits| u64::try_from(limits.wall.as_millis()).unwrap_or(u64::MAX),
        ceiling: |most| most.wall_millis.map(Into::into),
    },
    LimitField {
        field: "hostCalls",
        value: |limits| limits.host_calls.into(),
        ceiling: |most| most.host_calls.map(Into::into),
    },
    LimitField { field: "writes", value: |limits| limits.writes.into(), ceiling: |most| most.writes.map(Into::into) },
    LimitField {
        field: "logKiB",
        value: |limits| (limits.log_bytes >> 10) as u64,
        ceiling: |most| most.log_kib.map(Into::into),
    },
    LimitField { field: "reuse", value: |limits| limits.reuse.into(), ceiling: |most| most.reuse.map(Into::into) },
    LimitField {
        field: "writesPerSecond",
        value: |limits| limits.requests.writes.into(),
        ceiling: |most| most.writes_per_second.map(Into::into),
    },
    LimitField {
        field: "liveReadsPerSecond",
        value: |limits| limits.requests.live_reads.into(),
        ceiling: |most| most.live_reads_per_second.map(Into::into),
    },
    LimitField {
        field: "eventsPerSecond",
        value: |limits| limits.requests.events.into(),
        ceiling: |most| most.events_per_second.map(Into::into),
    },
];

impl Policy {
    /// Reads the policy from a regular file of at most 1 MiB.
    ///
    /// # Errors
    /// Returns every mistake in the file, or the reason why it cannot be read.
    pub fn read(file: &Path) -> Result<Self, Vec<ConfigError>> {
        Self::read_by(file, &mut super::read_file)
    }

    /// Reads the policy from the bytes that `read` returns for its file.
    pub(crate) fn read_by(file: &Path, read: ReadFile<'_>) -> Result<Self, Vec<ConfigError>> {
        let bytes = read(file).map_err(|error| error.to_string());
        let yaml = bytes.and_then(super::utf8).map_err(|message| vec![ConfigError::file(file, message)])?;
        let policy = podium_config::policy(&yaml).map_err(|problems| -> Vec<ConfigError> {
            problems.into_iter().map(|problem| ConfigError::new(file, problem)).collect()
        })?;
        Self::from_spec(file, policy.spec)
            .map_err(|problems| problems.into_iter().map(|problem| ConfigError::new(file, problem)).collect::<Vec<_>>())
    }

    fn from_spec(file: &Path, spec: Spec) -> Result<Self, Vec<Problem>> {
        let keys = images::keys(&spec)?.into();
        Ok(Self { file: file.to_owned(), spec: spec.into(), keys })
    }

    /// Returns everything that the plugin requests and the policy does not permit, with the plugin's fields. A plugin
    /// may be loaded only if this is empty.
    #[must_use]
    pub fn problems(&self, plugin: &PluginSpec) -> Vec<Problem> {
        let tenant = plugin.tenant();
        if let Some((path, true)) = self.rule(&tenant, |rules| rules.excluded) {
            let (field, value, next) = match &tenant {
                Tenant::Namespace(namespace) => {
                    ("metadata.namespace", &**namespace, "remove the plugin, move it to another namespace")
                }
                Tenant::Cluster => ("kind", "ClusterReconcilePlugin", "remove the plugin, make it a ReconcilePlugin"),
            };
            let path = format!("{path}.excluded");
            return vec![self.problem(field, &path, format!("is {value}, and plugins of {tenant} are excluded"), next)];
        }
        let mut problems = Vec::new();
        let required = self.rule(&tenant, |rules| rules.service_account_required);
        if let Some((path, true)) = required.filter(|_| plugin.impersonate.is_none()) {
            let message = format!("is missing, and plugins of {tenant} must have one");
            let next = "name a ServiceAccount that has the rights for the plugin's writes";
            let path = format!("{path}.serviceAccountRequired");
            problems.push(self.problem("spec.serviceAccountName", &path, message, next));
        }
        let permitted = self.rule(&tenant, |rules| rules.force_permitted);
        if let Some((path, false)) = permitted.filter(|_| !plugin.grants.write.forced.is_empty()) {
            let message = format!("has force: true, and plugins of {tenant} may not take fields of other managers");
            let path = format!("{path}.forcePermitted");
            problems.push(self.problem("spec.grants.write.objects", &path, message, "remove it"));
        }
        match plugin.language {
            Some(language) => problems.extend(self.script(&tenant, language)),
            None => {
                problems.extend(self.source(&tenant, &plugin.source));
                problems.extend(self.class(&tenant, plugin.limits.class));
            }
        }
        for LimitField { field, value, ceiling } in LIMITS {
            let value = value(&plugin.limits);
            let exceeded = self.rule(&tenant, |rules| ceiling(&rules.limits)).filter(|(_, most)| value > *most);
            if let Some((path, most)) = exceeded {
                let message = format!("is {value}, and plugins of {tenant} may have at most {most}");
                let path = format!("{path}.limits.{field}");
                let next = format!("set it to at most {most}");
                problems.push(self.problem(&format!("spec.limits.{field}"), &path, message, &next));
            }
        }
        problems
    }

    /// Returns the place of the rule that excludes the plugins of a tenant, if one does.
    #[must_use]
    pub fn excluded(&self, tenant: &Tenant) -> Option<String> {
        let (path, _) = self.rule(tenant, |rules| rules.excluded).filter(|(_, excluded)| *excluded)?;
        Some(format!("plugins of {tenant} are excluded ({}: {path}.excluded)", text::path(&self.file)))
    }

    /// Returns the most bytes of compiled code that the plugins of a tenant may have together, if the policy bounds
    /// them.
    #[must_use]
    pub fn compiled_code_bytes(&self, tenant: &Tenant) -> Option<u64> {
        self.rule(tenant, |rules| rules.compiled_code_mib).map(|(_, mib)| u64::from(mib) << 20)
    }

    /// Returns the most plugin objects of a tenant, and the place in the policy that says so, if one does.
    #[must_use]
    pub fn max_plugins(&self, tenant: &Tenant) -> Option<(String, u32)> {
        let (path, most) = self.rule(tenant, |rules| rules.max_plugins)?;
        Some((format!("{}: {path}.maxPlugins", text::path(&self.file)), most))
    }

    /// Returns the requests per second that the plugins of a tenant may send together, or each plugin of the cluster.
    #[must_use]
    pub fn request_rates(&self, tenant: &Tenant) -> RequestRates {
        let of = |rate: fn(&Requests) -> Option<u32>| self.rule(tenant, |rules| rate(&rules.requests));
        let RequestRates { writes, live_reads, events } = RequestRates::OF_TENANT;
        RequestRates {
            writes: of(|rates| rates.writes_per_second).map_or(writes, |(_, rate)| rate),
            live_reads: of(|rates| rates.live_reads_per_second).map_or(live_reads, |(_, rate)| rate),
            events: of(|rates| rates.events_per_second).map_or(events, |(_, rate)| rate),
        }
    }

    /// A script has no signature, so that none is permitted where components need one, unless a list of the section
    /// that demands it, or of the tenant's own, says so: a list of `defaults` does not lift what one tenant requires.
    fn script(&self, tenant: &Tenant, language: Language) -> Option<Problem> {
        let required = self.rule(tenant, |rules| rules.images.signature_required).filter(|(_, required)| *required);
        let listed = self.rule(tenant, |rules| rules.scripts.languages.as_ref());
        let is_listed = listed.as_ref().map(|(_, all)| all.iter().any(|one| Language::from(*one) == language));
        let (path, next) = match (required, listed) {
            (_, Some((path, _))) if is_listed == Some(false) => {
                (format!("{path}.scripts.languages"), "deploy a component")
            }
            (Some((path, _)), listed) if listed.as_ref().is_none_or(|(of, _)| *of != path && of == "spec.defaults") => {
                let next = "build a component, push it to a registry, sign it, and use source.oci";
                (format!("{path}.images.signatureRequired"), next)
            }
            _ => return None,
        };
        let message = format!("is {}, and {tenant} may have no script in it", language.name());
        Some(self.problem("spec.source.script.language", &path, message, next))
    }

    fn class(&self, tenant: &Tenant, class: LimitClass) -> Option<Problem> {
        let (path, permitted) = self.rule(tenant, |rules| rules.limits.classes.as_ref())?;
        let permitted: Vec<LimitClass> = permitted.iter().copied().map(limit_class).collect();
        if permitted.contains(&class) {
            return None;
        }
        let permitted = permitted.into_iter().map(LimitClass::name).collect::<Vec<_>>().join(" or ");
        let message = format!("is {}, and plugins of {tenant} may have {permitted}", class.name());
        let path = format!("{path}.limits.classes");
        Some(self.problem("spec.limits.class", &path, message, &format!("set it to {permitted}")))
    }

    /// Returns the rule in force for a tenant, with the path of the section that has it: the tenant's own section, or
    /// else `defaults`.
    fn rule<'a, T>(&'a self, tenant: &Tenant, rule: impl Fn(&'a Rules) -> Option<T>) -> Option<(String, T)> {
        let Spec { registries: _, defaults, namespaces, cluster } = &*self.spec;
        let own = match tenant {
            Tenant::Namespace(namespace) => namespaces.get(&**namespace),
            Tenant::Cluster => Some(cluster),
        };
        if let Some(found) = own.and_then(&rule) {
            let path = match tenant {
                Tenant::Namespace(namespace) => format!("spec.namespaces.{namespace}"),
                Tenant::Cluster => "spec.cluster".to_owned(),
            };
            return Some((path, found));
        }
        Some(("spec.defaults".to_owned(), rule(defaults)?))
    }

    fn problem(&self, field: &str, path: &str, message: String, next: &str) -> Problem {
        let file = text::path(&self.file);
        let message = format!("{message} ({file}: {path}); {next}, or ask the platform team to change the policy");
        Problem { line: None, field: field.to_owned(), message }
    }
}

fn limit_class(class: Class) -> LimitClass {
    match class {
        Class::Native => LimitClass::Native,
        Class::Interpreter => LimitClass::Interpreter,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Rules of one namespace, of the cluster, and the defaults.
    const POLICY: &str = "
apiVersion: podium.dev/v1alpha1
kind: Policy
spec:
  defaults:
    serviceAccountRequired: true
    limits: { classes: [native], memoryMiB: 16, cpuMillis: 10, wallMillis: 1000,
      hostCalls: 500, writes: 5, logKiB: 8, reuse: 3,
      writesPerSecond: 30, liveReadsPerSecond: 40, eventsPerSecond: 9 }
  namespaces:
    shop: { serviceAccountRequired: false, limits: { classes: [native, interpreter], memoryMiB: 64 } }
    kube-system: { excluded: true, serviceAccountRequired: true }
  cluster: { limits: { memoryMiB: 128, writes: 0 } }
";

    fn policy(yaml: &str) -> Policy {
        let spec = podium_config::policy(yaml).unwrap_or_else(|problems| panic!("{problems:?}")).spec;
        Policy::from_spec(Path::new("policy.yaml"), spec).unwrap()
    }

    /// A plugin of a namespace or of the cluster, with further lines of `spec`.
    fn plugin(namespace: Option<&str>, spec: &str) -> PluginSpec {
        let (kind, namespace) = match namespace {
            Some(namespace) => ("ReconcilePlugin", format!(", namespace: {namespace}")),
            None => ("ClusterReconcilePlugin", String::new()),
        };
        let yaml = format!(
            "apiVersion: podium.dev/v1alpha1\nkind: {kind}\nmetadata: {{ name: a{namespace} }}\n\
             spec:\n  source: {{ file: a.wasm }}\n{spec}\n"
        );
        let document = podium_config::plugins(&yaml).unwrap().remove(0);
        podium_config::spec(document.content.unwrap_or_else(|problems| panic!("{problems:?}")), Path::new(""))
    }

    fn fields(policy: &Policy, plugin: &PluginSpec) -> Vec<String> {
        policy.problems(plugin).into_iter().map(|problem| problem.field).collect()
    }

    const MODEST: &str = "  limits: { memoryMiB: 16, cpuMillis: 10, wallMillis: 1000, hostCalls: 500, writes: 5, \
         logKiB: 8, reuse: 3, writesPerSecond: 30, liveReadsPerSecond: 40, eventsPerSecond: 9 }";

    #[test]
    fn force_is_permitted_unless_a_rule_says_otherwise() {
        let grant = |force: &str| {
            format!(
                "  serviceAccountName: a\n  grants: {{ write: {{ objects: [{{ apiVersion: v1, kind: ConfigMap, \
                 resource: configmaps{force} }}] }} }}"
            )
        };
        let policy = policy(
            "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: { defaults: { forcePermitted: false }, namespaces: \
             { shop: { forcePermitted: true } } }",
        );
        let forced = plugin(Some("bank"), &grant(", force: true"));
        let problems = policy.problems(&forced);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].message.contains("spec.defaults.forcePermitted"), "{problems:?}");
        assert_eq!(problems[0].field, "spec.grants.write.objects");
        let of_cluster = format!("  serviceAccountNamespace: shop\n{}", grant(", force: true"));
        assert_eq!(fields(&policy, &plugin(None, &of_cluster)), ["spec.grants.write.objects"]);
        for (namespace, force) in [("shop", ", force: true"), ("bank", ""), ("bank", ", force: false")] {
            assert_eq!(fields(&policy, &plugin(Some(namespace), &grant(force))), [""; 0], "{namespace} {force}");
        }
    }

    #[test]
    fn each_limit_is_permitted_up_to_its_ceiling() {
        let policy = policy(POLICY);
        let account = "  serviceAccountName: podium\n";
        assert_eq!(fields(&policy, &plugin(Some("bank"), &format!("{account}{MODEST}"))), [""; 0]);
        for (field, value) in [
            ("memoryMiB", 16),
            ("cpuMillis", 10),
            ("wallMillis", 1000),
            ("hostCalls", 500),
            ("writes", 5),
            ("logKiB", 8),
            ("reuse", 3),
            ("writesPerSecond", 30),
            ("liveReadsPerSecond", 40),
            ("eventsPerSecond", 9),
        ] {
            let above = MODEST.replace(&format!("{field}: {value}"), &format!("{field}: {}", value + 1));
            let problems = policy.problems(&plugin(Some("bank"), &format!("{account}{above}")));
            let [problem] = &problems[..] else { panic!("{field}: {problems:?}") };
            assert_eq!(problem.field, format!("spec.limits.{field}"));
            assert_eq!(
                problem.message,
                format!(
                    "is {}, and plugins of namespace bank may have at most {value} (policy.yaml: \
                     spec.defaults.limits.{field}); set it to at most {value}, or ask the platform team to change the \
                     policy",
                    value + 1
                )
            );
        }
        let all = ["memoryMiB", "cpuMillis", "wallMillis", "hostCalls", "writes", "logKiB", "writesPerSecond"];
        let all = all.into_iter().chain(["liveReadsPerSecond", "eventsPerSecond"]).collect::<Vec<_>>();
        assert_eq!(
            fields(&policy, &plugin(Some("bank"), account)),
            all.iter().map(|field| format!("spec.limits.{field}")).collect::<Vec<_>>()
        );
    }

    #[test]
    fn every_limit_of_a_plugin_has_a_ceiling() {
        let Limits {
            class: _,
            memory_bytes: _,
            cpu: _,
            wall: _,
            host_calls: _,
            writes: _,
            log_bytes: _,
            reuse: _,
            requests: RequestRates { writes: _, live_reads: _, events: _ },
        } = Limits::default();
        let schema = podium_config::plugin_schema();
        let of_plugins =
            schema.pointer("/properties/spec/properties/limits/properties").and_then(|all| all.as_object());
        let mut names: Vec<&str> =
            LIMITS.iter().map(|limit| limit.field).chain(["class", "reuseInterpreter"]).collect();
        names.sort_unstable();
        assert_eq!(of_plugins.unwrap().keys().map(String::as_str).collect::<Vec<_>>(), names);
    }

    #[test]
    fn a_class_that_is_not_permitted_is_refused_with_those_that_are() {
        let policy = policy(POLICY);
        let interpreter =
            MODEST.replace("{", "{ class: interpreter, reuseInterpreter: true,") + "\n  serviceAccountName: podium";
        let problems = policy.problems(&plugin(Some("bank"), &interpreter));
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(problem.field, "spec.limits.class");
        assert!(
            problem.message.starts_with("is interpreter, and plugins of namespace bank may have native (policy.yaml: ")
        );
        assert_eq!(fields(&policy, &plugin(Some("shop"), &interpreter)), [""; 0]);
    }

    #[test]
    fn scripts_are_permitted_without_required_signatures_or_by_a_list() {
        const KEY: &str = "-----BEGIN PUBLIC KEY-----\n\
            MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEPlDFDYGACj+EvYOSlwQT9aUleMBV\n\
            wHWIcVIOBJTe3AzVIiPxkkLYxw7Nk36x3ZKtSm7fWLFKZ0mtUWTvLXdoMg==\n-----END PUBLIC KEY-----\n";
        let of = |rules: &str| {
            let key = serde_json::json!([KEY]);
            let signed = format!("images: {{ signatureRequired: true, signatureKeys: {key} }}");
            let defaults = rules.replace("SIGNED", &signed);
            policy(&format!(
                "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {{ defaults: {{ {defaults} }}, \
                 namespaces: {{ bank: {{ scripts: {{ languages: [] }} }} }} }}\n"
            ))
        };
        let script = |namespace| PluginSpec { language: Some(Language::JavaScript), ..plugin(Some(namespace), "") };
        let languages = "scripts: { languages: [javascript] }";
        for (rules, place) in [
            ("", None),
            // A script has no class of its own.
            ("limits: { classes: [interpreter] }", None),
            (languages, None),
            ("SIGNED", Some("spec.defaults.images.signatureRequired")),
            (&format!("SIGNED, {languages}"), None),
            ("scripts: { languages: [] }", Some("spec.defaults.scripts.languages")),
        ] {
            let problems = of(rules).problems(&script("shop"));
            let expected = place.map(|place| format!("policy.yaml: {place}"));
            assert_eq!(problems.len(), usize::from(place.is_some()), "{rules}: {problems:?}");
            for problem in &problems {
                assert_eq!(problem.field, "spec.source.script.language");
                assert!(problem.message.contains(expected.as_deref().unwrap()), "{rules}: {problem:?}");
            }
            let problems = of(rules).problems(&script("bank"));
            assert!(problems[0].message.contains("spec.namespaces.bank.scripts.languages"), "{problems:?}");
        }
        // A list of all tenants does not lift what one namespace requires.
        let strict = |own: &str| {
            let key = serde_json::json!([KEY]);
            policy(&format!(
                "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {{ defaults: {{ {languages} }}, namespaces: {{ \
                 shop: {{ images: {{ signatureRequired: true, signatureKeys: {key} }}{own} }} }} }}\n"
            ))
        };
        let problems = strict("").problems(&script("shop"));
        assert!(problems.len() == 1 && problems[0].message.contains("spec.namespaces.shop.images"), "{problems:?}");
        assert_eq!(strict(&format!(", {languages}")).problems(&script("shop")), []);
        assert_eq!(strict("").problems(&script("other")), []);
    }

    #[test]
    fn a_rule_of_a_section_replaces_only_that_rule_of_the_defaults() {
        let policy = policy(POLICY);
        let large = MODEST.replace("memoryMiB: 16", "memoryMiB: 64");
        assert_eq!(fields(&policy, &plugin(Some("shop"), &large)), [""; 0], "more memory, and no account is needed");
        let larger = large.replace("memoryMiB: 64", "memoryMiB: 65").replace("writes: 5", "writes: 6");
        let problems = policy.problems(&plugin(Some("shop"), &larger));
        let [memory, writes] = &problems[..] else { panic!("{problems:?}") };
        assert!(memory.message.contains("policy.yaml: spec.namespaces.shop.limits.memoryMiB"), "{memory:?}");
        assert!(writes.message.contains("policy.yaml: spec.defaults.limits.writes"), "{writes:?}");

        let problems = policy.problems(&plugin(None, &larger));
        let [account, writes] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(account.field, "spec.serviceAccountName");
        let message = "is 6, and plugins of the cluster may have at most 0 (policy.yaml: spec.cluster.limits.writes)";
        assert!(writes.message.starts_with(message), "{writes:?}");
    }

    #[test]
    fn a_required_account_is_asked_of_plugins_that_have_none() {
        let policy = policy(POLICY);
        let problems = policy.problems(&plugin(Some("bank"), MODEST));
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(problem.field, "spec.serviceAccountName");
        assert!(problem.message.contains("(policy.yaml: spec.defaults.serviceAccountRequired)"), "{problem:?}");
    }

    #[test]
    fn no_plugin_of_an_excluded_tenant_is_permitted() {
        let policy = policy(POLICY);
        let problems = policy.problems(&plugin(Some("kube-system"), ""));
        let [problem] = &problems[..] else { panic!("one reason is enough: {problems:?}") };
        assert_eq!(problem.field, "metadata.namespace");
        let message = "is kube-system, and plugins of namespace kube-system are excluded (policy.yaml: \
            spec.namespaces.kube-system.excluded)";
        assert!(problem.message.starts_with(message), "{problem:?}");
        assert_eq!(fields(&policy, &plugin(Some("kube-system-2"), MODEST)), ["spec.serviceAccountName"], "exact names");
    }

    #[test]
    fn excluding_the_defaults_leaves_the_listed_tenants() {
        let head = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  defaults: { excluded: true }\n";
        let listed = policy(&format!("{head}  namespaces: {{ shop: {{ excluded: false }} }}\n"));
        let verdicts = [Some("shop"), Some("bank"), None].map(|namespace| fields(&listed, &plugin(namespace, "")));
        assert_eq!(verdicts, [vec![], vec!["metadata.namespace".to_owned()], vec!["kind".to_owned()]]);
    }

    #[test]
    fn requests_fall_back_to_the_defaults_field_by_field() {
        let set = POLICY.replace("defaults:", "defaults:\n    requests: { writesPerSecond: 7, eventsPerSecond: 3 }");
        let set = policy(&set.replace("shop: {", "shop: { requests: { writesPerSecond: 9 },"));
        let rates = |tenant| {
            let RequestRates { writes, live_reads, events } = set.request_rates(&tenant);
            [writes, live_reads, events]
        };
        assert_eq!(rates(Tenant::Namespace("shop".into())), [9, 200, 3]);
        assert_eq!(rates(Tenant::Namespace("bank".into())), [7, 200, 3]);
        assert_eq!(policy(POLICY).request_rates(&Tenant::Cluster), RequestRates::OF_TENANT);
    }

    #[test]
    fn the_compiled_code_of_a_tenant_is_bounded_by_the_policy() {
        let set = POLICY.replace("defaults:", "defaults:\n    compiledCodeMiB: 100");
        let set = policy(&set.replace("shop: {", "shop: { compiledCodeMiB: 1,"));
        let tenants = ["shop", "bank"].map(|name| Tenant::Namespace(name.into()));
        let bytes = |policy: &Policy| {
            [&tenants[0], &tenants[1], &Tenant::Cluster].map(|tenant| policy.compiled_code_bytes(tenant))
        };
        assert_eq!(bytes(&set), [1, 100, 100].map(|mib| Some(mib << 20)));
        assert_eq!(bytes(&policy(POLICY)), [None; 3]);
    }

    #[test]
    fn an_empty_policy_permits_everything() {
        let empty = policy("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {}\n");
        for namespace in [Some("kube-system"), None] {
            let most = "  limits: { class: interpreter, memoryMiB: 256, cpuMillis: 10000, wallMillis: 60000, \
                        hostCalls: 1000000, writes: 1000, logKiB: 1024, reuse: 1000, reuseInterpreter: true }";
            assert_eq!(fields(&empty, &plugin(namespace, most)), [""; 0]);
        }
    }

    #[test]
    fn a_file_that_is_no_policy_is_an_error_with_file_and_field() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policy.yaml");
        let error = |text: Option<&str>| {
            let _ = fs::remove_file(&file);
            if let Some(text) = text {
                fs::write(&file, text).unwrap();
            }
            let errors: Vec<String> = Policy::read(&file).unwrap_err().iter().map(ToString::to_string).collect();
            assert!(errors.iter().all(|error| error.contains("policy.yaml")), "{errors:?}");
            errors
        };
        assert!(error(None)[0].contains("cannot be read"));
        assert!(error(Some(""))[0].ends_with("has no document; a policy is one document of kind Policy"));
        let of_plugin = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: { name: a }\nspec: {}\n";
        let [kind, metadata] = &error(Some(of_plugin))[..] else { panic!("{:?}", error(Some(of_plugin))) };
        assert!(metadata.contains(":3: metadata: is not a known field; known here: apiVersion, kind, spec"));
        assert!(kind.contains(":2: kind: must be Policy"), "{kind}");
        assert_eq!(error(Some(&POLICY.replace("native", "huge").replace("true", "1"))).len(), 5);
        fs::write(&file, POLICY).unwrap();
        assert_eq!(Policy::read(&file).unwrap().spec, policy(POLICY).spec);
    }
}
