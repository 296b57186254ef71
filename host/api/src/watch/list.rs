//! A complete list: a streaming list, or pages if the API server does not support streaming.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use podium_pods::pod::{Observation, PodEvent, PodList};
use podium_vocabulary::Revision;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Next, Watch,
    items::{Items, Part},
    lines::{Batch, Lines},
    object::{self, DecodedPod, Event, ListMetadata, ListPage, Malformed, Object},
    observations::{Closed, ObservationSender},
};
use crate::{ApiError, NewConnection, in_query};

/// The longest silence of a streaming list. After it the server is taken not to support streaming lists, or a proxy
/// to buffer their end.
const STREAMING_SILENCE: Duration = Duration::from_secs(15);
/// Deadline of a whole streaming list.
const STREAMING_DEADLINE: Duration = Duration::from_secs(60);
/// How often a paged list is restarted because the revision of its pages was compacted; the next attempt requests one
/// page.
const MAX_PAGED_RESTARTS: u32 = 2;

type ListAtRevision = (PodList, Revision);

/// The last event of each name after a streaming list's initial events.
type LaterEvents = BTreeMap<(String, String), PodEvent>;

/// Why a list failed.
enum ListFailure {
    Api(ApiError),
    Malformed(Malformed),
    /// The next attempt begins at once.
    Again {
        reason: String,
    },
    /// The streaming list failed; pages may succeed.
    Unstreamed {
        reason: String,
    },
    /// The API server does not support streaming lists.
    Unsupported {
        reason: String,
    },
}

impl From<ApiError> for ListFailure {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl From<Malformed> for ListFailure {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl Watch {
    pub(super) async fn list(&mut self, sender: &mut ObservationSender) -> Result<Next, Closed> {
        // No list is accepted that is older than the observed revision, unless the server was behind too often or its
        // history is known to be another one.
        let is_any_accepted = self.behind >= super::MAX_BEHIND || self.rollback.is_proven();
        let floor = (self.seen > Revision(0) && !is_any_accepted).then_some(self.seen);
        let (mut pods, revision) = match self.listed(floor).await {
            Ok(listed) => listed,
            Err(ListFailure::Api(error)) => return Ok(self.after_error(&error)),
            Err(ListFailure::Malformed(malformed)) => return Ok(malformed.into()),
            Err(ListFailure::Again { reason }) => return Ok(Next::Relist { reason }),
            Err(ListFailure::Unstreamed { reason } | ListFailure::Unsupported { reason }) => {
                return Ok(Next::Retry { reason, after: None });
            }
        };
        if revision < self.seen || self.rollback.is_proven() {
            if floor.is_some() {
                return Ok(self.after_behind(format!("a list of revision {revision} is older than {}", self.seen)));
            }
            tracing::error!(from = self.seen.0, to = revision.0, "API server's history was rolled back");
            self.counters.rolled_back();
            sender.send(Observation::RolledBack).await?;
        }
        self.behind = 0;
        self.rollback.confirm();
        self.seen = revision;
        self.position = Some(revision);
        self.decoder.end_list(&mut pods);
        self.decoded_list(&pods);
        sender.send(Observation::Relisted { pods, revision }).await?;
        Ok(Next::Continue)
    }

    async fn listed(&mut self, floor: Option<Revision>) -> Result<ListAtRevision, ListFailure> {
        self.counters.lists.fetch_add(1, Relaxed);
        // Revisions of a history that was rolled back do not compare, so everything is decoded.
        let compare = floor.is_some() || self.seen == Revision(0);
        if self.streaming.is_on(Instant::now()) {
            let failed = match self.stream_list(floor, compare).await {
                Ok(listed) => {
                    self.streaming.succeeded();
                    return Ok(listed);
                }
                Err(failed) => failed,
            };
            match &failed {
                ListFailure::Unsupported { reason } => {
                    self.streaming.unsupported();
                    tracing::info!(%reason, "streaming list not supported; listing in pages");
                }
                ListFailure::Unstreamed { reason } => {
                    self.streaming.failed(Instant::now());
                    tracing::info!(%reason, "streaming list failed; listing in pages");
                }
                ListFailure::Malformed(_) => {
                    self.streaming.failed(Instant::now());
                    return Err(failed);
                }
                ListFailure::Api(error) => {
                    if may_be_of_streams(error) {
                        self.streaming.failed(Instant::now());
                    }
                    return Err(failed);
                }
                ListFailure::Again { .. } => return Err(failed),
            }
        }
        self.paged_list(floor, compare).await
    }

