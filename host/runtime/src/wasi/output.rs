//! The output of a WASI guest, as lines for its log.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use podium_engine::ports::LogLevel;
use wasmtime_wasi::{
    async_trait,
    p2::{OutputStream, Pollable, StreamError, StreamResult},
};

use crate::{meter::Size, run::LINE_BYTES, text::cut};

/// Bytes that a guest may print at once.
const PERMITTED: usize = 4 << 10;

/// Printed bytes, cut into lines. Streams write here, because they cannot reach the run; the run drains it.
#[derive(Debug)]
pub(crate) struct Output {
    lines: VecDeque<(LogLevel, String)>,
    unfinished: [Vec<u8>; 2],
    /// Bytes that may still be kept; the run's budget of log is counted again where lines join the log.
    left: usize,
    dropped: usize,
    /// The output of the present host call, in bytes and in pieces of lines.
    printed: Size,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Channel {
    Stdout = 0,
    Stderr = 1,
}

impl Channel {
    const fn level(self) -> LogLevel {
        match self {
            Self::Stdout => LogLevel::Info,
            Self::Stderr => LogLevel::Warn,
        }
    }
}

impl Output {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            lines: VecDeque::new(),
            unfinished: [Vec::new(), Vec::new()],
            left: limit,
            dropped: 0,
            printed: Size::default(),
        }
    }

    /// Begins another run.
    pub(crate) fn reset(&mut self, limit: usize) {
        *self = Self::new(limit);
    }

    fn write(&mut self, channel: Channel, bytes: &[u8]) {
        self.printed = self.printed.and(Size { bytes: bytes.len(), values: 1 });
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.printed.values += 1;
            let kept = &piece[..piece.len().min(self.left)];
            self.left -= kept.len();
            self.dropped = self.dropped.saturating_add(piece.len() - kept.len());
            self.unfinished[channel as usize].extend(kept);
            if kept.ends_with(b"\n") {
                self.end_line(channel);
            }
        }
    }

    fn end_line(&mut self, channel: Channel) {
        let line = std::mem::take(&mut self.unfinished[channel as usize]);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\n', '\r']);
        if !line.is_empty() {
            self.left = self.left.saturating_sub(LINE_BYTES);
            // Broken UTF-8 grows threefold.
            self.lines.push_back((channel.level(), cut(line, 64 << 10).to_owned()));
        }
    }

    /// Returns the size of the output since the last call.
    pub(crate) fn take_printed(&mut self) -> Size {
        std::mem::take(&mut self.printed)
    }

    pub(crate) fn next_line(&mut self) -> Option<(LogLevel, String)> {
        self.lines.pop_front()
    }

    /// Ends incomplete lines; returns the number of dropped bytes.
    pub(crate) fn finish(&mut self) -> usize {
        self.end_line(Channel::Stdout);
        self.end_line(Channel::Stderr);
        self.dropped
    }
}

pub(super) struct Printer {
    pub(super) output: Arc<Mutex<Output>>,
    pub(super) channel: Channel,
}

#[async_trait]
impl Pollable for Printer {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for Printer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if bytes.len() > PERMITTED {
            return Err(StreamError::trap("printed more at once than check-write permits"));
        }
        self.output.lock().write(self.channel, &bytes);
        Ok(())
    }
    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }
    fn check_write(&mut self) -> Result<usize, StreamError> {
        Ok(PERMITTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printing_becomes_lines_and_ends_at_the_limit() {
        // The two lines that end take their own share.
        let mut output = Output::new(12 + 2 * LINE_BYTES);
        output.write(Channel::Stdout, b"one\ntw");
        output.write(Channel::Stderr, b"bad");
        output.write(Channel::Stdout, b"o\nthree\n");
        assert_eq!(output.finish(), 5);
        let lines: Vec<_> = std::iter::from_fn(|| output.next_line()).map(|(_, line)| line).collect();
        assert_eq!(lines, ["one", "two", "t", "bad"]);
    }
}
