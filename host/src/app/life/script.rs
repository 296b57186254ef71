//! Scripts and their runners, which are files of the platform.

use std::{fmt::Display, path::PathBuf, sync::Arc};

use bytes::Bytes;
use podium_config::status;
use podium_runtime::Runner;
use podium_vocabulary::{Language, LimitClass, PluginSpec, text};
use tokio::sync::OnceCell;

use super::{Code, Component, LoadFailure, component::Components, image::Fetched};
use crate::objects::sha256;

/// The runners, each compiled when its first script is loaded, and kept: no tenant's plugins decide how long.
pub(in crate::app) struct Runners {
    /// `None` if no directory is named.
    directory: Option<PathBuf>,
    /// By the number of the language.
    compiled: [OnceCell<(Runner, status::Runner)>; Language::ALL.len()],
}

impl Runners {
    pub(in crate::app) fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, compiled: Default::default() }
    }
}

impl Components {
    /// Makes a plugin of a script and its runner.
    pub(super) async fn script(
        &self,
        language: Language,
        spec: &PluginSpec,
        fetched: Fetched,
        code_bytes: u64,
    ) -> Result<Code, LoadFailure> {
        let (runner, facts) = self.compiled_runner(language).await?;
        let Fetched { bytes, image, signer, stored } = fetched;
        let plugin = self.engine.prepare(spec, runner, &bytes, code_bytes).await?;
        let sha256 = sha256(&bytes);
        let imports = plugin.imports();
        let component = Component { sha256, imports, image, signer, stored, runner: Some(facts.clone()) };
        Ok(Code { reconcile: Arc::new(plugin), component: component.into() })
    }

    /// Compiles all runners of the directory. Logs what cannot be compiled, which is tried again for a script.
    pub(in crate::app) async fn precompile(&self) {
        for language in Language::ALL {
            if let Err(error) = self.compiled_runner(language).await {
                tracing::warn!(language = language.name(), %error, "runner not compiled before the start");
            }
        }
    }

    async fn compiled_runner(&self, language: Language) -> Result<&(Runner, status::Runner), LoadFailure> {
        let cell = &self.runners.compiled[language as usize];
        if let Some(compiled) = cell.get() {
            return Ok(compiled);
        }
        // Not within the cell, for which others wait: a disk that hangs is given up.
        let (file, wasm) = self.runner_file(language).await?;
        cell.get_or_try_init(|| self.runner(language, file, wasm)).await
    }

    async fn runner_file(&self, language: Language) -> Result<(PathBuf, Bytes), LoadFailure> {
        let name = language.runner();
        let missing = || LoadFailure::NoRunner {
            message: format!("scripts need --runners, the directory that has {name}.wasm"),
            passing: false,
        };
        let file = self.runners.directory.as_ref().ok_or_else(missing)?.join(format!("{name}.wasm"));
        let wasm = self.in_file(&file, LimitClass::Interpreter).await.map_err(|error| match error {
            LoadFailure::Unreadable { path, error } => unusable(language, &format!("{path} {error}")),
            error => unusable(language, &error),
        })?;
        Ok((file, wasm))
    }

    async fn runner(
        &self,
        language: Language,
        file: PathBuf,
        wasm: Bytes,
    ) -> Result<(Runner, status::Runner), LoadFailure> {
        let engine = self.engine.clone();
        let compile = move || {
            let runner = engine.runner(&file, &wasm).map_err(|error| unusable(language, &error))?;
            let digest = format!("sha256:{}", sha256(&wasm));
            tracing::info!(file = %text::path(&file), digest, "runner loaded");
            let [language, name] = [language.name(), language.runner()].map(str::to_owned);
            Ok((runner, status::Runner { language, name, digest }))
        };
        self.blocking(compile).await
    }
}

fn unusable(language: Language, error: &dyn Display) -> LoadFailure {
    let message = format!("--runners: the runner of {} scripts cannot be used: {error}", language.name());
    LoadFailure::NoRunner { message: text::line(&message), passing: true }
}