    async fn stream_list(&mut self, floor: Option<Revision>, compare: bool) -> Result<ListAtRevision, ListFailure> {
        let mut query = format!(
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=\
            {}",
            STREAMING_DEADLINE.as_secs()
        );
        if let Some(floor) = floor {
            query += &format!("&resourceVersion={floor}");
        }
        let unstreamed = |reason: &str| ListFailure::Unstreamed { reason: reason.to_owned() };
        let chunks = match self.api.stream(self.get(&query)?).await {
            Ok(chunks) => chunks,
            // For any other reason the API server would refuse a paged list as well.
            Err(error @ ApiError::Status { code: 400..500, .. })
                if !matches!(error.code(), Some(401 | 403 | 408 | 410 | 429)) =>
            {
                return Err(ListFailure::Unsupported { reason: error.to_string() });
            }
            Err(error) => return Err(error.into()),
        };
        let mut lines = Lines::new(chunks);
        let mut pods = PodList::default();
        let mut later = LaterEvents::new();
        let end = Instant::now() + STREAMING_DEADLINE;
        loop {
            let silence = Instant::now() + STREAMING_SILENCE;
            let batch = match timeout_at(silence.min(end), lines.batch()).await {
                Ok(Batch::Lines(batch)) => batch,
                Ok(Batch::End) => return Err(unstreamed("the initial events ended without a bookmark")),
                Ok(Batch::Cut(reason)) => return Err(ListFailure::Unstreamed { reason }),
                Ok(Batch::TooLong) => return Err(unstreamed("an event without end")),
                Err(_) => return Err(unstreamed("no bookmark after the initial events")),
            };
            for line in &batch {
                match object::event(line)? {
                    Event::Added(object) if later.is_empty() => self.list_pod(object, compare, &mut pods)?,
                    Event::Added(object) | Event::Modified(object) => {
                        self.list_later(object, false, &mut pods, &mut later)?;
                    }
                    Event::Deleted(object) => self.list_later(object, true, &mut pods, &mut later)?,
                    Event::Bookmark { revision, initial_events_end: true } => {
                        self.decoder.merge(&mut pods, later);
                        return Ok((pods, revision));
                    }
                    Event::Error(error) => return Err(error.into()),
                    Event::Bookmark { .. } => {
                        return Err(unstreamed("the watch continued without a bookmark after the initial events"));
                    }
                    Event::Unknown => {}
                }
            }
        }
    }

    /// Applies an event between the initial events and the bookmark that ends them. An API server sends such events
    /// if its bookmark is late.
    fn list_later(
        &mut self,
        object: Object<'_>,
        deleted: bool,
        pods: &mut PodList,
        later: &mut LaterEvents,
    ) -> Result<(), ListFailure> {
        match self.decoder.pod(object)? {
            DecodedPod::Read { pod, .. } => {
                let name = (pod.key.namespace.to_string(), pod.key.name.to_string());
                later.insert(name, PodEvent { pod: Arc::new(pod), deleted, before: None });
            }
            DecodedPod::Unreadable { key, error, .. } if deleted => {
                // The next list will not contain it.
                self.unreadable(&key, &error);
                return Err(ListFailure::Again { reason: format!("the deletion of {key} cannot be decoded") });
            }
            DecodedPod::Unreadable { key, error, .. } => {
                self.unreadable(&key, &error);
                // The Pod exists: the cache keeps its state.
                pods.held.insert(&key.uid);
            }
        }
        Ok(())
    }

