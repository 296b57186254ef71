//! The demo's plugins: found in the checkout, built, configured as their samples say, only less patient.

use std::path::Path;

use anyhow::{Context, bail};
use podium_pods::model::PluginSpec;

use crate::{
    build::{self, Built, Install},
    plugin, ui,
};

/// A plugin of the checkout and what stands for its sample's `config` here, where nothing may take minutes.
struct Part {
    name: &'static str,
    config: Option<&'static str>,
}

const PARTS: [Part; 5] = [
    Part { name: "workload-label", config: None },
    Part { name: "image-policy", config: None },
    Part { name: "crashloop-triage", config: Some(r#"{"threshold":2}"#) },
    Part { name: "pod-ttl", config: Some(r#"{"succeededSeconds":3,"failedSeconds":3}"#) },
    Part { name: "spread-guard", config: Some(r#"{"settleSeconds":2}"#) },
];

/// What the host is given.
pub(super) struct Cast {
    pub(super) plugins: Vec<PluginSpec>,
    /// Loaded later, and taken away again.
    pub(super) spinner: PluginSpec,
}

/// Builds all of them, with a bar.
///
/// # Errors
/// Outside a checkout, or when one does not build.
pub(super) fn build(install: Install) -> anyhow::Result<Cast> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (plugins, guests) = (checkout.join("plugins"), checkout.join("tests/guests"));
    if !plugins.join(PARTS[0].name).is_dir() || !guests.join("spinner").is_dir() {
        bail!("the demo builds its plugins from source: run `cargo demo` in a checkout of Podium");
    }
    let bar = ui::bar(PARTS.len() as u64 + 1);
    // Where the tests build them too: neither builds again what the other has built.
    let target_dir = checkout.join("target/guests");
    let one = |directory: &Path| -> anyhow::Result<Built> {
        let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
        bar.set_prefix(name.clone());
        if !ui::interactive() {
            eprintln!("building {name}");
        }
        let target_dir = Some(target_dir.clone());
        let options = build::Options { target_dir, install, quiet: true, ..build::Options::new(directory) };
        let built = build::build_with(&options, &mut |package| bar.set_message(package.to_owned()))?;
        bar.inc(1);
        Ok(built)
    };
    let mut cast = Vec::new();
    for part in PARTS {
        let directory = plugins.join(part.name);
        let built = one(&directory)?;
        for (_, mut spec) in plugin::specs(&directory.join("plugin.yaml"), &built.component)? {
            if let Some(config) = part.config {
                spec.config = config.to_owned();
            }
            cast.push(spec);
        }
    }
    let directory = guests.join("spinner");
    let built = one(&directory)?;
    let spinner = plugin::specs(&directory.join("plugin.yaml"), &built.component)?;
    bar.finish_and_clear();
    let (_, spinner) = spinner.into_iter().next().context("the spinner has no configuration")?;
    Ok(Cast { plugins: cast, spinner })
}
