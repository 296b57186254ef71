//! The Pod record: the data of a Pod that Podium's host stores, passes to guests and writes to disk.
//!
//! A record is a [`Header`] and some sections. Each section is encoded separately, so that a guest receives exactly
//! the sections that its plugin requested and was granted, and so that the host can determine by comparing bytes what
//! an event changed. The structs are Podium's own: they contain the fields that reconcilers need; the section `full`
//! contains the whole Pod as Kubernetes JSON.
//!
//! The other sections leave out on purpose: values of environment variables, commands and arguments, volume sources,
//! probes, and managedFields, which `full` leaves out too. With the feature `json`, [`json`] converts Kubernetes JSON
//! into records and back.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

#[cfg(feature = "json")]
pub mod json;
#[cfg(feature = "json")]
pub mod object;

pub mod image;
pub mod refusal;
pub mod syntax;
pub mod text;

mod codec;
mod pod;
mod record;
mod workload;

pub use codec::{CodecError, MAX_ENCODED_BYTES, decode, encode, entries};
pub use pod::{
    Annotations, Condition, ConditionStatus, Container, ContainerState, ContainerStatus, Header, InvalidTimestamp,
    Labels, Lifecycle, Owner, Owners, Port, RestartPolicy, Spec, Status, Timestamp, Toleration, Volume,
};
pub use record::{Pod, Record, RecordError, Section, SectionBytes, SectionSet, split_page};
pub use workload::Workload;
