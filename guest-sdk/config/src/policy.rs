//! The policy of the platform: the document that `podium-host --policy` names. It bounds what configurations of plugins
//! may ask for.
//!
//! The comments of these types are what editors show; docs/policy.md has the reasons. A new bound is a field of
//! [`Rules`], so that it can be set for all tenants, for one namespace and for the cluster, and one line where the host
//! compares plugins with the policy.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    plugin::{Class, Language, Version},
    schema,
    text::{DnsLabel, NonEmpty, PublicKey, RegistryHost},
};

/// The most registries of a policy.
const MOST_REGISTRIES: usize = 64;
/// The most hosts that one registry redirects to.
const MOST_HOSTS: usize = 16;
/// The most keys of a section.
const MOST_KEYS: usize = 16;

/// The platform's bounds on plugins. A plugin that exceeds them is not loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// The version of this schema.
    pub api_version: Version,
    /// The kind of this document.
    pub kind: Kind,
    /// The rules.
    pub spec: Spec,
}

/// The kind of this document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// A platform's policy.
    Policy,
}

/// The rules by tenant. A rule that neither the tenant's own section nor defaults sets bounds nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// The registries that components may come from. The host connects to no other, whatever a plugin asks for.
    #[serde(default)]
    #[schemars(length(max = MOST_REGISTRIES))]
    pub registries: Vec<Registry>,
    /// Rules of every tenant whose own section does not set them.
    #[serde(default)]
    pub defaults: Rules,
    /// Rules of the ReconcilePlugins of one namespace, by its exact name. Each of them replaces that rule of defaults.
    #[serde(default)]
    #[schemars(schema_with = "schema::rules_by_namespace")]
    pub namespaces: BTreeMap<DnsLabel, Rules>,
    /// Rules of the ClusterReconcilePlugins. Each of them replaces that rule of defaults.
    #[serde(default)]
    pub cluster: Rules,
}

/// A registry that components may come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Registry {
    /// The host as images name it, with its port if it has one.
    pub host: RegistryHost,
    /// The registry is reached without TLS, so that whoever is on the way reads credentials.
    #[serde(default)]
    pub plain_http: bool,
    /// The addresses of the registry, and of the hosts that it redirects to, may be private or of this machine. Those
    /// of metadata services never are permitted.
    #[serde(default)]
    pub private_addresses: bool,
    /// A file with the only authorities of the registry's certificate, in PEM; by default those of the system. A
    /// relative path begins at the directory of the policy.
    #[serde(default)]
    pub ca_file: Option<NonEmpty>,
    /// Other hosts that the registry may send the host to, for blobs and for tokens. Those for tokens receive the
    /// credentials for this registry.
    #[serde(default)]
    #[schemars(length(max = MOST_HOSTS))]
    pub redirect_hosts: Vec<RegistryHost>,
}

/// The rules of a tenant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rules {
    /// No plugin of the tenant is loaded. This does not hide Pods of the namespace from ClusterReconcilePlugins.
    #[serde(default)]
    pub excluded: Option<bool>,
    /// Every plugin names a ServiceAccount, so that its writes are subject to RBAC of its own.
    #[serde(default)]
    pub service_account_required: Option<bool>,
    /// The most plugin objects of the tenant, 100 by default. The oldest run.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_plugins: Option<u32>,
    /// The most MiB of compiled code of all plugins of the tenant together, 256 by default.
    #[serde(default, rename = "compiledCodeMiB")]
    #[schemars(range(min = 1, max = 65_536))]
    pub compiled_code_mib: Option<u32>,
    /// Grants of objects may have force: true, which takes fields of other managers; true where no section sets it.
    #[serde(default)]
    pub force_permitted: Option<bool>,
    /// Requests to the API server per second of all plugins of the tenant together.
    #[serde(default)]
    pub requests: Requests,
    /// Rules of components in registries.
    #[serde(default)]
    pub images: Images,
    /// Rules of scripts.
    #[serde(default)]
    pub scripts: Scripts,
    /// Ceilings of spec.limits of a plugin.
    #[serde(default)]
    pub limits: Ceilings,
}

/// Rules of scripts, which are no components and have no signature.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scripts {
    /// The languages that a script may have; an empty list refuses every script. Where no section sets it, all are
    /// permitted, or none if images.signatureRequired.
    #[serde(default)]
    pub languages: Option<Vec<Language>>,
}

/// Rules of components in registries.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Images {
    /// An image may have a tag instead of a digest; false where no section sets it. Whoever may push the tag is then
    /// the plugin.
    #[serde(default)]
    pub tags_permitted: Option<bool>,
    /// Every image has a signature of cosign by one of signatureKeys, and no component comes from a ConfigMap.
    #[serde(default)]
    pub signature_required: Option<bool>,
    /// Public keys on the curve P-256 in PEM, as `cosign generate-key-pair` writes them.
    #[serde(default)]
    #[schemars(length(max = MOST_KEYS))]
    pub signature_keys: Option<Vec<PublicKey>>,
}

/// Ceilings of spec.limits of a plugin. They bound its defaults too: a plugin that leaves a field out uses the field's
/// default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ceilings {
    /// The classes that a plugin may have; a script has none.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub classes: Option<Vec<Class>>,
    /// The most MiB of linear memory.
    #[serde(default, rename = "memoryMiB")]
    #[schemars(range(min = 1, max = 256))]
    pub memory_mib: Option<u16>,
    /// The most milliseconds on the processor.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000))]
    pub cpu_millis: Option<u32>,
    /// The most milliseconds from start to end, waiting included.
    #[serde(default)]
    #[schemars(range(min = 10, max = 60_000))]
    pub wall_millis: Option<u32>,
    /// The most calls of the host.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub host_calls: Option<u32>,
    /// The most staged writes.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000))]
    pub writes: Option<u32>,
    /// The most KiB of log.
    #[serde(default, rename = "logKiB")]
    #[schemars(range(min = 0, max = 1_024))]
    pub log_kib: Option<u32>,
    /// The most runs of one instance; with 1 every run has an instance of its own.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000))]
    pub reuse: Option<u32>,
    /// The most requests to write per second.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000))]
    pub writes_per_second: Option<u32>,
    /// The most live reads per second.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000))]
    pub live_reads_per_second: Option<u32>,
    /// The most requests for Events per second.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1_000))]
    pub events_per_second: Option<u32>,
}

/// Requests to the API server per second of all plugins of the tenant together; ten seconds' worth of them at once. In
/// the section cluster, of each ClusterReconcilePlugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Requests {
    /// Requests to write, 200 by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000))]
    pub writes_per_second: Option<u32>,
    /// Live reads, 200 by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000))]
    pub live_reads_per_second: Option<u32>,
    /// Requests for Events, 80 by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000))]
    pub events_per_second: Option<u32>,
}
