//! A replay server: behaves like an API server that has only Pods, from memory and as cheaply as possible, so that the
//! rig measures the client.
//!
//! It answers `/api/v1/pods` as a paged list, as a streaming list and as a watch, and takes orders under `/control/`.
//! Not there: selectors, namespaces, writes, history that was not sent by this process.

mod encoder;
mod frames;
mod http;
mod tls;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Context;

use self::{encoder::Encoder, tls::Tls};
use crate::{
    generate::{self, Action, Options, Population},
    monotonic,
};

/// Revisions that other kinds use up when history is lost, so that a list after it is newer than what was watched.
const LOST_REVISIONS: u64 = 10;

/// One state of one Pod, rendered.
#[derive(Debug, Clone)]
struct Object {
    /// With kind and apiVersion.
    json: Arc<[u8]>,
    /// As `runtime.Unknown` with its magic number; where there is an encoder.
    protobuf: Option<Arc<[u8]>>,
}

#[derive(Debug, Clone)]
struct Event {
    revision: u64,
    action: Action,
    key: Key,
    object: Object,
}

/// Namespace and name: the order of lists.
type Key = (String, String);

/// What the connections share.
struct Replay {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    population: Population,
    encoder: Option<Encoder>,
    /// As of the last event that was let out.
    objects: BTreeMap<Key, Object>,
    /// Of the Pods at the beginning, in the mean.
    own_bytes_per_pod: f64,
    revision: u64,
    events: Vec<Event>,
    /// How many of them clients may see.
    released: usize,
    /// When the first connection wrote each event to its socket; 0: not yet.
    sent: Vec<u64>,
    /// Watches from before this revision are answered with 410.
    floor: u64,
    /// Lists that were sent to their end.
    lists: u64,
}

/// A server at work, until the process ends.
pub struct Server {
    /// Plain HTTP; also for orders.
    pub address: SocketAddr,
    /// The same over TLS, and the certificate that clients are to trust.
    pub tls: Option<(SocketAddr, PathBuf)>,
}

/// How it serves.
#[derive(Debug, Clone, Default)]
pub struct Serving {
    /// A program that turns JSON into protobuf (see `go/`); clients that accept protobuf get it.
    pub encoder: Option<PathBuf>,
    /// Over TLS too; the certificate is put into this folder.
    pub tls: Option<PathBuf>,
}

/// Renders the Pods and serves them on a free port of 127.0.0.1.
///
/// # Errors
/// When the Pods cannot be made, the encoder does not run, no port is free or there is no certificate.
pub fn start(options: &Options, serving: Serving) -> anyhow::Result<Server> {
    let population = Population::generate(options)?;
    let mut encoder = serving.encoder.map(|program| Encoder::start(&program)).transpose()?;
    let json: Vec<_> = (0..population.len()).map(|at| population.json(at)).collect();
    let keys = (0..population.len()).map(|at| key(&population, at));
    let objects = keys.zip(objects(json, encoder.as_mut())?).collect();
    let own: usize = (0..population.len()).map(|at| population.own_bytes(at)).sum();
    let own_bytes_per_pod = own as f64 / population.len().max(1) as f64;
    let revision = population.revision();
    let state = State {
        population,
        encoder,
        objects,
        own_bytes_per_pod,
        revision,
        events: Vec::new(),
        released: 0,
        sent: Vec::new(),
        floor: revision,
        lists: 0,
    };
    let replay = Arc::new(Replay { state: Mutex::new(state), changed: Condvar::new() });
    let plain = Arc::clone(&replay);
    // A client that goes away ends its thread with an error that is of no interest.
    let address = listen(move |stream| drop(http::serve(&plain, stream)))?;
    let tls = serving.tls.map(|folder| -> anyhow::Result<_> {
        let tls = Tls::new(folder)?;
        let certificate = tls.certificate.clone();
        let address = listen(move |stream| {
            if let Ok(stream) = tls.accept(stream) {
                drop(http::serve(&replay, stream));
            }
        })?;
        Ok((address, certificate))
    });
    Ok(Server { address, tls: tls.transpose()? })
}

/// Each connection on a thread of its own.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port of 127.0.0.1 is free")?;
    let address = listener.local_addr()?;
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            // Without it the end of an event would wait for the client's acknowledgement of its beginning.
            if stream.set_nodelay(true).is_ok() {
                thread::spawn(move || serve(stream));
            }
        }
    });
    Ok(address)
}

