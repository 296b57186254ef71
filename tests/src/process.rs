//! The host as a child process.
