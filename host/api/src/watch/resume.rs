//! Resumes from a checkpoint: requests the changes since then instead of all Pods.
//!
//! The result is a complete list like any other: the checkpoint and the events since, at a revision that the API
//! server had after the start. Readers see no Pod before that. If the changes are not available, all Pods are listed.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use podium_pods::pod::{Checkpoint, Observation, PodEvent, Record};
use podium_vocabulary::Revision;
use tokio::time::{Instant, timeout_at};

use super::{
    Next, Watch,
    lines::{Batch, Lines},
    object::{self, DecodedPod, Event, ListPage, Malformed, Object},
    observations::{Closed, ObservationSender},
};
use crate::ApiError;

/// How many of the API server's first Pods are compared with the checkpoint, and how many of the checkpoint's with
/// the API server, to verify that the checkpoint belongs to this cluster and its history.
const SAMPLE: usize = 20;
/// How many of these are requested concurrently.
const AT_ONCE: usize = 5;
/// Timeout of the watch of the changes. The bookmark at its end shows that there are no more changes.
/// [`super::rollback`] explains the value.
const WATCH_SECONDS: u64 = 3;
/// The time after which a list would be quicker.
const PATIENCE: Duration = Duration::from_secs(15);
/// How often the API server may answer without the changes becoming available. After that all Pods are listed.
const MAX_FAILURES: u32 = 3;

/// Why a checkpoint did not become a list.
enum ResumeFailure {
    /// A later attempt may succeed.
    Later(Next),
    Useless(String),
}

impl From<Malformed> for ResumeFailure {
    fn from(malformed: Malformed) -> Self {
        Self::Useless(malformed.to_string())
    }
}

/// A namespace and a name in it.
type Name = (String, String);

/// The last event of each name.
type Changes = BTreeMap<Name, PodEvent>;

/// The result of comparing some Pods.
struct Sample {
    /// The API server's current revision.
    revision: Revision,
    /// Pods of the checkpoint that the API server does not have. The changes must contain a deletion of each.
    gone: Vec<Name>,
}

impl Watch {
    pub(super) async fn resume_from_checkpoint(
        &mut self,
        checkpoint: Checkpoint,
        sender: &mut ObservationSender,
    ) -> Result<Next, Closed> {
        let (revision, changes) = match self.changes_since(&checkpoint).await {
            Ok(changed) => changed,
            Err(ResumeFailure::Useless(reason)) => {
                tracing::info!(%reason, "checkpoint not used; listing all pods");
                return Ok(Next::Continue);
            }
            Err(ResumeFailure::Later(next)) if self.warm_failures < MAX_FAILURES => {
                self.checkpoint = Some(checkpoint);
                return Ok(next);
            }
            Err(ResumeFailure::Later(next)) => {
                let failures = self.warm_failures;
                tracing::info!(failures, "changes since the checkpoint not available; listing all pods");
                return Ok(next);
            }
        };
        let from = checkpoint.revision;
        let changed = changes.len();
        tracing::info!(pods = checkpoint.pods.len(), %from, changed, "checkpoint brought up to date");
        let pods = merged(checkpoint.pods, changes).into_iter().collect();
        self.seen = revision;
        self.position = Some(revision);
        sender.send(Observation::Relisted { pods, revision }).await?;
        Ok(Next::Continue)
    }

