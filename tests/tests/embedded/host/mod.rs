//! The whole host on the embedded cluster: real components, the real watch, cache, queue, engine and writeback, and a
//! Kubernetes API server in the process. Time is paused unless a test says otherwise.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod edge;
mod ends;
mod faults;
mod fitness;
mod full;
mod incarnations;
mod journal;
mod labels;
mod loops;
mod objects;
mod one_group;
mod order;
mod profiles;
mod prune;
mod python;
mod quiet;
mod replicas;
mod requests;
mod rights;
mod run_reports;
mod scripts;
mod shards;
mod shutdown;
mod siblings;
mod simulation;
mod spin;
mod state_groups;
mod status;
mod swap;
mod swaps;
mod watch;
mod why;
