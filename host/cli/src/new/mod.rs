//! `podium new`: writes a new plugin. It builds nothing and asks nothing.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use podium_vocabulary::Language;

use crate::{
    args::{self, Lang},
    script, ui,
};

/// The files to write in Rust, relative to the new folder. Words in double braces are replaced.
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.txt")),
    ("src/lib.rs", include_str!("template/lib.rs.txt")),
    ("plugin.yaml", include_str!("template/plugin.yaml.txt")),
    CASES,
    (".gitignore", "/target\n"),
];

/// The same in JavaScript. The module "podium" is that of the runner, for tests.
const JAVASCRIPT: [(&str, &str); 9] = [
    ("plugin.js", include_str!("template/javascript/plugin.js.txt")),
    ("plugin.test.js", include_str!("template/javascript/plugin.test.js.txt")),
    ("package.json", include_str!("template/javascript/package.json.txt")),
    ("plugin.yaml", include_str!("template/script.yaml.txt")),
    CASES,
    ("podium/podium.js", include_str!("modules/podium.js")),
    ("podium/podium.d.ts", include_str!("modules/podium.d.ts")),
    ("podium/testing.js", include_str!("modules/testing.js")),
    (".gitignore", "/target\n"),
];

/// The same in Python.
const PYTHON: [(&str, &str); 8] = [
    ("plugin.py", include_str!("template/python/plugin.py.txt")),
    ("test_plugin.py", include_str!("template/python/test_plugin.py.txt")),
    ("plugin.yaml", include_str!("template/script.yaml.txt")),
    CASES,
    ("podium/__init__.py", include_str!("modules/podium.py")),
    ("podium/__init__.pyi", include_str!("modules/podium.pyi")),
    ("podium/testing.py", include_str!("modules/testing.py")),
    (".gitignore", "/target\n__pycache__/\n"),
];

/// The cases of `podium test`.
const CASES: (&str, &str) = ("tests/team.yaml", include_str!("template/team.yaml.txt"));

/// The JSON Schemas of plugin.yaml and of the cases, for editors; `podium schema` prints newer ones.
const SCHEMAS: [&str; 2] = ["plugin.schema.json", "tests/case.schema.json"];

