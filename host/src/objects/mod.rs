//! Plugins as objects of the API server, and the status of these objects.
//!
//! [`ObjectWatch`] lists and watches the objects; [`Desired`] decides, without IO, which plugins are loaded, refused
//! and unloaded, and `app` does it. A status shows the result for each object; [`Publisher`] decides when it is sent.
//! [`Reports`] decides which questions about runs are answered and deleted.

mod bounds;
mod children;
mod desired;
mod events;
mod fetch;
mod finalizers;
mod inputs;
mod names;
mod object;
mod publish;
mod released;
mod reports;
mod status;
mod tenant;
mod watch;

pub(crate) use bounds::Beyond;
pub(crate) use children::ChildKind;
pub(crate) use desired::{Action, Decision, Desired, Removing, most_loaded};
pub(crate) use events::{Key, Recorder};
pub use fetch::FetchFailure;
pub(crate) use fetch::{CORRECTED, ConfigMapKey, Readable, config_map, read_as, sha256};
pub(crate) use finalizers::{Earlier, OnPods};
pub(crate) use inputs::{Fields, InputKind, InputObject, InputState, Unread};
pub(crate) use names::Names;
pub(crate) use object::{Kind, Object, finalizing, of_finalizers, plugin_again, status_in};
pub(crate) use publish::{Publisher, Update, Wanted, hold, release};
pub(crate) use released::Released;
pub(crate) use reports::{Due, Page as ReportPage, Report, Reports, list as list_reports, listed as listed_reports};
pub(crate) use status::{ActiveVersion, Facts, Refusal, State, failures, status, time};
pub(crate) use watch::{Change, ObjectWatch};

/// The steps from a spec to a plugin that runs. Each has a condition of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    Fetched,
    Verified,
    Compiled,
    Granted,
    Ready,
}

impl Step {
    /// Returns the type of its condition.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fetched => "Fetched",
            Self::Verified => "Verified",
            Self::Compiled => "Compiled",
            Self::Granted => "Granted",
            Self::Ready => "Ready",
        }
    }
}
