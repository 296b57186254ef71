//! Annotations that are removed from every Pod before it is stored, together with managedFields.

use podium_wire::syntax::LAST_APPLIED;

/// The keys of annotations to remove. Readers do not see them, and a change of one is not a change of the Pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prune {
    annotations: Vec<Box<str>>,
}

impl Default for Prune {
    /// Removes the previous manifest of `kubectl apply`: half of the size of many Pods, with the values of environment
    /// variables, which the sections leave out.
    fn default() -> Self {
        Self::annotations([LAST_APPLIED])
    }
}

impl Prune {
    /// Removes only managedFields.
    pub const NOTHING: Self = Self { annotations: Vec::new() };

    /// Returns a value that removes the annotations with these keys.
    pub fn annotations(keys: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        Self { annotations: keys.into_iter().map(Into::into).collect() }
    }

    /// Returns the keys of the annotations that are removed.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.annotations.iter().map(|key| &**key)
    }

    /// Returns true if annotations with this key are removed.
    #[must_use]
    pub fn cuts_annotation(&self, key: &str) -> bool {
        self.keys().any(|cut| cut == key)
    }

    /// Returns true if annotations with some key are removed.
    #[must_use]
    pub fn cuts_annotations(&self) -> bool {
        !self.annotations.is_empty()
    }
}
