//! A toolchain in a temporary directory, with fakes of rustc and rustup.

use std::{os::unix::fs::symlink, sync::Mutex};

use tempfile::TempDir;

use super::*;

const TRIPLE: &str = "wasm32-unknown-unknown";
const COMMAND: &str = "rustup target add wasm32-unknown-unknown --toolchain 1.95.0";

struct Fake(TempDir);

impl Fake {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("sysroot/lib/rustlib")).unwrap();
        for program in ["rustc", "rustup"] {
            // A link instead of a copy: a file that was just written cannot always be executed while other threads
            // fork.
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake").join(program);
            symlink(source, directory.path().join(program)).unwrap();
        }
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn toolchain(&self) -> Toolchain {
        Toolchain {
            rustc: self.path("rustc").into(),
            rustup: self.path("rustup").into(),
            pauses: vec![Duration::ZERO; 3],
            ..Toolchain::new(self.0.path(), Some("1.95.0".into()))
        }
    }

    /// Returns the result and the printed lines.
    fn require(&self, install: Install) -> (Result<(), Error>, Vec<String>) {
        let mut reported = Vec::new();
        let result = self.toolchain().require(TRIPLE, install, &mut |line| reported.push(line.to_owned()));
        (result, reported)
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path("rustup.calls")).unwrap_or_default();
        calls.lines().map(|call| format!("rustup {call}")).collect()
    }
}

#[test]
fn a_missing_target_is_installed_once_with_one_line() {
    let fake = Fake::new();
    let (result, reported) = fake.require(Install::Auto);
    result.unwrap();
    assert_eq!(reported, [format!("installing the compilation target {TRIPLE}, once: {COMMAND}")]);
    let (result, reported) = fake.require(Install::Auto);
    result.unwrap();
    assert!(reported.is_empty(), "{reported:?}");
    assert_eq!(fake.calls(), [COMMAND]);
}

#[test]
fn one_of_many_concurrent_installs_runs_and_all_find_the_target() {
    let fake = Fake::new();
    let reported = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let report = &mut |line: &str| reported.lock().unwrap().push(line.to_owned());
                fake.toolchain().require(TRIPLE, Install::Auto, report).unwrap();
                assert!(fake.toolchain().libraries(TRIPLE).unwrap().unwrap().1);
            });
        }
    });
    assert_eq!(fake.calls(), [COMMAND]);
    assert_eq!(reported.into_inner().unwrap().len(), 1);
}

#[test]
fn without_permission_the_error_names_the_command() {
    let fake = Fake::new();
    let (result, reported) = fake.require(Install::Never);
    let error = result.unwrap_err().to_string();
    assert!(error.contains(&format!("\n    {COMMAND}\n")), "{error}");
    assert!(error.contains("--install-targets") && error.contains("PODIUM_INSTALL_TARGETS"), "{error}");
    assert!(reported.is_empty() && fake.calls().is_empty(), "{reported:?}");
}

#[test]
fn an_installed_target_needs_no_permission_and_no_rustup() {
    let fake = Fake::new();
    fake.require(Install::Auto).0.unwrap();
    fs::remove_file(fake.path("rustup")).unwrap();
    fake.require(Install::Never).0.unwrap();
}

#[test]
fn without_rustup_the_error_names_the_command() {
    let fake = Fake::new();
    fs::remove_file(fake.path("rustup")).unwrap();
    let (result, reported) = fake.require(Install::Auto);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("no rustup") && error.contains(&format!("\n    {COMMAND}\n")), "{error}");
    assert!(reported.is_empty(), "{reported:?}");
}

#[test]
fn a_failed_download_is_tried_again() {
    let fake = Fake::new();
    fs::write(fake.path("failures"), "1\n2\n").unwrap();
    let (result, reported) = fake.require(Install::Auto);
    result.unwrap();
    assert_eq!(fake.calls().len(), 3);
    assert!(reported[1].contains("could not download file"), "{reported:?}");
}

#[test]
fn a_failed_download_is_an_error_with_the_command() {
    let fake = Fake::new();
    fs::write(fake.path("failures"), "1\n2\n3\n4\n5\n").unwrap();
    let error = fake.require(Install::Auto).0.unwrap_err().to_string();
    assert_eq!(fake.calls().len(), 4);
    assert!(error.contains("connection reset") && error.contains(&format!("\n    {COMMAND}\n")), "{error}");
}

#[test]
fn a_target_installed_for_another_toolchain_is_an_error() {
    let fake = Fake::new();
    fs::write(fake.path("other-toolchain"), "").unwrap();
    let error = fake.require(Install::Auto).0.unwrap_err().to_string();
    assert!(error.contains(&fake.path("sysroot").display().to_string()), "{error}");
}

#[test]
fn the_empty_directory_of_a_removed_target_is_no_target() {
    let fake = Fake::new();
    fs::create_dir_all(fake.path("sysroot/lib/rustlib").join(TRIPLE).join("lib")).unwrap();
    assert!(!fake.toolchain().libraries(TRIPLE).unwrap().unwrap().1);
}
