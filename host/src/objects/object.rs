//! A plugin object as the API server has it, read from JSON. Pure.

use std::{sync::Arc, time::Duration};

use podium_config::Problem;
use podium_vocabulary::{KeyPattern, PluginId, PluginSpec, json, syntax, text};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use crate::config;

/// The API group and version of all kinds.
pub(crate) const API_VERSION: &str = "podium.dev/v1alpha1";
/// The finalizer of objects whose plugins may hold finalizers of Pods.
pub(crate) const FINALIZER: &str = "podium.dev/pod-finalizers";

/// The kinds of objects: two of plugins, and that of questions about runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Namespaced,
    Cluster,
    RunReport,
}

impl Kind {
    /// The kinds of plugins.
    pub(crate) const ALL: [Self; 2] = [Self::Namespaced, Self::Cluster];

    /// Returns the kind of the plugin's object.
    pub(crate) fn from_id(id: &PluginId) -> Self {
        if id.namespace.is_some() { Self::Namespaced } else { Self::Cluster }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Namespaced => "ReconcilePlugin",
            Self::Cluster => "ClusterReconcilePlugin",
            Self::RunReport => "RunReport",
        }
    }

    /// Returns the plural in paths and in RBAC.
    pub(crate) const fn resource(self) -> &'static str {
        match self {
            Self::Namespaced => "reconcileplugins",
            Self::Cluster => "clusterreconcileplugins",
            Self::RunReport => "runreports",
        }
    }
}

/// The most bytes of a spec or a status that are parsed. A spec without mistakes has less, and JSON of few bytes can
/// take a hundred times as many in memory.
const MAX_BYTES: usize = 256 << 10;
/// The most finalizers that are released although the spec has mistakes: those of a spec without.
const MOST_FINALIZERS: usize = 256;
/// The most bytes of the finalizers of a spec that was forgotten. A tenant may have very many of these.
const MOST_FORGOTTEN_BYTES: usize = 1 << 10;

/// A spec, or a part of one, as text, with members in order, because the values in it would take up to a hundred times
/// the memory of their text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spec(Arc<str>);

impl Spec {
    pub(crate) fn new(value: &Value) -> Self {
        Self(value.to_string().into())
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Returns the text, which is shared.
    pub(crate) fn shared(&self) -> Arc<str> {
        self.0.clone()
    }

    /// Parses the text.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// One plugin object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Object {
    pub(crate) id: PluginId,
    pub(crate) uid: String,
    /// Grows with each change of the spec.
    pub(crate) generation: i64,
    /// The resourceVersion.
    pub(crate) revision: String,
    /// The object is being deleted and waits for a finalizer.
    pub(crate) deleting: bool,
    /// The position of [`FINALIZER`] among the object's finalizers; `None` if the object does not have it.
    pub(crate) held: Option<usize>,
    /// The creationTimestamp, of which a later one is greater as text.
    pub(crate) created: String,
    /// Null if it cannot be read, or was forgotten.
    pub(crate) spec: Spec,
    /// The bytes of the spec's text, also after it was forgotten.
    pub(crate) spec_bytes: usize,
    /// Null if there is none, or one that is too large to be the host's.
    pub(crate) status: Arc<Value>,
    /// The plugin, or every mistake in the spec.
    pub(crate) plugin: Result<Arc<PluginSpec>, Arc<[Problem]>>,
    /// The plugin as far as finalizers of Pods need it, if the spec has mistakes.
    pub(crate) finalizing: Option<Arc<PluginSpec>>,
}

#[derive(Deserialize)]
pub(super) struct Wire<'a> {
    pub(super) metadata: Metadata,
    #[serde(borrow)]
    pub(super) spec: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) status: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    pub(super) uid: String,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    resource_version: String,
    pub(super) deletion_timestamp: Option<String>,
    #[serde(default)]
    creation_timestamp: String,
    #[serde(default)]
    finalizers: Vec<String>,
}

