//! Bytes of an API server that pass through the host's watch into a cache.
//!
//! An input is the body of a watch that follows a list of two Pods. If it contains an empty line, the part before it
//! is the body of the list, streamed or a page, and the part after it that of the watch. Each input is followed
//! twice, in one chunk and in small ones, under paused time.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is a finding")]

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::client::Body;
use podium_api::{
    Api,
    watch::{Watch, WatchOptions},
};
use podium_encoding::Pool;
use podium_pods::{
    cache::{self, Writer},
    pod::{CachedPod, Change, Observation, PodView, Record},
};
use podium_vocabulary::{PodKey, Revision};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{Notify, mpsc};

use super::{
    pods::{Plain, assert_same, is_json, of_decoded, plain},
    sample,
};

/// The revision of the list of an input that has none itself.
pub(super) const LISTED: u64 = 1_000;
/// Timeout in the cluster's time. A host waits about a minute if a server asks for it; a host that is silent for this
/// long is stuck.
const STUCK: Duration = Duration::from_secs(3_600);

pub fn run(input: &[u8]) {
    let script = Script::new(input);
    let whole = script.follow(usize::MAX);
    let sum: usize = input.iter().map(|byte| usize::from(*byte)).sum();
    let pieces = script.follow(1 + sum % 61);
    assert_eq!(whole.reported, pieces.reported, "the ends of chunks change the reported events");
    assert_eq!(whole.held, pieces.held, "the ends of chunks change the held Pods");
    script.judge(&whole);
}

/// The responses of the server.
struct Script<'a> {
    list: Vec<u8>,
    watch: &'a [u8],
    /// Whether the list is a page, because the server does not support streaming lists.
    paged: bool,
    /// Whether the list is the usual one.
    usual: bool,
}

/// The result of following an input.
struct Followed {
    /// Incarnation and revision of each event, and whether it is a deletion.
    reported: Vec<(PodKey, Revision, bool)>,
    events: Vec<Arc<CachedPod>>,
    listed: Vec<Arc<CachedPod>>,
    held: Vec<(PodKey, Revision)>,
}

impl<'a> Script<'a> {
    fn new(input: &'a [u8]) -> Self {
        if let Some(at) = input.windows(2).position(|bytes| bytes == b"\n\n") {
            let list = input[..=at].to_vec();
            let paged = list.starts_with(br#"{"kind":"PodList""#);
            return Self { list, watch: &input[at + 2..], paged, usual: false };
        }
        let pods = [sample::pod("cart-0", 1, 990), sample::pod("cart-1", 2, 995)];
        let mut list: String = pods.iter().map(|pod| sample::event("ADDED", pod)).collect();
        list += &sample::bookmark(LISTED, true);
        Self { list: list.into_bytes(), watch: input, paged: false, usual: true }
    }

    fn follow(&self, chunk: usize) -> Followed {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let ended = Arc::new(Notify::new());
            let pool = Arc::new(Pool::new(7));
            let (writer, reader) = cache::new(7);
            let watch = Watch::new(
                self.server(chunk, Arc::clone(&ended)),
                WatchOptions::default(),
                pool,
                Arc::new(reader.clone()),
                7,
            );
            let (sender, mut observations) = mpsc::channel(16);
            let watching = tokio::spawn(watch.run(sender));
            let mut cache = Cache { writer, reader, reported: BTreeMap::new(), rolled_back: false };
            let mut followed =
                Followed { reported: Vec::new(), events: Vec::new(), listed: Vec::new(), held: Vec::new() };
            loop {
                let observation = tokio::select! {
                    biased;
                    observation = observations.recv() => observation.expect("a watch never ends"),
                    () = ended.notified() => break,
                    () = tokio::time::sleep(STUCK) => panic!("the watch is stuck"),
                };
                followed.note(&observation);
                cache.take(observation);
            }
            watching.abort();
            followed.held = cache.reader.snapshot().iter().map(|pod| (pod.key.clone(), pod.revision)).collect();
            followed
        })
    }

    /// Serves the list, then the watch, and notifies `ended` when a client requests more.
    fn server(&self, chunk: usize, ended: Arc<Notify>) -> Api {
        let split = |body: &[u8]| -> Vec<Bytes> { body.chunks(chunk).map(Bytes::copy_from_slice).collect() };
        let mut answers = VecDeque::from([(200, split(&self.list)), (200, split(self.watch))]);
        if self.paged {
            answers.push_front((400, Vec::new()));
        }
        let answers = Arc::new(Mutex::new(answers));
        let service = tower::service_fn(move |_: Request<Body>| {
            let answer = answers.lock().unwrap().pop_front();
            let ended = Arc::clone(&ended);
            async move {
                let Some((status, chunks)) = answer else {
                    ended.notify_one();
                    return std::future::pending().await;
                };
                let frames = chunks.into_iter().map(|chunk| Ok::<_, std::io::Error>(Frame::data(chunk)));
                Response::builder().status(status).body(StreamBody::new(futures::stream::iter(frames)))
            }
        });
        Api::new(kube::Client::new(service, "default"), Duration::from_secs(5))
    }

    /// Checks the result: each object that was read equals the plain decoder's output for an object that was sent. For
    /// the usual list, the events also equal those of a plain reader, as far as these are certain.
    fn judge(&self, followed: &Followed) {
        let mut sent = Vec::new();
        let mut is_plain = true;
        for body in [&self.list, self.watch] {
            for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                is_plain &= is_json(line);
                if let Ok(Line { object, .. }) = serde_json::from_slice(line) {
                    sent.extend(plain(object.get().as_bytes()));
                }
                if let Ok(Items { items }) = serde_json::from_slice(line) {
                    sent.extend(items.iter().filter_map(|item| plain(item.get().as_bytes()).ok()));
                }
            }
        }
        for read in followed.listed.iter().chain(&followed.events).filter(|_| is_plain) {
            let of = |sent: &&Plain| sent.pod.key == read.key && sent.pod.revision == read.revision;
            let candidates: Vec<_> = sent.iter().filter(of).collect();
            match &*candidates {
                [] => panic!("a Pod that was not sent"),
                [only] => assert_same(read, only),
                several => {
                    let is = |sent: &Plain| of_decoded(sent.pod.changed_from(read)).is_empty();
                    assert!(several.iter().copied().any(is), "a state that was not sent");
                }
            }
        }
        if self.usual {
            let (expected, doubt) = plain_events(self.watch);
            let reported = followed.events.len();
            assert!(if doubt { reported >= expected.len() } else { reported == expected.len() }, "{reported} events");
            for ((read, reported), (plain, deleted)) in followed.events.iter().zip(&followed.reported).zip(&expected) {
                assert_eq!(reported.2, *deleted);
                assert_same(read, plain);
            }
        }
    }
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Items<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

