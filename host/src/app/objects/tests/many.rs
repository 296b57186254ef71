//! Claims about a tenant with far more objects than the host reads.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures::{StreamExt, channel::mpsc, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use podium_engine::clock::Clock;
use serde_json::Value;
use tokio::{sync::watch, time::sleep};

use super::{
    super::super::{Phase, cleanup::Removals, object_status::StatusTask, operator::tests::observed},
    *,
};

/// An API server that stores objects and statuses.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    objects: BTreeMap<String, Value>,
    revision: u64,
    watch: Option<mpsc::UnboundedSender<String>>,
    /// The reason of each status that was written, with its object.
    written: Vec<(String, String)>,
}

impl Stored {
    fn put(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        self.revision += 1;
        let object = self.objects.entry(name.to_owned()).or_insert_with(|| {
            let source = json!({ "configMap": { "name": "missing", "key": "a", "sha256": "0".repeat(64) } });
            let metadata = json!({ "name": name, "namespace": "shop", "uid": format!("u-{name}"), "generation": 1 });
            json!({ "metadata": metadata, "spec": { "source": source } })
        });
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        change(object);
        let event = json!({ "type": "MODIFIED", "object": object }).to_string() + "\n";
        self.watch.iter().for_each(|watch| watch.unbounded_send(event.clone()).unwrap_or_default());
    }

    fn delete(&mut self, name: &str) {
        let object = self.objects.remove(name).unwrap();
        let event = json!({ "type": "DELETED", "object": object }).to_string() + "\n";
        self.watch.iter().for_each(|watch| watch.unbounded_send(event.clone()).unwrap_or_default());
    }

    /// Returns how many statuses of each reason were written since the last call.
    fn written(&mut self) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        self.written.drain(..).for_each(|(_, reason)| *reasons.entry(reason).or_default() += 1);
        reasons
    }
}

impl Server {
    async fn answer(self, request: Request<Body>) -> Response<StreamBody<stream::BoxStream<'static, Chunk>>> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let mut stored = self.0.lock();
        let texts = if parts.method == http::Method::PATCH {
            let name = parts.uri.path().split('/').nth_back(1).unwrap().to_owned();
            let mut patch: Value = serde_json::from_slice(&body).unwrap();
            let reason = patch["status"]["conditions"][4]["reason"].as_str().unwrap_or_default().to_owned();
            stored.written.push((name.clone(), reason));
            stored.put(&name, |object| object["status"] = patch["status"].take());
            stream::iter([stored.objects[&name].to_string()]).boxed()
        } else if parts.uri.query().is_some_and(|query| query.contains("watch=1")) {
            let (sender, receiver) = mpsc::unbounded();
            stored.watch = Some(sender);
            receiver.boxed()
        } else {
            let items: Vec<_> = stored.objects.values().collect();
            let metadata = json!({ "resourceVersion": stored.revision.to_string() });
            stream::iter([json!({ "metadata": metadata, "items": items }).to_string()]).boxed()
        };
        Response::new(StreamBody::new(texts.map(|text| Ok(Frame::data(Bytes::from(text)))).boxed()))
    }
}

type Chunk = Result<Frame<Bytes>, Infallible>;

