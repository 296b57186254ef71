//! Compares the cache with the cluster: every Pod, every section, field by field. Also records what a reader of the
//! cache saw, publication by publication, to be checked afterwards.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Result, ensure};
use podium_devcluster::Cluster;
use podium_host::app::App;
use podium_pods::{
    cache::{Reader, Snapshot},
    pod::PodView,
};
use serde_json::Value;

use crate::wait::until;

/// Namespace and name.
pub type Name = (String, String);

/// Returns each difference between the snapshot and the Pods of an exact list, as JSON. Empty if they are equal.
///
/// # Errors
/// Returns an error if a Pod of either cannot be decoded.
pub fn differences(snapshot: &Snapshot, listed: &[Value]) -> Result<Vec<String>> {
    let mut missing = BTreeMap::new();
    for json in listed {
        let pod = podium_wire::json::decode(&serde_json::to_vec(json)?)?;
        missing.insert((pod.header.namespace.clone(), pod.header.name.clone()), pod);
    }
    let mut differences = Vec::new();
    for cached in snapshot.iter() {
        let name = (cached.key.namespace.to_string(), cached.key.name.to_string());
        let Some(pod) = missing.remove(&name) else {
            differences.push(format!("{name:?} is not in the cluster"));
            continue;
        };
        let mut compare = |field: &str, cached: &dyn Debug, listed: &dyn Debug| {
            let (cached, listed) = (format!("{cached:?}"), format!("{listed:?}"));
            if cached != listed {
                differences.push(format!("{name:?} {field}: {cached} is {listed} in the cluster"));
            }
        };
        compare("uid", &&*cached.key.uid, &pod.header.uid);
        compare("revision", &cached.revision.to_string(), &pod.header.resource_version);
        compare("labels", &cached.labels()?, &pod.labels);
        compare("annotations", &cached.annotations()?, &pod.annotations);
        compare("owners", &cached.owners()?, &pod.owners);
        compare("lifecycle", &cached.lifecycle()?, &pod.lifecycle);
        compare("spec", &cached.spec()?, &pod.spec);
        compare("status", &cached.status()?, &pod.status);
    }
    differences.extend(missing.into_keys().map(|name| format!("{name:?} is not in the cache")));
    if snapshot.len() != snapshot.iter().count() {
        differences.push(format!("{} Pods are counted as {}", snapshot.iter().count(), snapshot.len()));
    }
    Ok(differences)
}

/// Waits until the cache equals the embedded cluster and reports that it is up to date.
///
/// # Errors
/// Returns the differences if this takes longer than `within`.
pub async fn converged(cluster: &Cluster, app: &App, within: Duration) -> Result<()> {
    let reader = app.reader();
    until("the cache to be what the cluster has", within, async || {
        let differences = differences(&reader.snapshot(), &cluster.list("pods").1)?;
        ensure!(differences.is_empty(), "{differences:#?}");
        ensure!(app.unready().is_none(), "{:?}", app.unready());
        Ok(())
    })
    .await
}

/// One publication as a reader saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub revision: u64,
    pub stale: bool,
    /// Uid and revision of each Pod.
    pub pods: BTreeMap<Name, (String, u64)>,
}

/// Records what a reader sees.
#[derive(Debug)]
pub struct Observer {
    stop: Arc<AtomicBool>,
    looking: Looking,
}

#[derive(Debug)]
enum Looking {
    Thread(Option<JoinHandle<Vec<Seen>>>),
    Task { reader: Reader, task: tokio::task::JoinHandle<()>, history: Arc<Mutex<Vec<Seen>>> },
}

impl Observer {
    /// Reads whenever the writer yields, which is as often as a reader in the same thread can.
    #[must_use]
    pub fn start(reader: Reader) -> Self {
        let history: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let (kept, mut looked_at) = (history.clone(), reader.clone());
        let task = tokio::spawn(async move {
            let mut last: Option<Arc<Snapshot>> = None;
            loop {
                let is_new = |next: &Snapshot| last.as_ref().is_none_or(|last| !std::ptr::eq(&raw const **last, next));
                let Some(next) = looked_at.wait_for(is_new).await else { return };
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(seen(&next));
                last = Some(next);
            }
        });
        Self { stop: Arc::default(), looking: Looking::Task { reader, task, history } }
    }