/// Writes the plugin and prints the next steps.
///
/// # Errors
/// Returns an error if the name is not valid for a plugin, the folder exists, or podium-sdk is not in the named
/// directory.
pub fn run(arguments: &args::New) -> anyhow::Result<ExitCode> {
    match arguments.lang {
        Lang::Rust => {
            let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-sdk");
            let beside = std::env::current_exe().ok().map(|program| program.with_file_name("sdk/guest-sdk"));
            let sdk = sdk(arguments.sdk.as_deref(), beside.into_iter().chain([checkout]))?;
            write(&arguments.path, &FILES, Kind::Crate { sdk: &sdk })?
        }
        Lang::Js => write(&arguments.path, &JAVASCRIPT, Kind::Script(Language::JavaScript))?,
        Lang::Python => write(&arguments.path, &PYTHON, Kind::Script(Language::Python))?,
    }
    ui::print(&format!("Created {}. Next:\n\n    podium test {0}\n    podium dev {0}\n", arguments.path.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Which plugin the files make.
#[derive(Clone, Copy)]
enum Kind<'a> {
    Crate {
        /// As a dependency in TOML.
        sdk: &'a str,
    },
    Script(Language),
}

fn write(directory: &Path, files: &[(&str, &str)], kind: Kind<'_>) -> anyhow::Result<()> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    if !is_plugin_name(&name) {
        bail!(
            "a plugin cannot be named {name:?}: use at most 63 lower-case letters, digits and '-', starting with \
             a letter and not ending with '-'"
        );
    }
    if let Some(reason) = reserved(&name).filter(|_| matches!(kind, Kind::Crate { .. })) {
        bail!("a plugin cannot be named {name:?}: its crate would have the name of {reason}; choose another name");
    }
    if directory.exists() {
        bail!("{} already exists", directory.display());
    }
    for (file, template) in files {
        let path = directory.join(file);
        let text = template.replace("{{name}}", &name);
        let text = match kind {
            Kind::Crate { sdk } => text.replace("{{library}}", &name.replace('-', "_")).replace("{{sdk}}", sdk),
            Kind::Script(language) => {
                text.replace("{{language}}", language.name()).replace("{{file}}", language.file())
            }
        };
        std::fs::create_dir_all(path.parent().context("a file has a directory")?)?;
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    // The first lines of the YAML files refer to them.
    for (file, schema) in SCHEMAS.into_iter().zip([podium_config::plugin_schema(), podium_config::case_schema()]) {
        let path = directory.join(file);
        std::fs::write(&path, format!("{schema:#}\n")).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match kind {
        Kind::Crate { .. } => Ok(()),
        Kind::Script(language) => script::embed(directory, language),
    }
}

/// Returns true for a DNS label that is also the name of a crate.
fn is_plugin_name(name: &str) -> bool {
    name.len() <= 63
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Returns why cargo or rustc would refuse a crate of this name, or confuse it with another.
fn reserved(name: &str) -> Option<&'static str> {
    const KEYWORDS: [&str; 51] = [
        "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
        "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro",
        "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super",
        "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
    ];
    match name {
        "std" | "core" | "alloc" | "proc-macro" | "test" => Some("one of Rust's own libraries"),
        "podium-sdk" | "podium-wire" | "podium-config" => Some("the library that it depends on"),
        "build" | "deps" | "examples" | "incremental" => Some("a folder that cargo writes to"),
        _ if KEYWORDS.contains(&name) => Some("a keyword of Rust"),
        _ => None,
    }
}

/// Returns the directory of podium-sdk as a string in TOML: the one that is named, or the first of these places that is
/// there. The package is none of them as long as it is not published: another's of its name would be built.
fn sdk(given: Option<&Path>, places: impl IntoIterator<Item = PathBuf>) -> anyhow::Result<String> {
    let is_there = |directory: &PathBuf| directory.join("Cargo.toml").is_file();
    let directory = match given {
        // A link stays one, so that it may name another version later.
        Some(given) => Some(std::path::absolute(given)?).filter(is_there),
        None => places.into_iter().find(is_there).map(|directory| directory.canonicalize()).transpose()?,
    };
    let Some(directory) = directory else {
        let place = given.map_or_else(String::new, |given| format!(" at {}", given.display()));
        bail!("podium-sdk not found{place}; pass its directory with --sdk DIR");
    };
    let path = directory.to_str().with_context(|| format!("{}: has no form in UTF-8", directory.display()))?;
    // Each escape of JSON is one of TOML.
    Ok(serde_json::Value::from(path).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRATE: Kind<'_> = Kind::Crate { sdk: "\"/sdk\"" };

    #[test]
    fn the_sdk_is_the_named_one_or_the_first_that_is_there() {
        let parent = tempfile::tempdir().unwrap();
        // Debug's escapes are not those of TOML.
        let [absent, present] = ["absent", "pre\"s\u{301}ent"].map(|name| parent.path().join(name));
        std::fs::create_dir(&present).unwrap();
        std::fs::write(present.join("Cargo.toml"), "").unwrap();
        let path = |directory: &Path| format!("{:?}", directory.to_str().unwrap()).replace("\\u{301}", "\u{301}");
        let places = [absent.clone(), present.clone()];
        assert_eq!(sdk(None, places).unwrap(), path(&present.canonicalize().unwrap()));
        assert_eq!(sdk(Some(&present), []).unwrap(), path(&present));
        for error in [sdk(Some(&absent), [present]), sdk(None, [absent])] {
            let error = error.unwrap_err().to_string();
            assert!(error.contains("podium-sdk not found") && error.contains("--sdk DIR"), "{error}");
        }
    }

    #[test]
    fn a_name_that_kubernetes_would_refuse_is_refused_at_once() {
        for name in ["", "Hello", "9lives", "-a", "a-", "a_b", "a.b", "../up", &"a".repeat(64)] {
            assert!(!is_plugin_name(name), "{name}");
        }
        assert!(is_plugin_name("pod-ttl2"));
    }

    #[test]
    fn a_name_reserved_by_cargo_or_rustc_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["std", "core", "alloc", "test", "proc-macro", "podium-sdk", "podium-config", "match", "deps"] {
            let error = write(&parent.path().join(name), &FILES, CRATE).unwrap_err().to_string();
            assert!(error.contains("choose another name"), "{name}: {error}");
            assert!(!parent.path().join(name).exists(), "{name}");
        }
    }

    #[test]
    fn an_existing_folder_is_not_changed() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::create_dir(parent.path().join("hello")).unwrap();
        assert!(write(&parent.path().join("hello"), &FILES, CRATE).is_err());
        assert_eq!(std::fs::read_dir(parent.path().join("hello")).unwrap().count(), 0);
    }

    #[test]
    fn no_template_variable_is_left() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("hello");
        for (name, files, kind) in [
            ("hello", &FILES[..], CRATE),
            // As a crate it is refused.
            ("test", &JAVASCRIPT, Kind::Script(Language::JavaScript)),
            ("python", &PYTHON, Kind::Script(Language::Python)),
        ] {
            let directory = parent.path().join(name);
            write(&directory, files, kind).unwrap();
            // The SDK's own files are no templates.
            for (file, _) in files.iter().filter(|(file, _)| !file.starts_with("podium/")) {
                let text = std::fs::read_to_string(directory.join(file)).unwrap();
                assert!(!text.contains("{{"), "{file}: {text}");
            }
        }
        let documents = [("plugin.yaml", podium_config::plugin_schema()), (CASES.0, podium_config::case_schema())];
        for (file, expected) in documents {
            let file = directory.join(file);
            let yaml = std::fs::read_to_string(&file).unwrap();
            let schema = yaml.lines().next().unwrap().strip_prefix("# yaml-language-server: $schema=").unwrap();
            let schema = std::fs::read_to_string(file.with_file_name(schema)).unwrap();
            assert_eq!(serde_json::from_str::<serde_json::Value>(&schema).unwrap(), expected);
        }
    }
}
