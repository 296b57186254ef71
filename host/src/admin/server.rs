//! [`Bound`]: a port that slow, silent or numerous clients cannot block. It uses a bounded number of file
//! descriptors, so that the watch can always connect.
//!
//! A connection serves one request. It has 5 s for the handshake of TLS, if the port has it, 5 s to send the request's
//! head, and 10 s in total until the response is read. At the limit
//! of concurrent connections the oldest one is closed in favour of the newest: a probe is answered in well under a
//! millisecond, so the oldest connection is the slow one. With a queue instead, a client that opens connections and
//! sends nothing could block the kubelet until it restarts the host.

use std::{collections::VecDeque, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Extension, Router, http::StatusCode};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout, timeout_at},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};
use tokio_util::sync::CancellationToken;

use super::{Endpoints, ListenAddress};

/// The time in which a client must send a request's head. The kubelet's probes time out after 1 s by default.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// The longest lifetime of a connection. A scrape by Prometheus times out after 10 s by default.
const DONE_WITHIN: Duration = Duration::from_secs(10);
/// The most bytes of a request's head, and of the write buffer: 16 KiB.
const BUFFER: usize = 16 << 10;
/// The pause after `accept` failed because the process had no descriptors or memory left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(250);

/// A port that is bound and not served yet.
#[must_use]
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
}

/// Binds a port; port 0 picks a free one. Returns `None` for [`ListenAddress::Off`].
///
/// # Errors
/// Returns the error of the operating system if the address cannot be bound.
pub async fn bind(address: ListenAddress) -> io::Result<Option<Bound>> {
    let listener = match address {
        ListenAddress::Off => return Ok(None),
        ListenAddress::One(address) => TcpListener::bind(address).await?,
        // The IPv6 wildcard address also accepts IPv4. Without IPv6 in the kernel the IPv4 wildcard is used.
        ListenAddress::All(port) => match TcpListener::bind(("::", port)).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(("0.0.0.0", port)).await?,
            bound => bound?,
        },
    };
    let address = listener.local_addr()?;
    Ok(Some(Bound { listener, address }))
}

