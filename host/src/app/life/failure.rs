//! Why a plugin was not loaded, and which condition of an object's status says so.

use std::time::Duration;

use podium_config::Problem;
use podium_runtime::{LoadError, LoadProblem};
use podium_vocabulary::text;

use crate::{
    config::file::FileError,
    objects::{FetchFailure, Step},
};

/// Why a plugin was not loaded.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages of the variants are their documentation")]
pub enum LoadFailure {
    #[error(
        "spec.serviceAccountName is missing, and --require-service-account refuses plugins without one; name a \
         ServiceAccount that has the rights for the plugin's writes"
    )]
    WithoutAccount,
    #[error("the policy does not permit it: {}", listed(.0))]
    Forbidden(Vec<Problem>),
    #[error(
        "spec.limits.memoryMiB is {mib}, and the runs of one tenant may use {most_mib} MiB together; lower it, or \
        raise --run-memory-mib to at least {}", 2 * .mib
    )]
    OverMemory { mib: usize, most_mib: u64 },
    #[error("spec.source.file: {path} {error}")]
    Unreadable {
        /// Escaped.
        path: String,
        error: FileError,
    },
    #[error(transparent)]
    Unfetched(#[from] FetchFailure),
    #[error("{}", listed(.0))]
    Mistaken(Vec<Problem>),
    #[error(transparent)]
    Refused(#[from] LoadError),
    #[error(
        "the new version failed when it was tried {0}; correct the component or spec.config, and apply the plugin again"
    )]
    ProbeFailed(String),
    #[error(
        "the new version failed in one of its first runs, {0}; it is not tried again before spec changes: correct the \
         component or spec.config, and apply the plugin again"
    )]
    RolledBack(String),
    #[error(
        "the finalizer podium.dev/pod-finalizers, which plugins with grants.write.finalizers need, cannot be added to \
         the object: {0}; the host's account needs the rights of deploy/kustomize/base/cleanup.yaml"
    )]
    Unheld(String),
    #[error("{message}")]
    NoRunner {
        /// Escaped.
        message: String,
        /// The file may be there later. A flag does not change while the host runs.
        passing: bool,
    },
    #[error("the compilation did not end: {0}")]
    Panicked(String),
    #[error("a later configuration has replaced this one")]
    Superseded,
}

impl LoadFailure {
    /// Returns true when another attempt with the same configuration may succeed.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Unreadable { error: FileError::Io(_), .. } => true,
            Self::Unfetched(failure) => failure.passing,
            Self::NoRunner { passing, .. } => *passing,
            Self::Unheld(_) => true,
            Self::WithoutAccount
            | Self::Forbidden(_)
            | Self::OverMemory { .. }
            | Self::Unreadable { .. }
            | Self::Mistaken(_)
            | Self::ProbeFailed(_)
            | Self::RolledBack(_)
            | Self::Panicked(_)
            | Self::Superseded => false,
            Self::Refused(error) => error.problem.is_passing(),
        }
    }

    /// Returns true when an attempt under another policy may succeed.
    pub(super) fn depends_on_policy(&self) -> bool {
        match self {
            Self::Forbidden(_) | Self::Unfetched(_) => true,
            Self::Refused(error) => matches!(step(&error.problem), (_, "CodeTooLarge")),
            Self::WithoutAccount
            | Self::OverMemory { .. }
            | Self::Unreadable { .. }
            | Self::Mistaken(_)
            | Self::ProbeFailed(_)
            | Self::RolledBack(_)
            | Self::Unheld(_)
            | Self::NoRunner { .. }
            | Self::Panicked(_)
            | Self::Superseded => false,
        }
    }

    /// Returns the shortest pause before another attempt.
    pub(super) fn retry_after(&self) -> Duration {
        match self {
            Self::Unfetched(failure) => failure.retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// Returns the step that failed, and the reason of its condition.
    pub(in crate::app) fn step(&self) -> (Step, &'static str) {
        match self {
            Self::WithoutAccount => (Step::Granted, "ServiceAccountRequired"),
            Self::Forbidden(_) => (Step::Granted, "PolicyForbids"),
            Self::OverMemory { .. } => (Step::Granted, "LimitsExceeded"),
            Self::Unreadable { .. } => (Step::Fetched, "FileUnreadable"),
            Self::Unfetched(failure) => (failure.step, failure.reason),
            Self::Mistaken(_) => (Step::Ready, "InvalidSpec"),
            Self::Refused(error) => step(&error.problem),
            Self::ProbeFailed(_) => (Step::Ready, "ProbeFailed"),
            Self::RolledBack(_) => (Step::Ready, "RolledBack"),
            Self::Unheld(_) => (Step::Granted, "FinalizerNotAdded"),
            Self::NoRunner { .. } => (Step::Compiled, "RunnerUnavailable"),
            Self::Panicked(_) => (Step::Compiled, "CompilationFailed"),
            Self::Superseded => (Step::Ready, "Superseded"),
        }
    }
}

fn step(problem: &LoadProblem) -> (Step, &'static str) {
    match problem {
        LoadProblem::TooLarge { .. } => (Step::Fetched, "TooLarge"),
        LoadProblem::Inspect(_)
        | LoadProblem::NoWorld { .. }
        | LoadProblem::OtherContract { .. }
        | LoadProblem::Unknown { .. }
        | LoadProblem::Runner
        | LoadProblem::NoRunner
        | LoadProblem::Link(_) => (Step::Compiled, "InvalidComponent"),
        LoadProblem::Script { .. } | LoadProblem::Unprepared { .. } => (Step::Compiled, "InvalidScript"),
        LoadProblem::ExceedsGrants { .. } => (Step::Granted, "GrantsExceeded"),
        LoadProblem::Limits(_) => (Step::Granted, "LimitsExceeded"),
        LoadProblem::NoProcess(_) | LoadProblem::Killed | LoadProblem::Stalled { .. } => {
            (Step::Compiled, "CompilerUnavailable")
        }
        LoadProblem::Compile(_) | LoadProblem::TooSlow { .. } | LoadProblem::TooMuchMemory { .. } => {
            (Step::Compiled, "CompilationFailed")
        }
        LoadProblem::TooLittleMemory { .. } => (Step::Compiled, "TooLittleMemory"),
        LoadProblem::CodeTooLarge { .. } | LoadProblem::TenantCode { .. } => (Step::Compiled, "CodeTooLarge"),
        LoadProblem::RefusedBefore { problem, .. } => step(problem),
    }
}

fn listed(problems: &[Problem]) -> String {
    let line = |problem: &Problem| format!("{} {}", problem.field, problem.message);
    text::line(&problems.iter().map(line).collect::<Vec<_>>().join("; "))
}
