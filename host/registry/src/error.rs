//! Errors of operations on a registry, by whether another try may succeed.

use std::time::Duration;

use podium_wire::text;

/// The most bytes of a registry's own words in a message.
const WORDS: usize = 300;

/// Why an operation on a registry failed. Text from outside is escaped and bounded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The platform does not permit the connection: another try fails too until its list is changed.
    #[error("{0}")]
    Forbidden(String),
    /// The registry refused the credentials, or there are none that it asks for.
    #[error("{0}")]
    Denied(String),
    /// The registry does not have the manifest or the blob.
    #[error("{0}")]
    NotFound(String),
    /// The answer, or a text of the caller, is not of a form that is accepted.
    #[error("{0}")]
    Invalid(String),
    /// More bytes than permitted, whether announced or sent.
    #[error("{0}")]
    TooLarge(String),
    /// Other bytes than those that the digest names.
    #[error("{0}")]
    DigestMismatch(String),
    /// The registry asks for a pause, and perhaps says how long.
    #[error("{message}")]
    Busy { message: String, retry_after: Option<Duration> },
    /// The network, the registry's own failure, or the deadline.
    #[error("{0}")]
    Unavailable(String),
}

impl Error {
    /// Returns whether the same operation may succeed later without a change of its arguments.
    #[must_use]
    pub fn may_succeed_later(&self) -> bool {
        match self {
            // A tag or a Secret may appear; the caller decides how often to look.
            Self::Busy { .. } | Self::Unavailable(_) | Self::NotFound(_) => true,
            Self::Forbidden(_) | Self::Denied(_) | Self::Invalid(_) | Self::TooLarge(_) | Self::DigestMismatch(_) => {
                false
            }
        }
    }

    /// Returns the same error with text and a colon before its message.
    pub(crate) fn after(mut self, text: &str) -> Self {
        let message = self.message_mut();
        message.insert_str(0, &format!("{text}: "));
        self
    }

    /// Returns the same error without anything of an answer to which a redirect led. That answer may be of a service
    /// which only this client reaches, and the error is shown to whoever chose the registry.
    pub(crate) fn concealed(mut self, what: &str) -> Self {
        *self.message_mut() = format!("{what}: a redirect led to an answer that is not the right one; it is not shown");
        self
    }

    fn message_mut(&mut self) -> &mut String {
        let (Self::Forbidden(message)
        | Self::Denied(message)
        | Self::NotFound(message)
        | Self::Invalid(message)
        | Self::TooLarge(message)
        | Self::DigestMismatch(message)
        | Self::Busy { message, .. }
        | Self::Unavailable(message)) = self;
        message
    }

    /// Returns whether the failure concerns the content, and not the way to it: of several entries that any client
    /// with the right to push can add, one that fails so is passed over.
    pub(crate) fn is_of_the_content(&self) -> bool {
        matches!(self, Self::NotFound(_) | Self::Invalid(_) | Self::TooLarge(_) | Self::DigestMismatch(_))
    }
}

/// Returns text from outside as part of one line.
pub(crate) fn words(from_outside: &str) -> String {
    text::bounded(from_outside.trim(), WORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_registry_are_one_bounded_line() {
        let words = words(&format!("a\n\u{1b}[31m{}", "x".repeat(100_000)));
        assert!(words.len() <= WORDS && !words.contains(['\n', '\u{1b}']), "{words}");
    }
}
