//! [`Cause`]: the classes of crashes, derived from exit codes and reasons.

use podium_sdk::{ContainerState, ContainerStatus};

/// Why a container ended, in order of severity. A container that ends in different ways keeps the most severe class,
/// so that its diagnosis is stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// The container exited with code 0, although it should keep running.
    Completed,
    /// The container exited with another code of its own.
    Error,
    /// SIGTERM, 143: another process asked it to end.
    Terminated,
    /// SIGKILL, 137, for another reason than memory.
    Killed,
    /// The command was not found or is not executable, 126 to 128, or the runtime could not start it.
    CannotStart,
    /// SIGSEGV or SIGBUS.
    Segfault,
    /// SIGABRT: an assertion or a panic.
    Aborted,
    /// The container exceeded its memory limit.
    OomKilled,
}

impl Cause {
    pub(crate) const ALL: [Self; 8] = [
        Self::Completed,
        Self::Error,
        Self::Terminated,
        Self::Killed,
        Self::CannotStart,
        Self::Segfault,
        Self::Aborted,
        Self::OomKilled,
    ];

    /// Returns the cause of a container's latest termination; `None` if it never terminated.
    pub(crate) fn from_status(container: &ContainerStatus) -> Option<Self> {
        let ends = [&container.state, &container.last_state];
        ends.into_iter().find_map(|state| match state {
            ContainerState::Terminated { exit_code, reason, .. } => Some(Self::of_end(*exit_code, reason.as_deref())),
            _ => None,
        })
    }

    fn of_end(exit_code: i32, reason: Option<&str>) -> Self {
        match (reason, exit_code) {
            (Some("OOMKilled"), _) => Self::OomKilled,
            (Some("ContainerCannotRun" | "StartError"), _) | (_, 126..=128) => Self::CannotStart,
            (_, 0) => Self::Completed,
            (_, 134) => Self::Aborted,
            (_, 135 | 139) => Self::Segfault,
            (_, 137) => Self::Killed,
            (_, 143) => Self::Terminated,
            _ => Self::Error,
        }
    }

    /// Returns the class in the annotation.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Error => "Error",
            Self::Terminated => "Terminated",
            Self::Killed => "Killed",
            Self::CannotStart => "CannotStart",
            Self::Segfault => "Segfault",
            Self::Aborted => "Aborted",
            Self::OomKilled => "OOMKilled",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| cause.name() == name)
    }

    /// Returns the meaning of the class and where to look, for people.
    pub(crate) const fn advice(self) -> &'static str {
        match self {
            Self::Completed => "it ends with code 0 though it should keep running; should it be a Job?",
            Self::Error => "it ends with an error of its own; look at its log: kubectl logs --previous",
            Self::Terminated => "it is asked to stop again and again; look at its liveness probe",
            Self::Killed => "it is killed, but not for its memory; look at its liveness probe and grace period",
            Self::CannotStart => "its command cannot be started; look at the image, its command and its file modes",
            Self::Segfault => "it crashes in native code; look at its log and its libraries",
            Self::Aborted => "it aborts itself, as by a failed assertion; look at its log: kubectl logs --previous",
            Self::OomKilled => "it uses more memory than its limit; raise the limit or find the leak",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_and_reasons_give_their_class() {
        for (exit_code, reason, class) in [
            (137, Some("OOMKilled"), Cause::OomKilled),
            (137, Some("Error"), Cause::Killed),
            (143, None, Cause::Terminated),
            (139, None, Cause::Segfault),
            (134, None, Cause::Aborted),
            (127, Some("Error"), Cause::CannotStart),
            (128, Some("StartError"), Cause::CannotStart),
            (0, Some("Completed"), Cause::Completed),
            (1, Some("Error"), Cause::Error),
            (-1, None, Cause::Error),
        ] {
            assert_eq!(Cause::of_end(exit_code, reason), class, "{exit_code} {reason:?}");
        }
    }

    #[test]
    fn every_class_has_a_name_and_later_ones_are_greater() {
        for cause in Cause::ALL {
            assert_eq!(Cause::named(cause.name()), Some(cause));
        }
        assert!(Cause::ALL.is_sorted());
    }
}
