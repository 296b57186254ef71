//! The counts of processes by `perf stat`: system calls, and instructions where the machine counts them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Result;
use podium_tests::process::Process;
use tokio::time::sleep;

const SYSTEM_CALLS: &str = "raw_syscalls:sys_enter";
const INSTRUCTIONS: &str = "instructions:u";
/// Sufficient for perf to begin and to end.
const PATIENCE: Duration = Duration::from_secs(10);
const BEGINS: Duration = Duration::from_millis(500);

/// A count under way; nothing without perf.
pub(super) struct Counters(Option<(Process, PathBuf)>);

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counted {
    pub(super) system_calls: Option<f64>,
    pub(super) instructions: Option<f64>,
}

impl Counters {
    pub(super) async fn start(processes: &[u32], directory: &Path) -> Result<Self> {
        let ids: Vec<String> = processes.iter().map(u32::to_string).collect();
        let file = directory.join("perf.csv");
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-e", SYSTEM_CALLS, "-e", INSTRUCTIONS, "-p", &ids.join(","), "-o"]).arg(&file);
        let started = Process::spawn("perf", &mut command, directory.join("perf.log")).ok();
        sleep(BEGINS).await;
        Ok(Self(started.map(|process| (process, file))))
    }

    pub(super) async fn end(self) -> Result<Counted> {
        let Some((mut process, file)) = self.0 else { return Ok(Counted::default()) };
        // It has ended by itself where it may not count.
        if process.signal("INT").is_ok() {
            process.ended(PATIENCE).await?;
        }
        Ok(fs::read_to_string(file).map_or_else(|_| Counted::default(), |text| counted(&text)))
    }
}

/// Reads the lines of `perf stat -x,`: the count, its unit, the event. A thread that does not run is not counted.
fn counted(text: &str) -> Counted {
    let of = |event: &str| match text.lines().find(|line| line.contains(event))?.split(',').next()? {
        "<not counted>" => Some(0.0),
        count => count.parse().ok(),
    };
    Counted { system_calls: of(SYSTEM_CALLS), instructions: of(INSTRUCTIONS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_the_machine_does_not_count_is_none() {
        let text = "# started on Thu\n\n1234,,raw_syscalls:sys_enter,5678,100.00,,\n\
            <not supported>,,instructions:u,0,100.00,,\n";
        assert_eq!(counted(text), Counted { system_calls: Some(1234.0), instructions: None });
        let idle = counted("<not counted>,,raw_syscalls:sys_enter,0,100.00,,\n");
        assert_eq!((idle.system_calls, counted("")), (Some(0.0), Counted::default()));
    }
}
