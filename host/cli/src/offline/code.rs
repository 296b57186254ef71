//! The code of a plugin for many hosts: found, built and compiled once.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, bail};
use clap::Args;
use podium_host::config::{Defined, Policy};
use podium_runtime::{DEFAULT_TENANT_CODE_BYTES, Engine, EngineOptions, Plugin, Runner};
use podium_vocabulary::{PluginSpec, Source, text};

use crate::{
    args::{Runners, Toolchain},
    build::{self, command::plugin_of},
    check, compilation, plugin, runners, script,
};

/// The plugin to run, and how its code is found.
#[derive(Debug, Clone, Args)]
pub struct Code {
    /// The component or the script, instead of that of the folder
    #[arg(long, value_name = "FILE")]
    pub component: Option<PathBuf>,
    /// The plugin of a plugin.yaml with several: NAMESPACE/NAME, or NAME of a ClusterReconcilePlugin
    #[arg(long, value_name = "PLUGIN")]
    pub plugin: Option<String>,
    /// Refuse and bound the plugin by this policy, as podium-host --policy does
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    #[command(flatten)]
    pub runners: Runners,
    #[command(flatten)]
    pub toolchain: Toolchain,
}

/// A plugin of which the code is compiled.
pub(crate) struct Compiled {
    pub(crate) spec: PluginSpec,
    pub(super) policy: Option<Policy>,
    engine: Arc<Engine>,
    bytes: Vec<u8>,
    runner: Option<Runner>,
}

impl Compiled {
    /// Finds the plugin of a folder or of a plugin.yaml, builds it if it is a crate, and compiles it.
    ///
    /// # Errors
    /// Returns an error with file and field if the host would refuse the plugin, or if its code cannot be found.
    pub(crate) fn new(path: &Path, code: &Code) -> anyhow::Result<Self> {
        let policy = code.policy.as_deref().map(plugin::policy).transpose()?;
        let (defined, is_copy) = defined(path, code.plugin.as_deref())?;
        let forbidden = policy.as_ref().map_or_else(Vec::new, |policy| plugin::forbidden(policy, &defined));
        if !forbidden.is_empty() {
            bail!("{}", forbidden.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
        }
        let Defined { file, mut spec, .. } = defined;
        let folder = match file.parent() {
            Some(parent) if parent != Path::new("") => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let shown = file.display();
        if spec.suspend {
            bail!("{shown}: spec.suspend: is true, so the host does not run {}; remove it", spec.id);
        }
        let script = spec.language.filter(|language| is_copy && script::language_in(&folder) == Some(*language));
        let place = match (&code.component, script) {
            (Some(component), _) => Some(component.clone()),
            (None, Some(language)) => Some(folder.join(language.file())),
            (None, None) => component(&file, &folder, &spec, code)?,
        };
        let bytes = match (&place, &spec.source) {
            (Some(place), _) => std::fs::read(place).with_context(|| format!("cannot read {}", text::path(place)))?,
            (None, Source::Inline(script)) => script.as_bytes().to_vec(),
            (None, source) => bail!(
                "{shown}: the code of {} is not fetched from {source}: name the file by --component FILE",
                spec.id
            ),
        };
        // A simulation: nothing interrupts a run but its fuel, so that it does not depend on the machine's speed.
        let options = EngineOptions { tick: None, concurrent_runs: 1, ..EngineOptions::default() };
        let engine = Engine::new(EngineOptions { compilation: compilation::compilation()?, ..options })?;
        let runner = match spec.language {
            Some(language) => {
                spec.source = Source::Inline(String::from_utf8_lossy(&bytes).into());
                let install = code.toolchain.install_targets;
                let directory = runners::directory(code.runners.runners.as_deref(), &[language], install)?;
                Some(runners::runner(&engine, &directory, language)?)
            }
            None => {
                if let Some(component) = &place {
                    plugin::check(&spec, component)?;
                    spec.source = Source::File(component.clone());
                }
                None
            }
        };
        Ok(Self { spec, policy, engine, bytes, runner })
    }

    /// Returns the plugin with a configuration, which has no instance yet. Its code is not compiled again.
    pub(super) async fn plugin(&self, spec: &PluginSpec) -> anyhow::Result<Plugin> {
        Ok(match &self.runner {
            Some(runner) => self.engine.prepare(spec, runner, &self.bytes, self.code_bytes(spec)).await?,
            None => self.engine.compile_within(spec, &self.bytes, self.code_bytes(spec))?,
        })
    }

    /// The most bytes of compiled code that a plugin may have.
    fn code_bytes(&self, spec: &PluginSpec) -> u64 {
        let rule = self.policy.as_ref().and_then(|policy| policy.compiled_code_bytes(&spec.tenant()));
        rule.unwrap_or(DEFAULT_TENANT_CODE_BYTES)
    }

    /// Returns the namespace of Pods that name none.
    pub(crate) fn namespace(&self) -> &str {
        self.spec.id.namespace.as_deref().unwrap_or("default")
    }
}

/// Returns the plugin of the only configuration file, and whether that has the copy of the script beside it.
fn defined(path: &Path, name: Option<&str>) -> anyhow::Result<(Defined, bool)> {
    let files = check::files(&[path.to_owned()])?;
    let [file] = &files[..] else {
        let files: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        bail!("{} has several plugins; name one of: {}", path.display(), files.join(", "));
    };
    let mut plugins = plugin::read(std::slice::from_ref(file), None)?;
    let copy = plugins.iter().find(|plugin| script::is_copy(plugin, &plugins)).map(|plugin| plugin.spec.id.clone());
    if let Some(name) = name {
        plugins.retain(|plugin| plugin.spec.id.to_string() == name);
    }
    match (plugins.pop(), &plugins[..], name) {
        (Some(plugin), [], _) => Ok({
            let is_copy = copy.as_ref() == Some(&plugin.spec.id);
            (plugin, is_copy)
        }),
        (None, _, name) => bail!("--plugin {}: is not in {}", name.unwrap_or_default(), file.display()),
        (Some(last), others, _) => {
            let ids: Vec<_> = others.iter().chain([&last]).map(|plugin| plugin.spec.id.to_string()).collect();
            bail!("{} has several plugins; add --plugin with one of: {}", file.display(), ids.join(", "))
        }
    }
}

/// Returns the file that the configuration names, built if the folder is that of a crate; `None` if it names none.
fn component(file: &Path, folder: &Path, spec: &PluginSpec, code: &Code) -> anyhow::Result<Option<PathBuf>> {
    let Some(component) = spec.source.file() else { return Ok(None) };
    if folder.join("Cargo.toml").is_file() {
        let install = code.toolchain.install_targets;
        let options = build::Options { install, ..build::Options::new(folder) };
        return Ok(Some(plugin_of(&options, Some(file))?.component));
    }
    if !component.is_file() {
        bail!(
            "{}: spec.source.file: {} is not a file; build it by podium build, or name the file by --component FILE",
            file.display(),
            text::path(component)
        );
    }
    Ok(Some(component.to_owned()))
}
