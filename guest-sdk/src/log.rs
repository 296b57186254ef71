//! The plugin's log: one line a call, with fields. Acts at once, also where the run fails afterwards.
//!
//! The host adds the plugin, the Pod and the run. Each run has a budget of bytes; what exceeds it is dropped and
//! counted.
//!
//! ```
//! # let (node, pods) = ("node-1", 3);
//! podium_sdk::log::info("crowded", &[("node", &node), ("pods", &pods)]);
//! ```

use std::fmt::Display;

use crate::host;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For the author.
    Debug,
    /// For the curious.
    Info,
    /// Somebody should look some day.
    Warn,
    /// Somebody should look now.
    Error,
}

/// For the author.
pub fn debug(message: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Debug, message, fields);
}

/// For the curious.
pub fn info(message: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Info, message, fields);
}

/// Somebody should look some day.
pub fn warn(message: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Warn, message, fields);
}

/// Somebody should look now.
pub fn error(message: &str, fields: &[(&str, &dyn Display)]) {
    write(Level::Error, message, fields);
}

fn write(level: Level, message: &str, fields: &[(&str, &dyn Display)]) {
    let fields: Vec<_> = fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_string())).collect();
    host::log(level, message, &fields);
}
