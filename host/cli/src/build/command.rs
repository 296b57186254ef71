//! `podium build`: prints the path of the component and its imports.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, bail};
use podium_host::config::Defined;
use serde::Serialize;

use super::{Built, Options};
use crate::{args, plugin, script, suggestion, ui};

/// Builds, checks the component against the plugin.yaml beside the crate, and prints what the component can do.
///
/// # Errors
/// See [`super::build`]. Also returns an error if plugin.yaml is invalid, if the host would refuse the component, if
/// the component exports no reconciler, or if the file cannot be written.
pub fn run(arguments: &args::Build) -> anyhow::Result<ExitCode> {
    let directory = if arguments.path.is_dir() { Some(&*arguments.path) } else { arguments.path.parent() };
    let config = directory.unwrap_or(Path::new("")).join(plugin::FILE);
    let configured = config.is_file();
    if configured {
        // Checked before the build, so that a mistake in the file is reported without a minute of compilation.
        plugin::read(std::slice::from_ref(&config), None)?;
    }
    if let Some(language) = script::language_in(&arguments.path) {
        script::build(&arguments.path, language, arguments.runners.runners.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    one_crate(&arguments.path)?;
    let options = Options {
        path: arguments.path.clone(),
        target_dir: arguments.target_dir.clone(),
        target: arguments.target,
        install: arguments.toolchain.install_targets,
        quiet: arguments.quiet,
    };
    let mut built = plugin_of(&options, configured.then_some(&*config))?;
    if !configured && !arguments.quiet {
        eprintln!(
            "note: {} not found, so the imports are not compared with grants. A first version, from the imports of the \
             component; replace the keys:\n\n{}",
            config.display(),
            suggestion::for_component(&built)
        );
    }
    if let Some(out) = &arguments.out {
        std::fs::copy(&built.component, out).with_context(|| format!("cannot write {}", out.display()))?;
        built.component = out.clone();
    }
    match arguments.output {
        args::Output::Json => ui::print(&format!("{}\n", json(&built)?))?,
        args::Output::Table => ui::print(&text(&built))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds a plugin's crate, and compares the component with a configuration.
///
/// # Errors
/// See [`run`].
pub(crate) fn plugin_of(options: &Options, config: Option<&Path>) -> anyhow::Result<Built> {
    let built = super::build(options)?;
    if !built.is_plugin() {
        bail!(
            "{} exports no reconciler, so the host could not run it: add `reconciler!(reconcile);` to \
             src/lib.rs",
            built.name
        );
    }
    let specs = config.map(|config| plugin::specs(config, &built.component)).transpose()?;
    for Defined { file, spec, .. } in specs.into_iter().flatten() {
        plugin::check(&spec, &built.component)
            .with_context(|| format!("{}: the host would refuse plugin {}", file.display(), spec.id))?;
    }
    Ok(built)
}

/// Checks that the path is one crate. `dev` and `check` accept a folder of crates, a build only one of them.
fn one_crate(path: &Path) -> anyhow::Result<()> {
    if !path.is_dir() || path.join("Cargo.toml").is_file() {
        return Ok(());
    }
    let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut crates: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    crates.retain(|entry| entry.join("Cargo.toml").is_file());
    crates.sort();
    if crates.is_empty() {
        return Ok(());
    }
    let crates = crates.iter().map(|entry| entry.display().to_string()).collect::<Vec<_>>().join(", ");
    bail!("{} is a folder of crates; build one of them: {crates}", path.display());
}

fn json(built: &Built) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Shown<'a> {
        ok: bool,
        #[serde(flatten)]
        built: &'a Built,
    }
    Ok(serde_json::to_string(&Shown { ok: true, built })?)
}

fn text(built: &Built) -> String {
    let mut text = format!("{}  {}  {}\n\n", built.name, ui::size(built.bytes), built.component.display());
    if built.imports.is_empty() {
        return text + "It imports nothing: it can read no other Pod and write nothing.\n";
    }
    let rows = built.imports.iter().map(|import| [import.interface.clone(), import.functions.join(", ")]);
    text += &ui::table(["IMPORTS", "FUNCTIONS"], rows);
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::Import;

    fn built(imports: Vec<Import>) -> Built {
        Built {
            name: "hello".into(),
            component: "target/podium/hello.wasm".into(),
            bytes: 17_000,
            imports,
            exports: vec!["podium:reconcile/reconciler@0.1.0".into()],
        }
    }

    #[test]
    fn an_error_about_a_folder_names_the_crates_in_it() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b", "a"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("Cargo.toml"), "").unwrap();
        }
        let error = one_crate(folder.path()).unwrap_err().to_string();
        let a = folder.path().join("a");
        let b = folder.path().join("b");
        assert!(error.ends_with(&format!("build one of them: {}, {}", a.display(), b.display())), "{error}");
        assert!(one_crate(&a).is_ok());
    }

    #[test]
    fn every_imported_function_is_shown() {
        let writes = Import {
            interface: "podium:reconcile/writes@0.1.0".into(),
            functions: vec!["set-label".into(), "commit".into()],
        };
        let text = text(&built(vec![writes]));
        assert!(text.contains("16.6 KiB"), "{text}");
        assert!(text.contains("podium:reconcile/writes@0.1.0  set-label, commit"), "{text}");
    }

    #[test]
    fn a_component_without_imports_is_reported_as_having_no_effects() {
        assert!(text(&built(Vec::new())).contains("imports nothing"));
    }

    #[test]
    fn json_is_one_line_with_the_component_and_its_imports() {
        let json = json(&built(Vec::new())).unwrap();
        assert!(!json.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["ok"], true);
        assert_eq!(value["component"], "target/podium/hello.wasm");
    }
}
