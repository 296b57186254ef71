use std::{collections::VecDeque, convert::Infallible, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::json;

use super::{super::object::tests::spec, *};

/// A watch with this code ends after its lines; one with 200 stays open.
const ENDS: u16 = 299;

/// Answers in order, and the requests that came. After the last answer, requests are not answered.
#[derive(Clone, Default)]
struct Server {
    answers: Arc<Mutex<VecDeque<(u16, String)>>>,
    requests: Arc<Mutex<Vec<String>>>,
    pods: Arc<Counters>,
}

impl Server {
    fn answering(answers: &[(u16, String)]) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.iter().cloned().collect())), ..Self::default() }
    }

    fn start(&self, namespace: Option<&str>, kind: Kind) -> mpsc::Receiver<(Kind, Change)> {
        self.start_with(|api| ObjectWatch::new(api, kind, namespace.map(str::to_owned), 1))
    }

    fn start_with(&self, watch: impl FnOnce(Api) -> ObjectWatch<Object>) -> mpsc::Receiver<(Kind, Change)> {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let path = request.uri().path_and_query().unwrap().to_string();
                let is_watch = path.contains("watch=1");
                server.requests.lock().push(path);
                let answer = server.answers.lock().pop_front();
                let Some((code, body)) = answer else { return std::future::pending().await };
                let body = Bytes::from(body);
                let frames = futures::stream::iter([Ok::<_, Infallible>(Frame::data(body))]);
                let body = if is_watch && code == 200 {
                    StreamBody::new(frames.chain(futures::stream::pending())).boxed_unsync()
                } else {
                    StreamBody::new(frames).boxed_unsync()
                };
                let code = if code == ENDS { 200 } else { code };
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(watch(api).beside(self.pods.clone()).run(sender));
        receiver
    }
}

fn item(name: &str, revision: u64) -> serde_json::Value {
    let metadata = json!({
        "name": name, "namespace": "shop", "uid": format!("u-{name}"), "generation": 1,
        "resourceVersion": revision.to_string(),
    });
    json!({ "metadata": metadata, "spec": spec() })
}

fn list(names: &[&str], revision: u64, next: &str) -> (u16, String) {
    let items: Vec<_> = names.iter().map(|name| item(name, revision)).collect();
    (
        200,
        json!({ "metadata": { "resourceVersion": revision.to_string(), "continue": next }, "items": items })
            .to_string(),
    )
}

fn event(kind: &str, name: &str, revision: u64) -> String {
    json!({ "type": kind, "object": item(name, revision) }).to_string() + "\n"
}

fn described((kind, change): (Kind, Change)) -> String {
    let names = |objects: &[Object]| objects.iter().map(|object| object.id.to_string()).collect::<Vec<_>>();
    let described = match change {
        Change::Listed(objects) => format!("listed {}", names(&objects).join(" ")),
        Change::Absent => "absent".to_owned(),
        Change::Applied(object) => format!("applied {}", object.id),
        Change::Deleted(id) => format!("deleted {id}"),
        Change::Left(id) => format!("left {id}"),
    };
    format!("{}: {described}", kind.resource())
}

