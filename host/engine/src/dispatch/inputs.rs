//! The objects of a plugin's inputs, as the next runs of a version receive them.

use std::sync::Arc;

use parking_lot::Mutex;

/// A JSON mapping of the objects by the ids of the inputs.
#[derive(Debug, Default)]
pub struct Inputs(Mutex<Option<Arc<str>>>);

impl Inputs {
    pub(super) fn new(inputs: Option<Arc<str>>) -> Self {
        Self(Mutex::new(inputs))
    }

    /// Returns the mapping; `None` for a plugin without inputs.
    #[must_use]
    pub fn get(&self) -> Option<Arc<str>> {
        self.0.lock().clone()
    }

    /// Replaces the mapping, and returns true if it is another one.
    pub fn set(&self, inputs: Option<Arc<str>>) -> bool {
        let mut held = self.0.lock();
        let changed = *held != inputs;
        *held = inputs;
        changed
    }
}
