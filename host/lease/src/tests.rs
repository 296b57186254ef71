//! Tests of the crate: the form, single steps, and the simulation of many replicas.

mod form;
mod random;
mod server;
mod simulation;
mod steps;