impl Bound {
    /// Returns the bound address. Its port is the one that the kernel chose if port 0 was requested.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the token is cancelled, then closes the connections that are still open.
    pub async fn serve(self, endpoints: Endpoints, stop: CancellationToken) {
        let mut connections =
            Connections { most: endpoints.connections, oldest: VecDeque::new(), tasks: JoinSet::new() };
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some(_) = connections.tasks.join_next() => continue,
                accepted = self.listener.accept() => accepted,
            };
            match accepted {
                Ok((socket, peer)) => {
                    connections.make_room().await;
                    let tls = endpoints.tls.as_ref().map(|tls| tls());
                    let handle = connections.tasks.spawn(serve_one(socket, endpoints.router_for(peer), tls));
                    connections.oldest.push_back(handle);
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, address = %self.address, "accept failed");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

impl Endpoints {
    fn router_for(&self, peer: SocketAddr) -> Router {
        // A socket for both versions of IP shows an IPv4 client as an IPv6 address.
        if peer.ip().to_canonical().is_loopback() { self.local.clone() } else { self.router.clone() }
    }
}

/// The open connections of a port.
struct Connections {
    most: usize,
    oldest: VecDeque<AbortHandle>,
    tasks: JoinSet<()>,
}

impl Connections {
    /// Closes the oldest connections until one more may be served, and waits until their sockets are closed.
    async fn make_room(&mut self) {
        self.oldest.retain(|connection| !connection.is_finished());
        while self.tasks.len() >= self.most {
            if let Some(connection) = self.oldest.pop_front() {
                connection.abort();
            }
            if self.tasks.join_next().await.is_none() {
                return;
            }
        }
    }
}

async fn serve_one(socket: TcpStream, router: Router, tls: Option<Arc<ServerConfig>>) {
    let deadline = Deadline::at(Instant::now() + DONE_WITHIN);
    let router = router.layer(Extension(deadline.clone()));
    let mut serve = pin!(async {
        let Some(tls) = tls else { return answer(socket, router).await };
        // A handshake begins with a byte that no method of HTTP begins with.
        let mut first = [0];
        match timeout(HEAD_WITHIN, socket.peek(&mut first)).await {
            Ok(Ok(1..)) if first[0].is_ascii_alphabetic() => answer(socket, Router::new().fallback(over_tls)).await,
            Ok(Ok(1..)) => {
                if let Ok(Ok(stream)) = timeout(HEAD_WITHIN, TlsAcceptor::from(tls).accept(socket)).await {
                    answer(stream, router).await;
                }
            }
            _ => {}
        }
    });
    loop {
        let until = *deadline.0.lock();
        // A client that is too slow or has disconnected affects no other client.
        if timeout_at(until, &mut serve).await.is_ok() || *deadline.0.lock() == until {
            return;
        }
    }
}

/// When the connection of a request is closed.
#[derive(Debug, Clone)]
pub(super) struct Deadline(Arc<Mutex<Instant>>);

impl Deadline {
    pub(super) fn at(time: Instant) -> Self {
        Self(Arc::new(Mutex::new(time)))
    }

    /// Leaves the request at least this time, for an answer that takes long by its nature.
    pub(super) fn extend(&self, time: Duration) {
        let mut deadline = self.0.lock();
        *deadline = (*deadline).max(Instant::now() + time);
    }
}

/// Answers a request without TLS on a port with it.
async fn over_tls() -> (StatusCode, &'static str) {
    (StatusCode::BAD_REQUEST, "this port requires TLS; use https:// in the URL\n")
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .keep_alive(false)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // An error concerns this client only.
    let _ = connection.await;
}

/// Returns true if the error concerns one connection, so that `accept` can be called again at once.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::admin::{Check, Readiness, probes};

    /// Serves probes of a ready host on a free port of the loopback interface.
    async fn serving() -> (SocketAddr, JoinSet<()>) {
        let loopback = ListenAddress::One(([127, 0, 0, 1], 0).into());
        let bound = bind(loopback).await.unwrap().unwrap();
        let address = bound.address();
        let ready = Arc::new(|| Readiness { checks: vec![Check::required("watch", None)] });
        let mut tasks = JoinSet::new();
        tasks.spawn(bound.serve(probes(ready, Arc::new(|| None)), CancellationToken::new()));
        (address, tasks)
    }

    async fn half_sent(address: SocketAddr) -> TcpStream {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n").await.unwrap();
        socket
    }

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Sockets of this process that are the server's side of a connection to the port, by the kernel's table: in state
    /// ESTABLISHED or CLOSE_WAIT, and accepted, because a connection in the queue has no inode.
    fn accepted(address: SocketAddr) -> usize {
        let port = format!(":{:04X}", address.port());
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        fields
            .filter(|fields| fields[1].ends_with(&port) && ["01", "08"].contains(&fields[3]) && fields[9] != "0")
            .count()
    }

    #[tokio::test]
    async fn a_probe_is_answered_beside_1100_unfinished_requests() {
        let (address, _server) = serving().await;
        let mut slow = Vec::new();
        for number in 0..1_100 {
            slow.push(half_sent(address).await);
            if number % 100 == 99 {
                assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"), "after {number}");
                // One more is accepted before the oldest is closed.
                let held = accepted(address);
                assert!(held <= 64 + 1, "{held} connections are held");
            }
        }
        assert!(get(address, "/readyz?verbose").await.ends_with("[+]watch ok\nreadyz check passed\n"));
        // All connections except the newest were closed.
        let mut closed = 0;
        for socket in &mut slow {
            closed += usize::from(timeout(Duration::ZERO, socket.read(&mut [0])).await.is_ok());
        }
        assert!(closed >= 1_100 - 64, "{closed} were closed");
        drop(slow);
        while accepted(address) > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_connection_that_sends_no_request_is_closed_after_5_s() {
        let (address, _server) = serving().await;
        let mut socket = half_sent(address).await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        // The server must accept both before the clock advances.
        while accepted(address) < 2 {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        for socket in [&mut socket, &mut silent] {
            let closed = timeout(Duration::from_secs(6), socket.read(&mut [0])).await;
            assert!(matches!(closed, Ok(Ok(0) | Err(_))), "{closed:?}");
        }
    }

    #[tokio::test]
    async fn healthz_fails_with_the_reason_for_which_the_host_should_be_restarted() {
        let bound = bind(ListenAddress::One(([127, 0, 0, 1], 0).into())).await.unwrap().unwrap();
        let address = bound.address();
        let dead = Arc::new(|| Some("no ticks".to_owned()));
        let _server = tokio::spawn(bound.serve(probes(Arc::new(Readiness::default), dead), CancellationToken::new()));
        let answer = get(address, "/healthz").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("no ticks\n"), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_serves_one_request() {
        let (address, _server) = serving().await;
        let answer = get(address, "/readyz").await;
        assert!(answer.contains("connection: close") && answer.ends_with("ok\n"), "{answer}");
    }

    #[test]
    fn only_clients_of_the_loopback_interface_get_its_routes() {
        let route = |path: &str| Router::new().route(path, axum::routing::get(|| async {}));
        let endpoints = Endpoints { router: route("/all"), local: route("/local"), connections: 1, tls: None };
        for (peer, local) in [
            ("127.0.0.1:80", true),
            ("127.9.9.9:80", true),
            ("[::1]:80", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("10.0.0.1:80", false),
            ("[::ffff:10.0.0.1]:80", false),
            ("[fe80::1]:80", false),
        ] {
            let router = format!("{:?}", endpoints.router_for(peer.parse().unwrap()));
            assert_eq!(router.contains("/local"), local, "{peer}: {router}");
        }
    }

    #[tokio::test]
    async fn all_addresses_are_bound_for_ipv4_and_ipv6() {
        let bound = bind(ListenAddress::All(0)).await.unwrap().unwrap();
        let port = bound.address().port();
        TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        if bound.address().is_ipv6() {
            TcpStream::connect(("::1", port)).await.unwrap();
        }
        assert!(bind(ListenAddress::Off).await.unwrap().is_none());
    }
}
