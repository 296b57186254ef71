//! Helpers of the suites: components that are built once per run, the real control plane, the host as a process.

pub mod bombs;
pub mod cgroup;
pub mod controlplane;
pub mod embedded;
pub mod fuzz;
mod go_program;
pub mod guests;
pub mod helm;
pub mod kubelet;
pub mod modules;
pub mod network;
pub mod oracle;
pub mod plugins;
pub mod pprof;
pub mod process;
pub mod programs;
pub mod registry;
pub mod runner;
pub mod sandbox;
pub mod wait;
pub mod wire;
