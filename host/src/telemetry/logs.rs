//! Logs on standard error: text for people or JSON, a line each.
//!
//! Who logs never waits for who reads: lines go through a buffer to a thread of their own, and when the buffer is full,
//! because nobody takes them off the pipe, they are dropped and counted.

use std::{fmt, io, str::FromStr};

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::{EnvFilter, filter::LevelFilter, fmt as subscriber, prelude::*};

/// Lines that wait to be written.
const BUFFERED_LINES: usize = 8_192;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

impl FromStr for LogFormat {
    type Err = LogsError;

    fn from_str(text: &str) -> Result<Self, LogsError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(LogsError::Format(text.to_owned())),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    #[error("{0:?} is no log format; use text or json")]
    Format(String),
    #[error("{0:?} is no log level; use error, warn, info, debug, trace, or directives such as info,podium_host=debug")]
    Level(String),
    #[error("logs are set up already")]
    Already,
}

/// The process's logs. Dropping it writes what is buffered, for which it waits a second or so; what is logged later is
/// lost.
#[must_use]
#[derive(Debug)]
pub struct Logs {
    dropped: ErrorCounter,
    _writer: WorkerGuard,
}

impl Logs {
    fn over(out: impl io::Write + Send + 'static, lines: usize) -> (NonBlocking, Self) {
        let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(lines).thread_name("podium-logs");
        let (writer, guard) = builder.finish(out);
        let dropped = writer.error_counter();
        (writer, Self { dropped, _writer: guard })
    }

    /// Lines that found the buffer full.
    #[must_use]
    pub fn dropped(&self) -> usize {
        self.dropped.dropped_lines()
    }
}

/// Sets up the process's logs. `level` is a level or a list of directives.
///
/// # Errors
/// When the level cannot be read, or logs were set up before.
pub fn init(level: &str, format: LogFormat) -> Result<Logs, LogsError> {
    let filter = filter(level)?;
    let (writer, logs) = Logs::over(io::stderr(), BUFFERED_LINES);
    let lines = subscriber::layer().with_writer(writer);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).boxed(),
    };
    tracing_subscriber::registry().with(filter).with(lines).try_init().map_err(|_| LogsError::Already)?;
    Ok(logs)
}

/// A bare word must be a level: as a directive it would name a target, and a mistyped level would silence everything.
fn filter(level: &str) -> Result<EnvFilter, LogsError> {
    let refused = || LogsError::Level(level.to_owned());
    let directives: Vec<&str> = level.split(',').map(str::trim).collect();
    let mut words = directives.iter().filter(|directive| !directive.contains('='));
    if words.any(|word| word.is_empty() || word.parse::<LevelFilter>().is_err()) {
        return Err(refused());
    }
    EnvFilter::try_new(directives.join(",")).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex, mpsc},
        time::Duration,
    };

    use super::*;

    /// A pipe that nobody reads until `opened` is dropped.
    struct Pipe {
        opened: mpsc::Receiver<()>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.opened.recv();
            self.read.lock().unwrap().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_logs_waits_for_no_reader_and_what_was_buffered_comes_out_at_the_end() {
        let (open, opened) = mpsc::channel();
        let read = Arc::<Mutex<Vec<u8>>>::default();
        let (mut writer, logs) = Logs::over(Pipe { opened, read: read.clone() }, 10);
        let (done, written) = mpsc::channel();
        std::thread::spawn(move || {
            for line in 0..1_000 {
                writer.write_all(format!("{line}\n").as_bytes()).unwrap();
            }
            done.send(()).unwrap();
        });
        written.recv_timeout(Duration::from_secs(10)).expect("who logs waits");
        // Beside the ten that are buffered, the thread may hold one.
        assert!((989..=990).contains(&logs.dropped()), "{}", logs.dropped());
        drop(open);
        drop(logs);
        let read = String::from_utf8(read.lock().unwrap().clone()).unwrap();
        assert!(read.starts_with("0\n1\n") && read.lines().count() >= 10, "{read}");
    }

    #[test]
    fn a_level_or_directives_are_taken_and_a_mistyped_level_is_not() {
        for level in ["info", "WARN", "off", "info,podium_host=debug", "podium_host=debug", "warn, podium::plugin=info"]
        {
            assert!(filter(level).is_ok(), "{level}");
        }
        for level in ["loud", "inof", "", "info,podium_host", "podium_host=loud"] {
            assert!(filter(level).is_err(), "{level:?}");
        }
    }
}
