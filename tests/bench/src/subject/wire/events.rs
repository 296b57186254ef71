//! The bytes of a watch as events.

use anyhow::Context;
use bytes::{Buf, Bytes, BytesMut};
use futures::{FutureExt, StreamExt};
use memchr::memmem::Finder;
use podium_api::Chunks;

/// The value of the host.
const MAX_BATCH: usize = 256 << 10;
/// The length of the header before an event in protobuf, big endian.
const HEAD: usize = 4;
/// The longest event. A larger length means that the server did not answer in protobuf.
const MAX_EVENT: usize = 16 << 20;
const JSON_TYPE: &[u8] = br#"{"type":""#;
const JSON_REVISION: &[u8] = br#""resourceVersion":""#;
/// The prefix of every outermost object in protobuf.
const MAGIC: &[u8] = b"k8s\0";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

/// The part of an event that is read; the numbers are revisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Pod(u64),
    Bookmark(u64),
    Error,
}

pub(crate) struct Events {
    chunks: Chunks,
    encoding: Encoding,
    revision: Finder<'static>,
    /// Complete events that were not returned yet.
    whole: Vec<Bytes>,
    /// The beginning of an event.
    buffer: BytesMut,
}

impl Events {
    pub(crate) fn new(chunks: Chunks, encoding: Encoding) -> Self {
        Self { chunks, encoding, revision: Finder::new(JSON_REVISION), whole: Vec::new(), buffer: BytesMut::new() }
    }

    /// Returns all complete events that have arrived, or waits for the next one, as in host/api/src/watch/lines.rs;
    /// `None` at the end.
    pub(crate) async fn batch(&mut self) -> anyhow::Result<Option<Vec<Bytes>>> {
        let (mut taken, mut waited) = (0, false);
        loop {
            let next =
                if self.whole.is_empty() { Some(self.chunks.next().await) } else { self.chunks.next().now_or_never() };
            match next {
                Some(Some(chunk)) => {
                    let chunk = chunk?;
                    waited = false;
                    taken += chunk.len();
                    match self.encoding {
                        Encoding::Json => self.take_lines(chunk),
                        Encoding::Protobuf => self.take_frames(chunk)?,
                    }
                    if taken < MAX_BATCH || self.whole.is_empty() {
                        continue;
                    }
                }
                // The next call reports the end.
                Some(None) if !self.whole.is_empty() => self.chunks = Box::pin(futures::stream::empty()),
                Some(None) => {
                    anyhow::ensure!(self.buffer.is_empty(), "the stream ended within an event");
                    return Ok(None);
                }
                // The task that reads the socket is polled once more to fetch the next chunk.
                None if !waited => {
                    waited = true;
                    tokio::task::yield_now().await;
                    continue;
                }
                None => {}
            }
            return Ok(Some(std::mem::take(&mut self.whole)));
        }
    }

    /// Splits lines. Events within one chunk are not copied.
    fn take_lines(&mut self, mut chunk: Bytes) {
        while let Some(end) = memchr::memchr(b'\n', &chunk) {
            let mut line = chunk.split_to(end + 1);
            if !self.buffer.is_empty() {
                self.buffer.extend_from_slice(&line);
                line = self.buffer.split().freeze();
            }
            line.truncate(line.len() - 1);
            self.whole.push(line);
        }
        self.buffer.extend_from_slice(&chunk);
    }

    /// Splits frames. Events within one chunk are not copied.
    fn take_frames(&mut self, mut chunk: Bytes) -> anyhow::Result<()> {
        while !chunk.is_empty() {
            let begun = !self.buffer.is_empty();
            let length = length(if begun { &self.buffer } else { &chunk });
            anyhow::ensure!(length.is_none_or(|length| length <= MAX_EVENT), "this is no protobuf");
            let missing = length.map_or(HEAD, |length| HEAD + length) - self.buffer.len();
            let part = chunk.split_to(missing.min(chunk.len()));
            let is_whole = length.is_some() && part.len() == missing;
            let mut frame = match (begun, is_whole) {
                (false, true) => part,
                (_, is_whole) => {
                    self.buffer.extend_from_slice(&part);
                    if !is_whole {
                        continue;
                    }
                    self.buffer.split().freeze()
                }
            };
            frame.advance(HEAD);
            self.whole.push(frame);
        }
        Ok(())
    }

    pub(crate) fn read(&self, event: &[u8]) -> anyhow::Result<Event> {
        let read = match self.encoding {
            Encoding::Json => json(event, &self.revision),
            Encoding::Protobuf => protobuf(event),
        };
        read.with_context(|| format!("no event: {}", String::from_utf8_lossy(&event[..event.len().min(200)])))
    }
}

