//! The fields that writes change, and digests of their values. Pure.

use std::hash::{BuildHasher, Hash};

use foldhash::quality::FixedState;
use podium_vocabulary::Action;
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

pub(super) fn text(value: Option<&String>) -> u64 {
    digest_of(value.map(String::as_str))
}

impl Field {
    /// Returns the field that a write changes, and a digest of the value that it sets. Values of objects are not
    /// distinguished, except their replicas.
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
            // Beside an apply of the object, whose changes count also if the replicas are right.
            Action::Scale { object, replicas } => (FieldKind::Object, format!("{object}/scale"), digest_of(*replicas)),
        };
        (Self { kind, name }, value)
    }

    /// Returns a digest of the kind and the name.
    pub(in super::super) fn digest(&self) -> u64 {
        digest_of((self.kind, self.name.as_str()))
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

pub(super) fn no_condition() -> u64 {
    digest_of(None::<(&str, &str, &str)>)
}
