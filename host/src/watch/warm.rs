//! A start from a checkpoint: what has changed since is asked for, not all there is.
//!
//! It ends in a complete list like any other, put together from the checkpoint and what was told since, at a revision that
//! the API server had after this began. Nobody sees anything of the Pods before that. Where it cannot be had, all are listed.

use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    Next, Watch,
    lines::{Batch, Lines},
    object::{self, Event, ListPage, Malformed, Seen},
    outlet::{Closed, Outlet},
};
use crate::{
    api::ApiError,
    model::{Checkpoint, Observation, PodEvent, Record, Revision},
};

/// How many of the API server's Pods are looked up in the checkpoint, to know that it is of this cluster.
const SAMPLE: usize = 20;
/// For a watch; at its end comes the bookmark that says that nothing more has changed. See [`super::doubt`] for the time.
const WATCH_SECONDS: u64 = 3;
/// After this it is quicker to list.
const PATIENCE: Duration = Duration::from_secs(15);

/// Why a checkpoint did not become a list.
enum Failed {
    /// It still may.
    Later(Next),
    Useless(String),
}

impl From<Malformed> for Failed {
    fn from(malformed: Malformed) -> Self {
        Self::Useless(malformed.to_string())
    }
}

/// The last that was told of each namespace and name.
type Changes = BTreeMap<(String, String), PodEvent>;

impl Watch {
    pub(super) async fn warm_up(&mut self, checkpoint: Checkpoint, outlet: &mut Outlet) -> Result<Next, Closed> {
        let (revision, changes) = match self.changes_since(&checkpoint).await {
            Ok(changed) => changed,
            Err(Failed::Useless(reason)) => {
                tracing::info!(%reason, "the checkpoint is not used; all pods are listed");
                return Ok(Next::GoOn);
            }
            Err(Failed::Later(next)) => {
                self.checkpoint = Some(checkpoint);
                return Ok(next);
            }
        };
        let (from, changed) = (checkpoint.revision, changes.len());
        tracing::info!(pods = checkpoint.pods.len(), %from, changed, "the checkpoint is up to date");
        let pods = merged(checkpoint.pods, changes).into_iter().collect();
        self.seen = revision;
        self.position = Some(revision);
        outlet.send(Observation::Relisted { pods, revision }).await?;
        Ok(Next::GoOn)
    }

    async fn changes_since(&mut self, checkpoint: &Checkpoint) -> Result<(Revision, Changes), Failed> {
        let present = self.sample(checkpoint).await?;
        let (mut at, mut changes) = (checkpoint.revision, Changes::new());
        let end = Instant::now() + PATIENCE;
        while at < present {
            let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={at}&timeoutSeconds={WATCH_SECONDS}");
            self.counters.watches.fetch_add(1, Relaxed);
            let request = self.get(&query).map_err(|error| self.failed(&error))?;
            let chunks = self.api.stream(request).await.map_err(|error| self.failed(&error))?;
            let (mut lines, from) = (Lines::new(chunks), at);
            while at < present {
                match timeout_at(end, lines.batch()).await {
                    Ok(Batch::Lines(batch)) => {
                        for line in &batch {
                            self.change(line, &mut at, &mut changes)?;
                        }
                    }
                    Ok(Batch::End) if at > from => break,
                    Ok(Batch::End) => return Err(Failed::Useless("a watch ended and told nothing".to_owned())),
                    Ok(Batch::Cut(reason)) => return Err(Failed::Later(Next::Retry { reason, after: None })),
                    Ok(Batch::TooLong) => return Err(Failed::Useless("an event without end".to_owned())),
                    Err(_) => {
                        let reason =
                            format!("the watch did not come to revision {present} in {} s", PATIENCE.as_secs());
                        return Err(Failed::Useless(reason));
                    }
                }
            }
        }
        Ok((at, changes))
    }

