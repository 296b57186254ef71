//! [`Buffer`]: log lines on their way to the thread that writes them, bounded in bytes.
//!
//! A caller never waits: a line that does not fit is dropped and counted. The host and its plugins have separate
//! limits, so a plugin that floods the log loses its own lines and those of other plugins, never the host's. Order is
//! kept, and every entry is one line: line breaks and other control characters are escaped.

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use podium_engine::ports::PLUGIN_TARGET;
use podium_vocabulary::text;
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// Targets of lines that plugins cause: their own, and those about their runs and writes.
const OF_PLUGINS: [&str; 3] = [PLUGIN_TARGET, "podium_engine::dispatch", "podium_writeback"];
/// The limit of the host's lines: 2 MiB, at least 8,000 lines.
const HOST_BYTES: usize = 2 << 20;
/// The limit of the lines that plugins cause: 6 MiB.
const PLUGIN_BYTES: usize = 6 << 20;
/// Overhead of a line in bytes: its place in the queue and the allocator's rounding.
const LINE_COST: usize = 64;
/// The most bytes of one write.
const BATCH: usize = 64 << 10;

/// The source of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The host itself.
    Host,
    /// A plugin: its own lines and those about its runs.
    Plugin,
}

impl Source {
    /// Both, in the order of their indexes.
    pub const ALL: [Self; 2] = [Self::Host, Self::Plugin];

    /// Returns the value of the metrics' label `source`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Plugin => "plugin",
        }
    }

    fn from_target(target: &str) -> Self {
        let of_plugins = OF_PLUGINS
            .iter()
            .any(|prefix| target.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::")));
        if of_plugins { Self::Plugin } else { Self::Host }
    }
}

/// Lines that were dropped since the start, by source.
#[derive(Debug, Default)]
pub struct Dropped([AtomicU64; 2]);

impl Dropped {
    /// Returns how many lines of the source were dropped because standard error was read too slowly.
    #[must_use]
    pub fn lines(&self, source: Source) -> u64 {
        self.0[source as usize].load(Relaxed)
    }

    fn all(&self) -> [u64; 2] {
        Source::ALL.map(|source| self.lines(source))
    }
}

#[derive(Debug)]
pub(super) struct Buffer {
    state: Mutex<State>,
    changed: Condvar,
    limits: [usize; 2],
    dropped: Arc<Dropped>,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<(Source, Box<[u8]>)>,
    /// Bytes by source, including those that are being written.
    held: [usize; 2],
    /// No more lines are accepted.
    closed: bool,
    /// Everything is written, or writing failed.
    written: bool,
}

impl Buffer {
    pub(super) fn new() -> Arc<Self> {
        Self::holding([HOST_BYTES, PLUGIN_BYTES])
    }

    pub(super) fn holding(limits: [usize; 2]) -> Arc<Self> {
        let state = Mutex::default();
        let changed = Condvar::new();
        let dropped = Arc::default();
        Arc::new(Self { state, changed, limits, dropped })
    }

    pub(super) fn dropped(&self) -> &Arc<Dropped> {
        &self.dropped
    }

    fn push(&self, source: Source, line: &[u8]) {
        let line = one_line(&String::from_utf8_lossy(line)).into_bytes().into_boxed_slice();
        let cost = line.len() + LINE_COST;
        let mut state = self.state.lock();
        let held = &mut state.held[source as usize];
        if *held + cost > self.limits[source as usize] {
            self.dropped.0[source as usize].fetch_add(1, Relaxed);
            return;
        }
        *held += cost;
        state.lines.push_back((source, line));
        drop(state);
        self.changed.notify_all();
    }

    /// Writes lines until the buffer is closed and empty, or writing fails. Logs the number of dropped lines whenever
    /// at least half of the limit is free again.
    pub(super) fn write_to(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        let mut reported = [0; 2];
        loop {
            batch.clear();
            let mut taken = [0; 2];
            let mut state = self.state.lock();
            while state.lines.is_empty() && !state.closed {
                self.changed.wait(&mut state);
            }
            while batch.len() < BATCH
                && let Some((source, line)) = state.lines.pop_front()
            {
                batch.extend_from_slice(&line);
                taken[source as usize] += line.len() + LINE_COST;
            }
            drop(state);
            let failed = batch.is_empty() || out.write_all(&batch).and_then(|()| out.flush()).is_err();
            let mut state = self.state.lock();
            state.held.iter_mut().zip(taken).for_each(|(held, taken)| *held -= taken);
            if failed {
                state.written = true;
                self.changed.notify_all();
                return;
            }
            let roomy = state.held.iter().zip(self.limits).all(|(held, limit)| *held <= limit / 2);
            drop(state);
            let dropped = self.dropped.all();
            if roomy && dropped != reported {
                let [host_lines, plugin_lines] = [dropped[0] - reported[0], dropped[1] - reported[1]];
                reported = dropped;
                tracing::warn!(
                    host_lines,
                    plugin_lines,
                    "log lines were dropped, because standard error was not read in time"
                );
            }
        }
    }

