//! [`Event`]: a word to people about a Pod, shown by `kubectl describe` and `kubectl get events`.

/// A Kubernetes Event to be. Staged with [`crate::Pod::emit`] and sent with the run's writes.
///
/// An Event is a request to the API server like any other. Emit one only where the run also stages a change that can be
/// seen on the Pod, and let that change show the next run that the Event was emitted; a plugin that emits in every run
/// never comes to rest.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Normal or warning.
    pub event_type: EventType,
    /// Why: one UpperCamelCase word, at most 128 bytes.
    pub reason: String,
    /// What was done about it: one UpperCamelCase word, at most 128 bytes.
    pub action: String,
    /// A sentence for people, at most 1 KiB.
    pub note: String,
}

/// How serious an [`Event`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// For information.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Event {
    /// `Event::normal("Deleted", "finished 2 h ago")`
    #[must_use]
    pub fn normal(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { event_type: EventType::Normal, reason: reason.into(), action: "Reconcile".to_owned(), note: note.into() }
    }

    /// `Event::warning("MutableTag", "container web uses nginx:latest")`
    #[must_use]
    pub fn warning(reason: impl Into<String>, note: impl Into<String>) -> Self {
        Self { event_type: EventType::Warning, ..Self::normal(reason, note) }
    }

    /// Another action than "Reconcile".
    #[must_use]
    pub fn action(self, action: impl Into<String>) -> Self {
        Self { action: action.into(), ..self }
    }
}
