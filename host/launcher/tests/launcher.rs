//! The launcher as a process, with fakes of rustc, rustup and cargo on its PATH.

#![expect(clippy::unwrap_used, reason = "a test whose set-up fails has failed")]

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use tempfile::TempDir;

const COMMAND: &str = "rustup target add wasm32-unknown-unknown --toolchain 1.95.0";

/// A directory that is the whole PATH, and its toolchain.
struct Fake(TempDir);

impl Fake {
    fn new(programs: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("sysroot/lib/rustlib")).unwrap();
        for program in programs {
            // A link instead of a copy: a file that was just written cannot always be executed while other threads
            // fork.
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../toolchain/tests/fake").join(program);
            symlink(source, directory.path().join(program)).unwrap();
        }
        Self(directory)
    }

    fn with_rustup() -> Self {
        Self::new(&["rustc", "rustup", "cargo"])
    }

    fn spawn(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_podium-launcher"))
            .args(arguments)
            .env_clear()
            .env("PATH", self.0.path())
            .env("CARGO", self.0.path().join("cargo"))
            .env("RUSTUP_TOOLCHAIN", "1.95.0")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn launch(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        self.spawn(arguments, environment).wait_with_output().unwrap()
    }

    /// Returns the arguments of a program's calls, one line per call.
    fn calls(&self, program: &str) -> Vec<String> {
        let calls = fs::read_to_string(self.0.path().join(format!("{program}.calls"))).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// Returns the arguments of podium, which cargo had to build and run.
    fn podium(&self) -> Option<String> {
        let [call] = &self.calls("cargo")[..] else { return None };
        let call = call.strip_prefix("run --bin podium --manifest-path ")?;
        Some(call.split_once("Cargo.toml -- ")?.1.to_owned())
    }
}

/// Returns the lines of stderr about the installation.
fn lines(output: &Output) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    stderr.lines().filter(|line| line.contains("installing the compilation target")).map(str::to_owned).collect()
}

fn error(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_missing_target_is_installed_before_podium_is_built() {
    let fake = Fake::with_rustup();
    let output = fake.launch(&["demo", "--keep"], &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines(&output), [format!("installing the compilation target wasm32-unknown-unknown, once: {COMMAND}")]);
    assert_eq!(fake.podium().as_deref(), Some("demo --keep"));
    fs::remove_file(fake.0.path().join("cargo.calls")).unwrap();
    assert!(lines(&fake.launch(&["demo"], &[])).is_empty());
    assert_eq!(fake.podium().as_deref(), Some("demo"));
    assert_eq!(fake.calls("rustup").len(), 1);
}

#[test]
fn one_of_several_concurrent_processes_installs() {
    let fake = Fake::with_rustup();
    let children: Vec<_> = (0..6).map(|_| fake.spawn(&["dev"], &[])).collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
    assert_eq!(outputs.iter().flat_map(lines).count(), 1, "{outputs:?}");
    assert_eq!((fake.calls("rustup").len(), fake.calls("cargo").len()), (1, 6));
}

#[test]
fn without_rustup_the_launcher_names_the_command() {
    let fake = Fake::new(&["rustc", "cargo"]);
    let error = error(&fake.launch(&["demo"], &[]));
    assert!(error.contains("no rustup") && error.contains(&format!("\n    {COMMAND}\n")), "{error}");
    assert!(fake.calls("cargo").is_empty());
}

#[test]
fn with_the_switch_a_missing_target_is_an_error_at_once() {
    for (arguments, environment) in [
        (&["demo", "--install-targets", "never"][..], &[][..]),
        (&["build", "--install-targets=never", "plugin"], &[("PODIUM_INSTALL_TARGETS", "auto")]),
        (&["dev"], &[("PODIUM_INSTALL_TARGETS", "never")]),
    ] {
        let fake = Fake::with_rustup();
        let error = error(&fake.launch(arguments, environment));
        assert!(error.contains(&format!("\n    {COMMAND}\n")), "{error}");
        assert!(fake.calls("rustup").is_empty() && fake.calls("cargo").is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_wrong_value_of_the_switch_is_an_error_with_the_right_ones() {
    let fake = Fake::with_rustup();
    let error = error(&fake.launch(&["demo"], &[("PODIUM_INSTALL_TARGETS", "perhaps")]));
    assert!(error.contains("PODIUM_INSTALL_TARGETS") && error.contains("auto, never"), "{error}");
}

#[test]
fn a_failed_download_is_tried_again_and_podium_is_built() {
    let fake = Fake::with_rustup();
    fs::write(fake.0.path().join("failures"), "1\n").unwrap();
    let output = fake.launch(&["demo"], &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fake.calls("rustup").len(), 2);
    assert_eq!(fake.podium().as_deref(), Some("demo"));
}

#[test]
fn a_plugin_for_wasip2_needs_that_target() {
    let fake = Fake::with_rustup();
    assert!(fake.launch(&["build", "--target", "wasm32-wasip2"], &[]).status.success());
    assert_eq!(fake.calls("rustup"), ["target add wasm32-wasip2 --toolchain 1.95.0"]);
}

#[test]
fn commands_that_build_no_plugin_need_no_target() {
    for arguments in [&["new", "hello"][..], &["completion", "bash"], &["demo", "--help"], &[]] {
        let fake = Fake::with_rustup();
        let output = fake.launch(arguments, &[("PODIUM_INSTALL_TARGETS", "never")]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fake.calls("cargo").len(), 1);
    }
}
