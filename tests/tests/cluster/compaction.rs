//! etcd compacts its history every second, and the host's connections are cut: each watch ends with 410, and the
//! cache lists again while Pods are created, changed and deleted.
//!
//! The Pods at each revision are recorded by a watch that is never cut, because older exact lists would be compacted
//! too. Runs a bounded number of rounds; `PODIUM_COMPACTIONS` sets it.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::TryStreamExt;
use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Config,
    api::{DeleteParams, ListParams, Patch, PatchParams, WatchEvent},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use podium_host::app::{App, Options};
use podium_tests::{
    controlplane,
    oracle::{Name, Observer, Seen, differences, regressions},
    wait::until,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::service_fn;

use crate::{
    exclusive,
    workloads::{create, namespace, pod},
};

const SHOP: &str = "shop";
const DEFAULT_TIMES: usize = 12;
const PODS: usize = 30;
/// The pause between two compactions.
const PACE: Duration = Duration::from_secs(1);
const WITHIN: Duration = Duration::from_secs(60);
/// The code in the ERROR event of a watch.
const GONE: &[u8] = br#""code":410"#;
/// The shortest wait before a list; the next one is at most twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(200);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_compaction_each_410_costs_one_list() -> Result<()> {
    let options = controlplane::Options { without_watch_cache: true, ..Default::default() };
    let Some((plane, client, _turn)) = exclusive(options).await? else { return Ok(()) };
    let times = match std::env::var("PODIUM_COMPACTIONS") {
        Ok(text) => text.parse().context("PODIUM_COMPACTIONS is not a number")?,
        Err(_) => DEFAULT_TIMES,
    };
    namespace(&client, SHOP).await?;
    for index in 0..PODS {
        pod(&client, SHOP, &format!("cart-{index}")).await?;
    }
    let truth = Truth::record(&client).await?;

    let proxy = plane.proxy(&plane.kubeconfig_path()).await?;
    let kubeconfig = Kubeconfig::read_from(proxy.kubeconfig_path())?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let tally = Tally::default();
    let client_of_host = tally.client(podium_api::client(config)?);
    let options = Options { workers: 2, ..Options::new(client_of_host, 7, 0) };
    let app = App::start(options).await?;
    let observer = Observer::unblinking(app.reader());
    let ready = async || {
        ensure!(app.unready().is_none(), "{:?}", app.unready());
        Ok(())
    };
    until("the first list", WITHIN, ready).await?;

    let mut changes = 0;
    for time in 0..times {
        let next = Instant::now() + PACE;
        while Instant::now() < next {
            changes += 1;
            change(&client, changes).await?;
        }
        // A list that is cut begins again, which this test does not cover.
        until("the watch to stand", WITHIN, ready).await?;
        // Events that the host has not seen, so that it is behind the remaining history.
        for other in 0..3 {
            let name = format!("other-{time}-{other}");
            let path = format!("/api/v1/namespaces/{SHOP}/configmaps");
            create(&client, &path, json!({ "metadata": { "name": name } })).await?;
        }
        plane.compact().await?;
        proxy.lose_connections();
    }
    until("the cache to be what the cluster has", WITHIN, async || {
        ready().await?;
        let list: Value = client.request(Request::get("/api/v1/pods").body(Vec::new())?).await?;
        let listed = list["items"].as_array().context("a list without items")?;
        let differences = differences(&app.reader().snapshot(), listed)?;
        ensure!(differences.is_empty(), "{differences:#?}");
        Ok(())
    })
    .await?;
    let history = observer.history();
    app.shutdown().await;

    let checked = truth.check(&history).await?;
    ensure!(regressions(&history).is_empty(), "{:#?}", regressions(&history));
    let notes = tally.notes();
    let (gone, lists) = (notes.gone.len(), notes.lists.len());
    ensure!(gone >= times * 3 / 4, "{gone} times 410 for {times} compactions");
    ensure!(lists <= 1 + gone, "{lists} lists for {gone} times 410");
    ensure!(!notes.overlapped, "two lists at once");
    let mut waits = Vec::new();
    for gone in &notes.gone {
        waits.extend(notes.lists.iter().find(|list| *list > gone).map(|list| *list - *gone));
    }
    let least = waits.iter().min().context("no list after a 410")?;
    ensure!(*least >= FIRST_WAIT, "a list {least:?} after a 410");
    let said = format!("{times} compactions, {gone} times 410, {lists} lists, {checked} views, none of them a part");
    writeln!(std::io::stderr(), "compaction: {said}; a list came after {least:?} to {:?}", waits.iter().max())?;
    Ok(())
}

/// Deletes, creates and changes one Pod each.
async fn change(client: &Client, time: usize) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client.clone(), SHOP);
    let listed = api.list_metadata(&ListParams::default().limit(2)).await?;
    let [first, second] = &listed.items[..] else { bail!("{} Pods", listed.items.len()) };
    let name = |index: &Option<String>| index.clone().context("a Pod without a name");
    let (gone, changed) = (name(&first.metadata.name)?, name(&second.metadata.name)?);
    api.delete(&gone, &DeleteParams::default().grace_period(0)).await?;
    pod(client, SHOP, &gone).await?;
    let label = json!({ "metadata": { "labels": { "changed": time.to_string() } } });
    api.patch(&changed, &PatchParams::default(), &Patch::Merge(label)).await?;
    Ok(())
}

