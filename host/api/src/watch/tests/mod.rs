//! Tests of lists and watches against a scripted API server (`wire`) or a model of one (`cluster`).

mod cluster;
mod list;
mod properties;
mod scenarios;
mod wire;
