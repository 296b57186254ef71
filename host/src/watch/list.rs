//! A complete list: by a watch that begins with all there is, or page by page where the server has no such watch.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    Next, Watch,
    lines::{Batch, Lines},
    object::{self, Event, ListPage, Malformed, Object},
    outlet::{Closed, Outlet},
};
use crate::{
    api::ApiError,
    model::{Observation, PodList, Revision},
};

/// A server that has nothing to say for so long has no streaming lists, or something before it swallows their end.
const STREAMING_SILENCE: Duration = Duration::from_secs(15);
/// For the whole of a streaming list.
const STREAMING_DEADLINE: Duration = Duration::from_secs(60);
/// After so many in a row that came to nothing, streaming lists are not tried again.
const MAX_STREAMING_FAILURES: u32 = 2;
/// How often a paged list begins anew because the revision of its pages was compacted; then it is asked for in one.
const MAX_PAGED_RESTARTS: u32 = 2;

type Listed = (PodList, Revision);

/// Why there is no list.
enum Failed {
    Api(ApiError),
    Malformed(Malformed),
    /// The server does not do streaming lists.
    Unsupported {
        reason: String,
        for_good: bool,
    },
}

impl From<ApiError> for Failed {
    fn from(error: ApiError) -> Self {
        Self::Api(error)
    }
}

impl From<Malformed> for Failed {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl Watch {
    pub(super) async fn list(&mut self, outlet: &mut Outlet) -> Result<Next, Closed> {
        // Until the server was too often behind, no list is taken that is older than what was seen.
        let floor = (self.seen > Revision(0) && self.behind < super::MAX_BEHIND).then_some(self.seen);
        let (pods, revision) = match self.listed(floor).await {
            Ok(listed) => listed,
            Err(Failed::Api(error)) => return Ok(self.after_error(&error)),
            Err(Failed::Malformed(malformed)) => return Ok(malformed.into()),
            Err(Failed::Unsupported { reason, .. }) => return Ok(Next::Retry { reason, after: None }),
        };
        if revision < self.seen {
            if floor.is_some() {
                return Ok(self.after_behind(format!("a list of revision {revision} is older than {}", self.seen)));
            }
            tracing::error!(from = self.seen.0, to = revision.0, "the API server's history was set back");
            outlet.send(Observation::Rewound).await?;
        }
        self.behind = 0;
        self.doubt.dispel();
        self.seen = revision;
        self.position = Some(revision);
        self.decoder.end_list();
        outlet.send(Observation::Relisted { pods, revision }).await?;
        Ok(Next::GoOn)
    }

    async fn listed(&mut self, floor: Option<Revision>) -> Result<Listed, Failed> {
        self.counters.lists.fetch_add(1, Relaxed);
        // Revisions of a history that was set back do not compare: then everything is decoded.
        let compare = floor.is_some() || self.seen == Revision(0);
        if self.streaming_failures < MAX_STREAMING_FAILURES {
            match self.stream_list(floor, compare).await {
                Err(Failed::Unsupported { reason, for_good }) => {
                    self.streaming_failures =
                        if for_good { MAX_STREAMING_FAILURES } else { self.streaming_failures + 1 };
                    tracing::info!(%reason, "no streaming list; listing page by page");
                }
                Ok(listed) => {
                    self.streaming_failures = 0;
                    return Ok(listed);
                }
                failed => return failed,
            }
        }
        self.paged_list(floor, compare).await
    }

    async fn stream_list(&mut self, floor: Option<Revision>, compare: bool) -> Result<Listed, Failed> {
        let mut query = format!(
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={}",
            STREAMING_DEADLINE.as_secs()
        );
        if let Some(floor) = floor {
            query += &format!("&resourceVersion={floor}");
        }
        let unsupported = |reason: &str| Failed::Unsupported { reason: reason.to_owned(), for_good: false };
        let chunks = match self.api.stream(self.get(&query)?).await {
            Ok(chunks) => chunks,
            // What else a list could be refused for, it is refused for page by page as well.
            Err(error @ ApiError::Status { code: 400..500, .. })
                if !matches!(error.code(), Some(401 | 403 | 408 | 410 | 429)) =>
            {
                return Err(Failed::Unsupported { reason: error.to_string(), for_good: true });
            }
            Err(error) => return Err(error.into()),
        };
        let mut lines = Lines::new(chunks);
        let mut pods = PodList::default();
        let end = Instant::now() + STREAMING_DEADLINE;
        loop {
            let silence = Instant::now() + STREAMING_SILENCE;
            let batch = match timeout_at(silence.min(end), lines.batch()).await {
                Ok(Batch::Lines(batch)) => batch,
                Ok(Batch::End) => return Err(unsupported("the initial events ended without a bookmark")),
                Ok(Batch::Cut(message)) => return Err(ApiError::Transport { sent: true, message }.into()),
                Ok(Batch::TooLong) => return Err(Malformed("an event without end".to_owned()).into()),
                Err(_) => return Err(unsupported("no bookmark after the initial events")),
            };
            for line in &batch {
                match object::event(line)? {
                    Event::Added(object) => self.list_pod(object, compare, &mut pods)?,
                    Event::Bookmark { revision, initial_events_end: true } => return Ok((pods, revision)),
                    Event::Error(error) => return Err(error.into()),
                    Event::Modified(_) | Event::Deleted(_) | Event::Bookmark { .. } => {
                        return Err(unsupported("the watch went on without a bookmark after the initial events"));
                    }
                    Event::Unknown => {}
                }
            }
        }
    }

    async fn paged_list(&mut self, floor: Option<Revision>, compare: bool) -> Result<Listed, Failed> {
        let api = self.api.with_deadline(self.options.page_deadline);
        let mut restarts = 0;
        'anew: loop {
            let limit = if restarts < MAX_PAGED_RESTARTS { self.options.page_limit } else { 0 };
            let mut query = format!("limit={limit}");
            if let Some(floor) = floor {
                query += &format!("&resourceVersion={floor}&resourceVersionMatch=NotOlderThan");
            }
            let mut pods = PodList::default();
            let mut first = None;
            loop {
                let page = match api.bytes(self.get(&query)?).await {
                    Ok(page) => page,
                    Err(error) if error.code() == Some(410) && first.is_some() => {
                        restarts += 1;
                        continue 'anew;
                    }
                    Err(error) => return Err(error.into()),
                };
                let page = ListPage::read(&page)?;
                for object in page.items() {
                    self.list_pod(object, compare, &mut pods)?;
                }
                // All pages are of the first one's revision.
                let revision = *first.get_or_insert(page.metadata.revision()?);
                match page.metadata.next() {
                    Some(token) => query = format!("limit={limit}&continue={}", escaped(&token)),
                    None => return Ok((pods, revision)),
                }
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

/// Percent-encoded for a query: the token is the server's and may be anything.
fn escaped(token: &str) -> String {
    let mut escaped = String::with_capacity(token.len());
    for byte in token.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(char::from(byte)),
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}