    /// Reads continuously on its own thread. A view that is published in parts would be seen, though not necessarily at
    /// its first occurrence.
    #[must_use]
    pub fn unblinking(reader: Reader) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut history = Vec::new();
            let mut last: Option<Arc<Snapshot>> = None;
            loop {
                // Publications before the request to stop are still recorded.
                let over = stopped.load(Relaxed);
                let snapshot = reader.snapshot();
                if !last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &snapshot)) {
                    history.push(seen(&snapshot));
                    last = Some(snapshot);
                }
                if over {
                    return history;
                }
                std::thread::yield_now();
            }
        });
        Self { stop, looking: Looking::Thread(Some(thread)) }
    }

    /// Returns all views that it saw, in order, and the last one.
    #[must_use]
    pub fn history(mut self) -> Vec<Seen> {
        self.stop.store(true, Relaxed);
        match &mut self.looking {
            Looking::Thread(thread) => thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default(),
            Looking::Task { reader, history, .. } => {
                let mut history = std::mem::take(&mut *history.lock().unwrap_or_else(PoisonError::into_inner));
                history.push(seen(&reader.snapshot()));
                history
            }
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Looking::Task { task, .. } = &self.looking {
            task.abort();
        }
    }
}

fn seen(snapshot: &Snapshot) -> Seen {
    let pods = snapshot.iter().map(|pod| {
        let name = (pod.key.namespace.to_string(), pod.key.name.to_string());
        (name, (pod.key.uid.to_string(), pod.revision.0))
    });
    Seen { revision: snapshot.revision().0, stale: snapshot.staleness().is_some(), pods: pods.collect() }
}

/// Returns everything that went backwards in a history: the cache's revision, a Pod's revision, or a Pod that was
/// gone and returned.
#[must_use]
pub fn regressions(history: &[Seen]) -> Vec<String> {
    let mut found = Vec::new();
    let mut revisions: BTreeMap<&str, u64> = BTreeMap::new();
    let mut gone: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, seen) in history.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| history.get(before));
        if let Some(before) = before {
            if seen.revision < before.revision {
                found.push(format!("{at}: the cache went from {} to {}", before.revision, seen.revision));
            }
            for (name, (uid, _)) in &before.pods {
                if seen.pods.get(name).is_none_or(|(now, _)| now != uid) {
                    gone.insert(uid, at);
                }
            }
        }
        for (name, (uid, revision)) in &seen.pods {
            if let Some(since) = gone.get(uid.as_str()) {
                found.push(format!("{at}: {name:?} came back, gone since {since}"));
            }
            let last = revisions.entry(uid).or_default();
            if *revision < *last {
                found.push(format!("{at}: {name:?} went from {last} to {revision}"));
            }
            *last = *revision;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(revision: u64, pods: &[(&str, u64)]) -> Seen {
        let pods = pods.iter().map(|(uid, revision)| (("shop".into(), "cart".into()), ((*uid).into(), *revision)));
        Seen { revision, stale: false, pods: pods.collect() }
    }

    #[test]
    fn every_regression_is_found_and_progress_is_not() {
        let forward = [seen(5, &[("a", 3)]), seen(6, &[("a", 6)]), seen(7, &[]), seen(9, &[("b", 2)])];
        assert_eq!(regressions(&forward), [""; 0]);
        for (history, expected) in [
            ([seen(5, &[]), seen(4, &[]), seen(4, &[])], "1: the cache went from 5 to 4"),
            (
                [seen(5, &[("a", 3)]), seen(5, &[("a", 2)]), seen(5, &[("a", 2)])],
                r#"1: ("shop", "cart") went from 3 to 2"#,
            ),
            (
                [seen(5, &[("a", 3)]), seen(5, &[("b", 3)]), seen(5, &[("a", 3)])],
                r#"2: ("shop", "cart") came back, gone since 1"#,
            ),
        ] {
            assert_eq!(regressions(&history), [expected]);
        }
    }
}
