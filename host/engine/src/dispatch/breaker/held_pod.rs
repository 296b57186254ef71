//! [`HeldPod`]: the values that the cache has of the fields of one Pod.

use std::{cell::OnceCell, sync::Arc};

use podium_pods::pod::{CachedPod, PodView};
use podium_vocabulary::PodKey;
use podium_wire::{Annotations, Condition, Labels, Lifecycle};

use super::field::{Field, FieldKind, digest_of, no_condition, text};

/// A Pod of the cache whose fields are compared with writes. A section is decoded once, however many fields it has.
#[derive(Default)]
pub(in super::super) struct HeldPod {
    /// `None` if it is gone.
    pod: Option<Arc<CachedPod>>,
    labels: OnceCell<Option<Labels>>,
    annotations: OnceCell<Option<Annotations>>,
    lifecycle: OnceCell<Option<Lifecycle>>,
    conditions: OnceCell<Option<Vec<Condition>>>,
}

impl From<Arc<CachedPod>> for HeldPod {
    fn from(pod: Arc<CachedPod>) -> Self {
        Self { pod: Some(pod), ..Self::default() }
    }
}

impl HeldPod {
    /// Returns a Pod that is gone if the view does not have this incarnation.
    pub(in super::super) fn new(view: &dyn PodView, pod: &PodKey) -> Self {
        let held = view.get(&pod.namespace, &pod.name).filter(|held| held.key == *pod);
        held.map(Self::from).unwrap_or_default()
    }

    /// Returns a digest of the field's value; `None` if the Pod is gone, and for an object of another kind.
    pub(in super::super) fn value(&self, field: &Field) -> Option<u64> {
        let pod = self.pod.as_deref()?;
        let name = &field.name;
        let lifecycle = || self.lifecycle.get_or_init(|| pod.lifecycle().ok()).as_ref();
        Some(match field.kind {
            FieldKind::Label => text(self.labels.get_or_init(|| pod.labels().ok()).as_ref()?.get(name)),
            FieldKind::Annotation => text(self.annotations.get_or_init(|| pod.annotations().ok()).as_ref()?.get(name)),
            FieldKind::Finalizer => digest_of(lifecycle()?.finalizers.contains(name)),
            FieldKind::Condition => {
                let conditions = self.conditions.get_or_init(|| Some(pod.status().ok()?.conditions)).as_ref()?;
                let held = conditions.iter().find(|held| held.condition_type == *name);
                held.map_or_else(no_condition, |held| {
                    let text = |text: &Option<String>| text.clone().unwrap_or_default();
                    digest_of(Some((held.status.as_str(), text(&held.reason).as_str(), text(&held.message).as_str())))
                })
            }
            FieldKind::Deletion => digest_of(lifecycle()?.deletion_timestamp.is_some()),
            FieldKind::Object => return None,
        })
    }

    /// Returns true if a value would change the object, as far as the cache shows it. A Pod that is gone is not
    /// changed.
    pub(in super::super) fn would_change(&self, field: &Field, value: u64) -> bool {
        field.kind == FieldKind::Object || (self.pod.is_some() && self.value(field) != Some(value))
    }
}