async fn next(receiver: &mut mpsc::Receiver<(Kind, Change)>) -> String {
    described(receiver.recv().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn pages_and_events_are_reported_and_a_watch_is_resumed_where_it_ended() {
    let first = event("ADDED", "c", 8) + &event("DELETED", "a", 9);
    let server = Server::answering(&[
        list(&["a"], 7, "x/y=="),
        list(&["b"], 7, ""),
        (ENDS, first),
        (200, event("MODIFIED", "b", 12)),
    ]);
    let mut receiver = server.start(Some("shop"), Kind::Namespaced);
    for expected in ["listed shop/a shop/b", "applied shop/c", "deleted shop/a", "applied shop/b"] {
        assert_eq!(next(&mut receiver).await, format!("reconcileplugins: {expected}"));
    }
    let requests = server.requests.lock().clone();
    assert!(requests[0].starts_with("/apis/podium.dev/v1alpha1/namespaces/shop/reconcileplugins?limit="));
    assert!(requests[1].contains("continue=x/y%3D%3D"), "{requests:?}");
    assert!(requests[2].ends_with("resourceVersion=7") && requests[3].ends_with("resourceVersion=9"), "{requests:?}");
}

fn missing() -> (u16, String) {
    (404, "404 page not found".to_owned())
}

fn expired() -> (u16, String) {
    (200, r#"{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}"#.to_owned() + "\n")
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_absent_once_and_listed_when_it_is_there() {
    let mut answers = vec![missing(); 20];
    answers.push(list(&["a"], 3, ""));
    let server = Server::answering(&answers);
    let mut receiver = server.start(None, Kind::Cluster);
    let began = Instant::now();
    assert_eq!(next(&mut receiver).await, "clusterreconcileplugins: absent");
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(next(&mut receiver).await, "clusterreconcileplugins: listed a");
    assert!(began.elapsed() > Duration::from_secs(100), "asked too often: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn objects_stay_for_30_s_in_which_the_kind_is_not_served() {
    let mut answers = vec![list(&["a"], 3, ""), expired()];
    answers.extend(vec![missing(); 40]);
    answers.push(list(&["b"], 4, ""));
    let server = Server::answering(&answers);
    let mut receiver = server.start(None, Kind::Namespaced);
    let began = Instant::now();
    assert_eq!(next(&mut receiver).await, "reconcileplugins: listed shop/a");
    assert_eq!(next(&mut receiver).await, "reconcileplugins: absent");
    let waited = began.elapsed();
    assert!((ABSENT..ABSENT + Duration::from_secs(7)).contains(&waited), "{waited:?}");
    assert_eq!(next(&mut receiver).await, "reconcileplugins: listed shop/b");
}

#[tokio::test(start_paused = true)]
async fn each_time_without_the_kind_is_measured_from_its_own_start() {
    for between in [list(&["a"], 4, ""), (503, String::new()), (200, "no list".to_owned())] {
        let mut answers = vec![list(&["a"], 3, "")];
        for _ in 0..3 {
            answers.extend(vec![missing(); 6]);
            answers.push(between.clone());
        }
        answers.extend([missing(), list(&["b"], 9, "")]);
        let server = Server::answering(&answers);
        let mut receiver = server.start(None, Kind::Namespaced);
        let began = Instant::now();
        let mut observed = next(&mut receiver).await;
        while observed == "reconcileplugins: listed shop/a" {
            observed = next(&mut receiver).await;
        }
        assert_eq!(observed, "reconcileplugins: listed shop/b", "{between:?}");
        assert!(began.elapsed() > ABSENT, "the times together are too short: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_resumed_at_its_last_bookmark() {
    let bookmark = json!({ "type": "BOOKMARK", "object": { "metadata": { "resourceVersion": "12" } } });
    let server = Server::answering(&[list(&[], 3, ""), (ENDS, bookmark.to_string() + "\n")]);
    let mut receiver = server.start(None, Kind::Namespaced);
    assert_eq!(next(&mut receiver).await, "reconcileplugins: listed ");
    sleep(Duration::from_secs(1)).await;
    assert!(server.requests.lock()[2].ends_with("resourceVersion=12"), "{:?}", server.requests.lock());
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_history_that_was_set_back_are_listed_again() {
    // A watch from a revision that the API server has not reached is silent.
    let silent = (200, String::new());
    let server = Server::answering(&[
        list(&["old"], 7_000, ""),
        silent.clone(),
        silent.clone(),
        silent.clone(),
        silent,
        list(&["new"], 40, ""),
        (200, event("ADDED", "newer", 41)),
    ]);
    let mut receiver = server.start(None, Kind::Namespaced);
    let began = Instant::now();
    for expected in ["listed shop/old", "listed shop/new", "applied shop/newer"] {
        let observed = tokio::time::timeout(Duration::from_secs(24 * 3_600), next(&mut receiver)).await;
        assert_eq!(observed.as_deref(), Ok(&*format!("reconcileplugins: {expected}")));
    }
    assert!(began.elapsed() < Duration::from_secs(5 * 60), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_history_that_was_set_back_and_has_gone_on_is_listed_again() {
    let bookmark = json!({ "type": "BOOKMARK", "object": { "metadata": { "resourceVersion": "7100" } } });
    for (watch, pods) in [(event("ADDED", "x", 41), false), (bookmark.to_string() + "\n", true)] {
        let server = Server::answering(&[list(&["old"], 7_000, ""), (200, watch), list(&["new"], 42, "")]);
        let mut receiver = server.start(None, Kind::Namespaced);
        assert_eq!(next(&mut receiver).await, "reconcileplugins: listed shop/old");
        sleep(Duration::from_millis(1)).await;
        if pods {
            server.pods.rolled_back();
        }
        let observed = tokio::time::timeout(Duration::from_secs(90), next(&mut receiver)).await;
        assert_eq!(observed.as_deref(), Ok("reconcileplugins: listed shop/new"), "pods: {pods}");
    }
}

#[tokio::test(start_paused = true)]
async fn lists_whose_watches_are_refused_at_once_become_rare() {
    let answers: Vec<_> = (0..1_000).flat_map(|_| [list(&[], 3, ""), expired()]).collect();
    let server = Server::answering(&answers);
    let mut receiver = server.start(None, Kind::Namespaced);
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let lists = || server.requests.lock().iter().filter(|request| request.contains("?limit=")).count();
    let began = Instant::now();
    while began.elapsed() < minutes(10) {
        let _listed = next(&mut receiver).await;
    }
    let before = lists();
    while began.elapsed() < minutes(20) {
        let _listed = next(&mut receiver).await;
    }
    assert!((15..40).contains(&(lists() - before)), "{} lists in 10 minutes", lists() - before);
}

#[tokio::test(start_paused = true)]
async fn bookmarks_show_that_no_list_is_needed() {
    let bookmark = |revision: u64| {
        let revision = revision.to_string();
        json!({ "type": "BOOKMARK", "object": { "metadata": { "resourceVersion": revision } } }).to_string() + "\n"
    };
    let mut answers = vec![list(&[], 3, "")];
    answers.extend((0..20).map(|at| (200, bookmark(4 + at))));
    let server = Server::answering(&answers);
    let mut receiver = server.start(None, Kind::Namespaced);
    assert_eq!(next(&mut receiver).await, "reconcileplugins: listed ");
    sleep(Duration::from_secs(20 * 60)).await;
    let lists = server.requests.lock().iter().filter(|request| request.contains("?limit=")).count();
    assert_eq!(lists, 1);
}

#[tokio::test(start_paused = true)]
async fn failures_and_malformed_answers_are_retried_with_back_off() {
    let odd = r#"{"type":"ADDED","object":{"metadata":{}}}"#.to_owned() + "\n" + "no json\n";
    let server = Server::answering(&[
        (500, String::new()),
        (200, "no json".to_owned()),
        list(&[], 3, ""),
        (200, odd),
        list(&["a"], 4, ""),
    ]);
    let mut receiver = server.start(None, Kind::Namespaced);
    let began = Instant::now();
    assert_eq!(next(&mut receiver).await, "reconcileplugins: listed ");
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    assert_eq!(next(&mut receiver).await, "reconcileplugins: listed shop/a");
    assert!(receiver.recv().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_an_answer_is_resumed_after_its_time() {
    let server = Server::answering(&[list(&[], 3, ""), (200, String::new()), (200, event("ADDED", "a", 5))]);
    let mut receiver = server.start(None, Kind::Namespaced);
    let began = Instant::now();
    assert_eq!(next(&mut receiver).await, "reconcileplugins: listed ");
    assert_eq!(next(&mut receiver).await, "reconcileplugins: applied shop/a");
    assert_eq!(began.elapsed(), Duration::from_secs(WATCH_SECONDS) + END_GRACE);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_each_watch_is_not_asked_without_pause() {
    let ends = || (ENDS, String::new());
    let mut answers = vec![list(&[], 3, "")];
    let with_event = || (ENDS, event("MODIFIED", "a", 5));
    answers.extend((0..100).flat_map(|_| [ends(), with_event()]));
    let server = Server::answering(&answers);
    let mut receiver = server.start(None, Kind::Namespaced);
    assert_eq!(next(&mut receiver).await, "reconcileplugins: listed ");
    for _ in 0..10 {
        sleep(Duration::from_secs(1)).await;
        while receiver.try_recv().is_ok() {}
    }
    let requests = server.requests.lock().len();
    assert!((3..20).contains(&requests), "{requests} requests in 10 s");
}

#[tokio::test(start_paused = true)]
async fn requests_of_other_tenants_that_are_not_answered_delay_no_list() {
    for tenants in [3, 40] {
        let turns = Arc::new(Semaphore::new(4));
        let start = |server: &Server, of_tenant: &Arc<Semaphore>| {
            server.start_with(|api| ObjectWatch::new(api, Kind::Namespaced, None, 1).taking(of_tenant, &turns))
        };
        let mut silent = Vec::new();
        for _ in 0..tenants {
            let (server, of_tenant) = (Server::default(), Arc::new(Semaphore::new(1)));
            silent.extend((0..16).map(|_| start(&server, &of_tenant)));
        }
        sleep(Duration::from_secs(1)).await;
        let pages: Vec<_> = (1..=20).map(|page| list(&["a"; 10], 7, if page < 20 { "more" } else { "" })).collect();
        let server = Server::answering(&pages);
        let mut receiver = start(&server, &Arc::new(Semaphore::new(1)));
        let began = Instant::now();
        assert_eq!(next(&mut receiver).await.matches("shop/a").count(), 200);
        assert!(began.elapsed() < Duration::from_secs(5), "{tenants} tenants: {:?}", began.elapsed());
    }
}

#[test]
fn a_page_without_objects_may_have_null_in_their_place() {
    for page in [
        r#"{"metadata":{"resourceVersion":"7","continue":null},"items":null}"#,
        r#"{"metadata":{"resourceVersion":"7"}}"#,
    ] {
        let Page { metadata, items } = serde_json::from_str(page).unwrap();
        assert_eq!((&*metadata.resource_version, items.into_iter().flatten().count()), ("7", 0));
    }
}
