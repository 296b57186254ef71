//! How the host's own files lie on the disk: a header that says what the file is, then frames. Bytes in, payloads out,
//! and back; no IO but the reader's.
//!
//! A frame is its payload's length and the checksum of length and payload, both u32 little endian, and the payload.

use std::io::{self, ErrorKind, Read};

/// Length of the header that [`Format::header`] returns: magic and version.
pub const HEADER_BYTES: usize = 10;
const MAGIC_BYTES: usize = 6;
/// Length and checksum.
const FRAME_BYTES: usize = 8;

/// One kind of file.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    /// The first bytes of each file of this kind.
    pub magic: [u8; MAGIC_BYTES],
    /// Incremented when the payloads change in a way that an older host cannot read.
    pub version: u32,
    /// The most bytes of one payload.
    pub max_payload: usize,
}

/// What the beginning of a file says.
#[derive(Debug, PartialEq, Eq)]
pub enum HeaderState {
    /// As this host writes it.
    Ours,
    /// Nothing is there, or a header that was begun and not written.
    Short,
    /// A file of this kind in another version, which this host cannot read.
    OtherVersion(u32),
    /// Another kind of file.
    Foreign,
}

/// A payload is longer than any payload of its file may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the payload is longer than an entry of this file may be")]
pub struct TooLong;

/// Why reading ended before the end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes from the reader's offset on are no frame, or not one that belongs there.
    #[error("{0}")]
    Damaged(String),
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Format {
    /// What this host writes at the beginning of the file.
    pub const fn header(&self) -> [u8; HEADER_BYTES] {
        let ([a, b, c, d, e, f], [g, h, i, j]) = (self.magic, self.version.to_le_bytes());
        [a, b, c, d, e, f, g, h, i, j]
    }

    /// Reads the header.
    pub fn read_header(&self, source: &mut impl Read) -> io::Result<HeaderState> {
        let mut header = [0; HEADER_BYTES];
        let there = read_full(source, &mut header)?;
        let known = there.min(MAGIC_BYTES);
        if header[..known] != self.magic[..known] {
            return Ok(HeaderState::Foreign);
        }
        let [.., a, b, c, d] = header;
        let version = u32::from_le_bytes([a, b, c, d]);
        Ok(match there == HEADER_BYTES {
            false => HeaderState::Short,
            true if version == self.version => HeaderState::Ours,
            true => HeaderState::OtherVersion(version),
        })
    }

    /// Appends a frame.
    ///
    /// # Errors
    /// When the payload is longer than any payload may be. Nothing is appended then.
    pub fn append(&self, payload: &[u8], bytes: &mut Vec<u8>) -> Result<(), TooLong> {
        let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= self.max_payload).ok_or(TooLong)?;
        let length = length.to_le_bytes();
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(&checksum(length, payload).to_le_bytes());
        bytes.extend_from_slice(payload);
        Ok(())
    }
}

fn checksum(length: [u8; 4], payload: &[u8]) -> u32 {
    let mut checksum = crc32fast::Hasher::new();
    checksum.update(&length);
    checksum.update(payload);
    checksum.finalize()
}

/// Reads frames one after another.
pub struct Frames<R> {
    source: R,
    max_payload: usize,
    offset: u64,
    payload: Vec<u8>,
}

impl<R: Read> Frames<R> {
    /// `source` stands behind the header.
    pub fn new(source: R, format: &Format) -> Self {
        Self { source, max_payload: format.max_payload, offset: HEADER_BYTES as u64, payload: Vec::new() }
    }

    /// Where the frame begins that [`Self::next`] reads next.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The payload of the next frame; none at the end.
    pub fn read(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let mut frame = [0; FRAME_BYTES];
        match read_full(&mut self.source, &mut frame)? {
            0 => return Ok(None),
            FRAME_BYTES => {}
            _ => return Err(torn()),
        }
        let [a, b, c, d, e, f, g, h] = frame;
        let (length, wanted) = ([a, b, c, d], u32::from_le_bytes([e, f, g, h]));
        let payload_bytes = u32::from_le_bytes(length) as usize;
        if payload_bytes > self.max_payload {
            return Err(ReadError::Damaged(format!("an entry of {payload_bytes} bytes")));
        }
        self.payload.resize(payload_bytes, 0);
        if read_full(&mut self.source, &mut self.payload)? < payload_bytes {
            return Err(torn());
        }
        if checksum(length, &self.payload) != wanted {
            return Err(ReadError::Damaged("a wrong checksum".to_owned()));
        }
        self.offset += (FRAME_BYTES + payload_bytes) as u64;
        Ok(Some(&self.payload))
    }
}

fn torn() -> ReadError {
    ReadError::Damaged("it ends within an entry".to_owned())
}

/// Reads until the buffer is full or the source ends. Returns the number of bytes.
fn read_full(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
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
