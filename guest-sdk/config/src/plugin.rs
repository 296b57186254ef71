//! The configuration of a plugin: the document in `plugin.yaml`.
//!
//! The comments of these types are what editors show to an author; docs/configuration.md has the reasons.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    schema,
    text::{
        AnnotationPattern, ApiVersion, ConditionPattern, ConfigMapKey, DnsLabel, DnsSubdomain, FieldPath,
        FinalizerPattern, Image, InputKind, InputResource, LabelPattern, LabelValue, NonEmpty, ObjectKind,
        ObjectResource, QualifiedName, ScriptText, Sha256,
    },
};

/// The most requirements of a selector, labels and expressions together.
pub const MOST_REQUIREMENTS: usize = 32;
/// The most values of a requirement.
pub const MOST_VALUES: usize = 64;
/// The most entries of a list of grants.
pub const MOST_GRANTS: usize = 256;
/// The most names in `spec.after`.
pub const MOST_AFTER: usize = 32;
/// The most entries of `spec.inputs`.
pub const MOST_INPUTS: usize = 8;
/// The most fields of an input.
const MOST_FIELDS: usize = 16;
/// The most entries of a list of sections.
const MOST_SECTIONS: usize = podium_wire::Section::ALL.len();
/// The most bytes of `spec.config` as JSON; every run has a copy.
pub const MAX_CONFIG_BYTES: usize = 64 << 10;
/// The most MiB of memory of a run.
pub const MOST_MEMORY_MIB: u16 = 256;

/// A reconciler of Pods, which Podium runs in a sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = schema::plugin)]
pub struct Plugin {
    /// The version of this schema.
    pub api_version: Version,
    /// The reach of a plugin.
    pub kind: Kind,
    /// The name of the plugin.
    pub metadata: Metadata,
    /// The plugin's component, the Pods that wake it, its grants and its limits. Nothing is granted by being left out.
    pub spec: Spec,
}

/// The version of this schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Version {
    /// The only version.
    #[serde(rename = "podium.dev/v1alpha1")]
    V1Alpha1,
}

/// The reach of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// Sees and writes Pods and objects of its own namespace only.
    ReconcilePlugin,
    /// Sees and writes Pods and objects of all namespaces; for platform teams.
    ClusterReconcilePlugin,
}

/// The name of the plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Metadata {
    /// A DNS name in lower case. Two plugins may not have the same namespace and name.
    pub name: DnsSubdomain,
    /// Required for a ReconcilePlugin, refused for a ClusterReconcilePlugin.
    #[serde(default)]
    pub namespace: Option<DnsLabel>,
    /// For your own tools; the host does not read them.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// For your own tools; the host does not read them.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// The plugin's component or script, the Pods that it watches, and its grants and limits. A field that is left out
/// grants nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Spec {
    /// Where the component or the script is.
    pub source: Source,
    /// The plugin is configured and not run, as if it were not there, until this is false again.
    #[serde(default)]
    pub suspend: bool,
    /// The plugin's writes are sent as this ServiceAccount of the plugin's namespace, so that the API server's RBAC
    /// holds for them too. Without it they are sent as the host's own account; the chart's admission policies and
    /// --require-service-account refuse such a plugin.
    #[serde(default)]
    pub service_account_name: Option<DnsSubdomain>,
    /// The namespace of serviceAccountName; only for a ClusterReconcilePlugin.
    #[serde(default)]
    pub service_account_namespace: Option<DnsLabel>,
    /// Which Pods and which of their changes the plugin runs for.
    #[serde(default)]
    pub watch: Watch,
    /// Permissions of the plugin.
    #[serde(default)]
    pub grants: Grants,
    /// Limits of one run, and of all runs together.
    #[serde(default)]
    pub limits: Limits,
    /// When the plugin runs among those of its tenant that one change of a Pod wakes.
    #[serde(default)]
    pub phase: Phase,
    /// Names of plugins of the same namespace and phase that run first.
    #[serde(default)]
    #[schemars(length(max = MOST_AFTER))]
    pub after: Vec<DnsSubdomain>,
    /// Plugins of the same namespace with the same state group share one state (state.get, state.put), with its bounds.
    /// Without it no other plugin has the plugin's state.
    #[serde(default)]
    pub state_group: Option<DnsLabel>,
    /// The end of the plugin's finalizers on Pods.
    #[serde(default)]
    pub finalizers: Finalizers,
    /// Any mapping; the plugin receives it as JSON, of at most 64 KiB.
    #[serde(default)]
    pub config: Map<String, Value>,
    /// Objects that each run receives as they are at its start, in the member `inputs` of config. They are read and
    /// watched as serviceAccountName, in its namespace; a change of one runs the plugin on all its Pods.
    #[serde(default)]
    #[schemars(length(max = MOST_INPUTS))]
    pub inputs: Vec<Input>,
}

