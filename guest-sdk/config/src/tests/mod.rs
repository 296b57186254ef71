//! Tests of the types, the JSON Schema and the collecting pass against each other.

mod chart;
mod drift;
mod editors;
mod names;
mod rules;
