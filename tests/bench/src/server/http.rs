//! One connection: one request after the other, HTTP/1.1, blocking, without copies except into the socket's buffer.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    sync::Arc,
    thread,
    time::Duration,
};

use super::{Event, Object, Replay, frames::Encoding};
use crate::{generate::Action, monotonic};

/// The bytes of queued events that are combined into one write: as much as a socket takes at once.
const WRITE_BYTES: usize = 64 << 10;
/// The timeout of a watch if the client sets none, as in an API server.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1_800);

struct Request {
    path: String,
    query: Vec<(String, String)>,
    encoding: Encoding,
}

/// The options of a watch.
struct Watch {
    encoding: Encoding,
    initial_events: bool,
    bookmarks: bool,
    /// `None` for now.
    from: Option<u64>,
    timeout: Duration,
}

pub(super) fn serve(replay: &Arc<Replay>, stream: impl Read + Write) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = Request::read(&mut reader)? {
        answer(replay, &request, reader.get_mut())?;
        reader.get_mut().flush()?;
    }
    Ok(())
}

impl Request {
    /// Reads a request. Returns `None` when the client has closed the connection.
    fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let (mut encoding, mut length) = (Encoding::Json, 0);
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(accept) = header.strip_prefix("accept:") {
                encoding = Encoding::of_accept(accept);
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        io::copy(&mut reader.take(length), &mut io::sink())?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let pair = |pair: &str| pair.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()));
        Ok(Some(Self { path: path.to_owned(), query: query.split('&').filter_map(pair).collect(), encoding }))
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn is(&self, key: &str) -> bool {
        matches!(self.get(key), Some("true" | "1"))
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }
}