    async fn changes_since(&mut self, checkpoint: &Checkpoint) -> Result<(Revision, Changes), ResumeFailure> {
        let Sample { revision: present, gone } = self.sample(checkpoint).await?;
        let mut at = checkpoint.revision;
        let mut changes = Changes::new();
        let end = Instant::now() + PATIENCE;
        while at < present {
            if Instant::now() >= end {
                return Err(too_slow(present));
            }
            let query = format!("watch=1&allowWatchBookmarks=true&resourceVersion={at}&timeoutSeconds={WATCH_SECONDS}");
            self.counters.watches.fetch_add(1, Relaxed);
            let request = self.get(&query).map_err(|error| self.failed(&error))?;
            let chunks = self.api.stream(request).await.map_err(|error| self.failed(&error))?;
            let mut lines = Lines::new(chunks);
            let from = at;
            while at < present {
                match timeout_at(end, lines.batch()).await {
                    Ok(Batch::Lines(batch)) => {
                        for line in &batch {
                            self.change(line, &mut at, &mut changes)?;
                        }
                    }
                    Ok(Batch::End | Batch::Cut(_)) if at > from => break,
                    Ok(Batch::End) => return Err(ResumeFailure::Useless("a watch ended without an event".to_owned())),
                    Ok(Batch::Cut(message)) => {
                        return Err(self.failed(&ApiError::Transport { sent: true, message }));
                    }
                    Ok(Batch::TooLong) => return Err(ResumeFailure::Useless("an event without end".to_owned())),
                    Err(_) => return Err(too_slow(present)),
                }
            }
        }
        match gone.into_iter().find(|name| !is_reported(name, checkpoint, &changes)) {
            // The Pod never existed in this history, as when etcd was restored to an older state and has advanced
            // past the checkpoint since.
            Some((namespace, name)) => Err(ResumeFailure::Useless(format!(
                "the API server does not have {namespace}/{name} and the watch reported no deletion"
            ))),
            None => Ok((at, changes)),
        }
    }

    /// Compares the API server's first Pods with the checkpoint, and some Pods of the checkpoint, spread over all of
    /// them, with the API server.
    async fn sample(&mut self, checkpoint: &Checkpoint) -> Result<Sample, ResumeFailure> {
        let is_same_cluster = match (&checkpoint.cluster, &self.cluster) {
            (Some(saved), Some(present)) if saved != present => {
                return Err(ResumeFailure::Useless(format!("it is of the cluster {saved}, and this is {present}")));
            }
            (Some(_), Some(_)) => true,
            _ => false,
        };
        let request = self.get(&format!("limit={SAMPLE}")).map_err(|error| self.failed(&error))?;
        let page = self.api.bytes(request).await.map_err(|error| self.failed(&error))?;
        let page = ListPage::read(&page)?;
        let revision = page.metadata.revision()?;
        if revision < checkpoint.revision {
            return Err(ResumeFailure::Useless(format!("the API server is at revision {revision}, before it")));
        }
        let mut same = 0;
        for object in page.items() {
            same += u32::from(agrees(object, checkpoint)?);
        }
        let mut gone = Vec::new();
        for (name, pod) in self.spread(checkpoint).await? {
            match pod {
                Some(pod) => same += u32::from(agrees(Object::of(&pod), checkpoint)?),
                None => gone.push(name),
            }
        }
        match same {
            0 if !is_same_cluster => {
                Err(ResumeFailure::Useless("none of the sampled pods exists in this cluster any more".to_owned()))
            }
            _ => Ok(Sample { revision, gone }),
        }
    }