/// The Pods at each revision.
struct Truth {
    before: Pods,
    changes: Arc<Mutex<Vec<Changed>>>,
    task: tokio::task::JoinHandle<Result<()>>,
}

type Pods = BTreeMap<Name, (String, u64)>;
/// A revision, the Pod that it changed, and the Pod's uid after it.
type Changed = (u64, Name, Option<String>);

impl Truth {
    async fn record(client: &Client) -> Result<Self> {
        let list = Api::<Pod>::all(client.clone()).list_metadata(&ListParams::default()).await?;
        let began = list.metadata.resource_version.context("a list without a revision")?;
        let entries = list.items.iter().map(|pod| {
            let (name, uid, revision) = identity(&pod.metadata)?;
            Ok((name, (uid, revision)))
        });
        let before = entries.collect::<Result<_>>()?;
        let path = format!("/api/v1/pods?watch=1&resourceVersion={began}&timeoutSeconds=86400");
        let events = client.request_events::<Pod>(Request::get(path).body(Vec::new())?).await?;
        let changes = Arc::<Mutex<Vec<_>>>::default();
        let noted = changes.clone();
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(events);
            while let Some(event) = events.try_next().await? {
                let (pod, is_there) = match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, true),
                    WatchEvent::Deleted(pod) => (pod, false),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(error) => bail!("the watch that must not be lost: {error:?}"),
                };
                let (name, uid, revision) = identity(&pod.metadata)?;
                lock(&noted).push((revision, name, is_there.then_some(uid)));
            }
            bail!("the watch that must not be lost has ended")
        });
        Ok(Self { before, changes, task })
    }

    /// Checks that every view has exactly the Pods of its revision. Returns the number of views.
    async fn check(self, history: &[Seen]) -> Result<usize> {
        // The last change creates or changes a Pod.
        let last = history.iter().flat_map(|seen| seen.pods.values()).map(|(_, revision)| *revision).max();
        until("the end of the recorded changes", WITHIN, async || {
            ensure!(!self.task.is_finished(), "the recording broke off");
            let known = lock(&self.changes).last().map(|(revision, ..)| *revision);
            ensure!(known >= last, "{known:?} of {last:?}");
            Ok(())
        })
        .await?;
        self.task.abort();
        let changes = lock(&self.changes);
        let (mut pods, mut at, mut checked) = (self.before, 0, 0);
        for seen in history.iter().filter(|seen| seen.revision > 0) {
            while let Some((revision, name, uid)) = changes.get(at).filter(|(revision, ..)| *revision <= seen.revision)
            {
                match uid {
                    Some(uid) => drop(pods.insert(name.clone(), (uid.clone(), *revision))),
                    None => drop(pods.remove(name)),
                }
                at += 1;
            }
            ensure!(seen.pods == pods, "at revision {}: {:#?} seen, {pods:#?} there", seen.revision, seen.pods);
            checked += 1;
        }
        ensure!(checked > 10 && at > 10, "{checked} views of {at} changes");
        Ok(checked)
    }
}

fn identity(metadata: &kube::api::ObjectMeta) -> Result<(Name, String, u64)> {
    let [namespace, name, uid, revision] =
        [&metadata.namespace, &metadata.name, &metadata.uid, &metadata.resource_version]
            .map(|text| text.clone().context("a Pod without namespace, name, uid or revision"));
    Ok(((namespace?, name?), uid?, revision?.parse()?))
}

/// The host's lists, and the number of its 410 responses.
#[derive(Clone, Default)]
struct Tally(Arc<Mutex<Notes>>);

#[derive(Default)]
struct Notes {
    lists: Vec<Instant>,
    under_way: u32,
    overlapped: bool,
    gone: Vec<Instant>,
}

/// A list in progress, until it is read completely or dropped.
struct List(Tally);

impl Tally {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.0)
    }

    /// Returns the same client with counters.
    fn client(&self, client: Client) -> Client {
        let tally = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (tally, client) = (tally.clone(), client.clone());
            async move {
                let list = tally.list(&request.uri().to_string());
                let answer = client.send(request).await?;
                if answer.status().as_u16() == 410 {
                    tally.gone();
                }
                Ok::<_, kube::Error>(answer.map(|body| {
                    body.map_frame(move |frame| {
                        let _under_way = &list;
                        frame.map_data(|bytes: Bytes| {
                            if bytes.windows(GONE.len()).any(|part| part == GONE) {
                                tally.gone();
                            }
                            bytes
                        })
                    })
                }))
            }
        });
        Client::new(service, "default")
    }

    fn list(&self, uri: &str) -> Option<List> {
        // A list of one Pod only requests the revision.
        let one = uri.contains("limit=1") && !uri.contains("limit=1&");
        if !uri.starts_with("/api/v1/pods?") || one || uri.contains("watch=1") && !uri.contains("sendInitialEvents") {
            return None;
        }
        let mut notes = self.notes();
        notes.lists.push(Instant::now());
        notes.under_way += 1;
        notes.overlapped |= notes.under_way > 1;
        Some(List(self.clone()))
    }

    fn gone(&self) {
        self.notes().gone.push(Instant::now());
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.0.notes().under_way -= 1;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