/// An object that each run receives, or those with some labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Input {
    /// The name by which the plugin knows it.
    pub id: DnsLabel,
    /// Such as `v1`.
    pub api_version: ApiVersion,
    /// Such as `ConfigMap`; not Pod or Secret.
    pub kind: InputKind,
    /// The plural of the kind in paths of the API and in RBAC, such as `configmaps`.
    pub resource: InputResource,
    /// The name of the object. Either this or selector is required.
    #[serde(default)]
    pub name: Option<DnsSubdomain>,
    /// The labels of the objects, of which the plugin receives a list, ordered by name; at most 64 objects.
    #[serde(default)]
    pub selector: Option<Selector>,
    /// The fields that the plugin receives, such as `data` or `spec.prices`; data and spec by default. All inputs
    /// together have at most 128 KiB as JSON.
    #[serde(default)]
    #[schemars(length(min = 1, max = MOST_FIELDS))]
    pub fields: Option<Vec<FieldPath>>,
}

/// Where the component or the script is: one of the fields.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// The component's file; a relative path begins at the configuration file's directory.
    #[serde(default)]
    pub file: Option<NonEmpty>,
    /// A key of a ConfigMap.
    #[serde(default)]
    pub config_map: Option<ConfigMapSource>,
    /// An image of an OCI registry, as `podium push` makes it.
    #[serde(default)]
    pub oci: Option<OciSource>,
    /// A script instead of a component. Nothing is built: a runner of the host executes it.
    #[serde(default)]
    pub script: Option<Script>,
}

/// A script, itself or in a ConfigMap.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Script {
    /// The language.
    pub language: Language,
    /// The script, of at most 64 KiB.
    #[serde(default)]
    pub inline: Option<ScriptText>,
    /// A key of a ConfigMap with a script of at most 512 KiB.
    #[serde(default)]
    pub config_map: Option<ConfigMapSource>,
}

/// The language of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Language {
    /// JavaScript, one module.
    #[serde(rename = "javascript")]
    JavaScript,
    /// Python, one module.
    #[serde(rename = "python")]
    Python,
}

/// A component in an OCI registry. The platform's policy lists the registries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OciSource {
    /// HOST/REPOSITORY@sha256:DIGEST, or HOST/REPOSITORY:TAG where the platform permits tags. The digest is the one of
    /// the manifest.
    pub image: Image,
    /// A Secret with credentials for the registry, of type kubernetes.io/dockerconfigjson or kubernetes.io/dockercfg,
    /// in the namespace of the plugin's account. It is read as this account.
    #[serde(default)]
    pub pull_secret_name: Option<DnsSubdomain>,
}

/// A component or a script in a ConfigMap of the plugin's namespace, or of the account's for a ClusterReconcilePlugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigMapSource {
    /// The name of the ConfigMap.
    pub name: DnsSubdomain,
    /// The key below binaryData, or below data.
    pub key: ConfigMapKey,
    /// The SHA-256 of the component or script in hexadecimal digits. Without it, whoever may edit the ConfigMap could
    /// replace the code that has the plugin's grants.
    pub sha256: Sha256,
}

/// Which Pods and which of their changes the plugin runs for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Watch {
    /// The plugin runs for Pods whose labels match; by default for every Pod.
    #[serde(default)]
    pub selector: Selector,
    /// A change in one of these runs the plugin, and a change of lifecycle always does; by default all that are
    /// granted.
    #[serde(default)]
    #[schemars(length(max = MOST_SECTIONS))]
    pub sections: Option<Vec<Section>>,
    /// The plugin runs again for every Pod that matches after this time.
    #[serde(default)]
    #[schemars(range(min = 10, max = 604_800))]
    pub resync_seconds: Option<u32>,
    /// The plugin runs for groups of these Pods instead of for each Pod: once for all changes of a group, on the first
    /// living Pod of it, and once when its last Pod is gone.
    #[serde(default)]
    pub related: Option<Related>,
}