fn key(population: &Population, at: usize) -> Key {
    let (namespace, name) = population.name(at);
    (namespace.to_owned(), name.to_owned())
}

fn objects(json: Vec<String>, encoder: Option<&mut Encoder>) -> anyhow::Result<Vec<Object>> {
    let json: Vec<Arc<[u8]>> = json.into_iter().map(|json| Arc::from(json.into_bytes())).collect();
    let protobuf = encoder.map(|encoder| encoder.encode(&json)).transpose()?;
    Ok(match protobuf {
        Some(protobuf) => {
            json.into_iter().zip(protobuf).map(|(json, protobuf)| Object { json, protobuf: Some(protobuf) }).collect()
        }
        None => json.into_iter().map(|json| Object { json, protobuf: None }).collect(),
    })
}

impl Replay {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something behind `position`, or history was lost, or the time is up.
    fn wait(&self, position: usize, floor: u64, time: Duration) -> MutexGuard<'_, State> {
        let nothing = |state: &mut State| state.released <= position && state.floor == floor;
        let waited = self.changed.wait_timeout_while(self.state(), time, nothing);
        waited.map_or_else(|poisoned| poisoned.into_inner().0, |(state, _)| state)
    }

    /// Renders events that are not visible yet, and returns the revision of the last one.
    fn prepare(&self, count: usize) -> anyhow::Result<u64> {
        let mut state = self.state();
        let mut made = Vec::new();
        let mut json = Vec::new();
        for _ in 0..count {
            let event = state.population.next_event().context("no Pod changes any more")?;
            // Rendered before the next event, which may put another Pod into this place.
            made.push((event, key(&state.population, event.at)));
            json.push(state.population.json(event.at));
        }
        let objects = objects(json, state.encoder.as_mut())?;
        let event = |((event, key), object): ((generate::Event, Key), Object)| Event {
            revision: event.revision,
            action: event.action,
            key,
            object,
        };
        let events = made.into_iter().zip(objects).map(event);
        state.events.extend(events);
        let all = state.events.len();
        state.sent.resize(all, 0);
        Ok(state.population.revision())
    }

    fn release(&self, count: usize) {
        let mut state = self.state();
        let end = state.events.len().min(state.released + count);
        for at in state.released..end {
            let Event { revision, action, key, object } = state.events[at].clone();
            match action {
                Action::Added | Action::Modified => state.objects.insert(key, object),
                Action::Deleted => state.objects.remove(&key),
            };
            state.revision = revision;
        }
        state.released = end;
        drop(state);
        self.changed.notify_all();
    }

    /// Lets out all events that were prepared: at once, or so many per second.
    fn send(&self, rate: u32) {
        let waiting = {
            let state = self.state();
            state.events.len() - state.released
        };
        if rate == 0 {
            self.release(waiting);
            return;
        }
        let begun = monotonic::now();
        for at in 0..waiting as u64 {
            let due = begun + at * 1_000_000_000 / u64::from(rate);
            let early = due.saturating_sub(monotonic::now());
            #[expect(clippy::disallowed_methods, reason = "a thread of its own that keeps a pace")]
            if early > 0 {
                thread::sleep(Duration::from_nanos(early));
            }
            self.release(1);
        }
    }

    /// History is lost: every watch ends with 410, and none is resumed from before.
    fn lose_history(&self) {
        let mut state = self.state();
        state.population.pass(LOST_REVISIONS);
        state.revision = state.population.revision();
        state.floor = state.revision;
        drop(state);
        self.changed.notify_all();
    }

    /// The revision and the time of each event, as lines.
    fn times(&self) -> String {
        let state = self.state();
        let times = state.events.iter().zip(&state.sent).take(state.released);
        times.map(|(event, sent)| format!("{} {sent}\n", event.revision)).collect()
    }

    /// The events of these places were written at this time, if no other connection was first.
    fn mark_sent(&self, events: std::ops::Range<usize>, time: u64) {
        let mut state = self.state();
        if let Some(sent) = state.sent.get_mut(events) {
            sent.iter_mut().filter(|sent| **sent == 0).for_each(|sent| *sent = time);
        }
    }
}

#[cfg(test)]
mod tests;
