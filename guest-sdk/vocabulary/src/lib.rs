//! The vocabulary of plugins: keys, revisions, queries, grants, limits, plugins, writes and Events.
//!
//! Plain data. The host's engine, the reader of configurations and the SDK's test host are above it, so that a grant, a
//! write and a name mean the same to all of them.

#![warn(missing_docs)]
// A new action has a place in every match.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

pub mod authz;
mod expressions;
mod function;
mod grant;
mod grants;
mod graph;
mod input;
pub mod json;
mod key;
mod plugin;
mod prune;
mod query;
mod related;
mod shards;
pub mod text;
mod write;

pub use expressions::Expressions;
pub use function::{Function, INTERFACES, PACKAGE, VERSION};
pub use grant::{Grant, Right};
pub use grants::{Grants, KeyPattern, ObjectGrant, ReadGrants, Scope, WriteGrants};
pub use graph::components;
pub use input::{Input, InputObjects, with_inputs};
pub use key::{Payer, PluginId, PodKey, Revision, RevisionError, Tenant};
pub use plugin::{Language, LimitClass, Limits, Phase, PluginSpec, PullSecret, RequestRates, Source, WatchSpec};
/// The status of a condition, and the syntax of names, keys and values, shared with the SDK's test host.
pub use podium_wire::{ConditionStatus, syntax};
pub use prune::Prune;
pub use query::{Cursor, LabelOperator, LabelRequirement, LabelSelector, PodQuery};
pub use related::{Related, Relation, is_group};
pub use shards::{Shards, fnv};
pub use write::{
    Action, Event, EventResult, EventType, ObjectOwner, ObjectRef, Refused, Target, Write, WriteReport, WriteResult,
};
