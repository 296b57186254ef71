//! The program behind `cargo demo` and `cargo podium`: checks that the compilation target of plugins is installed,
//! installs it if it is missing, then becomes `cargo run --bin podium`.
//!
//! The target is checked first because the first build of podium takes minutes.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

use podium_toolchain::{Install, Toolchain, forget_package};

/// The targets by their names in `podium build --target`.
const TARGETS: [&str; 2] = ["wasm32-unknown-unknown", "wasm32-wasip2"];

fn main() -> ExitCode {
    let arguments: Vec<OsString> = env::args_os().skip(1).collect();
    match launch(&arguments) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Replaces this process by cargo.
fn launch(arguments: &[OsString]) -> Result<std::convert::Infallible, String> {
    if let Some(target) = target(arguments) {
        let install = install(arguments)?;
        let toolchain = Toolchain::new(".", env::var("RUSTUP_TOOLCHAIN").ok());
        toolchain.require(target, install, &mut |line| eprintln!("{line}")).map_err(|error| error.to_string())?;
    }
    if first_build() {
        eprintln!("building podium, which takes some minutes the first time");
    }
    let error = cargo(arguments).exec();
    Err(format!("cannot run cargo ({error}): is Rust installed? see https://rustup.rs"))
}

/// Returns `cargo run` of podium, in any directory of the workspace. No package is named, so that each dependency has
/// the features of the whole workspace, as in `cargo test --workspace`: nothing is built twice.
fn cargo(arguments: &[OsString]) -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    forget_package(&mut cargo);
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    cargo.args(["run", "--bin", "podium", "--manifest-path"]).arg(workspace).arg("--").args(arguments);
    cargo
}

/// Returns the compilation target that these arguments of podium need, and `None` if they build no plugin. podium
/// itself reports errors in them.
fn target(arguments: &[OsString]) -> Option<&'static str> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return None;
    }
    match arguments.first()?.to_str()? {
        // Its components are in the text form of WebAssembly.
        "demo" if arguments.iter().any(|argument| argument == "--hostile") => None,
        "demo" | "dev" => Some(TARGETS[0]),
        "build" => match value(arguments, "--target") {
            None => Some(TARGETS[0]),
            Some(name) => TARGETS.into_iter().find(|target| *target == name),
        },
        _ => None,
    }
}

fn install(arguments: &[OsString]) -> Result<Install, String> {
    match value(arguments, Install::FLAG) {
        Some(value) => value.parse().map_err(|error| format!("{}: {error}", Install::FLAG)),
        None => Install::from_variable(env::var(Install::VARIABLE).ok().as_deref()),
    }
}

/// Returns the value of a flag, in the form `--flag value` or `--flag=value`.
fn value<'a>(arguments: &'a [OsString], flag: &str) -> Option<&'a str> {
    let mut texts = arguments.iter().map(|argument| argument.to_str().unwrap_or_default());
    while let Some(text) = texts.next() {
        match text.strip_prefix(flag) {
            Some("") => return texts.next(),
            Some(rest) if rest.starts_with('=') => return rest.strip_prefix('='),
            _ => {}
        }
    }
    None
}

/// Returns true if podium is not built yet. Cargo puts it beside this program.
fn first_build() -> bool {
    env::current_exe().is_ok_and(|this| !this.with_file_name("podium").exists())
}
