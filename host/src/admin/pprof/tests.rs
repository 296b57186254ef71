use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use axum::{body::Body, http::Request};
use futures::FutureExt;
use http_body_util::BodyExt;
use prost::Message;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::*;
use crate::admin::{Endpoints, ListenAddress, bind};

/// Profiles without samples, of one plugin.
#[derive(Default)]
struct Empty {
    /// A profile of the process.
    began: AtomicBool,
    /// A profile that ended, by itself or because it was dropped.
    ended: AtomicBool,
}

struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

impl Profiles for Empty {
    fn process(&self, time: Duration) -> BoxFuture<'_, Result<Profile, Unprofiled>> {
        Box::pin(async move {
            self.began.store(true, SeqCst);
            let _ended = Ended(&self.ended);
            tokio::time::sleep(time).await;
            Ok(Profile { samples: Samples::default(), every: Duration::from_millis(10), took: time })
        })
    }

    fn guests(&self, plugin: String, time: Duration) -> BoxFuture<'_, Result<Profile, Unprofiled>> {
        Box::pin(
            async move { if plugin == "shop/hello" { self.process(time).await } else { Err(Unprofiled::NoPlugin) } },
        )
    }
}

async fn answer(router: Router, path: &str) -> (StatusCode, Option<String>, Vec<u8>) {
    let deadline = Deadline::at(Instant::now());
    let router = router.layer(Extension(deadline));
    let answer = router.oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
    let samples = answer.headers().get(SAMPLES_HEADER).map(|samples| samples.to_str().unwrap().to_owned());
    (answer.status(), samples, answer.into_body().collect().await.unwrap().to_bytes().into())
}

#[tokio::test(start_paused = true)]
async fn bad_requests_are_refused_in_a_sentence() {
    let router = routes(Arc::<Empty>::default());
    let long = format!("guest?plugin=shop%2F{}", "x".repeat(3_000));
    for (path, status, sentence) in [
        ("profile?seconds=0", 400, BAD_SECONDS),
        ("profile?seconds=121", 400, BAD_SECONDS),
        ("profile?seconds=-1", 400, BAD_SECONDS),
        ("profile?seconds=1.5", 400, BAD_SECONDS),
        ("profile?seconds=", 400, BAD_SECONDS),
        ("profile?seconds=1&seconds=2", 400, BAD_PARAMETER),
        ("profile?second=1", 400, BAD_PARAMETER),
        ("profile?plugin=shop/hello", 400, BAD_PARAMETER),
        ("guest?seconds=1", 400, UNNAMED),
        ("guest?plugin=%ff", 400, UNNAMED),
        ("guest?plugin=shop/x%1b&seconds=1", 404, "no plugin shop/x\\u001b is configured\n"),
        ("heap", 501, NO_HEAP),
        ("", 200, INDEX),
    ] {
        let (code, samples, body) = answer(router.clone(), &format!("/debug/pprof/{path}")).await;
        assert_eq!((code.as_u16(), samples, std::str::from_utf8(&body).unwrap()), (status, None, sentence), "{path}");
    }
    let (code, _, body) = answer(router, &format!("/debug/pprof/{long}")).await;
    assert!(code == StatusCode::NOT_FOUND && body.len() < 2_500, "{}", body.len());
}

#[tokio::test(start_paused = true)]
async fn a_profile_of_nothing_is_empty_and_says_so() {
    let router = routes(Arc::<Empty>::default());
    for (path, seconds, comment) in [
        ("profile", 30, "the process: no samples, because nothing of it ran"),
        ("guest?plugin=shop/hello&seconds=120", 120, "plugin shop/hello: no samples, because nothing of it ran"),
    ] {
        let (status, samples, body) = answer(router.clone(), &format!("/debug/pprof/{path}")).await;
        assert_eq!((status, samples.as_deref()), (StatusCode::OK, Some("0")));
        let profile = encoding::Encoded::decode(&*body).unwrap();
        assert_eq!((profile.sample.len(), profile.duration_nanos), (0, seconds * 1_000_000_000));
        assert_eq!(profile.string_table[usize::try_from(profile.comment[0]).unwrap()], comment);
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_profile_waits_for_no_first_one() {
    let profiles = Arc::<Empty>::default();
    let router = routes(profiles.clone());
    let mut first = Box::pin(answer(router.clone(), "/debug/pprof/profile"));
    assert!(first.as_mut().now_or_never().is_none());
    let (status, _, body) = answer(router.clone(), "/debug/pprof/guest?plugin=shop/hello").await;
    assert_eq!((status, &*body), (StatusCode::CONFLICT, BUSY.as_bytes()));
    drop(first);
    assert!(profiles.ended.load(SeqCst));
    assert_eq!(answer(router, "/debug/pprof/guest?plugin=shop/hello").await.0, StatusCode::OK);
}

#[test]
fn names_are_demangled_and_escaped() {
    let mut samples = Samples::default();
    samples.add(["_ZN3foo3bar17h05af221e174051e9E", "a\u{1b}b"].into_iter(), 3);
    let profile = Profile { samples, every: Duration::from_millis(10), took: Duration::from_secs(1) };
    let encoded = encoding::Encoded::decode(&*encoding::encoded(&profile, "c".to_owned())).unwrap();
    let name = |id: &u64| {
        let function = encoded.function.iter().find(|function| function.id == *id).unwrap();
        &*encoded.string_table[usize::try_from(function.name).unwrap()]
    };
    assert_eq!(encoded.sample[0].location_id.iter().map(name).collect::<Vec<_>>(), ["foo::bar", "a\\u001bb"]);
    assert_eq!(encoded.sample[0].value, [3, 30_000_000]);
}

/// Serves profiles, and returns a connection that has asked for one of 100 s, which has begun.
async fn asked(profiles: &Arc<Empty>) -> (TcpStream, JoinSet<()>) {
    let bound = bind(ListenAddress::One(([127, 0, 0, 1], 0).into())).await.unwrap().unwrap();
    let mut socket = TcpStream::connect(bound.address()).await.unwrap();
    let router = routes(profiles.clone());
    let endpoints = Endpoints { local: router.clone(), router, connections: 16, tls: None };
    let mut server = JoinSet::new();
    server.spawn(bound.serve(endpoints, CancellationToken::new()));
    socket.write_all(b"GET /debug/pprof/profile?seconds=100 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    while !profiles.began.load(SeqCst) {
        tokio::task::yield_now().await;
    }
    (socket, server)
}

#[tokio::test]
async fn a_connection_lives_as_long_as_its_profile() {
    let profiles = Arc::<Empty>::default();
    let (mut socket, _server) = asked(&profiles).await;
    tokio::time::pause();
    let began = Instant::now();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(began.elapsed().as_secs(), 100);
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_profile() {
    let profiles = Arc::<Empty>::default();
    let (socket, _server) = asked(&profiles).await;
    drop(socket);
    while !profiles.ended.load(SeqCst) {
        tokio::task::yield_now().await;
    }
}
