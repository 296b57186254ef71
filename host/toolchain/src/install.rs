//! Whether a missing compilation target is installed.

use std::{fmt, str::FromStr};

/// The user's setting: `--install-targets`, or the environment variable [`Install::VARIABLE`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Install {
    /// A missing target is installed through rustup.
    #[default]
    Auto,
    /// A missing target is an error that names the command to run.
    Never,
}

impl Install {
    /// The environment variable of the setting.
    pub const VARIABLE: &str = "PODIUM_INSTALL_TARGETS";
    /// The flag of the setting.
    pub const FLAG: &str = "--install-targets";
    /// The values of flag and variable.
    pub const VALUES: [&str; 2] = ["auto", "never"];

    /// Parses the value of [`Install::VARIABLE`]. An unset variable is the default.
    ///
    /// # Errors
    /// Returns a message for the user if the value is not one of [`Install::VALUES`].
    pub fn from_variable(value: Option<&str>) -> Result<Self, String> {
        match value {
            None => Ok(Self::default()),
            Some(value) => value.parse().map_err(|error| format!("{}: {error}", Self::VARIABLE)),
        }
    }
}

impl FromStr for Install {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            other => Err(format!("{other:?} is not one of: {}", Self::VALUES.join(", "))),
        }
    }
}

impl fmt::Display for Install {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => "auto",
            Self::Never => "never",
        })
    }
}