#[tokio::test(start_paused = true)]
async fn of_a_thousand_objects_those_beyond_have_one_status_and_no_work() {
    let server = Server::default();
    (0..1_000).for_each(|at| server.0.lock().put(&format!("p{at:03}"), |_| {}));
    let answering = server.clone();
    let service = tower::service_fn(move |request| {
        let server = answering.clone();
        async move { Ok::<_, Infallible>(server.answer(request).await) }
    });
    let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
    let (driver, _observe) = tests::driver().await;
    let (follower, _started) = Follower::new(driver.clone(), &api, Some("shop"), [], 1);
    let known = follower.known();
    let (_phase, phase) = watch::channel(Phase::Serving);
    let task = StatusTask {
        api,
        known: known.clone(),
        status: driver.status.clone(),
        observed: Arc::new(observed(driver.status.clone(), phase)),
        removals: Removals::default(),
        releases: super::super::super::cleanup::Releases::default(),
        driver: driver.clone(),
        clock: Clock::starting_at(0),
    };
    tokio::spawn(follower.run());
    tokio::spawn(task.run());
    let names = || driver.plugins().into_iter().map(|plugin| plugin.id.name.to_string()).collect::<Vec<_>>();
    let decided = || known.lock().desired.decided().count();
    sleep(Duration::from_secs(5)).await;
    assert!(decided() < 200, "{} objects are copied for each change", decided());
    sleep(Duration::from_secs(120)).await;
    let expected = [("ConfigMapNotFound", 100), ("TooManyPlugins", 900)];
    assert_eq!(server.0.lock().written(), expected.map(|(reason, count)| (reason.to_owned(), count)).into());
    assert_eq!((names().len(), names().last().unwrap().as_str()), (100, "p099"));
    assert!(decided() <= 100, "{} objects are copied for each change", decided());

    // Changes of those beyond cost one more status at most.
    (200..300).for_each(|at| server.0.lock().put(&format!("p{at:03}"), |of| of["metadata"]["labels"] = json!({})));
    server.0.lock().put("p500", |of| of["metadata"]["generation"] = 2.into());
    server.0.lock().put("p600", |of| of["status"] = json!({}));
    sleep(Duration::from_secs(60)).await;
    let written = std::mem::take(&mut server.0.lock().written);
    assert_eq!(written, ["p500", "p600"].map(|name| (name.to_owned(), "TooManyPlugins".to_owned())));

    // The next one is read when one goes.
    server.0.lock().delete("p007");
    sleep(Duration::from_secs(60)).await;
    let written = std::mem::take(&mut server.0.lock().written);
    let expected = ["SpecNotRead", "ConfigMapNotFound"];
    assert_eq!(written, expected.map(|reason| ("p100".to_owned(), reason.to_owned())));
    assert_eq!((names().len(), names().last().unwrap().as_str()), (100, "p100"));

    // So are many when the policy permits more; the others say the new number.
    let rules = "{ namespaces: { shop: { maxPlugins: 150 } } }";
    driver.set_policy(policy(rules), None);
    sleep(Duration::from_secs(120)).await;
    assert_eq!((names().len(), names().last().unwrap().as_str()), (150, "p150"));
    let expected = [("ConfigMapNotFound", 50), ("SpecNotRead", 50), ("TooManyPlugins", 849)];
    assert_eq!(server.0.lock().written(), expected.map(|(reason, count)| (reason.to_owned(), count)).into());
    sleep(Duration::from_secs(3_600)).await;
    assert!(server.0.lock().written().is_empty());
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_an_object_beyond_the_number_are_known() {
    let (driver, _observe) = tests::driver().await;
    driver.set_policy(policy("{ namespaces: { shop: { maxPlugins: 1 } } }"), None);
    let (mut follower, _started) = Follower::new(driver.clone(), &api(None, None), Some("shop"), [], 1);
    let object = |name: &str, held: &[&str]| {
        let source = json!({ "configMap": { "name": "missing", "key": "a", "sha256": "0".repeat(64) } });
        let metadata = json!({ "name": name, "namespace": "shop", "uid": format!("u-{name}"), "generation": 1 });
        let status = json!({ "finalizers": { "names": held } });
        let text = json!({ "metadata": metadata, "spec": { "source": source }, "status": status }).to_string();
        objects::Object::read(Kind::Namespaced, &text).unwrap()
    };
    let mut listed: Vec<_> = (0..60).map(|at| object(&format!("p{at:02}"), &[])).collect();
    listed.push(object("q", &["shop.example/q"]));
    follower.observe(Kind::Namespaced, Change::Listed(listed));
    // Another replica has let it hold finalizers until this one took the Lease.
    let last = object("z", &["shop.example/z"]);
    let id = last.id.clone();
    let uid = last.uid.clone();
    follower.observe(Kind::Namespaced, Change::Applied(last.into()));
    assert!(follower.known().lock().desired.object(&id).is_none(), "it is passed on");
    assert!(driver.components.holds.has(&id, &uid));
}
