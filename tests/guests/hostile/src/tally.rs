//! Counts of the host's answers by kind, in a fixed order.

use std::{collections::BTreeMap, fmt};

use bindings::{state::PutError, types::CallError};

#[derive(Default)]
pub struct Tally(BTreeMap<&'static str, u32>);

impl Tally {
    pub fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn refused(&mut self, error: &CallError) {
        self.count(match error {
            CallError::NotGranted => "not-granted",
            CallError::OverBudget => "over-budget",
            CallError::Invalid(_) => "invalid",
            CallError::Unavailable(_) => "unavailable",
        });
    }

    /// Counts an answer; a success is `ok`.
    pub fn add<T>(&mut self, answer: Result<T, CallError>) -> Option<T> {
        match answer {
            Ok(value) => {
                self.count("ok");
                Some(value)
            }
            Err(error) => {
                self.refused(&error);
                None
            }
        }
    }

    /// Counts a read; a Pod is `ok`, and no Pod is `none`.
    pub fn read<T>(&mut self, answer: Result<Option<T>, CallError>) {
        match answer {
            Ok(None) => self.count("none"),
            other => drop(self.add(other)),
        }
    }

    pub fn put<T>(&mut self, answer: Result<T, PutError>) {
        match answer {
            Ok(_) => self.count("ok"),
            Err(PutError::Conflict(_)) => self.count("conflict"),
            Err(PutError::Other(error)) => self.refused(&error),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<_> = self.0.iter().map(|(what, count)| format!("{count} {what}")).collect();
        formatter.write_str(&counts.join(", "))
    }
}
