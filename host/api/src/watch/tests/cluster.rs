//! A fake API server with a history: two servers that lag independently, paged and streaming lists, and faulty
//! connections.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Request, Response, StatusCode};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::wire::{bookmark, end_of_list, event, page, status};
use crate::Api;

/// The fault of one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    None,
    /// The connection is refused.
    Down,
    Refused(u16),
    /// No response, or a response without an end.
    Silent,
    /// The response is cut in the middle of a line.
    Cut,
    /// The response ends regularly and too early.
    Short,
    Malformed,
    /// Every event is sent twice.
    Repeated,
    /// Two events are swapped.
    Swapped,
    /// The list is older than requested.
    Late,
}

#[derive(Debug, Clone)]
struct Happened {
    revision: u64,
    name: String,
    uid: String,
    deleted: bool,
}

impl Happened {
    fn line(&self) -> String {
        let kind = if self.deleted { "DELETED" } else { "MODIFIED" };
        event(kind, &pod(&self.name, &self.uid, self.revision)) + "\n"
    }
}

fn pod(name: &str, uid: &str, revision: u64) -> String {
    format!(
        "{{\"metadata\":{{\"namespace\":\"shop\",\"name\":\"{name}\",\"uid\":\"{uid}\",\
        \"resourceVersion\":\"{revision}\",\"annotations\":{{\"at\":\"{uid} {revision}\"}}}}}}"
    )
}

/// Uid and revision by name.
pub(super) type Pods = BTreeMap<String, (String, u64)>;

fn pods(events: &[Happened]) -> Pods {
    let mut pods = Pods::new();
    for Happened { revision, name, uid, deleted } in events {
        match deleted {
            true => drop(pods.remove(name)),
            false => drop(pods.insert(name.clone(), (uid.clone(), *revision))),
        }
    }
    pods
}

fn revision(events: &[Happened]) -> u64 {
    events.last().map_or(1, |last| last.revision)
}

#[derive(Debug, Default)]
struct State {
    /// Events of the present epoch.
    events: Vec<Happened>,
    /// Histories that were rolled back.
    earlier: Vec<Vec<Happened>>,
    /// How many events each server has seen.
    servers: [usize; 2],
    requests: usize,
    compacted: u64,
    faults: VecDeque<Fault>,
    uids: u64,
    /// The newest of the swapped events, until a list contains it.
    disordered: Option<u64>,
}

/// A handle; clones share the cluster.
#[derive(Clone)]
pub(super) struct Cluster {
    state: Arc<Mutex<State>>,
    moved: Arc<watch::Sender<()>>,
    streaming_lists: bool,
}

type Chunks = std::pin::Pin<Box<dyn Stream<Item = io::Result<Frame<Bytes>>> + Send>>;

