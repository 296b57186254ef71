//! Pods in any number, generated from a seed and written as a real API server writes them: compact JSON in its own
//! order of fields, about half of it managedFields; and events that change their status.
//!
//! The shared part of one workload's Pods is byte-identical, as in a real cluster; the rest differs as it does there:
//! names, uids, nodes, addresses, ids of containers, times. A [`PopulationKind`] determines further differences and
//! changes.

mod cast;
mod churn;
mod containers;
mod draft;
mod json;
mod kind;
mod network;
mod own;
mod pod;
mod population;
mod real;
mod resize;
mod sidecar;
mod state;
mod structure;
mod template;
mod words;
mod workload;

use std::{fmt::Write, path::PathBuf};

use self::draft::SAFE;
pub use self::{
    kind::PopulationKind,
    population::{Action, Event, Population},
};

/// The start of the generated cluster in seconds since 1970: 2026-03-01T00:00:00Z.
const BEGIN: i64 = 1_772_323_200;
/// The age in days of the oldest Pod when events begin.
const DAYS: i64 = 60;
/// The revision of the first Pod. etcd's revisions are shared by all kinds, so it is not 1.
const FIRST_REVISION: u64 = 48_000_000;
/// Events within one second of the generated cluster's time.
const EVENTS_PER_SECOND: u64 = 20;
const PODS_PER_NODE: usize = 50;
/// The number of additional Pods of a hostile population, which all differ in structure.
const HOSTILE_PODS: usize = 5_000;

#[derive(Debug, Clone)]
pub struct Options {
    pub kind: PopulationKind,
    /// The number of Pods, without those that a hostile population adds.
    pub pods: usize,
    pub hostile_pods: usize,
    pub seed: u64,
    /// The average number of Pods of one owner. It is largest for Deployments.
    pub pods_per_workload: usize,
    pub namespaces: usize,
    /// A folder of real Pod objects, one `.json` each, that are used as templates instead of invented workloads.
    pub from: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            kind: PopulationKind::default(),
            pods: 10_000,
            hostile_pods: HOSTILE_PODS,
            seed: 1,
            pods_per_workload: 70,
            namespaces: 20,
            from: None,
        }
    }
}

/// Returns the five characters at the end of a generated name.
fn suffix(mut seed: u64) -> String {
    let mut suffix = String::with_capacity(5);
    for _ in 0..5 {
        suffix.push(char::from(SAFE[(seed % SAFE.len() as u64) as usize]));
        seed /= SAFE.len() as u64;
    }
    suffix
}

fn push_uid(high: u64, low: u64, into: &mut String) {
    // Writing to a String does not fail.
    let _ = write!(
        into,
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        0x8000 | low >> 48 & 0x3fff,
        low & 0xffff_ffff_ffff
    );
}

fn push_time(seconds: i64, into: &mut String) -> std::fmt::Result {
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => write!(into, "{time:.0}"),
        Err(_) => Err(std::fmt::Error),
    }
}

#[cfg(test)]
mod tests;
