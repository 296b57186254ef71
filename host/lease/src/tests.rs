//! Tests of the crate: the form, single steps, and the simulation of many replicas.

mod first;
mod form;
mod random;
mod seeds;
mod server;
mod sharing;
mod simulation;
mod steps;
