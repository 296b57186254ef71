//! The bytes of a watch as lines. Each line is one event.

use bytes::{Bytes, BytesMut};
use futures::{FutureExt, StreamExt};

use crate::Chunks;

/// The longest line. An event contains one Pod; etcd stores objects of up to 1.5 MiB by default and recommends 10 MiB
/// at most, and JSON may write a byte as 6 (`<`).
pub(super) const MAX_LINE: usize = 64 << 20;
/// The most bytes of a response that are split into lines at once. They fit into a processor's cache until they are
/// decoded.
const MAX_BATCH: usize = 256 << 10;

/// Splits the bytes of a watch into lines.
pub struct Lines {
    chunks: Chunks,
    /// Complete lines that were not returned yet.
    lines: Vec<Bytes>,
    /// The beginning of a line.
    buffer: BytesMut,
}

/// The next lines of a stream.
#[derive(Debug, PartialEq, Eq)]
pub enum Batch {
    /// At least one line, without line ends.
    Lines(Vec<Bytes>),
    /// The server ended the stream after a complete line.
    End,
    /// The connection was lost, or the stream ended within a line.
    Cut(String),
    /// A line that is too long to be an event.
    TooLong,
}

impl Lines {
    /// Returns the lines of a stream.
    #[must_use]
    pub fn new(chunks: Chunks) -> Self {
        Self { chunks, lines: Vec::new(), buffer: BytesMut::new() }
    }

    /// Returns all complete lines that have arrived, or waits for the next one. Cancel safe: bytes that were read
    /// stay for the next call.
    pub async fn batch(&mut self) -> Batch {
        let mut taken = 0;
        let mut waited = false;
        loop {
            let chunk = if self.lines.is_empty() {
                self.chunks.next().await
            } else if taken >= MAX_BATCH {
                return self.whole();
            } else {
                match self.chunks.next().now_or_never() {
                    Some(Some(Ok(chunk))) => Some(Ok(chunk)),
                    // The next call reports the end again, because the stream stays ended and the error is kept.
                    Some(Some(Err(error))) => {
                        self.chunks = Box::pin(futures::stream::iter([Err(error)]));
                        return self.whole();
                    }
                    Some(None) => {
                        self.chunks = Box::pin(futures::stream::empty());
                        return self.whole();
                    }
                    None if waited => return self.whole(),
                    // The task that reads the socket buffers one chunk at most. It is polled once more to fetch the
                    // next chunk, because publishing a batch costs less than publishing each event.
                    None => {
                        waited = true;
                        tokio::task::yield_now().await;
                        continue;
                    }
                }
            };
            waited = false;
            match chunk {
                Some(Ok(chunk)) => {
                    taken += chunk.len();
                    self.take_lines(chunk);
                }
                Some(Err(error)) => return Batch::Cut(error.to_string()),
                None if self.buffer.is_empty() => return Batch::End,
                None => return Batch::Cut("the stream ended within an event".to_owned()),
            }
            if self.buffer.len() > MAX_LINE {
                return Batch::TooLong;
            }
        }
    }

    fn whole(&mut self) -> Batch {
        Batch::Lines(std::mem::take(&mut self.lines))
    }

    /// Splits a chunk. Lines within one chunk are not copied.
    fn take_lines(&mut self, mut chunk: Bytes) {
        while let Some(end) = memchr::memchr(b'\n', &chunk) {
            let mut line = chunk.split_to(end + 1);
            if !self.buffer.is_empty() {
                self.buffer.extend_from_slice(&line);
                line = self.buffer.split().freeze();
            }
            if line.len() > 1 {
                line.truncate(line.len() - 1);
                self.lines.push(line);
            }
        }
        self.buffer.extend_from_slice(&chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiError;

    fn lines(chunks: Vec<Result<&'static [u8], ApiError>>) -> Lines {
        let chunks = chunks.into_iter().map(|chunk| chunk.map(Bytes::from_static));
        Lines::new(Box::pin(futures::stream::iter(chunks)))
    }

    #[tokio::test]
    async fn arrived_lines_form_one_batch_at_any_chunk_boundaries() {
        let mut lines = lines(vec![Ok(b"a"), Ok(b"b\n\ncd\ne"), Ok(b"\n")]);
        assert_eq!(lines.batch().await, Batch::Lines(vec!["ab".into(), "cd".into(), "e".into()]));
        assert_eq!(lines.batch().await, Batch::End);
    }

    #[tokio::test]
    async fn whole_lines_before_a_cut_are_not_lost() {
        let error = ApiError::Transport { sent: true, message: "reset".into() };
        let mut lines = lines(vec![Ok(b"a\nb"), Err(error)]);
        assert_eq!(lines.batch().await, Batch::Lines(vec!["a".into()]));
        assert_eq!(lines.batch().await, Batch::Cut("reset".into()));
    }

    #[tokio::test]
    async fn an_end_within_a_line_is_a_cut() {
        let mut lines = lines(vec![Ok(b"a\nb")]);
        assert_eq!(lines.batch().await, Batch::Lines(vec!["a".into()]));
        assert!(matches!(lines.batch().await, Batch::Cut(_)));
    }

    #[tokio::test]
    async fn a_line_without_end_is_given_up_before_it_fills_the_memory() {
        static BLOCK: [u8; 1 << 20] = [b'x'; 1 << 20];
        let mut lines = lines((0..128).map(|_| Ok(&BLOCK[..])).collect());
        assert_eq!(lines.batch().await, Batch::TooLong);
        assert!(lines.buffer.len() <= MAX_LINE + BLOCK.len());
    }
}
