//! The vocabulary: keys, revisions, queries, grants, limits, plugins and writes.
//!
//! Plain data without behaviour. Uses no other module.

mod expressions;
mod grants;
mod graph;
mod key;
mod plugin;
mod query;
pub mod text;
mod write;

use std::{future::Future, pin::Pin};

pub use expressions::Expressions;
pub use grants::{Grants, KeyPattern, ObjectGrant, ReadGrants, Scope, WriteGrants};
pub use graph::components;
pub use key::{PluginId, PodKey, Revision, RevisionError, Tenant};
pub use plugin::{LimitClass, Limits, Phase, PluginSpec, PullSecret, RequestRates, Source, WatchSpec};
/// The syntax of names, keys and values, shared with the SDK's test host.
pub use podium_wire::syntax;
pub use query::{Cursor, LabelOperator, LabelRequirement, LabelSelector, PodQuery};
pub use write::{
    Action, ConditionStatus, Event, EventResult, EventType, ObjectOwner, ObjectRef, Refused, Write, WriteReport,
    WriteResult,
};

/// A future behind a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
