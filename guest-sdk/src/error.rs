//! [`Error`]: why a run failed. `?` converts every error of the standard kind.

use std::fmt::{self, Display};

use podium_wire::RecordError;

/// The result of a plugin's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run failed. None of the writes that are still staged is sent.
///
/// `?` converts any `std::error::Error`, and the run is retried with back-off. If a retry on the same data cannot
/// help, use [`Error::terminal`], or [`ResultExt::terminal`] on a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    terminal: bool,
    message: String,
    call_error: Option<CallError>,
}

impl Error {
    /// Returns an error after which the run is retried with back-off. The message is shown to people.
    #[must_use]
    pub fn retry(message: impl Display) -> Self {
        Self { terminal: false, message: message.to_string(), call_error: None }
    }

    /// Returns an error after which the run waits for a change, because a retry on the same data will not help. The
    /// message is shown to people.
    #[must_use]
    pub fn terminal(message: impl Display) -> Self {
        Self { terminal: true, ..Self::retry(message) }
    }

    /// Returns the same error with the message `context: message`.
    #[must_use]
    pub fn context(self, context: impl Display) -> Self {
        Self { message: format!("{context}: {}", self.message), ..self }
    }

    /// Returns the error as the host shows it, with the reason of the latest refused call.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn shown(self, refusal: Option<&str>) -> Self {
        let reason = refusal.map_or(String::new(), |refusal| format!("; {refusal}"));
        Self { message: podium_wire::text::line(&(self.message + &reason)), ..self }
    }

    /// Returns true if the run waits for a change instead of a retry.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Returns the message for people.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the error of the host call that caused this error, if there was one, for a plugin that can continue
    /// without the call.
    #[must_use]
    pub fn call_error(&self) -> Option<&CallError> {
        self.call_error.as_ref()
    }

    /// Returns the error of a refused call, which `call` describes. The host adds the missing grant, or the limit that
    /// is used up, to the failure of the run.
    pub(crate) fn from_refused(call: impl Display, refused: CallError) -> Self {
        let terminal = matches!(refused, CallError::NotGranted | CallError::Invalid(_));
        Self { terminal, message: format!("{call}: {refused}"), call_error: Some(refused) }
    }

    /// Returns the error of a record. Reading it again cannot help: a missing section was not granted.
    pub(crate) fn from_record(error: RecordError) -> Self {
        let call_error = matches!(error, RecordError::NotGranted(_)).then_some(CallError::NotGranted);
        Self { call_error, ..Self::terminal(error) }
    }
}

impl Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

/// Why the host refused a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The plugin's grants do not cover the call. Nothing was staged.
    NotGranted,
    /// The run has used up its budget of host calls, writes, bytes, live reads, Pods examined or time for sending,
    /// or a search costs more processor time than the run has left.
    OverBudget,
    /// An argument is invalid, and a retry cannot succeed. The text names the argument and the reason.
    Invalid(String),
    /// A later call may succeed. The text names the unavailable part.
    Unavailable(String),
}

impl Display for CallError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotGranted => formatter.write_str("not granted"),
            Self::OverBudget => formatter.write_str("the run's budget is used up"),
            Self::Invalid(text) => write!(formatter, "invalid: {text}"),
            Self::Unavailable(text) => write!(formatter, "unavailable: {text}"),
        }
    }
}

/// Adds context to the error of a result.
pub trait ResultExt<T> {
    /// Adds `context: ` before the message.
    ///
    /// # Errors
    /// Returns the error of the result.
    fn context(self, context: impl Display) -> Result<T>;

    /// Like [`ResultExt::context`], and the error is not retried.
    ///
    /// # Errors
    /// Returns the error of the result.
    fn terminal(self, context: impl Display) -> Result<T>;
}

impl<T, E: Into<Error>> ResultExt<T> for std::result::Result<T, E> {
    fn context(self, context: impl Display) -> Result<T> {
        self.map_err(|error| error.into().context(context))
    }

    fn terminal(self, context: impl Display) -> Result<T> {
        self.map_err(|error| Error { terminal: true, ..error.into().context(context) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_mark_retries_and_terminal_waits_for_a_change() {
        let parse = || -> Result<u8> { Ok("x".parse::<u8>()?) };
        assert!(!parse().unwrap_err().is_terminal());
        let error = "x".parse::<u8>().terminal("annotation ttl").unwrap_err();
        assert!(error.is_terminal());
        assert_eq!(error.message(), "annotation ttl: invalid digit found in string");
        assert!(error.context("pod cart-0").is_terminal());
    }

    #[test]
    fn errors_that_a_retry_cannot_fix_are_terminal() {
        let refused = |refused| Error::from_refused("set label", refused);
        assert!(refused(CallError::NotGranted).is_terminal());
        assert!(refused(CallError::Invalid("key".into())).is_terminal());
        assert!(!refused(CallError::OverBudget).is_terminal());
        assert!(!refused(CallError::Unavailable("cache".into())).is_terminal());
    }
}