fn json(event: &[u8], revision: &Finder<'_>) -> Option<Event> {
    let kind = until_quote(event.strip_prefix(JSON_TYPE)?)?;
    known(kind, || until_quote(&event[revision.find(event)? + JSON_REVISION.len()..]))
}

fn until_quote(text: &[u8]) -> Option<&[u8]> {
    Some(&text[..memchr::memchr(b'"', text)?])
}

/// Parses `WatchEvent`, `RawExtension`, `Unknown`, the Pod and its metadata.
fn protobuf(event: &[u8]) -> Option<Event> {
    known(field(event, 1)?, || {
        let object = field(field(event, 2)?, 1)?.strip_prefix(MAGIC)?;
        field(field(field(object, 2)?, 1)?, 6)
    })
}

fn known<'a>(kind: &[u8], revision: impl FnOnce() -> Option<&'a [u8]>) -> Option<Event> {
    let revision = || std::str::from_utf8(revision()?).ok()?.parse().ok();
    match kind {
        b"ERROR" => Some(Event::Error),
        b"BOOKMARK" => revision().map(Event::Bookmark),
        _ => revision().map(Event::Pod),
    }
}

/// Returns the first field of this number. The fields before the requested ones never have a fixed width.
fn field(mut message: &[u8], number: usize) -> Option<&[u8]> {
    loop {
        let (tag, behind) = varint(message)?;
        let (value, behind) = varint(behind)?;
        message = match tag & 7 {
            0 => behind,
            2 if tag >> 3 == number => return behind.get(..value),
            2 => behind.get(value..)?,
            _ => return None,
        };
    }
}

fn varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(9) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

fn length(bytes: &[u8]) -> Option<usize> {
    bytes.first_chunk::<HEAD>().map(|head| u32::from_be_bytes(*head) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
        let field =
            |(number, bytes): &(u8, &[u8])| [&[number << 3 | 2, u8::try_from(bytes.len()).unwrap()], *bytes].concat();
        fields.iter().flat_map(field).collect()
    }

    fn frame(kind: &str, metadata: &[(u8, &[u8])]) -> Vec<u8> {
        let pod = message(&[(1, &message(metadata)), (3, b"status")]);
        let unknown = [MAGIC, &message(&[(1, b"v1 Pod"), (2, &pod)])].concat();
        let event = message(&[(1, kind.as_bytes()), (2, &message(&[(1, &unknown)]))]);
        [&u32::try_from(event.len()).unwrap().to_be_bytes(), event.as_slice()].concat()
    }

    async fn all(encoding: Encoding, stream: &[u8], cut: usize) -> anyhow::Result<Vec<Event>> {
        let chunks: Vec<_> = stream.chunks(cut).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        let mut events = Events::new(Box::pin(futures::stream::iter(chunks)), encoding);
        let mut all = Vec::new();
        while let Some(batch) = events.batch().await? {
            for event in batch {
                all.push(events.read(&event)?);
            }
        }
        Ok(all)
    }

    #[tokio::test]
    async fn both_encodings_are_read_alike_at_any_chunk_boundaries() {
        let json = concat!(
            r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"7","uid":"u"}}}"#,
            "\n",
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12"}}}"#,
            "\n",
            r#"{"type":"ERROR","object":{"kind":"Status","metadata":{},"code":410}}"#,
            "\n",
        );
        let pod = frame("ADDED", &[(1, b"a"), (5, b"u"), (6, b"7"), (12, b"6")]);
        let protobuf = [pod, frame("BOOKMARK", &[(6, b"12")]), frame("ERROR", &[])].concat();
        let expected = vec![Event::Pod(7), Event::Bookmark(12), Event::Error];
        for (encoding, stream) in [(Encoding::Json, json.as_bytes()), (Encoding::Protobuf, &protobuf)] {
            for cut in 1..=stream.len() {
                assert_eq!(all(encoding, stream, cut).await.unwrap(), expected, "{encoding:?} in pieces of {cut}");
            }
            assert!(all(encoding, &stream[..stream.len() - 1], 9).await.is_err(), "{encoding:?}: a torn event");
        }
    }

    #[tokio::test]
    async fn json_where_protobuf_was_asked_for_is_an_error() {
        let error = all(Encoding::Protobuf, br#"{"type":"ADDED"}"#, 5).await.unwrap_err();
        assert_eq!(error.to_string(), "this is no protobuf");
    }
}
