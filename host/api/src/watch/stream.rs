//! One short watch, from a revision to its end.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use podium_pods::pod::{Observation, PodEvent};
use podium_vocabulary::Revision;
use tokio::time::{Instant, timeout_at};

use super::{
    Next, Watch,
    lines::{Batch, Lines},
    object::{self, DecodedPod, Event, ListPage},
    observations::{Closed, ObservationSender},
};
use crate::{ApiError, Chunks, NewConnection};

/// Time that the end of a watch may take to arrive after the server's timeout. Together with that timeout, it bounds
/// the time until a dead connection is detected.
const END_GRACE: Duration = Duration::from_secs(2);
/// A watch that ends sooner without an event is not resumed at once, because a server that ends each watch would be
/// overloaded.
const SHORT: Duration = Duration::from_secs(1);

impl Watch {
    pub(super) async fn run_watch(&mut self, from: Revision, sender: &mut ObservationSender) -> Result<Next, Closed> {
        let seconds = self.rollback.watch_timeout(self.options.watch_timeout).as_secs().max(1);
        let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={from}&timeoutSeconds={seconds}");
        self.counters.watches.fetch_add(1, Relaxed);
        let mut lines = match sender.during(self.open(&query)).await? {
            Ok(chunks) => Lines::new(chunks),
            Err(error) => {
                if !matches!(error, ApiError::Status { .. }) {
                    self.rollback.cut();
                }
                return Ok(self.after_watch_error(&error, true));
            }
        };
        sender.live().await?;
        let begun = Instant::now();
        let deadline = begun + Duration::from_secs(seconds) + END_GRACE;
        let mut silent = true;
        loop {
            // Bytes that have arrived are read even after the deadline, as when the receiver was slow.
            let batch = match timeout_at(deadline, lines.batch()).await {
                Ok(Batch::Lines(batch)) => batch,
                Ok(Batch::TooLong) => return Ok(Next::Relist { reason: "an event without end".to_owned() }),
                Ok(Batch::End) if self.seen > from || begun.elapsed() >= SHORT => {
                    if silent && self.rollback.silence() {
                        return Ok(self.compare_revisions(sender).await);
                    }
                    return Ok(self.resume(sender));
                }
                Ok(Batch::End) => return Ok(Next::Retry { reason: "the watch ended at once".to_owned(), after: None }),
                Ok(Batch::Cut(_)) if self.seen > from || begun.elapsed() >= SHORT => {
                    self.rollback.cut();
                    return Ok(self.resume(sender));
                }
                Ok(Batch::Cut(reason)) => {
                    self.rollback.cut();
                    return Ok(Next::Resume { reason });
                }
                Err(_) => {
                    self.rollback.overdue();
                    if silent {
                        sender.stale(format!("no bookmark for {} s", (deadline - begun).as_secs())).await?;
                    }
                    return Ok(self.resume(sender));
                }
            };
            let at_once = silent && begun.elapsed() < SHORT;
            silent = false;
            self.counters.events.fetch_add(batch.len() as u64, Relaxed);
            let mut events = Vec::new();
            let mut next = None;
            let mut bookmark = None;
            for line in &batch {
                match self.observe(line, &mut events, at_once) {
                    Ok(revision) => bookmark = revision.or(bookmark),
                    Err(reason) => {
                        next = Some(reason);
                        break;
                    }
                }
            }
            if !events.is_empty() {
                sender.send(Observation::Events(events)).await?;
            }
            if bookmark == Some(self.seen) {
                sender.send(Observation::Bookmark(self.seen)).await?;
            }
            if let Some(next) = next {
                return Ok(next);
            }
            if self.seen > from {
                self.succeeded();
                self.behind = 0;
            }
        }
    }

    async fn open(&self, query: &str) -> Result<Chunks, ApiError> {
        let mut request = self.get(query)?;
        if self.rollback.needs_new_connection() {
            request.extensions_mut().insert(NewConnection);
        }
        self.api.stream(request).await
    }

    fn resume(&mut self, sender: &mut ObservationSender) -> Next {
        sender.interrupted();
        self.succeeded();
        Next::Continue
    }

    /// Handles one event. Returns the revision of a bookmark, or of a Pod that was skipped: it is sent as a bookmark
    /// after the events of its batch, if none of them is newer.
    fn observe(&mut self, line: &[u8], events: &mut Vec<PodEvent>, at_once: bool) -> Result<Option<Revision>, Next> {
        let (object, deleted) = match object::event(line)? {
            Event::Added(object) | Event::Modified(object) => (object, false),
            Event::Deleted(object) => (object, true),
            Event::Bookmark { revision, .. } => {
                self.advance(revision)?;
                return Ok(Some(revision));
            }
            Event::Error(error) => return Err(self.after_watch_error(&error, at_once && events.is_empty())),
            Event::Unknown => return Ok(None),
        };
        match self.decoder.pod(object)? {
            DecodedPod::Read { pod, before } => {
                self.advance(pod.revision)?;
                self.decoded(&pod.key);
                events.push(PodEvent { pod: Arc::new(pod), deleted, before });
                Ok(None)
            }
            DecodedPod::Unreadable { key, error, .. } if deleted => {
                // The list will not contain it.
                self.unreadable(&key, &error);
                Err(Next::Relist { reason: format!("the deletion of {key} cannot be decoded") })
            }
            DecodedPod::Unreadable { key, revision, error } => {
                self.unreadable(&key, &error);
                self.advance(revision)?;
                Ok(Some(revision))
            }
        }
    }

    /// Records a revision. Revisions of a stream must grow; otherwise the server has another history than the
    /// observed one.
    fn advance(&mut self, revision: Revision) -> Result<(), Next> {
        if revision < self.seen {
            let reason = format!("the watch went back from revision {} to {revision}", self.seen);
            return Err(Next::Relist { reason });
        }
        self.seen = revision;
        self.position = Some(revision);
        self.rollback.confirm();
        Ok(())
    }

    /// Requests a list of one Pod for its revision. A server that ends a watch silently has nothing newer, or its
    /// history was rolled back to before that watch; the revision of a list distinguishes these cases. Such a list has
    /// the newest revision, so unlike a list from a server's cache, an older one is a proof.
    async fn compare_revisions(&mut self, sender: &mut ObservationSender) -> Next {
        self.retries.reset();
        let present = async {
            let page = self.api.bytes(self.get("limit=1")?).await?;
            let revision = ListPage::read(&page).and_then(|page| page.metadata.revision());
            revision.map_err(|malformed| ApiError::Malformed(malformed.to_string()))
        };
        match present.await {
            Err(error) => self.after_error(&error),
            Ok(revision) if revision < self.seen => {
                self.rollback.prove();
                Next::Relist { reason: format!("the API server is at revision {revision}, before {}", self.seen) }
            }
            Ok(_) => {
                self.rollback.confirm();
                self.behind = 0;
                self.resume(sender)
            }
        }
    }
}