impl Object {
    /// Reads an object. A spec that nests deeper than JSON is read here is a mistake of this object, and does not keep
    /// the others of its list from being read.
    ///
    /// # Errors
    /// Returns an error for JSON without a name or a uid, or with a name that cannot be in a path.
    pub(crate) fn read(kind: Kind, json: &str) -> Result<Self, String> {
        let unreadable = |error: serde_json::Error| text::line(&error.to_string());
        let Wire { metadata, spec, status } = serde_json::from_str(json).map_err(unreadable)?;
        let Metadata { name, namespace, uid, generation, resource_version, .. } = &metadata;
        let name = name.clone();
        let namespace = namespace.clone();
        let namespace = namespace.filter(|_| kind == Kind::Namespaced);
        syntax::dns_subdomain(&name).map_err(|rule| format!("metadata.name {rule}"))?;
        if let Some(namespace) = &namespace {
            syntax::dns_label(namespace).map_err(|rule| format!("metadata.namespace {rule}"))?;
        } else if kind == Kind::Namespaced {
            return Err("metadata.namespace is missing".to_owned());
        }
        let id = PluginId { namespace: namespace.as_deref().map(Into::into), name: (*name).into() };
        let (value_of_spec, plugin) = match value(spec) {
            Ok(spec) => {
                let plugin = plugin(kind, &id, &spec);
                (spec, plugin)
            }
            Err(message) => (Value::Null, Err(vec![Problem { line: None, field: "spec".to_owned(), message }])),
        };
        let finalizing = spec.filter(|_| plugin.is_err()).and_then(|spec| finalizing(&id, spec.get()));
        let spec = value_of_spec;
        let text = Spec::new(&spec);
        let mut object = Self {
            id,
            uid: uid.clone(),
            generation: *generation,
            revision: resource_version.clone(),
            deleting: metadata.deletion_timestamp.is_some(),
            held: metadata.finalizers.iter().position(|name| name == FINALIZER),
            created: metadata.creation_timestamp,
            spec_bytes: text.text().len(),
            spec: text,
            status: value(status).unwrap_or_default().into(),
            plugin: plugin.map(Arc::new).map_err(Into::into),
            finalizing: None,
        };
        object.finalizing = finalizing.filter(|spec| object.may_hold(spec)).map(Arc::new);
        Ok(object)
    }

    /// Returns true if a plugin with this part of a spec may hold finalizers of Pods.
    fn may_hold(&self, spec: &PluginSpec) -> bool {
        !spec.grants.write.finalizers.is_empty() || self.has_held()
    }
}

impl Object {
    /// Returns the plugin as far as finalizers of Pods need it, if it may hold any: also if the spec has mistakes.
    pub(crate) fn of_finalizers(&self) -> Option<Arc<PluginSpec>> {
        let spec = self.plugin.as_ref().ok().or(self.finalizing.as_ref())?;
        (!spec.grants.write.finalizers.is_empty()).then(|| spec.clone())
    }

    /// Returns true if the status says that a version of this generation runs, or ran in a host that ended.
    pub(crate) fn has_run(&self) -> bool {
        self.status["active"]["generation"].as_i64() == Some(self.generation)
    }

    /// Returns true if the status says that a host let the plugin hold finalizers of Pods. Nothing but a host writes
    /// it, whereas anyone who may write an object may write its metadata.
    pub(crate) fn has_held(&self) -> bool {
        !self.held_names().is_empty()
    }

