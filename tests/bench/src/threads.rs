//! Processor time and context switches of processes, by the names of their threads, as Linux reports them.

use std::{collections::HashMap, fs, io, path::Path};

use anyhow::Context;

#[derive(Debug, Clone)]
struct Thread {
    name: String,
    cpu_nanos: u64,
    switches: u64,
}

/// The threads of processes, each as it was seen last: the time of a thread that has ended counts up to then.
#[derive(Debug, Clone, Default)]
pub(crate) struct Threads(HashMap<(u32, String), Thread>);

impl Threads {
    /// Returns the present threads of these processes.
    ///
    /// # Errors
    /// Returns an error if a process has ended.
    pub(crate) fn read(processes: &[u32]) -> anyhow::Result<Self> {
        let mut threads = Self::default();
        threads.look(processes)?;
        Ok(threads)
    }

    /// Reads them again.
    ///
    /// # Errors
    /// Returns an error if a process has ended.
    pub(crate) fn look(&mut self, processes: &[u32]) -> anyhow::Result<()> {
        for process in processes {
            let tasks = format!("/proc/{process}/task");
            for task in fs::read_dir(&tasks).with_context(|| format!("process {process} is gone"))? {
                let task = task?;
                // A thread may end meanwhile.
                if let Ok(thread) = read(&task.path()) {
                    self.0.insert((*process, task.file_name().to_string_lossy().into_owned()), thread);
                }
            }
        }
        Ok(())
    }

    /// Returns the processor time of the threads with such names, in microseconds.
    pub(crate) fn cpu_micros(&self, is_of: impl Fn(&str) -> bool) -> f64 {
        let of = self.0.values().filter(|thread| is_of(&thread.name));
        of.map(|thread| thread.cpu_nanos).sum::<u64>() as f64 / 1e3
    }

    /// Returns the context switches of all threads, voluntary or not.
    pub(crate) fn switches(&self) -> u64 {
        self.0.values().map(|thread| thread.switches).sum()
    }
}

fn read(task: &Path) -> io::Result<Thread> {
    let text = |file: &str| fs::read_to_string(task.join(file));
    let number = |text: Option<&str>| text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or_default();
    let status = text("status")?;
    let switches = status.lines().filter_map(|line| line.split_once("ctxt_switches:")).map(|(_, n)| number(Some(n)));
    Ok(Thread {
        name: text("comm")?.trim().to_owned(),
        cpu_nanos: number(text("schedstat")?.split(' ').next()),
        switches: switches.sum(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_switches_of_a_named_thread_are_counted_after_its_end() {
        let this = [std::process::id()];
        let mut threads = Threads::default();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let (ready, readied) = std::sync::mpsc::channel();
        let work = move || {
            let mut sum = 0_u64;
            (0..20_000_000_u64).for_each(|number| sum = std::hint::black_box(sum.wrapping_add(number)));
            ready.send(()).unwrap();
            wait.recv().unwrap_err();
        };
        let busy = std::thread::Builder::new().name("podium-busy".to_owned()).spawn(work).unwrap();
        readied.recv().unwrap();
        // The wait that the message ends has a switch.
        threads.look(&this).unwrap();
        drop(done);
        busy.join().unwrap();
        threads.look(&this).unwrap();
        let of_busy = threads.cpu_micros(|name| name == "podium-busy");
        assert!(of_busy > 100.0 && of_busy <= threads.cpu_micros(|_| true), "{of_busy} us");
        assert!(threads.switches() > 0);
    }
}