/// The groups of Pods that the plugin runs for. A Pod without the value is in no group, and a group has the Pods of one
/// namespace, except that of a node of a ClusterReconcilePlugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Related {
    /// The value that the Pods of a group have in common: workload needs the sections owners and labels, node needs
    /// spec, and label needs labels.
    pub by: RelatedBy,
    /// With by: label, the label's key.
    #[serde(default)]
    pub label: Option<QualifiedName>,
    /// A group runs at once after a change, and again at the earliest after this time; 1 by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = 3_600))]
    pub debounce_seconds: Option<u32>,
}

/// A value that Pods have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RelatedBy {
    /// The Deployment, StatefulSet, Job or other workload, through all its rollouts.
    Workload,
    /// The node.
    Node,
    /// The value of a label.
    Label,
}

/// The end of the plugin's finalizers on Pods.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finalizers {
    /// The host removes them, without a run of the plugin, from a Pod that has been deleted for so long. Without it the
    /// host does so only in a namespace that is being deleted, and when the plugin's object is deleted.
    #[serde(default)]
    #[schemars(range(min = 60, max = 31_536_000))]
    pub release_after_seconds: Option<u32>,
}

/// A label selector as in Kubernetes; at most 32 labels and expressions together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Selector {
    /// Labels that a Pod must have, with these values.
    #[serde(default)]
    #[schemars(schema_with = "schema::match_labels")]
    pub match_labels: BTreeMap<QualifiedName, LabelValue>,
    /// Requirements that all must hold.
    #[serde(default)]
    #[schemars(length(max = MOST_REQUIREMENTS))]
    pub match_expressions: Vec<Requirement>,
}

/// A requirement of a Pod's labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(transform = schema::requirement)]
pub struct Requirement {
    /// The label's key.
    pub key: QualifiedName,
    /// How the label is compared.
    pub operator: Operator,
    /// For In and NotIn only, and then at least one.
    #[serde(default)]
    #[schemars(length(max = MOST_VALUES))]
    pub values: Vec<LabelValue>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label has none of the values, or is not there.
    NotIn,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
}

/// Permissions of the plugin.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grants {
    /// Permissions to read.
    #[serde(default)]
    pub read: ReadGrants,
    /// Permissions to write.
    #[serde(default)]
    pub write: WriteGrants,
}

/// Permissions to read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadGrants {
    /// Without it the plugin sees no Pod but the one that it runs for, with its lifecycle only.
    #[serde(default)]
    pub pods: Option<PodReads>,
    /// Kinds of other objects that may be read from the API server (objects.get), as serviceAccountName.
    #[serde(default)]
    #[schemars(length(max = MOST_GRANTS))]
    pub objects: Vec<ReadGrant>,
}

/// A kind of objects that may be read; not Pod or Secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReadGrant {
    /// Such as `v1` or `apps/v1`.
    pub api_version: ApiVersion,
    /// Such as `Deployment`; not Pod or Secret.
    pub kind: InputKind,
    /// The plural of the kind in paths of the API and in RBAC, such as `deployments`.
    pub resource: InputResource,
}

/// The parts of Pods that the plugin may read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodReads {
    /// The parts of a Pod that the plugin receives; lifecycle is always among them.
    #[serde(default)]
    #[schemars(length(max = MOST_SECTIONS))]
    pub sections: Vec<Section>,
    /// The plugin may read from the API server instead of the cache (pods.get-live).
    #[serde(default)]
    pub live: bool,
}

/// Permissions to write. A key is exact (`team`) or ends in `*` after a domain (`shop.example/*`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WriteGrants {
    /// Keys of labels that may be set and removed.
    #[serde(default)]
    #[schemars(length(max = MOST_GRANTS))]
    pub labels: Vec<LabelPattern>,
    /// Keys of annotations that may be set and removed.
    #[serde(default)]
    #[schemars(length(max = MOST_GRANTS))]
    pub annotations: Vec<AnnotationPattern>,
    /// Finalizers that may be added and removed, on Pods and in templates of objects that are applied.
    #[serde(default)]
    #[schemars(length(max = MOST_GRANTS))]
    pub finalizers: Vec<FinalizerPattern>,
    /// Condition types that may be set and removed.
    #[serde(default)]
    #[schemars(length(max = MOST_GRANTS))]
    pub conditions: Vec<ConditionPattern>,
    /// Events about Pods may be sent.
    #[serde(default)]
    pub events: bool,
    /// Pods may be deleted.
    #[serde(default)]
    pub delete: bool,
    /// Pods may be evicted.
    #[serde(default)]
    pub evict: bool,
    /// Kinds of other objects that may be applied and deleted.
    #[serde(default)]
    #[schemars(length(max = MOST_GRANTS))]
    pub objects: Vec<ObjectGrant>,
    /// Kinds of other objects whose replicas may be set (objects.scale), as serviceAccountName.
    #[serde(default)]
    #[schemars(length(max = MOST_GRANTS))]
    pub scale: Vec<ScaleGrant>,
}

