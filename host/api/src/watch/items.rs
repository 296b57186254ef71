//! The items of a list, each as soon as its last byte has arrived, so the memory for a list is bounded by its largest
//! item and not by its length.
//!
//! Items are separated by brackets and quotes only. The decoder checks whether an item is valid JSON.

use bytes::{Bytes, BytesMut};
use futures::StreamExt;

use super::lines::MAX_LINE;
use crate::Chunks;

/// The most bytes outside the items: kind, version, revision, and the token of the next page.
const MAX_ENVELOPE: usize = 1 << 20;

pub(super) struct Items {
    chunks: Chunks,
    split: Split,
}

/// The next part of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// At least one complete item.
    Items(Vec<Bytes>),
    /// The end of the list, with its JSON without the items.
    End(Vec<u8>),
    /// The connection was lost, or the response ended within the list.
    Cut(String),
    /// An item that is larger than any object, or a response that is not a list.
    TooLong,
}

/// The state of splitting a list into items.
#[derive(Default)]
struct Split {
    /// The number of open brackets.
    depth: u32,
    in_string: bool,
    /// The next byte of the string is escaped.
    escaped: bool,
    /// Within the list's array of items.
    in_items: bool,
    in_item: bool,
    /// The beginning of the current item.
    item: BytesMut,
    envelope: Vec<u8>,
}

impl Items {
    pub(super) fn new(chunks: Chunks) -> Self {
        Self { chunks, split: Split::default() }
    }

    /// Returns the next part. Cancel safe: bytes that were read stay for the next call.
    pub(super) async fn next(&mut self) -> Part {
        loop {
            match self.chunks.next().await {
                Some(Ok(chunk)) => {
                    let mut items = Vec::new();
                    self.split.take(&chunk, &mut items);
                    if self.split.item.len() > MAX_LINE || self.split.envelope.len() > MAX_ENVELOPE {
                        return Part::TooLong;
                    }
                    if !items.is_empty() {
                        return Part::Items(items);
                    }
                }
                Some(Err(error)) => return Part::Cut(error.to_string()),
                None if self.split.depth > 0 => return Part::Cut("the response ended within the list".to_owned()),
                None => return Part::End(std::mem::take(&mut self.split.envelope)),
            }
        }
    }
}

impl Split {
    /// Appends the items that end in this chunk.
    fn take(&mut self, chunk: &Bytes, items: &mut Vec<Bytes>) {
        // `from` is the start of the bytes that were not handled yet; `at` is the current position.
        let mut from = 0;
        let mut at = 0;
        while at < chunk.len() {
            if self.in_string {
                at = self.skip_string(chunk, at);
                continue;
            }
            match chunk[at] {
                b'"' => self.in_string = true,
                b'{' | b'[' => {
                    if self.depth == 1 && chunk[at] == b'[' {
                        self.in_items = true;
                    }
                    if self.depth == 2 && self.in_items && chunk[at] == b'{' {
                        self.envelope.extend_from_slice(&chunk[from..at]);
                        from = at;
                        self.in_item = true;
                    }
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 2 && self.in_item {
                        items.push(self.item(chunk.slice(from..=at)));
                        from = at + 1;
                        self.in_item = false;
                    }
                    self.in_items &= self.depth >= 2;
                }
                // Between items: the envelope keeps an empty array.
                b',' if self.in_items && self.depth == 2 => {
                    self.envelope.extend_from_slice(&chunk[from..at]);
                    from = at + 1;
                }
                _ => {}
            }
            at += 1;
        }
        match self.in_item {
            true => self.item.extend_from_slice(&chunk[from..]),
            false => self.envelope.extend_from_slice(&chunk[from..]),
        }
    }

    /// Returns the end of the string, or of the chunk.
    fn skip_string(&mut self, chunk: &[u8], from: usize) -> usize {
        if std::mem::take(&mut self.escaped) {
            return from + 1;
        }
        let Some(found) = memchr::memchr2(b'"', b'\\', &chunk[from..]) else { return chunk.len() };
        match chunk[from + found] {
            b'"' => self.in_string = false,
            _ => self.escaped = true,
        }
        from + found + 1
    }

