//! A measured process: its output, its processor time and its memory, as reported by Linux.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use anyhow::Context;

use crate::threads::Threads;

/// Timeout of the slowest step of the slowest subject: a list of 100,000 Pods in a debug build.
const PATIENCE: Duration = Duration::from_secs(300);
pub(super) struct Process {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    threads: Threads,
}

/// Memory in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Memory {
    /// Anonymous memory of the process; mapped files do not count.
    pub(super) anonymous: u64,
    pub(super) resident: u64,
    /// The peak since [`Process::reset_peak`].
    pub(super) peak: u64,
}

impl Process {
    /// Starts a program, on its own processor if there are several and `taskset` is installed.
    pub(super) fn start(program: &Path, arguments: &[String], processor: usize) -> anyhow::Result<Self> {
        let several = thread::available_parallelism().is_ok_and(|all| all.get() > processor);
        let pinned = several && Path::new("/usr/bin/taskset").exists();
        let mut command = match pinned {
            true => {
                let mut command = Command::new("/usr/bin/taskset");
                command.arg("-c").arg(processor.to_string()).arg(program);
                command
            }
            false => Command::new(program),
        };
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let input = child.stdin.take().context("a process without input")?;
        let output = child.stdout.take().context("a process without output")?;
        let (said, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if said.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, lines, threads: Threads::default() })
    }

    pub(super) fn say(&mut self, line: &str) -> anyhow::Result<()> {
        writeln!(self.input, "{line}").with_context(|| format!("could not be sent {line:?}"))
    }

    /// Returns the numbers after `word` on the next line, which must begin with it.
    pub(super) fn expect(&self, word: &str) -> anyhow::Result<Vec<u64>> {
        let rest = self.hear_text(word)?;
        rest.split_whitespace().map(|number| number.parse().with_context(|| format!("{rest:?} of {word}"))).collect()
    }

    pub(super) fn hear_text(&self, word: &str) -> anyhow::Result<String> {
        let line = self.lines.recv_timeout(PATIENCE).with_context(|| format!("no {word:?} within {PATIENCE:?}"))?;
        let rest = line.strip_prefix(word).with_context(|| format!("it said {line:?} in the place of {word:?}"))?;
        Ok(rest.trim().to_owned())
    }

    /// Returns the processor time of all threads until now, in microseconds.
    pub(super) fn cpu_micros(&mut self) -> anyhow::Result<f64> {
        self.threads.look(&[self.child.id()])?;
        Ok(self.threads.cpu_micros(|_| true))
    }

    pub(super) fn memory(&self) -> anyhow::Result<Memory> {
        let status = self.proc("status")?;
        let field = |name: &str| -> anyhow::Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
            let kilobytes = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>()?;
            Ok(kilobytes << 10)
        };
        Ok(Memory { anonymous: field("RssAnon")?, resident: field("VmRSS")?, peak: field("VmHWM")? })
    }

    pub(super) fn reset_peak(&self) -> anyhow::Result<()> {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").context("cannot reset the peak of memory")
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id())).context("the process is gone")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the body of the server's response.
pub(super) fn post(address: &str, order: &str) -> anyhow::Result<String> {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "POST /control/{order} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = ask().with_context(|| format!("the server did not do {order}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the server's answer has no body")?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "the server refused {order}: {body}");
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_on_the_processor_and_memory_of_a_process_are_read() {
        let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done 1 2; read x";
        let mut process = Process::start(Path::new("/bin/sh"), &["-c".to_owned(), script.to_owned()], 0).unwrap();
        let before = process.cpu_micros().unwrap();
        assert_eq!(process.expect("done").unwrap(), [1, 2]);
        assert!(process.cpu_micros().unwrap() > before, "the loop takes more than one tick");
        let memory = process.memory().unwrap();
        assert!(0 < memory.anonymous && memory.anonymous <= memory.resident && memory.resident <= memory.peak);
        process.reset_peak().unwrap();
    }
}
