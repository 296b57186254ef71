//! The fields that writes change, and digests of their values. Pure.

use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;
use podium_pods::pod::{CachedPod, PodView};
use podium_vocabulary::{Action, PodKey};
use serde_json::Value;

/// One field of a Pod, or an object of another kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Field {
    pub(in super::super) kind: FieldKind,
    pub(in super::super) name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in super::super) enum FieldKind {
    Label,
    Annotation,
    Finalizer,
    Condition,
    /// By deletion or eviction.
    Deletion,
    Object,
}

impl FieldKind {
    /// Returns the value of the metrics' label `field`.
    pub(in super::super) const fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Annotation => "annotation",
            Self::Finalizer => "finalizer",
            Self::Condition => "condition",
            Self::Deletion => "deletion",
            Self::Object => "object",
        }
    }
}

pub(in super::super) fn digest_of(value: impl Hash) -> u64 {
    FixedState::with_seed(0).hash_one(value)
}

fn text(value: Option<&String>) -> u64 {
    digest_of(value.map(String::as_str))
}

impl Field {
    /// Returns the field that a write changes, and a digest of the value that it sets. Values of objects are not
    /// distinguished.
    pub(in super::super) fn changed_by(action: &Action) -> (Self, u64) {
        let (kind, name, value) = match action {
            Action::SetLabel { key, value, .. } => (FieldKind::Label, key.clone(), text(Some(value))),
            Action::RemoveLabel { key, .. } => (FieldKind::Label, key.clone(), text(None)),
            Action::SetAnnotation { key, value, .. } => (FieldKind::Annotation, key.clone(), text(Some(value))),
            Action::RemoveAnnotation { key, .. } => (FieldKind::Annotation, key.clone(), text(None)),
            Action::AddFinalizer { name, .. } => (FieldKind::Finalizer, name.clone(), digest_of(true)),
            Action::RemoveFinalizer { name, .. } => (FieldKind::Finalizer, name.clone(), digest_of(false)),
            Action::SetCondition { condition_type, status, reason, message, .. } => {
                let value = digest_of(Some((status.as_str(), reason.as_str(), message.as_str())));
                (FieldKind::Condition, condition_type.clone(), value)
            }
            Action::RemoveCondition { condition_type, .. } => {
                (FieldKind::Condition, condition_type.clone(), no_condition())
            }
            Action::DeletePod { .. } | Action::EvictPod { .. } => (FieldKind::Deletion, String::new(), digest_of(true)),
            Action::ApplyObject { object, .. } | Action::DeleteObject { object, .. } => {
                (FieldKind::Object, object.to_string(), 0)
            }
        };
        (Self { kind, name }, value)
    }

    /// Returns a digest of the kind and the name.
    pub(in super::super) fn digest(&self) -> u64 {
        digest_of((self.kind, self.name.as_str()))
    }

    /// Returns a digest of the value in this state of the Pod; `None` for an object of another kind.
    pub(in super::super) fn value(&self, pod: &CachedPod) -> Option<u64> {
        Some(match self.kind {
            FieldKind::Label => text(pod.labels().ok()?.get(&self.name)),
            FieldKind::Annotation => text(pod.annotations().ok()?.get(&self.name)),
            FieldKind::Finalizer => digest_of(pod.lifecycle().ok()?.finalizers.contains(&self.name)),
            FieldKind::Condition => {
                let conditions = pod.status().ok()?.conditions;
                let held = conditions.iter().find(|held| held.condition_type == self.name);
                held.map_or_else(no_condition, |held| {
                    let text = |text: &Option<String>| text.clone().unwrap_or_default();
                    digest_of(Some((held.status.as_str(), text(&held.reason).as_str(), text(&held.message).as_str())))
                })
            }
            FieldKind::Deletion => digest_of(pod.lifecycle().ok()?.deletion_timestamp.is_some()),
            FieldKind::Object => return None,
        })
    }

    /// Removes the field from a Pod's JSON.
    pub(in super::super) fn remove_from(&self, pod: &mut Value) {
        let at = |pod: &mut Value, parent: &str, name: &str, remove: &dyn Fn(&mut Value)| {
            pod.get_mut(parent).and_then(|parent| parent.get_mut(name)).into_iter().for_each(remove);
        };
        let key = |map: &mut Value| drop(map.as_object_mut().and_then(|map| map.remove(&self.name)));
        match self.kind {
            FieldKind::Label => at(pod, "metadata", "labels", &key),
            FieldKind::Annotation => at(pod, "metadata", "annotations", &key),
            FieldKind::Finalizer => at(pod, "metadata", "finalizers", &|list| {
                if let Some(list) = list.as_array_mut() {
                    list.retain(|name| *name != self.name);
                }
            }),
            FieldKind::Condition => at(pod, "status", "conditions", &|list| {
                if let Some(list) = list.as_array_mut() {
                    list.retain(|held| held["type"] != self.name);
                }
            }),
            FieldKind::Deletion => {
                if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
                    metadata.remove("deletionTimestamp");
                    metadata.remove("deletionGracePeriodSeconds");
                }
            }
            FieldKind::Object => {}
        }
    }
}

impl std::fmt::Display for Field {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, name } = self;
        let kind = kind.name();
        if name.is_empty() { formatter.write_str(kind) } else { write!(formatter, "{kind} {name}") }
    }
}

fn no_condition() -> u64 {
    digest_of(None::<(&str, &str, &str)>)
}

/// Returns the digest of the value that the cache has; `None` without such a Pod, and for an object of another kind.
pub(in super::super) fn present(view: &dyn PodView, pod: &PodKey, field: &Field) -> Option<u64> {
    let held = view.get(&pod.namespace, &pod.name).filter(|held| held.key == *pod)?;
    field.value(&held)
}

/// Returns true if a value would change the object, as far as the cache shows it. A Pod that is gone is not changed.
pub(in super::super) fn would_change(view: &dyn PodView, pod: &PodKey, field: &Field, value: u64) -> bool {
    let is_cached = || view.get(&pod.namespace, &pod.name).is_some_and(|held| held.key == *pod);
    field.kind == FieldKind::Object || (is_cached() && present(view, pod, field) != Some(value))
}