/// A kind of objects that may be applied and deleted; never Pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectGrant {
    /// Such as `v1` or `apps/v1`.
    pub api_version: ApiVersion,
    /// Such as `ConfigMap`.
    pub kind: ObjectKind,
    /// The plural of the kind in paths of the API and in RBAC, such as `configmaps`; never pods.
    pub resource: ObjectResource,
    /// An apply takes the fields that other managers own, also in an object that the plugin did not create.
    #[serde(default)]
    pub force: bool,
}

/// A kind of objects whose replicas may be set; never Pod.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScaleGrant {
    /// Such as `v1` or `apps/v1`.
    pub api_version: ApiVersion,
    /// Such as `ConfigMap`.
    pub kind: ObjectKind,
    /// The plural of the kind in paths of the API and in RBAC, such as `configmaps`; never pods.
    pub resource: ObjectResource,
}

/// Limits of one run, and of all runs together. A run that exceeds memory or time is ended, and none of its staged
/// writes are sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// How large the component may be and how long its compilation may take. Without effect for a script.
    pub class: Class,
    /// MiB of linear memory.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 1, max = 256))]
    pub memory_mib: u16,
    /// Milliseconds on the processor; at most wallMillis.
    #[schemars(range(min = 1, max = 10_000))]
    pub cpu_millis: u32,
    /// Milliseconds from start to end, waiting included.
    #[schemars(range(min = 10, max = 60_000))]
    pub wall_millis: u32,
    /// Calls of the host.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub host_calls: u32,
    /// Staged writes.
    #[schemars(range(min = 0, max = 1_000))]
    pub writes: u32,
    /// KiB of log.
    #[serde(rename = "logKiB")]
    #[schemars(range(min = 0, max = 1_024))]
    pub log_kib: u32,
    /// Runs that one instance of the component may perform, one after another. Above 1, what a run leaves in the
    /// instance's memory is there in later runs, also of other Pods.
    #[schemars(range(min = 1, max = 1_000))]
    pub reuse: u32,
    /// Required for reuse above 1 of a script and in class interpreter, where all state of the interpreter carries
    /// over.
    pub reuse_interpreter: bool,
    /// Requests to write per second, of all runs of the plugin together; ten seconds' worth of them at once. Runs wait
    /// for their turn.
    #[schemars(range(min = 1, max = 1_000))]
    pub writes_per_second: u32,
    /// Live reads (pods.get-live and objects.get) per second, of all runs together; ten seconds' worth of them at once.
    #[schemars(range(min = 1, max = 1_000))]
    pub live_reads_per_second: u32,
    /// Requests for Events per second, of all runs together; ten seconds' worth of them at once.
    #[schemars(range(min = 1, max = 1_000))]
    pub events_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            class: Class::default(),
            memory_mib: 32,
            cpu_millis: 20,
            wall_millis: 2_000,
            host_calls: 1_000,
            writes: 20,
            log_kib: 16,
            reuse: 1,
            reuse_interpreter: false,
            writes_per_second: 50,
            live_reads_per_second: 50,
            events_per_second: 20,
        }
    }
}

/// How large a component may be and how long its compilation may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    /// 8 MiB, 10 s of processor time to compile.
    #[default]
    Native,
    /// 32 MiB, 60 s; for guests that bring an interpreter along.
    Interpreter,
}

/// When a plugin is queued among those of its tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Before the plugins of the other phases.
    Before,
    /// Between the other phases.
    #[default]
    Main,
    /// After the plugins of the other phases.
    After,
}

/// A part of a Pod. `full` is the whole object and contains what the others leave out on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section(pub podium_wire::Section);

impl Section {
    pub(crate) fn named(name: &str) -> Option<podium_wire::Section> {
        podium_wire::Section::ALL.into_iter().find(|section| section.name() == name)
    }
}

impl Serialize for Section {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.name())
    }
}

impl<'de> Deserialize<'de> for Section {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name).map(Self).ok_or_else(|| serde::de::Error::custom("is not a section of a Pod"))
    }
}

impl JsonSchema for Section {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Section".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "enum": podium_wire::Section::ALL.map(podium_wire::Section::name) })
    }
}
