//! [`Readiness`]: the answer of `/readyz`, in the form of the API server's own.

use std::fmt::Write;

/// One line of `/readyz?verbose`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// The name of the check, such as `watch` or `plugin/shop/tidy`.
    pub name: String,
    /// Why the check failed; `None` if it passed.
    pub failure: Option<String>,
    /// Whether a failure makes the host unready. Other failures are only listed.
    pub required: bool,
    /// A note after the result of a check that passed.
    pub note: Option<String>,
}

impl Check {
    /// Returns a check without which the host is not ready.
    #[must_use]
    pub fn required(name: impl Into<String>, failure: Option<String>) -> Self {
        Self { name: name.into(), failure, required: true, note: None }
    }

    /// Returns a check that is listed and does not affect readiness.
    #[must_use]
    pub fn listed(name: impl Into<String>, failure: Option<String>) -> Self {
        Self { name: name.into(), failure, required: false, note: None }
    }

    /// Returns a check that passed, with a note.
    #[must_use]
    pub fn passed(name: impl Into<String>, note: impl Into<String>) -> Self {
        Self { name: name.into(), failure: None, required: false, note: Some(note.into()) }
    }
}

/// The results of all checks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Checks in the order in which `/readyz?verbose` lists them.
    pub checks: Vec<Check>,
}

impl Readiness {
    /// Returns true if no required check fails.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.checks.iter().all(|check| !check.required || check.failure.is_none())
    }

    /// Returns the response body: `ok`, or one line per check if `verbose` is set or the host is not ready.
    #[must_use]
    pub fn render(&self, verbose: bool) -> String {
        let ready = self.is_ready();
        if ready && !verbose {
            return "ok\n".to_owned();
        }
        let mut text = String::new();
        for Check { name, failure, required: _, note } in &self.checks {
            // Writing to a String does not fail.
            let _ = match (failure, note) {
                (None, None) => writeln!(text, "[+]{name} ok"),
                (None, Some(note)) => writeln!(text, "[+]{name} ok: {note}"),
                (Some(failure), _) => writeln!(text, "[-]{name} failed: {failure}"),
            };
        }
        text.push_str(if ready { "readyz check passed\n" } else { "readyz check failed\n" });
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_optional_check_leaves_the_host_ready() {
        let plugin = Check::listed("plugin/shop/tidy", Some("refused".to_owned()));
        let mut readiness = Readiness { checks: vec![Check::required("watch", None), plugin] };
        assert!(readiness.is_ready());
        assert_eq!(readiness.render(false), "ok\n");
        let listed = "[+]watch ok\n[-]plugin/shop/tidy failed: refused\n";
        assert_eq!(readiness.render(true), format!("{listed}readyz check passed\n"));

        readiness.checks.push(Check::required("shutdown", Some("draining".to_owned())));
        assert!(!readiness.is_ready());
        let text = format!("{listed}[-]shutdown failed: draining\nreadyz check failed\n");
        assert_eq!(readiness.render(false), text, "a probe that fails says why");
    }
}
