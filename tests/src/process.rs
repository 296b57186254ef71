//! Programs as child processes: their logs are kept in a file and shown when a test fails; they are ended by pid and
//! never left behind.

mod host;

pub use host::{Host, HostOptions, cargo, host_binary, podium_binary, podium_command, target_dir, workspace_dir};

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::wait::{ProbeAborted, until};

/// The number of lines at the end of a log that are shown when a test fails.
const SHOWN_LINES: usize = 60;

/// A running program. Killed and waited for when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    /// Its standard input stays open as long as this lives; programs that watch it end with the tests.
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` with both outputs appended to the file `log`.
    ///
    /// # Errors
    /// Returns an error if the program or the file cannot be opened.
    pub fn spawn(name: &str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let output =
            File::options().create(true).append(true).open(&log).with_context(|| format!("open {}", log.display()))?;
        let child = command
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Returns the process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns everything written so far.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read(&self.log).map_or_else(|error| error.to_string(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// # Errors
    /// Returns [`ProbeAborted`] with the end of the log if it has already ended.
    pub fn check_running(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(ProbeAborted(format!("{} ended with {status}:\n{}", self.name, self.log_end())).into()),
        }
    }

    /// Sends a signal by name, such as `TERM`.
    ///
    /// # Errors
    /// Returns an error if the process is gone.
    pub fn signal(&self, signal: &str) -> Result<()> {
        let status = Command::new("kill").arg(format!("-{signal}")).arg(self.id().to_string()).status()?;
        ensure!(status.success(), "no process {} to send {signal} to", self.name);
        Ok(())
    }

    /// Returns its status if it has ended.
    ///
    /// # Errors
    /// Returns an error if the system does not say.
    pub fn status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Returns an error if it still runs after `within`.
    pub async fn ended(&mut self, within: Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        let child = &mut self.child;
        until(&what, within, async || child.try_wait()?.context("it still runs")).await
    }

    fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both only fail if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "--- end of the log of {}\n{}\n---", self.name, self.log_end());
        }
    }
}

/// Returns true in CI, where no suite is skipped.
#[must_use]
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}