impl Cluster {
    pub(super) fn new(streaming_lists: bool) -> Self {
        Self { state: Arc::default(), moved: Arc::new(watch::Sender::new(())), streaming_lists }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.lock());
        self.moved.send_replace(());
        changed
    }

    /// Deletes a Pod that exists, or creates or changes it. A server must see the event before a watch can send it.
    pub(super) fn happen(&self, name: &str, delete: bool) {
        self.change(|state| {
            let held = pods(&state.events).remove(name);
            let deleted = delete && held.is_some();
            state.uids += 1;
            let uid = held.map_or_else(|| format!("{name}-{}", state.uids), |(uid, _)| uid);
            let revision = revision(&state.events) + 1;
            state.events.push(Happened { revision, name: name.to_owned(), uid, deleted });
        });
    }

    pub(super) fn catch_up(&self, server: usize, events: usize) {
        self.change(|state| {
            state.servers[server] = state.events.len().min(state.servers[server].saturating_add(events));
        });
    }

    pub(super) fn fault(&self, fault: Fault) {
        self.change(|state| state.faults.push_back(fault));
    }

    pub(super) fn heal(&self) {
        self.change(|state| state.faults.clear());
    }

    /// Makes the history until now unavailable to watches.
    pub(super) fn compact(&self) {
        self.change(|state| state.compacted = revision(&state.events));
    }

    /// Removes the last events from history, and restarts all servers from the rest.
    pub(super) fn restore(&self, back: usize) {
        self.change(|state| {
            let left = state.events.len().saturating_sub(back);
            state.earlier.push(state.events.clone());
            state.events.truncate(left);
            state.servers = [left; 2];
            state.compacted = state.compacted.min(revision(&state.events));
            state.faults = [Fault::Down].into();
        });
    }

    pub(super) fn present(&self) -> Pods {
        pods(&self.state.lock().events)
    }

    /// Returns the Pods at a revision in an epoch counted from the first; `None` after the present one.
    pub(super) fn at(&self, epoch: usize, revision: u64) -> Option<Pods> {
        let state = self.state.lock();
        let events = state.earlier.iter().chain([&state.events]).nth(epoch)?;
        Some(pods(&events[..events.partition_point(|event| event.revision <= revision)]))
    }

    pub(super) fn is_disordered(&self) -> bool {
        self.state.lock().disordered.is_some()
    }

    /// Records that a list of this revision was read: a wrong order of earlier events is corrected by it.
    pub(super) fn was_listed(&self, revision: u64) {
        self.change(|state| state.disordered = state.disordered.filter(|newest| *newest > revision));
    }

    pub(super) fn api(&self) -> Api {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            let query = request.uri().query().unwrap_or_default().to_owned();
            let name = request.uri().path().strip_prefix("/api/v1/namespaces/shop/pods/").map(str::to_owned);
            async move {
                if let Some(name) = name {
                    return cluster.get(&name).await;
                }
                let parts = query.split('&').filter_map(|part| part.split_once('='));
                cluster.answer(&parts.collect()).await
            }
        });
        Api::new(kube::Client::new(service, "default"), Duration::from_secs(5))
    }

    async fn answer(&self, query: &HashMap<&str, &str>) -> io::Result<Answer> {
        let (fault, server) = {
            let mut state = self.state.lock();
            state.requests += 1;
            (state.faults.pop_front().unwrap_or(Fault::None), state.requests % 2)
        };
        let lists = query.contains_key("limit");
        match fault {
            Fault::Down => return Err(io::ErrorKind::ConnectionRefused.into()),
            Fault::Refused(code) => return Ok(refused(code, "Fault", "")),
            Fault::Silent if lists => std::future::pending().await,
            _ => {}
        }
        let from = query.get("resourceVersion").map(|from| from.parse::<u64>().unwrap());
        if lists {
            return Ok(self.page(query, from, server, fault));
        }
        let seconds = query["timeoutSeconds"].parse().unwrap();
        let end = Instant::now() + Duration::from_secs(seconds);
        if query.contains_key("sendInitialEvents") {
            return Ok(self.stream_list(from, server, fault));
        }
        let from = from.unwrap();
        if from < self.state.lock().compacted {
            return Ok(refused(410, "Expired", ""));
        }
        Ok(self.watch(from, server, fault, end))
    }

    /// Returns one Pod from etcd, as a GET does.
    async fn get(&self, name: &str) -> io::Result<Answer> {
        let fault = {
            let mut state = self.state.lock();
            state.requests += 1;
            state.faults.pop_front().unwrap_or(Fault::None)
        };
        match fault {
            Fault::Down => return Err(io::ErrorKind::ConnectionRefused.into()),
            Fault::Refused(code) => return Ok(refused(code, "Fault", "")),
            Fault::Silent => std::future::pending().await,
            Fault::Cut => return Ok(body(stream::iter([cut()]))),
            Fault::Malformed => return Ok(whole("{")),
            _ => {}
        }
        let there = self.present().remove(name);
        Ok(there.map_or_else(|| refused(404, "NotFound", ""), |(uid, revision)| whole(&pod(name, &uid, revision))))
    }

    /// Returns how many events a list contains: all, without a requested revision. `None` if the server has not reached
    /// the revision.
    fn listed(&self, from: Option<u64>, server: usize, fault: Fault) -> Option<usize> {
        let state = self.state.lock();
        let Some(from) = from else { return Some(state.events.len()) };
        let seen = state.servers[server];
        (revision(&state.events[..seen]) >= from || matches!(fault, Fault::Late)).then_some(seen)
    }

    fn page(&self, query: &HashMap<&str, &str>, from: Option<u64>, server: usize, fault: Fault) -> Answer {
        let Some(count) = self.listed(from, server, fault) else {
            return refused(504, "Timeout", "ResourceVersionTooLarge");
        };
        let state = self.state.lock();
        let epoch = state.earlier.len();
        let (of, count, first) = match query.get("continue") {
            Some(token) => {
                let parts: Vec<usize> = token.split('.').map(|part| part.parse().unwrap()).collect();
                (parts[0], parts[1], parts[2])
            }
            None => (epoch, count, 0),
        };
        if of != epoch || (first > 0 && revision(&state.events[..count]) < state.compacted) {
            return refused(410, "Expired", "");
        }
        let events = &state.events[..count];
        let limit = match query["limit"].parse().unwrap() {
            0 => usize::MAX,
            limit => limit,
        };
        let pods = pods(events);
        let items: Vec<_> =
            pods.iter().skip(first).take(limit).map(|(name, (uid, revision))| pod(name, uid, *revision)).collect();
        let next = match first + items.len() {
            end if end < pods.len() => format!("{epoch}.{count}.{end}"),
            _ => String::new(),
        };
        let text = page(revision(events), &next, &items);
        match fault {
            Fault::Malformed => whole(&text[..text.len() / 2]),
            Fault::Cut | Fault::Short => body(stream::iter([data(&text[..text.len() / 2]), cut()])),
            _ => whole(&text),
        }
    }

    fn stream_list(&self, from: Option<u64>, server: usize, fault: Fault) -> Answer {
        if !self.streaming_lists {
            return refused(400, "BadRequest", "");
        }
        let Some(count) = self.listed(from, server, fault) else {
            return refused(504, "Timeout", "ResourceVersionTooLarge");
        };
        let state = self.state.lock();
        let events = &state.events[..count];
        // Some servers begin with an older state and send the later changes before the bookmark.
        let first = if matches!(fault, Fault::Repeated) { count.saturating_sub(3) } else { count };
        let pods = pods(&events[..first]);
        let mut lines: Vec<_> =
            pods.iter().map(|(name, (uid, revision))| event("ADDED", &pod(name, uid, *revision)) + "\n").collect();
        lines.extend(events[first..].iter().map(Happened::line));
        lines.push(end_of_list(revision(events)) + "\n");
        let mut chunks: Vec<_> = lines.iter().map(|line| data(line)).collect();
        let end = chunks.pop();
        match fault {
            Fault::Cut => chunks.push(cut()),
            Fault::Malformed => chunks.push(data("{\"type\":\n")),
            Fault::Silent => return body(stream::iter(chunks).chain(stream::pending())),
            Fault::Short => {}
            _ => chunks.extend(end),
        }
        body(stream::iter(chunks))
    }

    fn watch(&self, from: u64, server: usize, fault: Fault, end: Instant) -> Answer {
        let state = self.state.lock();
        let at = state.events.partition_point(|event| event.revision <= from);
        let epoch = state.earlier.len();
        let watching = Watching { cluster: self.clone(), epoch, server, at, from, fault, end, over: false };
        body(stream::unfold(watching, |mut watching| async { watching.next().await.map(|chunk| (chunk, watching)) }))
    }
}