    /// The API server's revision now, if of its first Pods some are in the checkpoint as they are, and all that should be.
    async fn sample(&mut self, checkpoint: &Checkpoint) -> Result<Revision, Failed> {
        let request = self.get(&format!("limit={SAMPLE}")).map_err(|error| self.failed(&error))?;
        let page = self.api.bytes(request).await.map_err(|error| self.failed(&error))?;
        let page = ListPage::read(&page)?;
        let mut same = 0;
        for object in page.items() {
            let (key, revision) = object.identity()?;
            let at = place(&checkpoint.pods, &key.namespace, &key.name).ok();
            let held = at.and_then(|at| checkpoint.pods[at].kept());
            match held.is_some_and(|held| held.revision == revision && held.has_uid(&key.uid)) {
                true => same += 1,
                // What is newer may not have been there yet.
                false if revision > checkpoint.revision => {}
                false => return Err(Failed::Useless(format!("it lacks {key} at revision {revision}"))),
            }
        }
        let revision = page.metadata.revision()?;
        if revision < checkpoint.revision {
            return Err(Failed::Useless(format!("the API server is at revision {revision}, before it")));
        }
        match same {
            0 => Err(Failed::Useless(format!("none of the first {SAMPLE} pods is as it was"))),
            _ => Ok(revision),
        }
    }

    fn change(&mut self, line: &[u8], at: &mut Revision, changes: &mut Changes) -> Result<(), Failed> {
        let (object, deleted) = match object::event(line)? {
            Event::Added(object) | Event::Modified(object) => (object, false),
            Event::Deleted(object) => (object, true),
            Event::Bookmark { revision, .. } => return advance(at, revision),
            Event::Error(error) => return Err(self.failed(&error)),
            Event::Unknown => return Ok(()),
        };
        match self.decoder.pod(object)? {
            Seen::Read { pod, .. } => {
                advance(at, pod.revision)?;
                let name = (pod.key.namespace.to_string(), pod.key.name.to_string());
                changes.insert(name, PodEvent { pod, deleted, before: None });
                Ok(())
            }
            // A list counts it and tells of it.
            Seen::Unreadable { key, error, .. } => Err(Failed::Useless(format!("{key} cannot be decoded: {error}"))),
        }
    }

    fn failed(&mut self, error: &ApiError) -> Failed {
        match self.after_error(error) {
            Next::Relist { reason } => Failed::Useless(reason),
            next => Failed::Later(next),
        }
    }
}

fn advance(at: &mut Revision, revision: Revision) -> Result<(), Failed> {
    if revision < *at {
        return Err(Failed::Useless(format!("the watch went back from revision {at} to {revision}")));
    }
    *at = revision;
    Ok(())
}

/// Where the name is, or would be.
fn place(pods: &[Record], namespace: &str, name: &str) -> Result<usize, usize> {
    pods.binary_search_by(|pod| pod.kept().map_or(std::cmp::Ordering::Less, |pod| pod.compare(namespace, name)))
}

/// What is held may be newer than the revision that the checkpoint goes on from, as writes of our own are; then what was
/// told of it came before.
fn merged(mut pods: Vec<Record>, changes: Changes) -> Vec<Record> {
    let (mut added, mut gone) = (Vec::new(), Vec::new());
    for ((namespace, name), PodEvent { pod, deleted, .. }) in changes {
        let held = place(&pods, &namespace, &name).ok();
        let newer = |at: usize| pods[at].kept().is_none_or(|held| held.revision <= pod.revision);
        match held {
            Some(at) if !newer(at) => {}
            Some(at) if deleted => gone.push(at),
            Some(at) => pods[at] = pod.into(),
            None if deleted => {}
            None => added.push(Record::from(pod)),
        }
    }
    // In the order of names, as changes are.
    let mut gone = gone.into_iter().peekable();
    let mut at = 0..;
    pods.retain(|_| gone.next_if_eq(&at.next().unwrap_or_default()).is_none());
    pods.extend(added);
    pods
}
