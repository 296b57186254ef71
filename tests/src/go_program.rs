//! Programs that only tests need and that Go builds: a control plane, a registry. Each is built into the target
//! directory, once for each version of its sources and of Go, and only if it is requested: in CI (`CI=true`), or
//! explicitly (`PODIUM_CLUSTER_TESTS=1`, which `just test-cluster` sets). A first build takes minutes.

use std::{
    collections::BTreeSet,
    env,
    fs::{self, File},
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::process::target_dir;

/// The variable that, with the value 1, builds the program if necessary and runs the suites that need it.
const ASKED: &str = "PODIUM_CLUSTER_TESTS";
const NOT_BUILT: &str = "it is not built, which takes Go some minutes once; `just test-cluster` builds it and runs \
    them, and so does PODIUM_CLUSTER_TESTS=1";
/// Attempts to download the Go modules.
const DOWNLOAD_ATTEMPTS: u32 = 5;
/// The interval of progress messages: a first build takes minutes.
const PROGRESS: Duration = Duration::from_secs(15);

/// A program of the folder `tests/<name>`, with the package `main`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GoProgram {
    /// The name of the folder, of the folder in the target directory, and of the program.
    pub(crate) name: &'static str,
    /// The program in messages, with an article.
    pub(crate) title: &'static str,
    pub(crate) sources: &'static [&'static str],
    pub(crate) linker_flags: &'static str,
}

impl GoProgram {
    /// Returns the built program, or `None` if the suites that need it are skipped, which is reported on stderr.
    pub(crate) async fn build(self) -> Result<Option<PathBuf>> {
        tokio::task::spawn_blocking(move || self.build_blocking()).await?
    }
}

/// Whether the suites that need a program run.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// Run: the program is built from these sources.
    Use,
    Build,
    /// Skip for this reason.
    Skip(&'static str),
    Fail(&'static str),
}

/// Whether the suites that need such programs are requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// A plain `cargo test`: they run only if the program is already built.
    Implicitly,
    /// CI or a variable: the suites run, or the tests fail.
    Explicitly,
}

impl Asked {
    fn from_environment() -> Self {
        let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|value| value == wanted);
        if is("CI", "true") || is(ASKED, "1") { Self::Explicitly } else { Self::Implicitly }
    }
}

fn decide(asked: Asked, has_go: bool, is_built: bool) -> Decision {
    match (asked, has_go, is_built) {
        (_, true, true) => Decision::Use,
        (Asked::Explicitly, true, false) => Decision::Build,
        (Asked::Implicitly, true, false) => Decision::Skip(NOT_BUILT),
        (Asked::Implicitly, false, _) => Decision::Skip("there is no `go` on the PATH to build it with"),
        (Asked::Explicitly, false, _) => Decision::Fail(
            "suites that need a program in Go were asked for, and there is no `go` on the PATH to build it with: see \
             https://go.dev/dl",
        ),
    }
}

impl GoProgram {
    fn build_blocking(self) -> Result<Option<PathBuf>> {
        let Self { name, title, linker_flags, .. } = self;
        let go_version = go_version()?;
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        let directory = target_dir()?.join(name);
        fs::create_dir_all(&directory)?;
        let program = directory.join(name);

        // Concurrent test binaries build it once.
        let lock = File::create(directory.join("lock"))?;
        lock.lock()?;
        let mut wanted = format!("{}\n{linker_flags}\n", go_version.as_deref().unwrap_or_default());
        for source in self.sources {
            wanted += &fs::read_to_string(sources.join(source)).with_context(|| format!("read {source}"))?;
        }
        // The complete inputs of the build, which are too short to need a digest.
        let record = directory.join("built-from");
        let is_built = program.exists() && fs::read_to_string(&record).is_ok_and(|built| built == wanted);
        match decide(Asked::from_environment(), go_version.is_some(), is_built) {
            Decision::Use => return Ok(Some(program)),
            Decision::Build => {}
            Decision::Skip(reason) => {
                report_once(&format!("SKIPPED: the suites on {title}: {reason}"));
                return Ok(None);
            }
            Decision::Fail(reason) => bail!(reason),
        }
        self.download(&sources)?;
        self.compile(&sources, &program)?;
        fs::write(record, wanted)?;
        Ok(Some(program))
    }

    #[expect(clippy::disallowed_methods, reason = "go is waited for on its own thread, in real time")]
    fn download(self, sources: &Path) -> Result<()> {
        print_line(&format!("downloading the modules of {}", self.title));
        for attempt in 1..=DOWNLOAD_ATTEMPTS {
            // Only the parts of the module graph that the program imports.
            if go(sources).args(["list", "-deps", "."]).stdout(Stdio::null()).status()?.success() {
                return Ok(());
            }
            print_line(&format!("a download failed, attempt {attempt} of {DOWNLOAD_ATTEMPTS}"));
            std::thread::sleep(Duration::from_secs(2) * attempt);
        }
        bail!("the modules of {} cannot be downloaded", self.title)
    }

    #[expect(clippy::disallowed_methods, reason = "go is waited for on its own thread, in real time")]
    fn compile(self, sources: &Path, program: &Path) -> Result<()> {
        print_line(&format!("building {} (minutes the first time, then cached)", self.title));
        let mut build = go(sources);
        build
            .args(["build", "-trimpath", "-buildvcs=false", "-ldflags", self.linker_flags, "-o"])
            .arg(program)
            .arg(".");
        let started = Instant::now();
        let mut last_line = started;
        let mut child = build.spawn()?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if last_line.elapsed() >= PROGRESS {
                last_line = Instant::now();
                print_line(&format!("building {}: {} s", self.title, started.elapsed().as_secs()));
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        ensure!(status.success(), "{} does not build", self.title);
        print_line(&format!("built {} in {} s", self.title, started.elapsed().as_secs()));
        Ok(())
    }
}

fn go(sources: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(sources).env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly").env("GOWORK", "off");
    go
}

fn go_version() -> Result<Option<String>> {
    match Command::new("go").arg("version").output() {
        Ok(output) if output.status.success() => Ok(Some(String::from_utf8(output.stdout)?)),
        Ok(output) => bail!("go version: {}", output.status),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context("start go"),
    }
}

/// Prints a line once per process, however many tests need the program.
fn report_once(line: &str) {
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let is_first = REPORTED.lock().is_ok_and(|mut reported| reported.insert(line.to_owned()));
    if is_first {
        print_line(line);
    }
}

/// Prints to stderr directly, because libtest hides the output of a passing test.
fn print_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "podium-tests: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_cargo_test_runs_built_suites_and_builds_none() {
        assert_eq!(decide(Asked::Implicitly, true, true), Decision::Use);
        assert_eq!(decide(Asked::Implicitly, true, false), Decision::Skip(NOT_BUILT));
        assert!(matches!(decide(Asked::Implicitly, false, false), Decision::Skip(_)));
    }

    #[test]
    fn an_explicit_request_runs_the_suites_or_fails() {
        assert_eq!(decide(Asked::Explicitly, true, false), Decision::Build);
        assert_eq!(decide(Asked::Explicitly, true, true), Decision::Use);
        assert!(matches!(decide(Asked::Explicitly, false, false), Decision::Fail(_)));
    }

    #[test]
    fn the_line_about_skipped_suites_names_both_ways_to_run_them() {
        assert!(NOT_BUILT.contains("`just test-cluster`") && NOT_BUILT.contains(&format!("{ASKED}=1")), "{NOT_BUILT}");
    }
}
