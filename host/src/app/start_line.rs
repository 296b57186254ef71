//! The process's arguments, and the first line of the log, which has them.

use clap::{ArgMatches, Command, Parser, parser::ValueSource};
use podium_vocabulary::text;

use crate::telemetry::{COMMIT, VERSION};

/// The flags that are not at their defaults, as `--name=value` with spaces between.
pub(super) struct Given(String);

/// Parses the process's arguments and environment, or ends the process with a message, as [`Parser::parse`] does.
pub(super) fn parse<F: Parser>() -> (F, Given) {
    let mut command = F::command();
    let matches = command.get_matches_mut();
    let flags = F::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
    (flags, Given::of(&command, &matches))
}

impl Given {
    /// No flag has a secret as its value.
    fn of(command: &Command, matches: &ArgMatches) -> Self {
        let given = command.get_arguments().filter_map(|argument| {
            let id = argument.get_id().as_str();
            let name = argument.get_long()?;
            matches.value_source(id).filter(|source| *source != ValueSource::DefaultValue)?;
            if !argument.get_action().takes_values() {
                return matches.get_flag(id).then(|| format!("--{name}"));
            }
            let values: Vec<_> = matches.get_raw(id)?.map(|value| value.to_string_lossy()).collect();
            Some(format!("--{name}={}", values.join(",")))
        });
        Self(text::line(&given.collect::<Vec<_>>().join(" ")))
    }

    pub(super) fn log(&self) {
        tracing::info!(version = VERSION, commit = COMMIT, flags = self.0, "starting");
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::app::process::Flags;

    #[test]
    fn flags_that_were_given_are_in_the_first_line() {
        let given = |arguments: &[&str]| {
            let mut command = Flags::command();
            let matches = command.try_get_matches_from_mut(["podium-host"].iter().chain(arguments)).unwrap();
            Given::of(&command, &matches).0
        };
        assert_eq!(given(&["--watch-plugins"]), "--watch-plugins");
        let all = ["--plugins", "a", "b", "--strict", "--metrics-authentication", "on", "--state-dir", "/x\u{1b}y"];
        let expected = r"--plugins=a,b --metrics-authentication=on --state-dir=/x\u001by --strict";
        assert_eq!(given(&all), expected);
    }
}
