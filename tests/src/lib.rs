//! What the suites share: components built once per run, the real control plane, the host as a process.

pub mod controlplane;
pub mod guests;
pub mod process;
pub mod sandbox;
pub mod wait;