fn answer(replay: &Arc<Replay>, request: &Request, stream: &mut impl Write) -> io::Result<()> {
    let json = |body: String| (200, body.into_bytes());
    let (code, body) = match request.path.as_str() {
        "/api/v1/pods" if request.is("watch") => return watch(replay, &request.into(), stream),
        "/api/v1/pods" => return list(replay, request, stream),
        "/version" => json(r#"{"major":"1","minor":"36","gitVersion":"v1.36.3"}"#.to_owned()),
        "/api" => json(r#"{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}"#.to_owned()),
        "/apis" => json(r#"{"kind":"APIGroupList","apiVersion":"v1","groups":[]}"#.to_owned()),
        "/api/v1" => json(
            concat!(
                r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","#,
                r#""namespaced":true,"kind":"Pod","verbs":["get","list","watch"],"shortNames":["po"]}]}"#
            )
            .to_owned(),
        ),
        "/control/prepare" => match replay.prepare(request.number("count").unwrap_or(0) as usize) {
            Ok(last) => json(last.to_string()),
            Err(error) => (500, format!("{error:#}").into_bytes()),
        },
        "/control/send" => {
            let (replay, rate) = (Arc::clone(replay), request.number("rate").unwrap_or(0) as u32);
            // Answered at once, because sending at a rate takes a while.
            thread::spawn(move || replay.send(rate));
            json(String::new())
        }
        "/control/gone" => {
            replay.lose_history();
            json(String::new())
        }
        "/control/times" => json(replay.times()),
        "/control/own-bytes" => json(replay.state().own_bytes_per_pod.to_string()),
        "/control/lists" => json(replay.state().lists.to_string()),
        path => (404, not_found(path).into_bytes()),
    };
    plain(code, "application/json", &body, stream)
}

fn not_found(path: &str) -> String {
    format!(
        "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"status\":\"Failure\",\"message\":\"{path} is not \
        replayed\",\"reason\":\"NotFound\",\"code\":404}}"
    )
}

fn plain(code: u16, content_type: &str, body: &[u8], stream: &mut impl Write) -> io::Result<()> {
    let length = body.len();
    let head = format!("HTTP/1.1 {code} OK\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)
}

/// Sends a list. The token of a next page is the index where it begins and the revision of the first page.
fn list(replay: &Replay, request: &Request, stream: &mut impl Write) -> io::Result<()> {
    let (begin, revision) = request
        .get("continue")
        .and_then(|token| token.split_once('.'))
        .and_then(|(begin, revision)| Some((begin.parse().ok()?, revision.parse().ok()?)))
        .unwrap_or((0_usize, replay.state().revision));
    let limit = request.number("limit").filter(|limit| *limit > 0).unwrap_or(u64::MAX) as usize;
    let (objects, all) = {
        let state = replay.state();
        let page = state.objects.values().skip(begin).take(limit);
        (page.cloned().collect::<Vec<_>>(), state.objects.len())
    };
    let end = begin + objects.len();
    let token = format!("{end}.{revision}");
    let next = (end < all).then_some((token.as_str(), all - end));
    let encoding =
        if objects.iter().all(|object| object.protobuf.is_some()) { request.encoding } else { Encoding::Json };
    let body = encoding.list(&objects, revision, next);
    plain(200, encoding.content_type(false), &body, stream)?;
    if next.is_none() {
        replay.state().lists += 1;
    }
    Ok(())
}

impl From<&Request> for Watch {
    fn from(request: &Request) -> Self {
        let timeout = request.number("timeoutSeconds").map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        Self {
            encoding: request.encoding,
            initial_events: request.is("sendInitialEvents"),
            bookmarks: request.is("allowWatchBookmarks"),
            from: request.number("resourceVersion").filter(|revision| *revision > 0),
            timeout,
        }
    }
}

fn watch(replay: &Replay, watch: &Watch, stream: &mut impl Write) -> io::Result<()> {
    let begun = monotonic::now();
    let (objects, mut position, mut revision, floor) = {
        let state = replay.state();
        let objects = if watch.initial_events { state.objects.values().cloned().collect() } else { Vec::new() };
        let position = match watch.from.filter(|_| !watch.initial_events) {
            Some(from) => state.events[..state.released].partition_point(|event| event.revision <= from),
            None => state.released,
        };
        (objects, position, state.revision, state.floor)
    };
    let has_protobuf = replay.state().encoder.is_some();
    let encoding = if has_protobuf { watch.encoding } else { Encoding::Json };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
        encoding.content_type(true)
    );
    let mut out = Out { buffer: head.into_bytes(), event: Vec::new() };
    if !watch.initial_events && watch.from.is_some_and(|from| from < floor) {
        out.chunk(|into| encoding.expired(into));
        return out.end(stream);
    }
    for object in &objects {
        out.chunk(|into| encoding.event("ADDED", object, into));
        if out.buffer.len() >= WRITE_BYTES {
            out.write(stream)?;
        }
    }
    drop::<Vec<Object>>(objects);
    if watch.initial_events {
        out.chunk(|into| encoding.bookmark(revision, true, into));
    }
    out.write(stream)?;
    if watch.initial_events {
        replay.state().lists += 1;
    }
    loop {
        let left = watch.timeout.saturating_sub(Duration::from_nanos(monotonic::now() - begun));
        if left.is_zero() {
            if watch.bookmarks {
                out.chunk(|into| encoding.bookmark(revision, false, into));
            }
            return out.end(stream);
        }
        let state = replay.wait(position, floor, left);
        let lost = state.floor != floor;
        let mut bytes = 0;
        let batch: Vec<Event> = state.events[position..state.released]
            .iter()
            .take_while(|event| {
                bytes += event.object.json.len();
                bytes <= WRITE_BYTES.max(event.object.json.len())
            })
            .cloned()
            .collect();
        if batch.is_empty() && !lost {
            revision = revision.max(state.revision);
        }
        drop(state);
        for event in &batch {
            let kind = match event.action {
                Action::Added => "ADDED",
                Action::Modified => "MODIFIED",
                Action::Deleted => "DELETED",
            };
            out.chunk(|into| encoding.event(kind, &event.object, into));
            revision = event.revision;
        }
        if lost && batch.is_empty() {
            out.chunk(|into| encoding.expired(into));
            return out.end(stream);
        }
        let time = monotonic::now();
        out.write(stream)?;
        replay.mark_sent(position..position + batch.len(), time);
        position += batch.len();
    }
}

/// Bytes that are not written yet. Each event is its own chunk, as from an API server.
struct Out {
    buffer: Vec<u8>,
    event: Vec<u8>,
}

impl Out {
    fn chunk(&mut self, render: impl FnOnce(&mut Vec<u8>)) {
        self.event.clear();
        render(&mut self.event);
        // Writing to a Vec does not fail.
        let _ = write!(self.buffer, "{:x}\r\n", self.event.len());
        self.buffer.extend_from_slice(&self.event);
        self.buffer.extend_from_slice(b"\r\n");
    }

    fn write(&mut self, stream: &mut impl Write) -> io::Result<()> {
        stream.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn end(mut self, stream: &mut impl Write) -> io::Result<()> {
        self.buffer.extend_from_slice(b"0\r\n\r\n");
        self.write(stream)
    }
}
