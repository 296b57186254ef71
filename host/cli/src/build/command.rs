//! `podium build`: what is printed, and where the component goes.

use std::process::ExitCode;

use anyhow::{Context, bail};
use serde::Serialize;

use super::{Built, Options};
use crate::{args, ui};

/// Builds, checks that the component is a plugin, and prints what it can do.
///
/// # Errors
/// As [`super::build`]; and when the component exports no reconciler or the file cannot be written.
pub fn run(arguments: &args::Build) -> anyhow::Result<ExitCode> {
    let mut built = super::build(&Options {
        path: arguments.path.clone(),
        target_dir: arguments.target_dir.clone(),
        target: arguments.target,
        quiet: arguments.quiet,
    })?;
    if !built.is_plugin() {
        bail!(
            "{} exports no reconciler, so the host could not run it: is there a line `reconciler!(reconcile);` in \
             src/lib.rs?",
            built.name
        );
    }
    if let Some(out) = &arguments.out {
        std::fs::copy(&built.component, out).with_context(|| format!("cannot write {}", out.display()))?;
        built.component = out.clone();
    }
    match arguments.output {
        args::Output::Json => println!("{}", json(&built)?),
        args::Output::Table => print!("{}", text(&built)),
    }
    Ok(ExitCode::SUCCESS)
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
    fn a_component_that_imports_nothing_is_said_to_do_nothing() {
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
