//! `podium pull`: a component from a registry into a file.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context;
use serde_json::json;

use super::{access::Access, reported};
use crate::{
    args::{self, Output},
    build::write_whole,
    ui,
};

/// Pulls, writes and prints.
///
/// # Errors
/// Returns an error if the registry refuses the pull, and if its answers are not a component with the right digest.
pub(crate) async fn run(arguments: &args::Pull) -> anyhow::Result<ExitCode> {
    let access = Access::new(&arguments.reference, &arguments.registry)?;
    let what = format!("pulling {}", access.reference);
    let pull = access.client.pull(&access.reference, &access.credentials, &access.limits);
    let component = reported(&what, pull).await.map_err(|error| access.explain(error))?;
    let name = access.reference.repository().rsplit('/').next().unwrap_or_default();
    let file = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.wasm")));
    // A bare name has an empty folder.
    let absolute = std::path::absolute(&file)?;
    write_whole(&absolute, &component.bytes).with_context(|| format!("cannot write {}", file.display()))?;
    let reference = access.reference.with_digest(component.manifest).to_string();
    let bytes = component.bytes.len() as u64;
    ui::print(&match arguments.output {
        Output::Json => {
            let manifest = component.manifest.to_string();
            let layer = component.layer.to_string();
            format!(
                "{}\n",
                json!({
                    "ok": true,
                    "reference": reference,
                    "manifest": manifest,
                    "layer": layer,
                    "file": file,
                    "bytes": bytes,
                })
            )
        }
        Output::Table => format!("{reference}\n{} written to {}\n", ui::size(bytes), file.display()),
    })?;
    Ok(ExitCode::SUCCESS)
}