    /// Reads Pods of the checkpoint, at equal distances in the order of their names, as the API server has them now;
    /// `None` for a Pod that it no longer has. Pods that may not be read are left out.
    async fn spread(&mut self, checkpoint: &Checkpoint) -> Result<Vec<(Name, Option<Bytes>)>, ResumeFailure> {
        let pods = &checkpoint.pods;
        let wanted = SAMPLE.min(pods.len());
        let names = (0..wanted).map(|rank| pods[rank * pods.len() / wanted].names());
        let api = &self.api;
        let get = |of: Name| async move {
            let request = Request::get(format!("/api/v1/namespaces/{}/pods/{}", of.0, of.1)).body(Vec::new());
            let answer = match request {
                Ok(request) => api.bytes(request).await,
                Err(error) => Err(ApiError::Transport { sent: false, message: error.to_string() }),
            };
            (of, answer)
        };
        let answers: Vec<_> = futures::stream::iter(names).map(get).buffered(AT_ONCE).collect().await;
        let mut found = Vec::new();
        for (of, answer) in answers {
            match answer {
                Ok(pod) => found.push((of, Some(pod))),
                Err(error) if error.code() == Some(404) => found.push((of, None)),
                Err(error) if error.code() == Some(403) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(found)
    }

    fn change(&mut self, line: &[u8], at: &mut Revision, changes: &mut Changes) -> Result<(), ResumeFailure> {
        let (object, deleted) = match object::event(line)? {
            Event::Added(object) | Event::Modified(object) => (object, false),
            Event::Deleted(object) => (object, true),
            Event::Bookmark { revision, .. } => return advance(at, revision),
            Event::Error(error) => return Err(self.failed(&error)),
            Event::Unknown => return Ok(()),
        };
        match self.decoder.pod(object)? {
            DecodedPod::Read { pod, .. } => {
                advance(at, pod.revision)?;
                let name = (pod.key.namespace.to_string(), pod.key.name.to_string());
                changes.insert(name, PodEvent { pod: Arc::new(pod), deleted, before: None });
                Ok(())
            }
            // A list counts and reports it.
            DecodedPod::Unreadable { key, error, .. } => {
                Err(ResumeFailure::Useless(format!("{key} cannot be decoded: {error}")))
            }
        }
    }

    fn failed(&mut self, error: &ApiError) -> ResumeFailure {
        // The API server is unreachable or overloaded: this says nothing about the checkpoint.
        let is_away =
            matches!(error, ApiError::Transport { sent: false, .. }) || matches!(error.code(), Some(429 | 503));
        self.warm_failures += u32::from(!is_away);
        match self.after_error(error) {
            Next::Relist { reason } => ResumeFailure::Useless(reason),
            next => ResumeFailure::Later(next),
        }
    }
}

/// Returns true if the checkpoint has this incarnation of the Pod. A Pod may be missing from the checkpoint if it is
/// newer.
fn agrees(object: Object<'_>, checkpoint: &Checkpoint) -> Result<bool, ResumeFailure> {
    let (key, revision) = object.identity()?;
    let at = place(&checkpoint.pods, &key.namespace, &key.name).ok();
    let held = at.map(|at| &checkpoint.pods[at]).filter(|held| held.has_uid(&key.uid));
    match held.map(Record::revision) {
        Some(held) if held == revision => Ok(true),
        // The Pod has changed since. An older state, or a different state of that time, belongs to another history.
        Some(held) if revision > held.max(checkpoint.revision) => Ok(true),
        None if revision > checkpoint.revision => Ok(false),
        _ => Err(ResumeFailure::Useless(format!("it lacks {key} at revision {revision}"))),
    }
}

/// Returns true if the changes contain the deletion of the checkpoint's Pod of this name.
fn is_reported(name: &Name, checkpoint: &Checkpoint, changes: &Changes) -> bool {
    let Some(PodEvent { pod, deleted, .. }) = changes.get(name) else { return false };
    let held = place(&checkpoint.pods, &name.0, &name.1).map(|at| &checkpoint.pods[at]);
    *deleted || held.is_ok_and(|held| !held.has_uid(&pod.key.uid))
}

fn too_slow(present: Revision) -> ResumeFailure {
    ResumeFailure::Useless(format!("the watch did not come to revision {present} in {} s", PATIENCE.as_secs()))
}

fn advance(at: &mut Revision, revision: Revision) -> Result<(), ResumeFailure> {
    if revision < *at {
        return Err(ResumeFailure::Useless(format!("the watch went back from revision {at} to {revision}")));
    }
    *at = revision;
    Ok(())
}

/// Returns the index of the name, or the index at which it would be inserted.
fn place(pods: &[Record], namespace: &str, name: &str) -> Result<usize, usize> {
    pods.binary_search_by(|pod| pod.compare(namespace, name))
}

/// Applies the events to the Pods of the checkpoint. A Pod may be newer than the revision of a checkpoint that an
/// earlier version of the host wrote; then an older event is ignored.
fn merged(mut pods: Vec<Record>, changes: Changes) -> Vec<Record> {
    let mut added = Vec::new();
    let mut gone = Vec::new();
    for ((namespace, name), PodEvent { pod, deleted, .. }) in changes {
        let held = place(&pods, &namespace, &name).ok();
        let newer = |at: usize| pods[at].revision() <= pod.revision;
        match held {
            Some(at) if !newer(at) => {}
            Some(at) if deleted => gone.push(at),
            Some(at) => pods[at] = pod.into(),
            None if deleted => {}
            None => added.push(Record::from(pod)),
        }
    }
    // In the order of names, like the changes.
    let mut gone = gone.into_iter().peekable();
    let mut at = 0..;
    pods.retain(|_| gone.next_if_eq(&at.next().unwrap_or_default()).is_none());
    pods.extend(added);
    pods
}
