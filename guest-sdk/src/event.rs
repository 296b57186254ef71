//! [`Event`]: a message for people about a Pod, shown by `kubectl describe` and `kubectl get events`.

/// A Kubernetes Event. [`crate::Pod::emit`] stages it, and it is sent with the run's writes.
///
/// An Event is a request to the API server like any other. Emit one only if the run also stages a visible change of
/// the Pod, which shows the next run that the Event was emitted; a plugin that emits in every run never settles.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Normal or warning.
    pub event_type: EventType,
    /// The reason: one UpperCamelCase word, at most 128 bytes.
    pub reason: String,
    /// The action that was taken: one UpperCamelCase word, at most 128 bytes.
    pub action: String,
    /// The message for people, at most 1 KiB.
    pub note: String,
}

/// The severity of an [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem that people should look at.
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

    /// Sets the action, which is "Reconcile" by default.
    #[must_use]
    pub fn action(self, action: impl Into<String>) -> Self {
        Self { action: action.into(), ..self }
    }
}
