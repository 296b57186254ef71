//! The Pod record: what Podium's host keeps of a Pod, hands to guests and writes to disk.
//!
//! A record is a [`Header`] and some sections, each encoded by itself, so that a guest is given exactly the
//! sections its plugin asked for and was granted, and so that the host can determine by comparing bytes what an event
//! changed. The structs are Podium's own: they hold what reconcilers ask for, not all of a Pod; all of
//! it is in the section `full`, as Kubernetes JSON.
//!
//! What the other sections leave out on purpose: values of environment variables, commands and arguments, volume
//! sources, probes, managedFields, which `full` leaves out too. With the feature `json`, [`json`] turns Kubernetes JSON
//! into records and back.

#[cfg(feature = "json")]
pub mod json;
#[cfg(feature = "json")]
pub mod object;

pub mod syntax;

mod codec;
mod pod;
mod record;

pub use codec::{CodecError, MAX_ENCODED_BYTES, decode, encode};
pub use pod::{
    Annotations, Condition, ConditionStatus, Container, ContainerState, ContainerStatus, Header, Labels, Lifecycle,
    Owner, Owners, Port, RestartPolicy, Spec, Status, Timestamp, Toleration, Volume,
};
pub use record::{Pod, Record, RecordError, Section, SectionBytes, SectionSet, split_page};
