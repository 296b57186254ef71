//! The demo's plugins: built from the checkout, with their sample configurations and shorter times.

use std::path::Path;

use anyhow::{Context, bail};
use podium_host::config::Defined;
use podium_vocabulary::PluginSpec;

use crate::{
    build::{self, Built, Install},
    plugin, ui,
};

/// A plugin of the checkout. `config` replaces the configuration of the sample, whose times are too long for the demo.
struct Sample {
    name: &'static str,
    config: Option<&'static str>,
}

const SAMPLES: [Sample; 5] = [
    Sample { name: "workload-label", config: None },
    Sample { name: "image-policy", config: None },
    Sample { name: "crashloop-triage", config: Some(r#"{"threshold":2}"#) },
    Sample { name: "pod-ttl", config: Some(r#"{"succeededSeconds":3,"failedSeconds":3}"#) },
    Sample { name: "spread-guard", config: Some(r#"{"settleSeconds":2}"#) },
];

/// The plugins of the demo, built.
pub(super) struct Plugins {
    /// Plugins that are loaded at the start.
    pub(super) loaded: Vec<PluginSpec>,
    /// The plugin that is loaded during the measurements and then unloaded.
    pub(super) spinner: PluginSpec,
}

/// Builds all plugins, with a progress bar.
///
/// # Errors
/// Returns an error outside a checkout, or if a plugin does not build.
pub(super) fn build(install: Install) -> anyhow::Result<Plugins> {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let plugins = checkout.join("plugins");
    let guests = checkout.join("tests/guests");
    if !plugins.join(SAMPLES[0].name).is_dir() || !guests.join("spinner").is_dir() {
        bail!("the demo builds its plugins from source: run `cargo demo` in a checkout of Podium");
    }
    let bar = ui::bar(SAMPLES.len() as u64 + 1);
    // The tests build the plugins there too, so neither repeats the other's builds.
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
    let mut loaded = Vec::new();
    for sample in SAMPLES {
        let directory = plugins.join(sample.name);
        let built = one(&directory)?;
        for Defined { mut spec, .. } in plugin::specs(&directory.join("plugin.yaml"), &built.component)? {
            if let Some(config) = sample.config {
                spec.config = config.into();
            }
            loaded.push(spec);
        }
    }
    let directory = guests.join("spinner");
    let built = one(&directory)?;
    let spinner = plugin::specs(&directory.join("plugin.yaml"), &built.component)?;
    bar.finish_and_clear();
    let Defined { spec: spinner, .. } = spinner.into_iter().next().context("the spinner has no configuration")?;
    Ok(Plugins { loaded, spinner })
}