    /// Accepts no more lines and waits until the buffered ones are written, at most this long.
    pub(super) fn close(&self, within: Duration) {
        let mut state = self.state.lock();
        state.closed = true;
        self.changed.notify_all();
        let _ = self.changed.wait_while_for(&mut state, |state| !state.written, within);
    }
}

/// One line, of which nothing ends it early, controls a terminal or reorders it. A line of JSON keeps its meaning.
fn one_line(line: &str) -> String {
    let mut one = text::escape(line.strip_suffix('\n').unwrap_or(line));
    one.push('\n');
    one
}

/// Writes each line of the log to the buffer. For [`tracing_subscriber::fmt`], which writes a line in one call.
#[derive(Debug, Clone)]
pub(super) struct Lines(pub(super) Arc<Buffer>);

/// The writer of [`Lines`] for one source.
#[derive(Debug)]
pub(super) struct LinesOf<'a>(&'a Buffer, Source);

impl<'a> MakeWriter<'a> for Lines {
    type Writer = LinesOf<'a>;

    fn make_writer(&'a self) -> LinesOf<'a> {
        LinesOf(&self.0, Source::Host)
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LinesOf<'a> {
        LinesOf(&self.0, Source::from_target(metadata.target()))
    }
}

impl Write for LinesOf<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(self.1, line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use tracing_subscriber::prelude::*;

    use super::*;

    /// A pipe that is not read until `opened` is dropped.
    struct Pipe {
        opened: mpsc::Receiver<()>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.opened.recv();
            self.read.lock().write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns a buffer whose lines go to a pipe that is not read before the sender is dropped.
    fn stalled(limits: [usize; 2]) -> (Arc<Buffer>, mpsc::Sender<()>, Arc<Mutex<Vec<u8>>>) {
        let buffer = Buffer::holding(limits);
        let (open, opened) = mpsc::channel();
        let read = Arc::<Mutex<Vec<u8>>>::default();
        let out = Pipe { opened, read: read.clone() };
        let writer = buffer.clone();
        thread::spawn(move || {
            let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Lines(writer.clone()));
            tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || writer.write_to(out));
        });
        (buffer, open, read)
    }

    fn held(buffer: &Buffer) -> [usize; 2] {
        buffer.state.lock().held
    }

    fn closed(buffer: &Buffer, open: mpsc::Sender<()>, read: &Mutex<Vec<u8>>) -> String {
        drop(open);
        buffer.close(Duration::from_secs(60));
        String::from_utf8(read.lock().clone()).unwrap()
    }

    #[test]
    fn a_stalled_reader_blocks_no_thread_and_costs_bounded_memory() {
        let (buffer, open, read) = stalled([1 << 20, 1 << 20]);
        let line = "x".repeat(16 << 10);
        for _ in 0..1_000 {
            buffer.push(Source::Plugin, line.as_bytes());
        }
        let [host, plugins] = held(&buffer);
        assert!(host == 0 && plugins <= 1 << 20 && plugins > (1 << 20) - (17 << 10), "{plugins} bytes are held");
        assert_eq!(buffer.dropped().lines(Source::Plugin), 1_000 - 63);
        let read = closed(&buffer, open, &read);
        assert_eq!(read.lines().filter(|read| **read == line).count(), 63);
    }

    #[test]
    fn a_flood_of_plugins_takes_no_room_from_the_host_and_the_loss_is_logged() {
        let (buffer, open, read) = stalled([10_000, 10_000]);
        for number in 0..1_000 {
            buffer.push(Source::Plugin, format!("plugin {number}\n").as_bytes());
            if number % 10 == 0 {
                buffer.push(Source::Host, format!("host {number}\n").as_bytes());
            }
        }
        assert_eq!(buffer.dropped().lines(Source::Host), 0);
        let dropped = buffer.dropped().lines(Source::Plugin);
        assert!(dropped > 0);
        let read = closed(&buffer, open, &read);
        assert_eq!(read.lines().filter(|line| line.starts_with("host ")).count(), 100);
        assert!(read.starts_with("plugin 0\nhost 0\nplugin 1\n"), "order is kept: {read}");
        let line = format!(
            "log lines were dropped, because standard error was not read in time host_lines=0 plugin_lines={dropped}"
        );
        assert!(read.contains(&line), "{read}");
    }

    #[test]
    fn a_line_is_one_line_whatever_is_in_it() {
        assert_eq!(one_line("plain: \u{fc}\n"), "plain: \u{fc}\n");
        assert_eq!(one_line("a\n2026 ERROR forged\r\u{1b}[2J\u{9b}\n"), "a\\n2026 ERROR forged\\r\\u001b[2J\\u009b\n");
    }

    #[test]
    fn lines_about_runs_are_the_plugins_and_others_the_hosts() {
        for target in
            ["podium::plugin", "podium_engine::dispatch", "podium_engine::dispatch::world", "podium_writeback"]
        {
            assert_eq!(Source::from_target(target), Source::Plugin, "{target}");
        }
        for target in ["podium_host::app", "podium_host::watch", "podium::plugins", "podium_host::dispatcher"] {
            assert_eq!(Source::from_target(target), Source::Host, "{target}");
        }
    }
}
