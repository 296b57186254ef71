//! Faults of a watch's events.

use super::Switches;

/// The modification of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garble {
    /// The event is sent twice.
    Duplicate,
    /// The event is sent after the next one, if one comes before a bookmark or the end.
    Swap,
    /// Half of the event is sent, and the stream ends.
    Truncate,
    /// Half of the event is sent as a complete line.
    Malformed,
    /// Its object is null.
    Null,
    /// The event is never sent. No API server does this; it is for what a client has to repair by its next list.
    Drop,
    /// The event and those after it are held back until this number of further ones has come, or a bookmark or the end.
    /// They are sent in order: the watch is late, and skips nothing.
    Late(u32),
}

/// Applies faults to the events of one watch, and holds back a swapped one or late ones.
#[derive(Debug, Default)]
pub(crate) struct Garbler {
    held: Option<Vec<u8>>,
    /// The number of events that late ones still wait for.
    waits: u32,
}

impl Garbler {
    /// Returns the bytes of one event as they arrive, and whether the stream ends with them.
    pub(crate) fn event(&mut self, line: Vec<u8>, faults: &Switches) -> (Vec<u8>, bool) {
        let garble = faults.take_garble();
        if self.waits > 0 {
            self.waits -= 1;
            let mut lines = self.held.take().unwrap_or_default();
            lines.extend(line);
            if self.waits > 0 {
                self.held = Some(lines);
                return (Vec::new(), false);
            }
            return (lines, false);
        }
        let mut lines = match garble {
            None => line,
            Some(Garble::Drop) => Vec::new(),
            Some(Garble::Late(events)) if events > 0 && self.held.is_none() => {
                self.waits = events;
                self.held = Some(line);
                return (Vec::new(), false);
            }
            Some(Garble::Late(_)) => line,
            Some(Garble::Duplicate) => line.repeat(2),
            Some(Garble::Swap) if self.held.is_none() => {
                self.held = Some(line);
                return (Vec::new(), false);
            }
            // This event is sent before the one that was held back.
            Some(Garble::Swap) => line,
            Some(Garble::Truncate) => return (line[..line.len() / 2].to_vec(), true),
            Some(Garble::Malformed) => [&line[..line.len() / 2], b"\n"].concat(),
            Some(Garble::Null) => without_object(&line),
        };
        lines.extend(self.held());
        (lines, false)
    }

    /// Returns the events that are still held back.
    pub(crate) fn held(&mut self) -> Vec<u8> {
        self.waits = 0;
        self.held.take().unwrap_or_default()
    }
}

fn without_object(line: &[u8]) -> Vec<u8> {
    let object = b"\"object\":";
    let at = line.windows(object.len()).position(|window| window == object).unwrap_or(line.len());
    [&line[..at], object, b"null}\n"].concat()
}
