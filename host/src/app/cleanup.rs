//! Removes the finalizers that a deleted plugin's Pods still have, and then the finalizer of its object.
//!
//! The object stays until then, so a host that is started again continues: the objects and the cache show the rest of
//! the work, and nothing is kept beside them. A write of a run of the plugin may arrive late, so the object's finalizer
//! is removed only after the longest time that a request has.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use parking_lot::Mutex;
use podium_engine::{
    authz::authorize,
    dispatch::Dispatch,
    intervals::Intervals,
    ports::{Sender, Staged},
};
use podium_pods::{
    model::{Action, Grants, PluginId, PluginSpec, PodKey, PodQuery, Write, WriteGrants, WriteResult, text},
    pod::PodView,
};
use tokio::time::{Instant, sleep};

use super::{objects::Shared, operator::stale};
use crate::{
    api::Api,
    objects::{Removing, hold},
    writeback::manager_name,
};

/// How often Pods are written to.
const INTERVAL: Duration = Duration::from_millis(500);
/// The most Pods that are written to in an interval, over all plugins.
const MOST: usize = 25;
/// Requests under way at the same time.
const CONCURRENT: usize = 8;
/// How often all Pods are looked at, which takes about a microsecond for a Pod.
const SCAN: Duration = Duration::from_secs(3);
/// Longer than the deadline of a delivery, after which no write of an ended run arrives.
const LATE_WRITES: Duration = Duration::from_secs(12);

/// The rest of the work, by plugin that was deleted.
pub(super) type Removals = Arc<Mutex<BTreeMap<PluginId, Removal>>>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Removal {
    /// Pods with a finalizer of the plugin.
    pub(super) pods: usize,
    /// The latest refusal by the API server, escaped; `None` while nothing is refused.
    pub(super) refused: Option<String>,
}

/// Follows the objects that are being deleted.
pub(super) struct Cleanup {
    pub(super) api: Api,
    pub(super) known: Shared,
    pub(super) dispatch: Arc<Dispatch>,
    /// The account that is used where the plugin's own is refused, as RBAC names it.
    pub(super) account: Option<String>,
    pub(super) removals: Removals,
}

/// The progress of one plugin since the host knows of the deletion.
struct Progress {
    uid: String,
    since: Instant,
    /// When Pods are looked at next.
    scan: Instant,
    /// Pods to write to, and a finalizer of each.
    left: VecDeque<(PodKey, String)>,
    /// The plugin's own account was refused.
    own_refused: bool,
    losses: Intervals,
}

impl Progress {
    fn new(uid: String) -> Self {
        let (left, losses) = (VecDeque::new(), Intervals::new());
        let now = Instant::now();
        Self { uid, since: now, scan: now, left, own_refused: false, losses }
    }
}

