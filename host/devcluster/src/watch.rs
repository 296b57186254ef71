//! Watches: history, bookmarks, streaming lists, and how they end. A watch only stores the revision that it has sent;
//! it reads later changes from the store's history, so nothing is queued for a slow client and nothing is lost.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    core::Core,
    failure::Failure,
    faults::{Garbler, Refusal, Signals},
    kinds::Kind,
    meta::{self, Object},
    options,
    present::{Presenter, Shape},
    read::Selection,
    request::Request,
    rules,
    store::{Change, Compacted, Store},
};

/// Interval of bookmarks for clients that allow them, as in the API server.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Lifetime of a watch if the client sets none; the API server picks 30 to 60 minutes.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// The checked options of a watch.
#[derive(Debug)]
pub(crate) struct Watch {
    kind: Arc<Kind>,
    scope: Selection,
    bookmarks: bool,
    initial: bool,
    presenter: Presenter,
    revision: u64,
    ends: Instant,
    /// The state that answers instead of the cluster.
    replica: Option<Arc<Store>>,
    refusal: Option<Refusal>,
}

/// Bytes of the stream; the flag means that the stream ends after them.
type Step = (Bytes, bool);

impl Watch {
    /// Checks the request. The watch starts after the requested revision.
    pub(crate) fn new(core: &Core, request: &Request, shape: Shape, refusal: Option<Refusal>) -> Result<Self, Failure> {
        let query = &request.query;
        let kind = request.target.kind.clone();
        options::check_watch(query, core.offer.streaming_lists)?;
        let initial = query.flag("sendInitialEvents");
        let asked = match query.get("resourceVersion") {
            "" => None,
            text => Some(text.parse::<u64>().map_err(|_| {
                let why = format!("strconv.ParseUint: parsing \"{text}\": invalid syntax");
                Failure::unexpected(format!("resourceVersion: Invalid value: \"{text}\": {why}"))
            })?),
        };
        let replica = core.faults.lagging();
        let present = core.state.lock().store.revision();
        let newest = replica.as_ref().map_or(present, |store| store.revision());
        // Without a revision, or with 0, the present state comes first.
        let synthetic = initial || (query.get("sendInitialEvents").is_empty() && asked.unwrap_or(0) == 0);
        let lifetime = query.number("timeoutSeconds")?.filter(|s| *s > 0).map_or(LIFETIME, Duration::from_secs);
        Ok(Self {
            presenter: Presenter::new(kind.clone(), shape, query.get("includeObject")),
            kind,
            scope: Selection::from_request(request)?,
            bookmarks: query.flag("allowWatchBookmarks"),
            initial: synthetic,
            // A streaming list without a revision has the newest state, whichever replica is asked.
            revision: asked.filter(|r| *r > 0).unwrap_or(if initial && asked.is_none() { present } else { newest }),
            ends: Instant::now() + lifetime.min(Duration::from_secs(365 * 24 * 3600)),
            replica,
            refusal,
        }
        .with_end_bookmark(core, initial))
    }

    fn with_end_bookmark(mut self, core: &Core, initial: bool) -> Self {
        // Only a streaming list marks the end of its initial events, and only for clients that allow bookmarks.
        self.presenter.mark_end = initial && self.bookmarks && !core.faults.take_endless_list();
        self
    }

    fn with_store<T>(&self, core: &Core, read: impl FnOnce(&Store) -> T) -> T {
        match &self.replica {
            Some(replica) => read(replica),
            None => read(&core.state.lock().store),
        }
    }

    /// Returns the body of the response: one JSON object per line.
    pub(crate) fn stream(
        self,
        core: Arc<Core>,
        stop: CancellationToken,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send {
        let first = self.first(&core);
        let signals = core.faults.signals();
        let began = *signals.borrow();
        let changed = core.revision.subscribe();
        let bookmark = Instant::now() + BOOKMARK_EVERY;
        let garbler = Garbler::default();
        let pending = Some(first);
        let running =
            Running { watch: self, core, stop, signals, began, garbler, changed, bookmark, pending, over: false };
        futures::stream::unfold(running, |mut running| async move {
            let item = running.next().await?;
            Some((item, running))
        })
    }

    /// Returns what can be sent at once: initial events or an error.
    fn first(&self, core: &Core) -> First {
        if let Some(refusal) = self.refusal {
            return First::Refused(refusal.failure());
        }
        self.with_store(core, |store| {
            let newest = store.revision();
            if self.initial && self.revision > newest {
                return First::Refused(Failure::future_revision(self.revision, newest));
            }
            if !self.initial {
                return First::Nothing;
            }
            let objects = store
                .iter(&self.kind.resource(), self.scope.namespace.as_deref())
                .filter(|(_, object)| self.scope.holds(object))
                .map(|(_, object)| object.clone())
                .collect();
            First::Objects(objects, newest)
        })
    }

    fn line(&mut self, core: &Core, event: &str, object: &Object) -> Vec<u8> {
        let shown = self.presenter.one(&rules::to_view(&self.kind, object), core.clock.now_millis());
        line(event, &shown)
    }

    /// Returns a bookmark; empty if the server has not reached the revision that the client has seen.
    fn bookmark(&mut self, core: &Core, end_of_initial: bool) -> Vec<u8> {
        if !self.bookmarks || self.with_store(core, Store::revision) < self.revision {
            return Vec::new();
        }
        let mut metadata = json!({"resourceVersion": self.revision.to_string(), "creationTimestamp": null});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata});
        line("BOOKMARK", &self.presenter.bookmark(&object))
    }

    /// Returns the lines of all changes after the last sent revision, one for each event.
    fn after(&mut self, core: &Core) -> Result<Vec<Vec<u8>>, Failure> {
        let (changes, newest) = self.with_store(core, |store| {
            let changes = store.since(&self.kind.resource(), self.revision).map_err(|Compacted { oldest }| {
                Failure::expired(format!("too old resource version: {} ({oldest})", self.revision))
            })?;
            Ok((changes, store.revision()))
        })?;
        let mut lines = Vec::new();
        for change in changes {
            if let Some((event, object)) = self.judge(&change) {
                lines.push(self.line(core, event, &object));
            }
        }
        self.revision = self.revision.max(newest);
        Ok(lines)
    }

    /// Returns the event of a change for this watch: an object that no longer matches its selectors is deleted for
    /// it.
    fn judge(&self, change: &Change) -> Option<(&'static str, Object)> {
        let before = change.before.as_ref().filter(|object| self.scope.holds(object));
        let after = (!change.deleted && self.scope.holds(&change.object)).then_some(&change.object);
        match (before, after) {
            (None, None) => None,
            (None, Some(object)) => Some(("ADDED", object.clone())),
            (Some(_), Some(object)) => Some(("MODIFIED", object.clone())),
            (Some(_), None) if change.deleted => Some(("DELETED", change.object.clone())),
            (Some(before), None) => {
                // Its last matching state with the revision of the change.
                let mut last = Value::clone(before);
                meta::set(&mut last, &["metadata", "resourceVersion"], change.revision.to_string());
                Some(("DELETED", Arc::new(last)))
            }
        }
    }
}

