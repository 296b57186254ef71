//! Field validation: errors and warnings about unknown and duplicate fields, as requested by the client's
//! `fieldValidation` parameter.

use crate::request::Query;

/// The parameter's values, as messages list them.
pub(crate) const VALUES: [&str; 4] = ["", "Ignore", "Strict", "Warn"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// Returns the validation that the query requests; the API server warns by default.
    pub(crate) fn from_query(query: &Query) -> Self {
        match query.get("fieldValidation") {
            "Ignore" => Self::Ignore,
            "Strict" => Self::Strict,
            _ => Self::Warn,
        }
    }

    /// Drops the errors, adds them to the warnings, or returns them as one message.
    pub(crate) fn settle(self, errors: Vec<String>, warnings: &mut Vec<String>) -> Result<(), String> {
        match self {
            _ if errors.is_empty() => Ok(()),
            Self::Ignore => Ok(()),
            Self::Warn => {
                warnings.extend(errors);
                Ok(())
            }
            Self::Strict => Err(format!("strict decoding error: {}", errors.join(", "))),
        }
    }
}