type Answer = Response<StreamBody<Chunks>>;

fn data(text: &str) -> io::Result<Frame<Bytes>> {
    Ok(Frame::data(Bytes::copy_from_slice(text.as_bytes())))
}

fn cut() -> io::Result<Frame<Bytes>> {
    Err(io::ErrorKind::ConnectionReset.into())
}

fn body(chunks: impl Stream<Item = io::Result<Frame<Bytes>>> + Send + 'static) -> Answer {
    Response::new(StreamBody::new(Box::pin(chunks)))
}

fn whole(text: &str) -> Answer {
    body(stream::iter([data(text)]))
}

fn refused(code: u16, reason: &str, cause: &str) -> Answer {
    let mut answer = whole(&status(code, reason, cause));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap();
    answer
}

/// The state of one watch.
struct Watching {
    cluster: Cluster,
    epoch: usize,
    server: usize,
    /// The index of the next event.
    at: usize,
    from: u64,
    fault: Fault,
    end: Instant,
    over: bool,
}

impl Watching {
    async fn next(&mut self) -> Option<io::Result<Frame<Bytes>>> {
        if self.over {
            return None;
        }
        let mut moved = self.cluster.moved.subscribe();
        loop {
            if matches!(self.fault, Fault::Silent) {
                return std::future::pending().await;
            }
            if let Some(chunk) = self.look() {
                return Some(chunk);
            }
            if timeout_at(self.end, moved.changed()).await.is_err() {
                self.over = true;
                let state = self.cluster.state.lock();
                let present = revision(&state.events[..state.servers[self.server]]);
                // A server that is behind the requested revision sends nothing.
                return (present >= self.from).then(|| data(&(bookmark(present) + "\n")));
            }
        }
    }

    /// Returns the events that were not sent yet.
    fn look(&mut self) -> Option<io::Result<Frame<Bytes>>> {
        let mut state = self.cluster.state.lock();
        if state.earlier.len() != self.epoch {
            self.over = true;
            return Some(cut());
        }
        let seen = state.servers[self.server];
        if self.at >= seen {
            return None;
        }
        let mut lines: Vec<_> = state.events[self.at..seen].iter().map(Happened::line).collect();
        self.at = seen;
        match self.fault {
            Fault::Repeated => lines = lines.into_iter().flat_map(|line| [line.clone(), line]).collect(),
            Fault::Swapped if lines.len() > 1 => {
                lines.swap(0, 1);
                state.disordered = Some(revision(&state.events[..seen]));
                self.fault = Fault::None;
            }
            Fault::Malformed => lines.insert(lines.len() / 2, "{\"type\":\n".to_owned()),
            Fault::Short => {
                self.over = true;
                lines.truncate(lines.len().div_ceil(2));
            }
            Fault::Cut => {
                self.over = true;
                lines.truncate(lines.len().div_ceil(2));
                lines.last_mut()?.truncate(20);
            }
            _ => {}
        }
        Some(data(&lines.concat()))
    }
}
