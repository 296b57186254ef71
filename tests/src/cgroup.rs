//! A control group with a limit of memory, as the kubelet makes one for a container: all of its processes end together
//! when it exceeds the limit, where the kernel supports this (`memory.oom.group` of version 2).

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result};

const ROOT: &str = "/sys/fs/cgroup";

/// An own control group. Dropping it removes it, after its processes have ended.
#[derive(Debug)]
pub struct MemoryGroup {
    path: PathBuf,
    is_version_2: bool,
}

impl MemoryGroup {
    /// Creates a group with a limit, or returns `None` where this process may not, which is reported on stderr.
    #[must_use]
    pub fn with_limit(bytes: u64) -> Option<Self> {
        match Self::new(bytes) {
            Ok(group) => Some(group),
            Err(error) => {
                // Directly, because libtest hides the output of a passing test.
                let _ = writeln!(std::io::stderr(), "podium-tests: SKIPPED: no limit of memory: {error:#}");
                None
            }
        }
    }

    fn new(bytes: u64) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let is_version_2 = Path::new(ROOT).join("cgroup.controllers").exists();
        let root = if is_version_2 { PathBuf::from(ROOT) } else { Path::new(ROOT).join("memory") };
        let path = root.join(format!("podium-tests-{}-{number}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("create {}", path.display()))?;
        let group = Self { path, is_version_2 };
        group.limit(bytes)?;
        Ok(group)
    }

    fn limit(&self, bytes: u64) -> Result<()> {
        let write = |name: &str, value: String| {
            let file = self.path.join(name);
            fs::write(&file, value).with_context(|| format!("write {}", file.display()))
        };
        if self.is_version_2 {
            write("memory.max", bytes.to_string())?;
            write("memory.swap.max", "0".to_owned())?;
            write("memory.oom.group", "1".to_owned())
        } else {
            write("memory.limit_in_bytes", bytes.to_string())
        }
    }

    /// Returns a command that runs a program in the group.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        let enter = r#"echo $$ >"$1" && shift && exec "$@""#;
        command.args(["-c", enter, "sh"]).arg(self.path.join("cgroup.procs")).arg(program);
        command
    }

    /// Returns the most bytes that the group has had, with the pages of files that the kernel would take back.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report it.
    pub fn peak(&self) -> Result<u64> {
        self.number(if self.is_version_2 { "memory.peak" } else { "memory.max_usage_in_bytes" })
    }

    /// Returns how many processes the kernel ended because memory was short.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report it.
    pub fn killed(&self) -> Result<u64> {
        let name = if self.is_version_2 { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.path.join(name))?;
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.context("no oom_kill")?.trim().parse().context("oom_kill")
    }

    fn number(&self, name: &str) -> Result<u64> {
        let text = fs::read_to_string(self.path.join(name)).with_context(|| name.to_owned())?;
        text.trim().parse().with_context(|| format!("{name}: {text}"))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Fails while it has processes.
        let _ = fs::remove_dir(&self.path);
    }
}
