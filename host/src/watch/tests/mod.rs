//! Tests of lists and watches against an API server that is scripted (`wire`) or modelled (`cluster`).

mod cluster;
mod list;
mod properties;
mod resume;
mod scenarios;
mod wire;
