//! The plugin's log: one line per call, with fields. Lines are sent at once, even if the run fails later.
//!
//! The host adds the plugin, the Pod and the run. Each run has a budget of bytes; lines that exceed it are dropped
//! and counted.
//!
//! ```
//! # let (node, pods) = ("node-1", 3);
//! podium_sdk::log::info("crowded", &[("node", &node), ("pods", &pods)]);
//! ```

use std::fmt::Display;

use crate::host;

/// The severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the plugin's author.
    Debug,
    /// Normal operation.
    Info,
    /// A problem that the plugin handles itself.
    Warn,
    /// A problem that needs attention.
    Error,
}

/// Logs a line for the plugin's author.
pub fn debug(message: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Debug, message, fields);
}

/// Logs normal operation.
pub fn info(message: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Info, message, fields);
}

/// Logs a problem that the plugin handles itself.
pub fn warn(message: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Warn, message, fields);
}

/// Logs a problem that needs attention.
pub fn error(message: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Error, message, fields);
}

fn write(level: Level, message: &str, fields: &[(&str, &dyn Display)]) {
    let fields: Vec<_> = fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    host::log(level, message, &fields);
}