/// Returns the Pods of a watch's events and whether each is a deletion, up to the first uncertain one.
fn plain_events(body: &[u8]) -> (Vec<(Plain, bool)>, bool) {
    let (mut events, mut seen) = (Vec::new(), Revision(LISTED));
    // The bytes after the last line end are not a line.
    let lines = body.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    for line in lines.filter(|line| !line.is_empty()) {
        let Ok(Line { kind, object }) = serde_json::from_slice(line) else { return (events, true) };
        if !matches!(&*kind, "ADDED" | "MODIFIED" | "DELETED") {
            return (events, true);
        }
        match plain(object.get().as_bytes()) {
            Ok(plain) if plain.pod.revision >= seen => {
                seen = plain.pod.revision;
                events.push((plain, kind == "DELETED"));
            }
            _ => return (events, true),
        }
    }
    (events, false)
}

impl Followed {
    fn note(&mut self, observation: &Observation) {
        match observation {
            Observation::Relisted { pods, .. } => {
                self.listed.extend(pods.read.iter().map(Record::pod));
            }
            Observation::Events(events) => {
                for event in events {
                    self.reported.push((event.pod.key.clone(), event.pod.revision, event.deleted));
                    self.events.push(Arc::clone(&event.pod));
                }
            }
            _ => {}
        }
    }
}

/// A cache, and its expected content by its reported changes.
struct Cache {
    writer: Writer,
    reader: cache::Reader,
    reported: BTreeMap<(Arc<str>, Arc<str>), Arc<CachedPod>>,
    rolled_back: bool,
}

impl Cache {
    fn take(&mut self, observation: Observation) {
        let changes = match observation {
            Observation::Relisted { pods, revision } => self.writer.relist(pods, revision).publish(),
            Observation::Events(events) => self.writer.apply(events).publish(),
            Observation::Bookmark(revision) => return self.writer.bookmark(revision),
            Observation::Live => return self.writer.set_live(),
            Observation::Stale(staleness) => return self.writer.set_stale(staleness),
            Observation::RolledBack => {
                self.rolled_back = true;
                return self.writer.roll_back();
            }
        };
        for change in changes {
            self.apply(change);
        }
        let snapshot = self.reader.snapshot();
        assert_eq!(snapshot.len(), self.reported.len(), "the cache holds the reported Pods");
        for (pod, ((namespace, name), reported)) in snapshot.iter().zip(&self.reported) {
            assert_eq!((&pod.key.namespace, &pod.key.name, &pod.key.uid), (namespace, name, &reported.key.uid));
            // A change of only the revision is not reported.
            assert!(
                pod.revision >= reported.revision && pod.changed_from(reported).is_empty(),
                "held otherwise than reported"
            );
            assert!(snapshot.get(namespace, name).is_some_and(|found| *found == *pod), "not found by its name");
            assert!(snapshot.by_uid(&pod.key.uid).is_some(), "not found by its uid");
        }
    }

    fn apply(&mut self, change: Change) {
        let key = change.key().expect("a change is of a Pod");
        let name = (Arc::clone(&key.namespace), Arc::clone(&key.name));
        let before = match change.new {
            Some(new) => {
                if let Some(old) = &change.old {
                    assert!(new.key.uid == old.key.uid && !change.sections.is_empty());
                    assert!(new.revision >= old.revision || self.rolled_back, "back in time");
                }
                self.reported.insert(name, new)
            }
            None => self.reported.remove(&name),
        };
        assert_eq!(
            before.map(|pod| pod.key.clone()),
            change.old.map(|pod| pod.key.clone()),
            "reported with another previous state"
        );
    }
}
