//! The words that every room shares: keys, revisions, Pods as cached, changes, queries, grants, writes, runs.
//!
//! Plain data and the traits between rooms that need nothing else. No IO, no clock, no Kubernetes client, no engine.

mod change;
mod grants;
mod key;
mod list;
mod plugin;
mod pod;
mod query;
pub(crate) mod record;
mod run;
pub mod text;
mod write;

pub use change::{Change, Checkpoint, Known, Observation, PodEvent, Staleness};
pub use grants::{Grants, KeyPattern, ObjectGrant, ReadGrants, Scope, WriteGrants};
pub use key::{PluginId, PodKey, Revision, RevisionError};
pub use list::{PodList, SortedUids, Uids};
pub use plugin::{LimitClass, Limits, Phase, PluginSpec, WatchSpec};
pub use pod::{CachedPod, PodError};
pub use query::{Cursor, LabelOperator, LabelRequirement, LabelSelector, Page, PodQuery, PodView};
pub(crate) use record::Kept;
pub use record::{Record, Room};
pub use run::{Failure, FailureKind, Outcome, PLUGIN_TARGET, RUN_TARGET, Request, RunReport, Subject, Usage};
pub use write::{
    Action, ConditionStatus, Event, EventResult, EventType, ObjectRef, Refused, Write, WriteReport, WriteResult,
};

use std::{future::Future, pin::Pin};

/// Of names, keys and values: shared with the SDK's test host.
pub use podium_wire::syntax;

/// A future behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
