//! Tests of the journal: files and recovery by example, and histories with restarts against a model.

mod files;
mod properties;
