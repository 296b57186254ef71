//! Plugins that are scripts: the file beside plugin.yaml, its copy in plugin.yaml, and the runner that executes it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, anyhow, bail};
use podium_config::MAX_SCRIPT_BYTES;
use podium_host::config::Defined;
use podium_runtime::{Engine, EngineOptions, Runner};
use podium_vocabulary::{Language, PluginSpec, Source};

use crate::{
    build::{self, Install, write_whole},
    plugin, ui,
};

/// The name of a script beside its plugin.yaml.
pub(crate) const FILE: &str = "plugin.js";

/// Returns true if the folder has a script and no crate.
pub(crate) fn is_in(directory: &Path) -> bool {
    directory.join(FILE).is_file() && !directory.join("Cargo.toml").is_file()
}

/// Copies the script of a folder into its plugin.yaml, which `kubectl apply` reads. Writes nothing if it is there, or
/// if it is too large for a configuration: then [`complete`] reads it.
///
/// # Errors
/// Returns an error if plugin.yaml has no place for the script, or cannot be read or written, or if YAML cannot contain
/// the script.
pub(crate) fn embed(directory: &Path) -> anyhow::Result<()> {
    let Some(after) = embedded(directory)? else { return Ok(()) };
    let config = directory.join(plugin::FILE);
    write_whole(&config, after.as_bytes()).with_context(|| format!("cannot write {}", config.display()))
}

/// Returns the text of plugin.yaml that [`embed`] writes; `None` if it writes nothing.
///
/// # Errors
/// See [`embed`].
pub(crate) fn embedded(directory: &Path) -> anyhow::Result<Option<String>> {
    let [script, config] = [FILE, plugin::FILE].map(|file| directory.join(file));
    let read = |file: &Path| std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()));
    let before = read(&config)?;
    let script = read(&script)?;
    if script.len() > MAX_SCRIPT_BYTES {
        return Ok(None);
    }
    let after = with_script(&before, &script).with_context(|| {
        format!(
            "{}: there is no line `{PLACE}` for a copy of {FILE}; add\n\n  source:\n    script:\n      \
             language: javascript\n      {PLACE}\n",
            config.display()
        )
    })?;
    if after == before {
        return Ok(None);
    }
    if !contains(&after, &script) {
        bail!("{FILE} has characters that YAML does not permit in a text, such as control characters");
    }
    Ok(Some(after))
}

/// The line before the copy, which is indented by two spaces more.
const PLACE: &str = "inline: |2";

/// Returns the YAML with the script as the block below its place; `None` if there is no such line.
fn with_script(yaml: &str, script: &str) -> Option<String> {
    let indentation = |line: &str| line.len() - line.trim_start().len();
    let lines: Vec<_> = yaml.lines().collect();
    let at = lines.iter().position(|line| line.trim() == PLACE)?;
    let own = indentation(lines[at]);
    let rest = lines[at + 1..].iter().position(|line| !line.trim().is_empty() && indentation(line) <= own);
    let rest = rest.map_or(&[][..], |after| &lines[at + 1 + after..]);
    let script = script.trim_end_matches(['\n', '\r']).lines().map(|line| match line {
        "" => String::new(),
        line => format!("{:own$}  {line}", ""),
    });
    let whole = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
    let lines = whole(&lines[..=at]).into_iter().chain(script).chain(whole(rest));
    Some(lines.map(|line| line + "\n").collect())
}

/// Returns true if a document of the YAML is a plugin with this script.
fn contains(yaml: &str, script: &str) -> bool {
    let documents = serde_saphyr::from_multiple::<serde_json::Value>(yaml).unwrap_or_default();
    let mut inline = documents.iter().filter_map(|document| document["spec"]["source"]["script"]["inline"].as_str());
    inline.any(|inline| same(inline, script))
}

/// Compares scripts as YAML keeps them: without the difference of line ends, and of lines after the last one.
fn same(one: &str, other: &str) -> bool {
    one.trim_end_matches(['\n', '\r']).lines().eq(other.trim_end_matches(['\n', '\r']).lines())
}

/// Replaces the copy of a script in plugin.yaml with the script beside it if that is too large for a copy. In a file
/// with several scripts none is the copy.
pub(crate) fn complete(mut plugins: Vec<Defined>) -> Vec<Defined> {
    let is_inline = |of: &Defined| of.file.ends_with(plugin::FILE) && matches!(of.spec.source, Source::Inline(_));
    let inline: Vec<_> = plugins.iter().filter(|of| is_inline(of)).map(|of| of.file.clone()).collect();
    for defined in plugins.iter_mut().filter(|of| inline.iter().filter(|file| **file == of.file).count() == 1) {
        let file = defined.file.with_file_name(FILE);
        let large = file.metadata().is_ok_and(|metadata| metadata.len() > MAX_SCRIPT_BYTES as u64);
        if large
            && let Source::Inline(inline) = &mut defined.spec.source
            && let Ok(script) = std::fs::read_to_string(file)
        {
            *inline = script.into();
        }
    }
    plugins
}

/// Returns a field and a warning about it if the configuration is not about the present script beside it.
pub(crate) fn outdated(defined: &Defined) -> Option<(String, String)> {
    let Source::Inline(inline) = &defined.spec.source else { return None };
    let script = std::fs::read_to_string(defined.file.with_file_name(FILE)).ok()?;
    let message = || format!("is not a copy of {FILE}; podium build copies it");
    (!same(&script, inline)).then(|| ("spec.source.script.inline".to_owned(), message()))
}

