//! The process's own figures under the names that all of Prometheus' client libraries use, read from /proc at each
//! scrape.

use std::{fmt, fs};

use prometheus_client::metrics::{counter::ConstCounter, gauge::ConstGauge};
use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

use super::families::Families;

/// Values that do not change while the process lives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Process {
    ticks_per_second: f64,
    page_bytes: u64,
    /// Seconds from the epoch to the boot of the machine; `None` if /proc does not have it.
    booted: Option<f64>,
}

/// Fields of `/proc/self/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    /// User and system time, in clock ticks.
    cpu_ticks: u64,
    /// From boot to the process's start, in clock ticks.
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Process {
    pub(super) fn new() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let booted = stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
        Self { ticks_per_second: clock_ticks_per_second() as f64, page_bytes: page_size() as u64, booted }
    }

    pub(super) fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        if let Some(stat) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(stat) {
            let cpu = ConstCounter::new(stat.cpu_ticks as f64 / self.ticks_per_second);
            families.single("process_cpu_seconds", "User and system time of the process", cpu)?;
            if let Some(booted) = self.booted {
                let start = ConstGauge::new(booted + stat.start_ticks as f64 / self.ticks_per_second);
                families.single("process_start_time_seconds", "When the process started, since the epoch", start)?;
            }
            let resident = ConstGauge::new(stat.resident_pages * self.page_bytes);
            families.single("process_resident_memory_bytes", "Memory of the process that is in RAM", resident)?;
            let size = ConstGauge::new(stat.virtual_bytes);
            families.single("process_virtual_memory_bytes", "Address space of the process", size)?;
        }
        if let Ok(files) = fs::read_dir("/proc/self/fd") {
            // Except the descriptor through which the directory is read.
            let open = ConstGauge::new(files.count().saturating_sub(1));
            families.single("process_open_fds", "Open file descriptors", open)?;
        }
        let most = getrlimit(Resource::Nofile).current.and_then(|most| i64::try_from(most).ok()).unwrap_or(i64::MAX);
        families.single("process_max_fds", "The most file descriptors that may be open", ConstGauge::new(most))
    }
}

/// Parses `/proc/self/stat`. The second field is the program's name in parentheses and may hold anything, so fields
/// are counted from the last parenthesis: the third field is the first one after it. See proc_pid_stat(5).
fn stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        cpu_ticks: field(14)? + field(15)?,
        start_ticks: field(22)?,
        virtual_bytes: field(23)?,
        resident_pages: field(24)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_is_skipped() {
        let text =
            "7 (a) 1 (b c) S 1 7 7 0 -1 4194560 100 0 0 0 31 11 0 0 20 0 4 0 5000 8192000 321 18446744073709551615 1";
        let expected = Stat { cpu_ticks: 42, start_ticks: 5_000, virtual_bytes: 8_192_000, resident_pages: 321 };
        assert_eq!(stat(text), Some(expected));
        assert_eq!(stat("7 (short) S 1"), None);
        assert_eq!(stat(""), None);
    }
}