    fn held_names(&self) -> &[Value] {
        self.status["finalizers"]["names"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the plugin with the finalizers that a host before may have let it hold: those that the status names, and
    /// of an object with the host's finalizer those that its spec grants. `None` also if the account is not known, as
    /// which they are removed.
    pub(crate) fn may_have_held(&self) -> Option<Arc<PluginSpec>> {
        if !self.has_held() {
            return self.of_finalizers().filter(|_| self.held.is_some());
        }
        let mut spec = PluginSpec::clone(self.plugin.as_ref().ok().or(self.finalizing.as_ref())?);
        let finalizers = &mut spec.grants.write.finalizers;
        if self.held.is_none() {
            finalizers.clear();
        }
        let names = self.held_names().iter().filter_map(Value::as_str).filter(|name| is_pattern(name));
        let names = names.map(|name| KeyPattern(name.to_owned())).filter(|name| !finalizers.contains(name));
        let names: Vec<_> = names.take(MOST_FINALIZERS).collect();
        finalizers.extend(names);
        (!finalizers.is_empty()).then(|| spec.into())
    }

    /// Returns an object of which only this is known.
    pub(super) fn unread(id: &PluginId, uid: &str, generation: i64, revision: &str) -> Self {
        let spec = Spec::new(&Value::Null);
        Self {
            id: id.clone(),
            uid: uid.to_owned(),
            generation,
            revision: revision.to_owned(),
            deleting: false,
            held: None,
            created: String::new(),
            spec_bytes: spec.text().len() + 1,
            spec,
            status: Arc::default(),
            plugin: Err([].into()),
            finalizing: None,
        }
    }

    /// Frees the memory of everything in a spec that has some, except few finalizers: Pods may have them.
    pub(super) fn forget_spec(&mut self) {
        let known = self.finalizing.take();
        let known = known.or_else(|| finalizing(&self.id, self.spec.text()).map(Arc::new));
        let bytes = |spec: &PluginSpec| spec.grants.write.finalizers.iter().map(|name| name.0.len()).sum::<usize>();
        self.finalizing = known.filter(|spec| self.may_hold(spec) && bytes(spec) <= MOST_FORGOTTEN_BYTES);
        if self.spec_bytes > 64 {
            self.spec = Spec::new(&Value::Null);
            self.plugin = Err([].into());
        }
    }

    /// Returns true if the spec was forgotten.
    pub(super) fn is_forgotten(&self) -> bool {
        self.spec_bytes > self.spec.text().len()
    }

    /// Has the parts of an earlier state in place of equal ones, so that the object, the version that runs and the last
    /// write of the status have them in memory once.
    pub(super) fn share(&mut self, before: &Self) {
        fn part<T: Clone + PartialEq>(part: &mut T, before: &T) {
            if part == before {
                *part = before.clone();
            }
        }
        part(&mut self.spec, &before.spec);
        part(&mut self.plugin, &before.plugin);
        part(&mut self.finalizing, &before.finalizing);
        part(&mut self.status, &before.status);
    }

    /// Returns the order in which plugins have the finalizers that several may hold of the same Pods.
    pub(super) fn precedence(&self) -> (bool, &str, &PluginId) {
        (self.id.namespace.is_some(), &self.created, &self.id)
    }
}

/// The least `releaseAfterSeconds` of a spec without mistakes.
const LEAST_RELEASE_SECONDS: u64 = 60;

/// The part of a spec that is about finalizers of Pods.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfFinalizers<'a> {
    service_account_name: Option<String>,
    service_account_namespace: Option<String>,
    #[serde(default)]
    grants: OfGrants,
    #[serde(borrow)]
    finalizers: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct OfGrants {
    #[serde(default)]
    write: OfWrites,
}

#[derive(Default, Deserialize)]
struct OfWrites {
    #[serde(default)]
    finalizers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Release {
    release_after_seconds: u64,
}

/// Returns a plugin with the account and the finalizers of a spec that has mistakes, is too large, or nests too deep,
/// also with finalizers that are not granted any more and were when the plugin was loaded.
pub(crate) fn finalizing(id: &PluginId, spec: &str) -> Option<PluginSpec> {
    let OfFinalizers { service_account_name, service_account_namespace, grants, finalizers } =
        serde_json::from_str(spec).ok()?;
    let source = json!({ "configMap": { "name": "a", "key": "a", "sha256": "0".repeat(64) } });
    let of = json!({
        "source": source,
        "serviceAccountName": service_account_name,
        "serviceAccountNamespace": service_account_namespace,
    });
    let mut plugin = plugin(Kind::from_id(id), id, &of).ok()?;
    let release = finalizers.and_then(|release| serde_json::from_str::<Release>(release.get()).ok());
    plugin.release_after =
        release.map(|release| Duration::from_secs(release.release_after_seconds.max(LEAST_RELEASE_SECONDS)));
    let patterns = grants.write.finalizers.into_iter().filter(|text| is_pattern(text)).take(MOST_FINALIZERS);
    plugin.grants.write.finalizers = patterns.map(KeyPattern).collect();
    Some(plugin)
}

/// Returns true for the name of a finalizer, or the beginning of one and `*`.
fn is_pattern(text: &str) -> bool {
    let name = text.strip_suffix('*').map(|prefix| format!("{prefix}a"));
    text.contains('/') && syntax::qualified_name(name.as_deref().unwrap_or(text)).is_ok()
}

/// Returns the account and the finalizers of a plugin, which [`finalizing`] reads.
pub(crate) fn of_finalizers(spec: &PluginSpec) -> Value {
    let account = spec.account();
    let finalizers: Vec<_> = spec.grants.write.finalizers.iter().map(|pattern| &pattern.0).collect();
    json!({
        "serviceAccountName": account.map(|(_, name)| name),
        "serviceAccountNamespace": account.filter(|_| spec.id.namespace.is_none()).map(|(namespace, _)| namespace),
        "grants": { "write": { "finalizers": finalizers } },
    })
}

/// Returns the status in the API server's answer to a write of it; null if it has none that can be read. The tenant's
/// spec is not parsed.
pub(crate) fn status_in(answer: &[u8]) -> Value {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        status: Option<&'a RawValue>,
    }
    let answer = serde_json::from_slice(answer).ok();
    answer.and_then(|Answer { status }| value(status).ok()).unwrap_or_default()
}

/// Parses a spec or a status; null if there is none.
///
/// # Errors
/// Returns the mistake of one that is too large, or nests too deep.
fn value(raw: Option<&RawValue>) -> Result<Value, String> {
    let Some(raw) = raw.map(RawValue::get) else { return Ok(Value::Null) };
    if raw.len() > MAX_BYTES {
        return Err(format!("has {} bytes as JSON; at most {MAX_BYTES}", raw.len()));
    }
    json::value(raw.as_bytes()).map_err(|error| format!("cannot be read: {}", text::line(&error.to_string())))
}

fn plugin(kind: Kind, id: &PluginId, spec: &Value) -> Result<PluginSpec, Vec<Problem>> {
    let mut metadata = json!({ "name": &*id.name });
    if let Some(namespace) = &id.namespace {
        metadata["namespace"] = (**namespace).into();
    }
    config::object(&json!({ "apiVersion": API_VERSION, "kind": kind.name(), "metadata": metadata, "spec": spec }))
}

/// Returns the plugin of a spec that was read before.
///
/// # Errors
/// Returns the mistakes in it; this host may know other rules than the one that read it.
pub(crate) fn plugin_again(id: &PluginId, spec: &Value) -> Result<PluginSpec, Vec<Problem>> {
    plugin(Kind::from_id(id), id, spec)
}

/// The fields of a spec that permit something. `PluginSpec::permits` compares them.
const PERMISSIONS: [&str; 6] =
    ["suspend", "serviceAccountName", "serviceAccountNamespace", "grants", "limits", "stateGroup"];

/// Returns what a spec with mistakes permits: its permissions, with everything else of the last spec without mistakes.
/// `None` if the mistakes are in the permissions, so that nothing is known to be permitted.
pub(crate) fn permissions(id: &PluginId, spec: &Value, last_good: &Value) -> Option<PluginSpec> {
    let mut merged = last_good.as_object()?.clone();
    let spec = spec.as_object()?;
    for field in PERMISSIONS {
        match spec.get(field) {
            Some(value) => drop(merged.insert(field.to_owned(), value.clone())),
            None => drop(merged.remove(field)),
        }
    }
    plugin(Kind::from_id(id), id, &merged.into()).ok()
}

#[cfg(test)]
pub(crate) mod tests;
