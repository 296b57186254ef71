//! Version and commit of the program, for the log and for metrics.

/// The version of `podium-host`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit that the builder named in `PODIUM_COMMIT`, as `deploy/image/build.sh` does; `unknown` without one. The
/// build itself does not need git.
pub const COMMIT: &str = match option_env!("PODIUM_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};