    /// Returns an item that ends with `rest`. An item within one chunk is not copied.
    fn item(&mut self, rest: Bytes) -> Bytes {
        if self.item.is_empty() {
            return rest;
        }
        self.item.extend_from_slice(&rest);
        self.item.split().freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ApiError;

    async fn parts(chunks: Vec<Result<Bytes, ApiError>>) -> (Vec<String>, Part) {
        let mut items = Items::new(Box::pin(futures::stream::iter(chunks)));
        let mut texts = Vec::new();
        loop {
            match items.next().await {
                Part::Items(items) => {
                    texts.extend(items.iter().map(|item| String::from_utf8(item.to_vec()).unwrap()));
                }
                end => return (texts, end),
            }
        }
    }

    #[tokio::test]
    async fn a_list_is_split_into_items_at_any_chunk_boundaries() {
        let items = [r#"{"a":"},{\"[ \\"}"#, r#"{"b":[{"c":[]},1]}"#, "{}"];
        let list = format!(
            r#"{{"kind":"PodList","metadata":{{"a":[1],"resourceVersion":"7"}}, "items" : [{},
                {} , {}],"z":"]" }}"#,
            items[0], items[1], items[2]
        );
        for at in 0..list.len() {
            let (head, tail) = list.as_bytes().split_at(at);
            let chunks = [head, tail].map(|chunk| Ok(Bytes::copy_from_slice(chunk)));
            let (found, end) = parts(chunks.into()).await;
            assert_eq!(found, items, "cut at {at}");
            let Part::End(envelope) = end else { panic!("{end:?} at {at}") };
            let envelope: serde_json::Value = serde_json::from_slice(&envelope).unwrap();
            assert_eq!(envelope["metadata"]["resourceVersion"], "7");
            assert_eq!(envelope["items"].as_array().map(Vec::len), Some(0));
        }
    }

    #[tokio::test]
    async fn a_list_that_does_not_end_is_cut() {
        let cut = |text: &'static str| vec![Ok(Bytes::from_static(text.as_bytes()))];
        for text in [r#"{"items":[{"#, r#"{"items":[{"a":"#, r#"{"items":[{},"#, r#"{"items":[{}]"#] {
            let (_, end) = parts(cut(text)).await;
            assert!(matches!(end, Part::Cut(_)), "{text}: {end:?}");
        }
        for text in ["", "<html>", "[]", r#"{"items":null}"#, "}}]]"] {
            let (items, end) = parts(cut(text)).await;
            assert!(items.is_empty(), "{text}");
            assert!(matches!(end, Part::End(_)), "{text}: {end:?}");
        }
        let error = ApiError::Transport { sent: true, message: "reset".into() };
        let (items, end) = parts(vec![Ok(Bytes::from_static(br#"{"items":[{},{"#)), Err(error)]).await;
        assert_eq!((items, end), (vec!["{}".to_owned()], Part::Cut("reset".into())));
    }

    #[tokio::test]
    async fn a_list_may_exceed_any_response_but_an_item_is_bounded() {
        static BLOCK: [u8; 1 << 20] = [b'x'; 1 << 20];
        let block = || Ok(Bytes::from_static(&BLOCK));
        let head = |text: &'static [u8]| Ok(Bytes::from_static(text));
        let mut endless = vec![head(br#"{"items":[{"a":""#)];
        endless.extend((0..200).map(|_| block()));
        assert_eq!(parts(endless).await.1, Part::TooLong);
        let mut long = vec![head(br#"{"metadata":{},"items":["#)];
        for _ in 0..16 {
            long.push(head(br#"{"a":""#));
            long.extend((0..10).map(|_| block()));
            long.push(head(br#""},"#));
        }
        long.push(head(b"{}]}"));
        let (items, end) = parts(long).await;
        assert_eq!(items.len(), 17);
        assert!(matches!(end, Part::End(_)), "{end:?}");
    }
}
