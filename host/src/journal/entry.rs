//! Entries and how they lie in the file. Bytes in, entries out, and back; no IO but the reader's.
//!
//! The file begins with [`HEADER`]. An entry is its payload's length and the checksum of length and payload, both u32
//! little endian, and the payload in `podium-wire`'s encoding.

use std::{
    borrow::Cow,
    io::{self, ErrorKind, Read},
};

use serde::{Deserialize, Serialize};

/// Counts up when entries change in a way that an older host cannot read.
pub(super) const VERSION: u32 = 1;
/// What this host writes at the beginning of the file.
pub(super) const HEADER: [u8; HEADER_BYTES] = {
    let version = VERSION.to_le_bytes();
    [MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], MAGIC[4], MAGIC[5], version[0], version[1], version[2], version[3]]
};
pub(super) const HEADER_BYTES: usize = 10;
pub(super) const MAGIC: [u8; 6] = *b"podium";
/// Length and checksum.
const FRAME_BYTES: usize = 8;
/// The most bytes of one payload. An entry holds four names, each of at most 253 bytes where Kubernetes made them.
const MAX_PAYLOAD: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Entry<'a> {
    /// Numbers are given in order from 0. A number that gets another plugin forgets what its old one ran on.
    Plugin { number: u32, plugin: Option<Plugin<'a>> },
    /// The plugin is about to run on this incarnation for the first time.
    Runs { plugin: u32, namespace: Cow<'a, str>, name: Cow<'a, str>, uid: Cow<'a, str> },
    /// The plugin is done with its deletion.
    Settled { plugin: u32, uid: Cow<'a, str> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plugin<'a> {
    pub(super) namespace: Option<Cow<'a, str>>,
    pub(super) name: Cow<'a, str>,
    /// Since when the host does without it, in epoch milliseconds.
    pub(super) absent_since: Option<u64>,
}

impl Entry<'_> {
    /// Appends the entry. False, and nothing is appended, when it is longer than any entry of a Kubernetes object.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) -> bool {
        let Ok(payload) = podium_wire::encode(self) else { return false };
        let Some(length) = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MAX_PAYLOAD) else {
            return false;
        };
        let length = length.to_le_bytes();
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&checksum(length, &payload).to_le_bytes());
        bytes.extend_from_slice(&payload);
        true
    }
}

fn checksum(length: [u8; 4], payload: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&length);
    checksum.update(payload);
    checksum.finalize()
}

/// Why reading ended before the end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stop {
    /// The bytes from the reader's offset on are no entry.
    #[error("{0}")]
    Damaged(String),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reads entries one after another.
pub(super) struct Entries<R> {
    source: R,
    offset: u64,
    payload: Vec<u8>,
}

impl<R: Read> Entries<R> {
    /// `source` stands behind the header.
    pub(super) fn new(source: R) -> Self {
        Self { source, offset: HEADER_BYTES as u64, payload: Vec::new() }
    }

    /// Where the entry begins that [`Self::next`] reads next, and where the good ones end once it fails.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next entry; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry<'static>>, Stop> {
        let mut frame = [0; FRAME_BYTES];
        match fill(&mut self.source, &mut frame)? {
            0 => return Ok(None),
            FRAME_BYTES => {}
            _ => return Err(torn()),
        }
        let [a, b, c, d, e, f, g, h] = frame;
        let (length, wanted) = ([a, b, c, d], u32::from_le_bytes([e, f, g, h]));
        let payload_bytes = u32::from_le_bytes(length) as usize;
        if payload_bytes > MAX_PAYLOAD {
            return Err(Stop::Damaged(format!("an entry of {payload_bytes} bytes")));
        }
        self.payload.resize(payload_bytes, 0);
        if fill(&mut self.source, &mut self.payload)? < payload_bytes {
            return Err(torn());
        }
        if checksum(length, &self.payload) != wanted {
            return Err(Stop::Damaged("a wrong checksum".to_owned()));
        }
        let entry = podium_wire::decode(&self.payload).map_err(|error| Stop::Damaged(error.to_string()))?;
        self.offset += (FRAME_BYTES + payload_bytes) as u64;
        Ok(Some(entry))
    }
}

fn torn() -> Stop {
    Stop::Damaged("it ends within an entry".to_owned())
}

/// Reads until the buffer is full or the source ends; gives how many bytes there were.
pub(super) fn fill(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