    async fn paged_list(&mut self, floor: Option<Revision>, compare: bool) -> Result<ListAtRevision, ListFailure> {
        let mut restarts = 0;
        'again: loop {
            let whole = restarts >= MAX_PAGED_RESTARTS;
            let mut pods = PodList::default();
            let mut first = None;
            let mut token = None::<String>;
            loop {
                let mut query = format!("limit={}", if whole { 0 } else { self.pages.get() });
                if let Some(token) = &token {
                    query += &format!("&continue={}", in_query(token));
                } else if let Some(floor) = floor {
                    query += &format!("&resourceVersion={floor}&resourceVersionMatch=NotOlderThan");
                }
                let mut page = PodList::default();
                let metadata = match self.page(&query, compare, &mut page).await {
                    Ok(metadata) => metadata,
                    Err(ListFailure::Api(error)) if error.code() == Some(410) && first.is_some() => {
                        restarts += 1;
                        continue 'again;
                    }
                    Err(ListFailure::Api(error)) if !whole && may_be_of_size(&error) => {
                        let again = self.pages.failed();
                        let limit = self.pages.get();
                        tracing::info!(%error, limit, "page of a list failed; reducing the page size");
                        if again {
                            continue;
                        }
                        return Err(error.into());
                    }
                    Err(error) => return Err(error),
                };
                self.pages.succeeded();
                pods.append(page);
                // All pages have the revision of the first.
                let revision = *first.get_or_insert(metadata.revision()?);
                if floor.is_none() && revision < self.seen {
                    // The list may fail, and the next one be newer.
                    self.rollback.prove();
                }
                token = metadata.next();
                if token.is_none() {
                    return Ok((pods, revision));
                }
            }
        }
    }

    /// Reads one page. It may take any time while bytes arrive: only silence ends it.
    async fn page(&mut self, query: &str, compare: bool, pods: &mut PodList) -> Result<ListMetadata, ListFailure> {
        let silence = self.options.page_deadline;
        let mut request = self.get(query)?;
        if self.pages.is_failing() {
            request.extensions_mut().insert(NewConnection);
        }
        let mut items = Items::new(self.api.with_deadline(silence).stream(request).await?);
        loop {
            match timeout(silence, items.next()).await {
                Ok(Part::Items(batch)) => {
                    batch.iter().try_for_each(|item| self.list_pod(Object::new(item), compare, pods))?;
                }
                Ok(Part::End(envelope)) => {
                    let page = ListPage::read(&envelope)?;
                    if page.items().next().is_some() {
                        return Err(Malformed("an item of a list is not an object".to_owned()).into());
                    }
                    return Ok(page.metadata);
                }
                Ok(Part::Cut(message)) => return Err(ApiError::Transport { sent: true, message }.into()),
                Ok(Part::TooLong) => return Err(Malformed("a list with an item without end".to_owned()).into()),
                Err(_) => return Err(ApiError::Timeout(silence).into()),
            }
        }
    }

    fn list_pod(&mut self, object: Object<'_>, compare: bool, pods: &mut PodList) -> Result<(), Malformed> {
        if let Some((key, error)) = self.decoder.list(object, compare, pods)? {
            self.unreadable(&key, &error);
        }
        Ok(())
    }
}

/// Returns true if the failure may be specific to streaming lists. After several of these in a row pages are tried.
fn may_be_of_streams(error: &ApiError) -> bool {
    match error {
        ApiError::Timeout(_)
        | ApiError::Transport { sent: true, .. }
        | ApiError::TooLong(_)
        | ApiError::Malformed(_) => true,
        ApiError::Status { code, .. } => matches!(code, 408 | 500 | 502 | 504) && !super::is_behind(error),
        ApiError::Transport { sent: false, .. } | ApiError::Held(_) => false,
    }
}

/// Returns true if a smaller page may succeed: the response took too long, or a proxy cut it.
fn may_be_of_size(error: &ApiError) -> bool {
    match error {
        ApiError::Timeout(_) | ApiError::Transport { sent: true, .. } => true,
        ApiError::Status { code, .. } => matches!(code, 408 | 413 | 504) && !super::is_behind(error),
        ApiError::Transport { sent: false, .. } | ApiError::TooLong(_) | ApiError::Malformed(_) | ApiError::Held(_) => {
            false
        }
    }
}
