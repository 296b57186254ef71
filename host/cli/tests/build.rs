//! From a crate in an empty folder to a component, and the error messages. These crates have no dependencies, so that
//! only they are compiled.

#![expect(clippy::unwrap_used, reason = "a test whose set-up fails has failed")]

use std::{path::Path, process::Command};

use podium_cli::build::{self, Install, Options, Target};

const MODULE: &str = "[lib]\ncrate-type = [\"cdylib\"]\n";

struct Crate(tempfile::TempDir);

impl Crate {
    fn new(manifest: &str, source: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let manifest =
            format!("[package]\nname = \"a-guest\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{manifest}[workspace]\n");
        std::fs::write(directory.path().join("Cargo.toml"), manifest).unwrap();
        std::fs::create_dir(directory.path().join("src")).unwrap();
        std::fs::write(directory.path().join("src/lib.rs"), source).unwrap();
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns options that install a missing target, unless the environment forbids it.
    fn options(&self) -> Options {
        let install = Install::from_variable(std::env::var(Install::VARIABLE).ok().as_deref()).unwrap();
        Options { quiet: true, install, ..Options::new(self.path()) }
    }

    fn build(&self) -> anyhow::Result<build::Built> {
        build::build(&self.options())
    }
}

#[test]
fn a_crate_without_a_workspace_profile_becomes_a_component() {
    let guest = Crate::new(MODULE, "");
    let built = guest.build().unwrap();
    assert_eq!(built.name, "a-guest");
    assert_eq!(built.component, guest.path().canonicalize().unwrap().join("target/podium/a_guest.wasm"));
    let bytes = std::fs::read(&built.component).unwrap();
    assert_eq!(bytes.len() as u64, built.bytes);
    assert!(wasmparser::Parser::is_component(&bytes));
    assert!(built.imports.is_empty());
    assert!(!built.is_plugin());
}

#[test]
fn a_wasip2_component_lists_its_wasi_imports() {
    let guest = Crate::new(MODULE, "#[unsafe(no_mangle)] pub extern \"C\" fn say() { println!(\"hello\"); }");
    let options = Options { target: Target::Wasip2, ..guest.options() };
    let built = build::build(&options).unwrap();
    let stdout = built.imports.iter().find(|import| import.interface.starts_with("wasi:cli/stdout@"));
    assert_eq!(stdout.unwrap().functions, ["get-stdout"]);
}

#[test]
fn a_workspace_with_a_guest_profile_of_its_own_keeps_it() {
    let guest = Crate::new(&format!("{MODULE}[profile.guest]\ninherits = \"no-such-profile\"\n"), "");
    let error = format!("{:#}", guest.build().unwrap_err());
    assert!(error.contains("no-such-profile"), "{error}");
}

#[test]
fn rustflags_for_the_machine_do_not_reach_the_guest() {
    let guest = Crate::new(MODULE, "#[cfg(outer)] compile_error!(\"flags of the outer build\");");
    let output = Command::new(env!("CARGO_BIN_EXE_podium"))
        .args(["build", "--quiet"])
        .arg(guest.path())
        .env("RUSTFLAGS", "--cfg outer")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("exports no reconciler"), "it compiled, and is no plugin: {stderr}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_compile_error_is_shown_as_cargo_prints_it() {
    let error = format!("{:#}", Crate::new(MODULE, "fn broken( {").build().unwrap_err());
    assert!(error.starts_with("a-guest does not compile"), "{error}");
    assert!(error.contains("src/lib.rs:1"), "{error}");
}

#[test]
fn an_error_about_a_crate_without_a_module_has_the_line_to_add() {
    let error = Crate::new("", "").build().unwrap_err().to_string();
    assert!(error.contains("crate-type = [\"cdylib\", \"rlib\"]"), "{error}");
}

#[test]
fn a_folder_without_a_crate_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = build::build(&Options::new(folder.path())).unwrap_err().to_string();
    assert!(error.contains(&folder.path().display().to_string()), "{error}");
}
