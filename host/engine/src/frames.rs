//! The format of the journal's file: a header that identifies the file, followed by frames. Converts payloads to bytes
//! and back; does no IO itself.
//!
//! A frame consists of the payload's length and the checksum of length and payload, both u32 little endian, and the
//! payload.

use std::io::{self, ErrorKind, Read};

/// Length of [`HEADER`]: magic and version.
pub const HEADER_BYTES: usize = 10;
/// The first bytes of the file.
const MAGIC: [u8; MAGIC_BYTES] = *b"podium";
/// Incremented when the payloads change in a way that an older host cannot read.
const VERSION: u32 = 2;
/// The most bytes of one payload. An entry contains four names. Kubernetes limits each to 253 bytes.
const MAX_PAYLOAD: usize = 64 << 10;
/// The header of the file.
pub const HEADER: [u8; HEADER_BYTES] = {
    let ([a, b, c, d, e, f], [g, h, i, j]) = (MAGIC, VERSION.to_le_bytes());
    [a, b, c, d, e, f, g, h, i, j]
};
const MAGIC_BYTES: usize = 6;
/// The length and the checksum before each payload.
const FRAME_BYTES: usize = 8;

/// The result of reading a file's header.
#[derive(Debug, PartialEq, Eq)]
pub enum HeaderState {
    /// A file of this kind and version.
    Ours,
    /// The file is empty, or ends within the header.
    Short,
    /// A file of this kind in another version, which this host cannot read.
    OtherVersion(u32),
    /// Another kind of file.
    Foreign,
}

/// A payload exceeds the format's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the payload is longer than an entry of this file may be")]
pub struct TooLong;

/// Why a frame could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The bytes at the reader's offset are not a frame, or not one that is valid there.
    #[error("{0}")]
    Damaged(String),
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Reads the header.
pub fn read_header(source: &mut impl Read) -> io::Result<HeaderState> {
    let mut header = [0; HEADER_BYTES];
    let there = read_full(source, &mut header)?;
    let known = there.min(MAGIC_BYTES);
    if header[..known] != MAGIC[..known] {
        return Ok(HeaderState::Foreign);
    }
    let [.., a, b, c, d] = header;
    Ok(match u32::from_le_bytes([a, b, c, d]) {
        _ if there < HEADER_BYTES => HeaderState::Short,
        VERSION => HeaderState::Ours,
        version => HeaderState::OtherVersion(version),
    })
}

/// Appends a frame.
///
/// # Errors
/// Returns an error if the payload exceeds the format's limit. Then nothing is appended.
pub fn append(payload: &[u8], bytes: &mut Vec<u8>) -> Result<(), TooLong> {
    let length = u32::try_from(payload.len()).ok().filter(|_| payload.len() <= MAX_PAYLOAD).ok_or(TooLong)?;
    let length = length.to_le_bytes();
    bytes.extend_from_slice(&length);
    bytes.extend_from_slice(&checksum(length, payload).to_le_bytes());
    bytes.extend_from_slice(payload);
    Ok(())
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
    /// Where the next frame is in the file.
    offset: u64,
    /// Bytes that were read; the next frame begins at `at`.
    bytes: Vec<u8>,
    at: usize,
}

impl<R: Read> Frames<R> {
    /// Returns a reader of frames. `source` must be positioned after the header.
    pub fn new(source: R) -> Self {
        Self { source, offset: HEADER_BYTES as u64, bytes: Vec::new(), at: 0 }
    }

    /// Returns the offset of the next frame.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the payload of the next frame, or `None` at the end.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if there is no frame at the offset, which stays as it is.
    pub fn read(&mut self) -> Result<Option<&[u8]>, ReadError> {
        let head = self.fill(FRAME_BYTES)?;
        let &[a, b, c, d, e, f, g, h] = head else {
            return if head.is_empty() { Ok(None) } else { Err(torn()) };
        };
        let length = [a, b, c, d];
        let wanted = u32::from_le_bytes([e, f, g, h]);
        let payload_bytes = u32::from_le_bytes(length) as usize;
        if payload_bytes > MAX_PAYLOAD {
            return Err(ReadError::Damaged(format!("an entry of {payload_bytes} bytes")));
        }
        let frame_bytes = FRAME_BYTES + payload_bytes;
        let frame = self.fill(frame_bytes)?;
        if frame.len() < frame_bytes {
            return Err(torn());
        }
        if checksum(length, &frame[FRAME_BYTES..]) != wanted {
            return Err(ReadError::Damaged("a wrong checksum".to_owned()));
        }
        self.pass(frame_bytes);
        Ok(Some(&self.bytes[self.at - payload_bytes..self.at]))
    }

    /// Moves past the byte at the offset, which is not the first byte of a frame.
    pub fn skip(&mut self) {
        self.pass(1);
    }

    fn pass(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
    }

    /// Returns the next bytes, fewer than `wanted` only at the end of the file.
    fn fill(&mut self, wanted: usize) -> io::Result<&[u8]> {
        let missing = (self.at + wanted).saturating_sub(self.bytes.len());
        if missing > 0 {
            self.bytes.drain(..self.at);
            self.at = 0;
            self.source.by_ref().take(missing as u64).read_to_end(&mut self.bytes)?;
        }
        let there = &self.bytes[self.at..];
        Ok(&there[..wanted.min(there.len())])
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