impl Cleanup {
    /// Never returns.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let mut all: BTreeMap<PluginId, Progress> = BTreeMap::new();
        loop {
            sleep(INTERVAL).await;
            let removing: Vec<Removing> = self.known.lock().desired.removing().collect();
            let same = |id: &PluginId, uid: &str| removing.iter().any(|of| of.id == *id && of.uid == uid);
            all.retain(|id, progress| same(id, &progress.uid));
            self.removals.lock().retain(|id, _| all.contains_key(id));
            let mut most = MOST;
            for object in removing {
                let progress = all.entry(object.id.clone()).or_insert_with(|| Progress::new(object.uid.clone()));
                self.step(&object, progress, &mut most).await;
            }
        }
    }

    /// Writes to at most `most` Pods, or ends the removal.
    async fn step(&self, object: &Removing, progress: &mut Progress, most: &mut usize) {
        // Its unload is on its way. Without a current cache nothing is known of Pods.
        if self.dispatch.registry.by_id(&object.id).is_some() || stale(&self.dispatch.reader).is_some() {
            return;
        }
        if progress.left.is_empty() {
            let now = Instant::now();
            if now < progress.scan {
                return;
            }
            progress.scan = now + SCAN;
            progress.left =
                object.spec.as_deref().map_or_else(VecDeque::new, |spec| held(&*self.dispatch.reader.snapshot(), spec));
            let removal = Removal { pods: progress.left.len(), refused: self.refused(&object.id) };
            self.removals.lock().insert(object.id.clone(), removal);
        }
        if progress.left.is_empty() {
            if progress.since.elapsed() >= LATE_WRITES {
                self.release(object, progress).await;
            }
            return;
        }
        let Some(spec) = &object.spec else { return };
        let next: Vec<_> = (0..*most).map_while(|_| progress.left.pop_front()).collect();
        *most -= next.len();
        let own_refused = progress.own_refused;
        let results = stream::iter(next).map(|(pod, name)| self.remove(spec, pod, name, own_refused));
        let results: Vec<_> = results.buffer_unordered(CONCURRENT).collect().await;
        let done = results.iter().filter(|(result, _)| result.is_settled()).count();
        progress.own_refused |= results.iter().any(|(_, own_refused)| *own_refused);
        let refused = results.iter().find_map(|(result, _)| match result {
            WriteResult::Forbidden(text) | WriteResult::Invalid(text) => Some(text::line(text)),
            _ => None,
        });
        if let Some(error) = &refused
            && let Some(count) = progress.losses.occurred(Instant::now())
        {
            tracing::warn!(plugin = %object.id, error, count, "finalizers of a deleted plugin not removed from pods");
        }
        let mut removals = self.removals.lock();
        let removal = removals.entry(object.id.clone()).or_default();
        removal.pods = removal.pods.saturating_sub(done);
        removal.refused = if done > 0 { None } else { refused.or_else(|| removal.refused.take()) };
    }

    fn refused(&self, id: &PluginId) -> Option<String> {
        self.removals.lock().get(id).and_then(|removal| removal.refused.clone())
    }

    /// Removes a finalizer of a Pod. Returns whether the plugin's own account was refused, too.
    async fn remove(&self, spec: &PluginSpec, pod: PodKey, name: String, own_refused: bool) -> (WriteResult, bool) {
        let own = Sender { manager: manager_name(&spec.id), impersonate: spec.impersonate.clone() };
        if !own_refused {
            let result = self.send(&own, spec, &pod, &name).await;
            if self.account.is_none() || !matches!(result, WriteResult::Forbidden(_)) {
                return (result, false);
            }
        }
        let cleanup = Sender { impersonate: self.account.clone(), ..own };
        (self.send(&cleanup, spec, &pod, &name).await, true)
    }

    async fn send(&self, sender: &Sender, spec: &PluginSpec, pod: &PodKey, name: &str) -> WriteResult {
        let finalizers = spec.grants.write.finalizers.clone();
        let grants = Grants { read: None, write: WriteGrants { finalizers, ..WriteGrants::default() } };
        let action = Action::RemoveFinalizer { target: pod.clone(), name: name.to_owned() };
        let write = match authorize(&spec.scope(), &grants, Write { id: 0, action }) {
            Ok(write) => write,
            Err(refused) => return WriteResult::Invalid(refused.to_string()),
        };
        let (view, now) = (self.dispatch.reader.snapshot(), self.dispatch.clock.now_millis());
        let staged = Staged { writes: vec![write], events: Vec::new() };
        let sent = self.dispatch.deliver.deliver(sender, pod, &*view, staged, now).await;
        if !sent.pods.is_empty() {
            self.dispatch.write_through.write_through(sent.pods).await;
        }
        sent.reports.into_iter().next().map_or(WriteResult::NotSent, |report| report.result)
    }

    /// Removes the object's finalizer. The watch reports that the object is gone.
    async fn release(&self, object: &Removing, progress: &mut Progress) {
        let Ok(request) = hold(&object.id, &object.uid, false) else { return };
        match self.api.json(request).await {
            Ok(_) => tracing::info!(plugin = %object.id, "finalizers of the deleted plugin removed"),
            Err(error) => {
                if let Some(count) = progress.losses.occurred(Instant::now()) {
                    let error = text::line(&error.to_string());
                    tracing::warn!(plugin = %object.id, error, count, "finalizer of the plugin object not removed");
                }
            }
        }
    }
}

