//! What is cut away from every Pod before anything of it is kept, beside managedFields.

use podium_wire::Annotations;

/// The Pod once more, as `kubectl apply` was given it: half of many a Pod, with the values of its environment, which
/// the sections leave out.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Annotations by their keys. Who reads finds them absent, and a change of one is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prune {
    annotations: Vec<Box<str>>,
}

impl Default for Prune {
    fn default() -> Self {
        Self::annotations([LAST_APPLIED])
    }
}

impl Prune {
    /// Nothing but managedFields.
    pub const NOTHING: Self = Self { annotations: Vec::new() };

    pub fn annotations(keys: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Self { annotations: keys.into_iter().map(Into::into).collect() }
    }

    /// The annotations that are cut away.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.annotations.iter().map(|key| &**key)
    }

    #[must_use]
    pub fn cuts_annotation(&self, key: &str) -> bool {
        self.keys().any(|cut| cut == key)
    }

    pub(crate) fn cuts_annotations(&self) -> bool {
        !self.annotations.is_empty()
    }

    pub(crate) fn cut(&self, annotations: &mut Annotations) {
        annotations.retain(|key, _| !self.cuts_annotation(key));
    }
}
