//! The faults, by the part of the host that has them.

mod cache;
mod config;
mod dispatch;
mod lease;
mod life;
mod queue;
mod watch;
mod writes;

/// A fault: one expression or statement of one file, and what it becomes.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// The wrong behaviour of the host.
    pub(super) name: &'static str,
    pub(super) file: &'static str,
    /// Code that the file has exactly once. The expression or statement is the part between `«` and `»`, or all of it.
    place: &'static str,
    /// The code that replaces the expression or statement.
    pub(super) to: &'static str,
    /// Arguments of the test binary of the crate's library: the tests that have to find the fault.
    pub(super) tests: &'static str,
    /// Why no test finds it, if none does.
    pub(super) survives: Option<&'static str>,
}

impl Fault {
    /// Returns the code as it is in the file.
    pub(super) fn code(&self) -> String {
        self.place.replace(['«', '»'], "")
    }

    /// Returns the code before the expression, the expression, and the code behind it.
    pub(super) fn parts(&self) -> (&'static str, &'static str, &'static str) {
        let (before, rest) = self.place.split_once('«').unwrap_or(("", self.place));
        let (code, behind) = rest.split_once('»').unwrap_or((rest, ""));
        (before, code, behind)
    }

    /// Returns the folder of the crate, relative to the workspace.
    pub(super) fn folder(&self) -> &'static str {
        self.file.split_once("/src/").map_or("", |(folder, _)| folder)
    }

    pub(super) fn package(&self) -> &'static str {
        match self.folder() {
            "host/engine" => "podium-engine",
            "host/pods" => "podium-pods",
            "host/api" => "podium-api",
            "host/lease" => "podium-lease",
            "host/encoding" => "podium-encoding",
            "host/life" => "podium-life",
            "host/writeback" => "podium-writeback",
            "guest-sdk/config" => "podium-config",
            "guest-sdk/vocabulary" => "podium-vocabulary",
            _ => "podium-host",
        }
    }
}

/// The faults of one file.
struct In {
    file: &'static str,
    tests: &'static str,
}

impl In {
    fn fault(&self, name: &'static str, place: &'static str, to: &'static str) -> Fault {
        Fault { name, file: self.file, place, to, tests: self.tests, survives: None }
    }
}

pub(super) fn all() -> Vec<Fault> {
    let engine = [queue::faults(), dispatch::faults(), cache::faults()].concat();
    [engine, writes::faults(), watch::faults(), life::faults(), lease::faults(), config::faults()].concat()
}
