//! Logs on standard error: text for people or JSON, a line each.

use std::{fmt, str::FromStr};

use tracing_subscriber::{EnvFilter, filter::LevelFilter, fmt as subscriber, prelude::*};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = LogsError;

    fn from_str(text: &str) -> Result<Self, LogsError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(LogsError::Format(text.to_owned())),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    #[error("{0:?} is no log format; use text or json")]
    Format(String),
    #[error("{0:?} is no log level; use error, warn, info, debug, trace, or directives such as info,podium_host=debug")]
    Level(String),
    #[error("logs are set up already")]
    Already,
}

/// Sets up the process's logs. `level` is a level or a list of directives.
///
/// # Errors
/// When the level cannot be read, or logs were set up before.
pub fn init(level: &str, format: LogFormat) -> Result<(), LogsError> {
    let filter = filter(level)?;
    let lines = subscriber::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(|_| LogsError::Already)
}

/// A bare word must be a level: as a directive it would name a target, and a mistyped level would silence everything.
fn filter(level: &str) -> Result<EnvFilter, LogsError> {
    let refused = || LogsError::Level(level.to_owned());
    let directives: Vec<&str> = level.split(',').map(str::trim).collect();
    let mut words = directives.iter().filter(|directive| !directive.contains('='));
    if words.any(|word| word.is_empty() || word.parse::<LevelFilter>().is_err()) {
        return Err(refused());
    }
    EnvFilter::try_new(directives.join(",")).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_or_directives_are_taken_and_a_mistyped_level_is_not() {
        for level in ["info", "WARN", "off", "info,podium_host=debug", "podium_host=debug", "warn, podium::plugin=info"]
        {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["loud", "inof", "", "info,podium_host", "podium_host=loud"] {
            assert!(filter(level).is_err(), "{level:?}");
        }
    }
}
