//! Builds the faults into a copy of the workspace and runs tests with one of them at a time.
//!
//! The copy is in the target directory and shares the dependencies that are built there. Two test binaries run at a
//! time; one that does not end within [`DEADLINE`] counts as red.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use podium_tests::process::target_dir;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::timeout,
};

use super::table::Fault;

/// The variable with the number of the active fault.
const ACTIVE: &str = "PODIUM_SEEDED_FAULT";
const DEADLINE: Duration = Duration::from_secs(120);
const AT_A_TIME: usize = 2;
/// Few cases of property tests, because each fault repeats them.
const CASES: &str = "64";

/// How a fault was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    No,
    Red,
    /// A test did not end.
    Hangs,
}

impl Found {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::No => "survives",
            Self::Red => "red",
            Self::Hangs => "hangs",
        }
    }
}

pub(super) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns how each of the faults was found, in their order.
///
/// # Errors
/// Returns an error if the copy cannot be made or built, or if a test is red without a fault.
pub(super) async fn run(faults: &[Fault]) -> Result<Vec<Found>> {
    let copy = target_dir()?.join("seeded-faults");
    write_copy(&copy, faults)?;
    let binaries = build(&copy, faults)?;
    let filters: BTreeSet<_> = faults.iter().map(|fault| (fault.package(), fault.tests)).collect();
    let filters: Vec<_> = filters.into_iter().collect();
    let runs = filters.iter().map(|(package, tests)| test(&copy, &binaries[*package], tests, None));
    let green: Vec<_> = stream::iter(runs).buffered(AT_A_TIME).try_collect().await?;
    for ((package, tests), found) in filters.iter().zip(green) {
        ensure!(found == Found::No, "without a fault, tests of {package} are red: {tests}");
    }
    let numbered = faults.iter().enumerate();
    let runs = numbered.map(|(number, fault)| test(&copy, &binaries[fault.package()], fault.tests, Some(number)));
    stream::iter(runs).buffered(AT_A_TIME).try_collect().await
}

/// Copies the files that git knows, with the faults in them. Files that stay the same keep their times, so that a
/// second build is short.
fn write_copy(copy: &Path, faults: &[Fault]) -> Result<()> {
    let listed =
        Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(workspace()).output()?;
    ensure!(listed.status.success(), "git ls-files failed");
    for file in String::from_utf8(listed.stdout)?.lines() {
        let from = workspace().join(file);
        let Ok(bytes) = fs::read(&from) else { continue };
        let bytes = match String::from_utf8(bytes) {
            Ok(text) if file.ends_with(".rs") => seeded(file, text, faults).into_bytes(),
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        let to = copy.join(file);
        if fs::read(&to).is_ok_and(|present| present == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::write(to, bytes)?;
    }
    Ok(())
}

fn seeded(file: &str, mut text: String, faults: &[Fault]) -> String {
    for (number, fault) in faults.iter().enumerate().filter(|(_, fault)| fault.file == file) {
        let ((before, code, behind), to) = (fault.parts(), fault.to);
        let both = format!("if crate::seeded_fault({number}) {{ {to} }} else {{ {code} }}");
        let both = if code.ends_with(';') { both } else { format!("({both})") };
        text = text.replacen(&fault.code(), &format!("{before}{both}{behind}"), 1);
    }
    let is_crate = faults.iter().any(|fault| format!("{}/src/lib.rs", fault.folder()) == file);
    if is_crate {
        text.push_str(&format!(
            "\n/// True if this fault is the active one.\n\
             fn seeded_fault(number: u32) -> bool {{\n\
                 static ACTIVE: std::sync::OnceLock<Option<u32>> = std::sync::OnceLock::new();\n\
                 let read = || std::env::var(\"{ACTIVE}\").ok()?.parse().ok();\n\
                 *ACTIVE.get_or_init(read) == Some(number)\n\
             }}\n"
        ));
    }
    text
}

/// Returns the test binaries of the crates' libraries, by package.
fn build(copy: &Path, faults: &[Fault]) -> Result<BTreeMap<String, PathBuf>> {
    let packages: BTreeSet<_> = faults.iter().map(Fault::package).collect();
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--no-run", "--lib", "--locked", "--message-format=json"]);
    for package in packages {
        command.args(["-p", package]);
    }
    // In the workspace's own directory cargo would take the copy's libraries for the workspace's.
    command.current_dir(copy).env("CARGO_TARGET_DIR", copy.join("target"));
    let built = command.stderr(Stdio::inherit()).output()?;
    ensure!(built.status.success(), "the copy with the faults cannot be built");
    let mut binaries = BTreeMap::new();
    for line in String::from_utf8(built.stdout)?.lines() {
        let message: Value = serde_json::from_str(line)?;
        if let (Some(path), Some(name)) = (message["executable"].as_str(), message["target"]["name"].as_str()) {
            binaries.insert(name.replace('_', "-"), PathBuf::from(path));
        }
    }
    Ok(binaries)
}

/// Runs tests with one fault, or without one.
async fn test(copy: &Path, binary: &Path, tests: &str, fault: Option<usize>) -> Result<Found> {
    let mut command = tokio::process::Command::new(binary);
    command.args(tests.split(' ')).arg("--test-threads=2").current_dir(copy.join("host")).env("PROPTEST_CASES", CASES);
    command.env("PROPTEST_FAILURE_PERSISTENCE", "off").stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    if let Some(number) = fault {
        command.env(ACTIVE, number.to_string());
    }
    let mut process = command.spawn().with_context(|| format!("{} cannot be run", binary.display()))?;
    let output = process.stdout.take().context("the output is piped")?;
    // The first red test decides; the others may take minutes.
    let ended = async {
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await? {
            if line.starts_with("test ") && line.ends_with(" FAILED") {
                return anyhow::Ok(false);
            }
        }
        Ok(process.wait().await?.success())
    };
    match timeout(DEADLINE, ended).await {
        Ok(is_green) => Ok(if is_green? { Found::No } else { Found::Red }),
        Err(_) => Ok(Found::Hangs),
    }
}
