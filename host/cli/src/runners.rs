//! The runners of scripts: where they are, how those of a checkout are built, and what they say about a script.

use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use anyhow::{Context, anyhow, bail};
use podium_runtime::{Engine, EngineOptions, Runner};
use podium_vocabulary::{Language, PluginSpec, Source};
use tokio::time::Instant;

use crate::{
    build::{self, Install, write_whole},
    compilation, ui,
};

/// Finds mistakes in scripts as the host does.
pub(crate) struct Checker {
    engine: Arc<Engine>,
    directory: PathBuf,
    /// By the number of the language; compiled for its first script.
    runners: [OnceCell<Runner>; Language::ALL.len()],
}

impl Checker {
    /// Finds the runners; `None` if there is none, and none is built.
    pub(crate) fn new(named: Option<&Path>) -> anyhow::Result<Option<Self>> {
        let in_checkout = || Some(checkout().ok()?.target).filter(|directory| has_any(directory));
        let Some(directory) = present(named).or_else(in_checkout) else { return Ok(None) };
        let compilation = compilation::compilation()?;
        let engine = Engine::new(EngineOptions { concurrent_runs: 1, compilation, ..EngineOptions::default() })?;
        Ok(Some(Self { engine, directory, runners: Default::default() }))
    }

    /// Has the runner prepare the script of a plugin, if the configuration contains it. Returns `None` without a runner
    /// of its language.
    pub(crate) fn check(&self, spec: &PluginSpec) -> anyhow::Result<Option<()>> {
        let (Source::Inline(source), Some(language)) = (&spec.source, spec.language) else { return Ok(Some(())) };
        if !self.directory.join(file(language)).is_file() {
            return Ok(None);
        }
        let cell = &self.runners[language as usize];
        let runner = match cell.get() {
            Some(runner) => runner,
            None => {
                let runner = runner(&self.engine, &self.directory, language)?;
                cell.get_or_init(|| runner)
            }
        };
        let prepared = self.engine.prepare(spec, runner, source.as_bytes(), u64::MAX);
        ui::block_on(async { prepared.await.map(|_| Some(())).map_err(Into::into) })
    }
}

/// Loads the runner of a directory. Reports how long it was compiled, if it was.
pub(crate) fn runner(engine: &Engine, directory: &Path, language: Language) -> anyhow::Result<Runner> {
    let file = directory.join(file(language));
    let wasm = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let bar = ui::bar(1);
    bar.set_message("compiling the runner of scripts");
    let started = Instant::now();
    let runner = engine.runner(&file, &wasm);
    bar.finish_and_clear();
    let runner = runner?;
    if !runner.was_stored() {
        let seconds = started.elapsed().as_secs_f64();
        ui::report(&format!("compiled the runner of scripts in {}: {seconds:.1} s", language.title()));
    }
    Ok(runner)
}

/// Returns the directory of the runners: the one that is named, the one beside this program, or one in the checkout
/// that this program was built from, where those of the languages are built.
///
/// # Errors
/// Returns an error that says what to install if a runner cannot be built.
pub(crate) fn directory(named: Option<&Path>, languages: &[Language], install: Install) -> anyhow::Result<PathBuf> {
    if let Some(directory) = present(named) {
        return Ok(directory);
    }
    let checkout = checkout()?;
    for language in languages {
        let target = checkout.target.join(file(*language));
        if !target.is_file() {
            eprintln!("building the runner of scripts in {}, once: some minutes", language.title());
        }
        let built = match language {
            Language::JavaScript => javascript(&checkout.javascript, install)?,
            Language::Python => python()?.with_context(|| {
                format!(
                    "the runner of scripts in Python is built with componentize-py, which needs python3 with venv and \
                     the network the first time (apt-get install python3-venv); or pass --runners, a directory that \
                     has {}",
                    file(*language)
                )
            })?,
        };
        write_whole(&target, &std::fs::read(built)?)?;
    }
    Ok(checkout.target)
}

fn javascript(sources: &Path, install: Install) -> anyhow::Result<PathBuf> {
    let built = build::build(&build::Options { install, quiet: true, ..build::Options::new(sources) });
    let built = built.map_err(|error| match compiles_c() {
        true => error,
        false => anyhow!(
            "the runner of scripts in JavaScript is built with clang, and none compiles for wasm32: install it \
             (apt-get install clang, dnf install clang, brew install llvm) or name one in CC_wasm32_unknown_unknown; \
             or pass --runners, a directory that has {}",
            file(Language::JavaScript)
        ),
    })?;
    Ok(built.component)
}

/// Builds the runner of Python in the checkout, unless it is newer than its sources, and returns its file; `None` where
/// componentize-py cannot be had.
///
/// # Errors
/// Returns an error if it does not build.
pub fn python() -> anyhow::Result<Option<PathBuf>> {
    /// The status with which the script says so.
    const MISSING: i32 = 3;
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = build::target_directory(&checkout.join("guest-sdk/javascript"))?;
    let mut command = Command::new("sh");
    command.arg(checkout.join("guest-sdk/python/build.sh")).env("CARGO_TARGET_DIR", target);
    let output = command.stderr(Stdio::inherit()).output().context("sh is not started")?;
    match output.status.code() {
        Some(0) => Ok(Some(String::from_utf8_lossy(&output.stdout).trim_end().into())),
        Some(MISSING) => Ok(None),
        _ => bail!("the runner of scripts in Python is not built, see above: {}", output.status),
    }
}

/// Returns the named directory, or the one beside this program if it has a runner.
fn present(named: Option<&Path>) -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("runners"));
    named.map(Path::to_owned).or_else(|| beside().filter(|directory| has_any(directory)))
}

fn has_any(directory: &Path) -> bool {
    Language::ALL.into_iter().any(|language| directory.join(file(language)).is_file())
}

struct Checkout {
    /// The crate of the runner of JavaScript.
    javascript: PathBuf,
    /// The directory of the built runners.
    target: PathBuf,
}

/// Returns an error if this program is not one of a checkout.
fn checkout() -> anyhow::Result<Checkout> {
    let javascript = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-sdk/javascript");
    if !javascript.join("Cargo.toml").is_file() {
        bail!("scripts need --runners, the directory that has {}", Language::ALL.map(file).join(" and "));
    }
    let target = build::target_directory(&javascript)?.join("podium/runners");
    Ok(Checkout { javascript, target })
}

fn file(language: Language) -> String {
    format!("{}.wasm", language.runner())
}

/// Returns true if the C compiler that cargo would use knows the architecture of WebAssembly.
#[must_use]
pub fn compiles_c() -> bool {
    let compiler = std::env::var_os("CC_wasm32_unknown_unknown").unwrap_or_else(|| "clang".into());
    let output = Command::new(compiler).arg("--print-targets").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("wasm32"))
}
