//! The process's arguments, the first line of the log, which has those that are set, and all of them for `/flagz`.

use clap::{Arg, ArgAction, ArgMatches, Command, Parser, parser::ValueSource};
use podium_vocabulary::text;

use crate::telemetry::{COMMIT, VERSION};

/// The flags that are not at their defaults, as `--name=value` with spaces between, and all flags as `name=value`.
#[derive(Debug, Default)]
pub(super) struct Given(String, Vec<String>);

/// Parses the process's arguments and environment, or ends the process with a message, as [`Parser::parse`] does.
pub(super) fn parse<F: Parser>() -> (F, Given) {
    let mut command = F::command();
    let matches = command.get_matches_mut();
    let flags = F::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
    (flags, Given::new(&command, &matches))
}

impl Given {
    /// No flag has a secret as its value.
    fn new(command: &Command, matches: &ArgMatches) -> Self {
        let is_value = |argument: &&Arg| !matches!(argument.get_action(), ArgAction::Help | ArgAction::Version);
        let of_process = || command.get_arguments().filter(is_value);
        let value = |argument: &Arg| {
            let id = argument.get_id().as_str();
            if !argument.get_action().takes_values() {
                return Some(matches.get_flag(id).to_string());
            }
            let values: Vec<_> = matches.get_raw(id)?.map(|value| value.to_string_lossy()).collect();
            Some(values.join(","))
        };
        let given = of_process().filter_map(|argument| {
            let name = argument.get_long()?;
            matches.value_source(argument.get_id().as_str()).filter(|source| *source != ValueSource::DefaultValue)?;
            match (argument.get_action().takes_values(), value(argument)?) {
                (false, set) => (set == "true").then(|| format!("--{name}")),
                (true, values) => Some(format!("--{name}={values}")),
            }
        });
        let given = text::line(&given.collect::<Vec<_>>().join(" "));
        let named = |argument: &Arg| Some(format!("{}={}", argument.get_long()?, value(argument).unwrap_or_default()));
        let mut all: Vec<_> = of_process().filter_map(named).collect();
        all.sort_unstable();
        Self(given, all)
    }

    /// Returns all flags as `name=value`, by name.
    pub(super) fn all(self) -> Vec<String> {
        self.1
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
            Given::new(&command, &matches).0
        };
        assert_eq!(given(&["--watch-plugins"]), "--watch-plugins");
        let all = ["--plugins", "a", "b", "--strict", "--metrics-authentication", "on", "--state-dir", "/x\u{1b}y"];
        let expected = r"--plugins=a,b --metrics-authentication=on --state-dir=/x\u001by --strict";
        assert_eq!(given(&all), expected);
        let mut command = Flags::command();
        let matches = command.try_get_matches_from_mut(["podium-host", "--watch-plugins"]).unwrap();
        let all = Given::new(&command, &matches).all();
        for flag in ["log-level=info", "strict=false", "watch-plugins=true", "state-dir="] {
            assert!(all.iter().any(|of| of == flag), "{flag}: {all:?}");
        }
        assert!(all.is_sorted() && !all.iter().any(|flag| flag.starts_with("help")), "{all:?}");
    }
}