/// Finds mistakes in scripts as the host does.
pub(crate) struct Checker {
    engine: Arc<Engine>,
    runner: Runner,
}

impl Checker {
    /// Compiles the runner; `None` if there is none, and none is built.
    pub(crate) fn new(named: Option<&Path>) -> anyhow::Result<Option<Self>> {
        let in_checkout = || Some(checkout().ok()?.1).filter(|directory| directory.join(file()).is_file());
        let Some(directory) = present(named).or_else(in_checkout) else { return Ok(None) };
        let engine = Engine::new(EngineOptions { concurrent_runs: 1, ..EngineOptions::default() })?;
        Ok(Some(Self { runner: runner(&engine, &directory)?, engine }))
    }

    /// Has the runner prepare the script of a plugin, if the configuration contains it.
    pub(crate) fn check(&self, spec: &PluginSpec) -> anyhow::Result<()> {
        let Source::Inline(source) = &spec.source else { return Ok(()) };
        let prepared = self.engine.prepare(spec, &self.runner, source.as_bytes(), u64::MAX);
        ui::block_on(async { prepared.await.map(drop).map_err(Into::into) })
    }
}

/// Copies the script into plugin.yaml, and checks both.
///
/// # Errors
/// Returns an error if the host would refuse the plugin.
pub(crate) fn build(directory: &Path, runners: Option<&Path>) -> anyhow::Result<()> {
    embed(directory)?;
    let config = directory.join(plugin::FILE);
    let plugins = plugin::read(std::slice::from_ref(&config), None)?;
    if let Some(checker) = Checker::new(runners)? {
        plugins.iter().try_for_each(|plugin| checker.check(&plugin.spec))?;
    }
    ui::print(&format!(
        "{} and {FILE} are ready; deploy them with\n\n    podium deploy {}\n",
        config.display(),
        directory.display()
    ))
}

/// Compiles the runner of a directory.
pub(crate) fn runner(engine: &Engine, directory: &Path) -> anyhow::Result<Runner> {
    let file = directory.join(file());
    let wasm = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(engine.runner(&file, &wasm)?)
}

/// Returns the directory of the runners: the one that is named, the one beside this program, or one in the checkout
/// that this program was built from, where the runner is built.
///
/// # Errors
/// Returns an error that says what to install if the runner cannot be built.
pub(crate) fn runners(named: Option<&Path>, install: Install) -> anyhow::Result<PathBuf> {
    if let Some(directory) = present(named) {
        return Ok(directory);
    }
    let (path, directory) = checkout()?;
    if !directory.join(file()).is_file() {
        eprintln!("building the runner of scripts in JavaScript, once: some minutes");
    }
    let built = build::build(&build::Options { install, quiet: true, ..build::Options::new(&path) });
    let built = built.map_err(|error| match compiles_c() {
        true => error,
        false => anyhow!(
            "the runner of scripts in JavaScript is built with clang, and none compiles for wasm32: install it \
             (apt-get install clang, dnf install clang, brew install llvm) or name one in CC_wasm32_unknown_unknown; \
             or pass --runners, a directory that has {}",
            file()
        ),
    })?;
    write_whole(&directory.join(file()), &std::fs::read(built.component)?)?;
    Ok(directory)
}

/// Returns the named directory, or the one beside this program if it has the runner.
pub(crate) fn present(named: Option<&Path>) -> Option<PathBuf> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("runners"));
    named.map(Path::to_owned).or_else(|| beside().filter(|directory| directory.join(file()).is_file()))
}

/// Returns the runner's crate and the directory of the built runner, if this program is one of a checkout.
fn checkout() -> anyhow::Result<(PathBuf, PathBuf)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-sdk/javascript");
    if !path.join("Cargo.toml").is_file() {
        bail!("scripts need --runners, the directory that has {}", file());
    }
    let directory = build::target_directory(&path)?.join("podium/runners");
    Ok((path, directory))
}

fn file() -> String {
    format!("{}.wasm", Language::JavaScript.runner())
}

/// Returns true if the C compiler that cargo would use knows the architecture of WebAssembly.
#[must_use]
pub fn compiles_c() -> bool {
    let compiler = std::env::var_os("CC_wasm32_unknown_unknown").unwrap_or_else(|| "clang".into());
    let output = std::process::Command::new(compiler).arg("--print-targets").output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("wasm32"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_replaces_the_block_and_nothing_else() {
        let head = "spec:\n  source:\n    script:\n      inline: |2\n";
        let yaml = format!("{head}        old\n\n          older\n  watch: {{}}\n");
        // Spaces at the start and at the end of a line are in the text of a template literal.
        let script = "  a {  \n\n  `\n   \n\tb`\n}\n\n";
        let new = with_script(&yaml, script).unwrap();
        let block = "          a {  \n\n          `\n           \n        \tb`\n        }\n";
        assert_eq!(new, format!("{head}{block}  watch: {{}}\n"));
        assert!(contains(&new, script), "{new}");
        assert!(!contains(&new, "a {"), "{new}");
        assert_eq!(with_script(&new, script).as_deref(), Some(&*new), "the second copy changes nothing");
        assert_eq!(with_script("inline: |2\n", "x").as_deref(), Some("inline: |2\n  x\n"), "at the end of the file");
        assert_eq!(with_script("inline: x\n", "x"), None);
    }
}