/// Returns the Pods in the plugin's scope with a finalizer that it may hold, and the first of these.
fn held(view: &dyn PodView, spec: &PluginSpec) -> VecDeque<(PodKey, String)> {
    let query = PodQuery { namespace: spec.id.namespace.clone(), ..PodQuery::default() };
    let pods = view.find(&query, usize::MAX - 1, None).pods;
    let of_plugin = |name: &String| spec.grants.write.finalizers.iter().any(|pattern| pattern.matches(name));
    // A Pod that cannot be decoded has no finalizer that could be removed by name.
    let first = |pod: &podium_pods::pod::CachedPod| pod.lifecycle().ok()?.finalizers.into_iter().find(of_plugin);
    pods.iter().filter_map(|pod| Some((pod.key.clone(), first(pod)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use kube::client::Body;
    use podium_engine::ports::{Deliver, Sent};
    use podium_pods::{
        model::{BoxFuture, WriteReport},
        pod::{CachedPod, Observation, PodEvent},
    };
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::{
        super::{loading::tests, objects::Follower},
        *,
    };

    const CLEANUP: &str = "system:serviceaccount:podium:podium-cleanup";
    const HOLD: &str = "shop.example/hold";

    fn pod(name: &str, revision: u64, finalizers: &[&str]) -> Arc<CachedPod> {
        let mut pod = podium_wire::Pod::default();
        (pod.header.namespace, pod.header.name, pod.header.uid) = ("shop".into(), name.into(), format!("u-{name}"));
        pod.header.resource_version = revision.to_string();
        pod.lifecycle.finalizers = finalizers.iter().map(|name| (*name).to_owned()).collect();
        Arc::new(CachedPod::new(&pod).unwrap())
    }

    /// An API server that permits writes of [`CLEANUP`] only.
    #[derive(Default)]
    struct Server(Mutex<Vec<(Option<String>, String)>>);

    impl Deliver for Server {
        fn deliver<'a>(
            &'a self,
            sender: &'a Sender,
            subject: &'a PodKey,
            _: &'a dyn PodView,
            staged: Staged,
            _: u64,
        ) -> BoxFuture<'a, Sent> {
            let description = staged.writes[0].get().action.describe();
            let mut all = self.0.lock();
            all.push((sender.impersonate.clone(), description.clone()));
            let mut sent = Sent::default();
            let mut result = WriteResult::Forbidden("no right".to_owned());
            if sender.impersonate.as_deref() == Some(CLEANUP) {
                sent.pods.push(pod(&subject.name, 100 + all.len() as u64, &["bank.example/other"]));
                result = WriteResult::Applied;
            }
            sent.reports.push(WriteReport { id: 0, description, result });
            Box::pin(std::future::ready(sent))
        }

        fn held(&self, _: &Sender) -> Option<Duration> {
            None
        }
    }

    /// Starts a cleanup beside an object that is being deleted. Returns the requests to it, and what keeps it alive.
    async fn started(account: Option<&str>, server: Arc<Server>) -> (Arc<Mutex<Vec<Value>>>, Removals, impl Sized) {
        let (loader, observe): (_, mpsc::Sender<Observation>) = tests::loader().await;
        let held = |name, revision| PodEvent::applied(pod(name, revision, &["bank.example/other", HOLD]));
        observe.send(Observation::Events(vec![held("cart-1", 6), held("cart-2", 7)])).await.unwrap();
        observe.send(Observation::Live).await.unwrap();
        let source = json!({ "configMap": { "name": "tidy", "key": "a", "sha256": "0".repeat(64) } });
        let metadata = json!({
            "name": "a", "namespace": "shop", "uid": "u", "generation": 4,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["podium.dev/pod-finalizers"],
        });
        let grants = json!({ "write": { "finalizers": [HOLD] } });
        let spec = json!({ "source": source, "serviceAccountName": "own", "grants": grants });
        let list = json!({ "metadata": { "resourceVersion": "1" }, "items": [{ "metadata": metadata, "spec": spec }] });
        let patches: Arc<Mutex<Vec<Value>>> = Arc::default();
        let patched = patches.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (patched, list) = (patched.clone(), list.to_string());
            async move {
                let (parts, body) = request.into_parts();
                if parts.method == http::Method::PATCH {
                    let body = body.collect().await.unwrap().to_bytes();
                    patched.lock().push(serde_json::from_slice(&body).unwrap());
                } else if parts.uri.query().is_some_and(|query| query.contains("watch=1")) {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(list))))
            }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let (follower, _started) = Follower::new(loader.clone(), &api, Some("shop"), [], 1);
        let of_loader = &loader.dispatch;
        let dispatch = Arc::new(Dispatch {
            queue: of_loader.queue.clone(),
            registry: of_loader.registry.clone(),
            expectations: of_loader.expectations.clone(),
            reader: of_loader.reader.clone(),
            deliver: server,
            live: of_loader.live.clone(),
            write_through: of_loader.write_through.clone(),
            tasks: of_loader.tasks.clone(),
            clock: of_loader.clock.clone(),
            seed: 1,
        });
        let (removals, account) = (Removals::default(), account.map(str::to_owned));
        let cleanup = Cleanup { api, known: follower.known(), dispatch, account, removals: removals.clone() };
        tokio::spawn(follower.run());
        tokio::spawn(cleanup.run());
        (patches, removals, (loader, observe))
    }

    fn id() -> PluginId {
        PluginId { namespace: Some("shop".into()), name: "a".into() }
    }

    #[tokio::test(start_paused = true)]
    async fn another_account_removes_finalizers_if_the_plugins_own_is_refused() {
        let server = Arc::new(Server::default());
        let (patches, removals, _alive) = started(Some(CLEANUP), server.clone()).await;
        sleep(Duration::from_secs(6)).await;
        let own = Some("system:serviceaccount:shop:own".to_owned());
        let sent = server.0.lock().clone();
        assert!(sent.len() >= 3 && sent[0].0 == own, "{sent:?}");
        assert_eq!(sent.iter().filter(|(account, _)| account.as_deref() == Some(CLEANUP)).count(), 2, "{sent:?}");
        assert!(sent.iter().all(|(_, write)| write.contains(HOLD)), "{sent:?}");
        assert_eq!(removals.lock()[&id()].pods, 0);
        assert!(patches.lock().is_empty(), "a write of a run may still arrive");
        sleep(LATE_WRITES + SCAN).await;
        let released = patches.lock()[0].clone();
        assert_eq!((&released["metadata"]["finalizers"], &released["metadata"]["uid"]), (&json!([]), &json!("u")));
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_stays_while_a_pod_has_a_finalizer_of_its_plugin() {
        let (patches, removals, _alive) = started(None, Arc::default()).await;
        sleep(Duration::from_secs(600)).await;
        assert!(patches.lock().is_empty());
        assert_eq!(removals.lock()[&id()], Removal { pods: 2, refused: Some("no right".to_owned()) });
    }
}
