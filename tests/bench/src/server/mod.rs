//! A replay server: serves only Pods, from memory and as cheaply as possible, so that the benchmark measures the
//! client.
//!
//! It serves `/api/v1/pods` as a paged list, as a streaming list and as a watch, and accepts commands under
//! `/control/`. Not supported: selectors, namespaces, writes, and history before this process.

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

/// Revisions that other kinds use when history is lost, so that a list after it is newer than the watch.
const LOST_REVISIONS: u64 = 10;

/// One state of one Pod, rendered.
#[derive(Debug, Clone)]
struct Object {
    /// JSON with kind and apiVersion.
    json: Arc<[u8]>,
    /// A `runtime.Unknown` with its magic number, if there is an encoder.
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

/// The state that connections share.
struct Replay {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    population: Population,
    encoder: Option<Encoder>,
    /// Pods at the last released event.
    objects: BTreeMap<Key, Object>,
    /// The average over the Pods at the beginning.
    own_bytes_per_pod: f64,
    revision: u64,
    events: Vec<Event>,
    /// The number of released events.
    released: usize,
    /// The time at which the first connection wrote each event to its socket; 0 if none has yet.
    sent: Vec<u64>,
    /// Watches from before this revision are answered with 410.
    floor: u64,
    /// The number of completely sent lists.
    lists: u64,
}

/// A running server, until the process ends.
pub struct Server {
    /// Plain HTTP; also for commands.
    pub address: SocketAddr,
    /// TLS, and the certificate that clients have to trust.
    pub tls: Option<(SocketAddr, PathBuf)>,
}

/// The options of serving.
#[derive(Debug, Clone, Default)]
pub struct Serving {
    /// A program that encodes JSON as protobuf (see `go/`) for clients that accept it.
    pub encoder: Option<PathBuf>,
    /// Whether to serve TLS too; the certificate is written to this folder.
    pub tls: Option<PathBuf>,
}

/// Renders the Pods and serves them on a free port of 127.0.0.1.
///
/// # Errors
/// Returns an error if the Pods cannot be generated, the encoder does not run, no port is free or the certificate
/// cannot be made.
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
    // A client that disconnects ends its thread with an error that can be ignored.
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

/// Serves each connection on its own thread.
fn listen(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port of 127.0.0.1 is free")?;
    let address = listener.local_addr()?;
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            // Without this the end of an event would wait for the client's acknowledgement of its beginning.
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

    /// Waits until there is an event after `position`, history is lost, or the time is up.
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
            // Rendered before the next event, which may replace the Pod at this index.
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

    /// Releases all prepared events: at once, or this many per second.
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
            #[expect(clippy::disallowed_methods, reason = "its own thread that keeps a pace")]
            if early > 0 {
                thread::sleep(Duration::from_nanos(early));
            }
            self.release(1);
        }
    }

    /// Loses the history: every watch ends with 410, and none resumes from before.
    fn lose_history(&self) {
        let mut state = self.state();
        state.population.pass(LOST_REVISIONS);
        state.revision = state.population.revision();
        state.floor = state.revision;
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the revision and the time of each event, as lines.
    fn times(&self) -> String {
        let state = self.state();
        let times = state.events.iter().zip(&state.sent).take(state.released);
        times.map(|(event, sent)| format!("{} {sent}\n", event.revision)).collect()
    }

    /// Records the time at which these events were written, unless another connection was first.
    fn mark_sent(&self, events: std::ops::Range<usize>, time: u64) {
        let mut state = self.state();
        if let Some(sent) = state.sent.get_mut(events) {
            sent.iter_mut().filter(|sent| **sent == 0).for_each(|sent| *sent = time);
        }
    }
}

#[cfg(test)]
mod tests;