#[derive(Debug)]
enum First {
    Nothing,
    Objects(Vec<Object>, u64),
    Refused(Failure),
}

struct Running {
    watch: Watch,
    core: Arc<Core>,
    stop: CancellationToken,
    signals: tokio::sync::watch::Receiver<Signals>,
    /// The counts of faults when this watch was opened.
    began: Signals,
    garbler: Garbler,
    changed: tokio::sync::watch::Receiver<u64>,
    bookmark: Instant,
    pending: Option<First>,
    over: bool,
}

impl Running {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.over {
            return None;
        }
        match self.step().await {
            Ok((bytes, over)) => {
                self.over = over;
                if bytes.is_empty() { None } else { Some(Ok(bytes)) }
            }
            Err(error) => {
                self.over = true;
                Some(Err(error))
            }
        }
    }

    async fn step(&mut self) -> io::Result<Step> {
        if let Some(first) = self.pending.take() {
            let (lines, over) = self.open(first);
            if over || !lines.is_empty() {
                self.hold_back().await;
                return Ok((lines.into(), over));
            }
        }
        loop {
            let signals = *self.signals.borrow_and_update();
            if signals.disconnects != self.began.disconnects {
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, "disconnected on request"));
            }
            if signals.caught_up != self.began.caught_up {
                self.watch.replica = None;
            }
            let zombie = signals.zombies != self.began.zombies;
            self.changed.borrow_and_update();
            if !zombie {
                match self.watch.after(&self.core) {
                    Ok(events) => {
                        let (lines, over) = self.garbled(events);
                        if over || !lines.is_empty() {
                            self.hold_back().await;
                            return Ok((lines.into(), over));
                        }
                    }
                    Err(failure) => return Ok((line("ERROR", &failure.to_value().to_string()).into(), true)),
                }
            }
            tokio::select! {
                biased;
                _ = self.signals.changed() => {}
                () = self.stop.cancelled() => return Ok((Bytes::new(), true)),
                changed = self.changed.changed() => {
                    if changed.is_err() {
                        return Ok((Bytes::new(), true));
                    }
                }
                () = tokio::time::sleep_until(self.watch.ends), if !zombie => {
                    return Ok((self.held_and_bookmark().into(), true));
                }
                () = tokio::time::sleep_until(self.bookmark), if self.watch.bookmarks && !zombie => {
                    self.bookmark = Instant::now() + BOOKMARK_EVERY;
                    let lines = self.held_and_bookmark();
                    if !lines.is_empty() {
                        return Ok((lines.into(), false));
                    }
                }
            }
        }
    }

    fn open(&mut self, first: First) -> (Vec<u8>, bool) {
        match first {
            First::Nothing => (Vec::new(), false),
            First::Refused(failure) => (line("ERROR", &failure.to_value().to_string()), true),
            First::Objects(objects, revision) => {
                let events = objects.iter().map(|object| self.watch.line(&self.core, "ADDED", object)).collect();
                let (mut lines, over) = self.garbled(events);
                self.watch.revision = revision;
                if self.watch.presenter.mark_end && !over {
                    lines.extend(self.garbler.held());
                    lines.extend(self.watch.bookmark(&self.core, true));
                }
                (lines, over)
            }
        }
    }

    /// Returns the bytes of the events as they arrive, and whether the stream ends with them.
    fn garbled(&mut self, events: Vec<Vec<u8>>) -> (Vec<u8>, bool) {
        let mut lines = Vec::new();
        for event in events {
            let (garbled, over) = self.garbler.event(event, &self.core.faults);
            lines.extend(garbled);
            if over {
                return (lines, true);
            }
        }
        (lines, false)
    }

    fn held_and_bookmark(&mut self) -> Vec<u8> {
        let mut lines = self.garbler.held();
        lines.extend(self.watch.bookmark(&self.core, false));
        lines
    }

    async fn hold_back(&self) {
        let delay = self.core.faults.delay_now();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}

fn line(event: &str, object: &str) -> Vec<u8> {
    format!("{{\"type\":\"{event}\",\"object\":{object}}}\n").into_bytes()
}
