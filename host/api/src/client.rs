//! The client of the API server: how it connects, and how it detects a lost peer.
//!
//! The client never retries and has no read timeout, because a watch is silent while nothing changes. TCP detects a
//! lost peer, by keepalive probes and by unacknowledged bytes.

#![expect(clippy::disallowed_types, reason = "connections to the API server, whose address comes from the application")]

use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use http::{Request, Uri};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::client::{Body, ClientBuilder, ConfigExt};
use tokio::time::timeout;
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn, util::MapRequestLayer};

use super::identity::AccountHeaders;

/// Timeout of a connection attempt. It is shorter than any deadline of the host, so that an unreachable peer is
/// reported as such and not as a timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Pause between parallel connection attempts. TCP repeats a lost SYN packet only after 1, 3 and 7 s, so a recovered
/// network would be noticed that late.
const ASK_AGAIN: Duration = Duration::from_millis(300);

/// Interval of TCP keepalive probes on an idle connection.
const PROBE: Duration = Duration::from_secs(1);
/// Time without an acknowledgement after which a peer is lost. Together with the probes a loss is detected 3 s after
/// the last packet, which leaves one second to reconnect before readers are marked stale, and another within the
/// promised 5 s.
const PEER_TIMEOUT: Duration = Duration::from_millis(2_500);
/// Idle time after which a pooled connection is closed, before a load balancer drops it.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A request extension: the request uses a new connection. After one connection was lost silently, the other pooled
/// ones are lost too, and each takes time to be detected.
#[derive(Debug, Clone, Copy)]
pub struct NewConnection;

/// Returns a client that never retries. By default kube's also repeats POSTs, for up to 1,000 s.
///
/// A request without a User-Agent gets the host's. A request without impersonation gets the user and the groups that
/// the configuration impersonates; a request with impersonation is sent as it is.
///
/// # Errors
/// Returns an error if the configuration has no usable certificates, credentials or proxy.
pub fn client(mut config: kube::Config) -> Result<kube::Client, Box<kube::Error>> {
    let identity = AccountHeaders::take(&mut config)?;
    let complete = MapRequestLayer::new(move |request: Request<Body>| identity.complete(request));
    if config.proxy_url.is_some() {
        // kube connects through a proxy over HTTP, HTTPS or SOCKS5.
        config.default_retry = false;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = None;
        return Ok(ClientBuilder::try_from(config)?.with_layer(&complete).build());
    }
    let tcp = connector();
    let persistent = service_fn(move |uri| connected(tcp.clone(), uri));
    let https = config.rustls_https_connector_with_connector(persistent)?;
    let connect = https.map_future(|connected| {
        Box::pin(async move { timeout(CONNECT_TIMEOUT, connected).await.unwrap_or_else(|late| Err(late.into())) })
    });
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.pool_timer(TokioTimer::new()).pool_idle_timeout(POOL_IDLE_TIMEOUT);
    let pool = builder.build::<_, Body>(connect.clone());
    let without_pool = builder.pool_max_idle_per_host(0).build::<_, Body>(connect);
    let send = service_fn(move |request: Request<Body>| {
        let new_connection = request.extensions().get::<NewConnection>().is_some();
        if new_connection { without_pool.request(request) } else { pool.request(request) }
    });
    let service = ServiceBuilder::new()
        .layer(complete)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(send);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_keepalive(Some(PROBE));
    connector.set_keepalive_interval(Some(PROBE));
    connector.set_keepalive_retries(Some(2));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(PEER_TIMEOUT));
    connector
}

/// Returns the first connection that is established. An attempt that is refused is not repeated. The caller sets the
/// timeout.
async fn connected<C: Service<Uri>>(mut tcp: C, uri: Uri) -> Result<C::Response, C::Error> {
    let mut attempts = FuturesUnordered::new();
    loop {
        let attempt = tcp.ready().await?.call(uri.clone());
        attempts.push(attempt);
        if let Ok(Some(connected)) = timeout(ASK_AGAIN, attempts.next()).await {
            return connected;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    };

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::Instant,
    };

    use super::*;
    use crate::{Api, ApiError};

    fn get() -> Request<Vec<u8>> {
        Request::get("/api/v1/pods").body(Vec::new()).unwrap()
    }

    #[tokio::test]
    async fn a_refused_connection_means_not_sent_and_a_cut_one_sent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let api = Api::new(client(kube::Config::new(uri)).unwrap(), Duration::from_secs(5));
        let cut = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = [0; 16];
            socket.read_exact(&mut head).await.unwrap();
        });
        let error = api.bytes(get()).await.unwrap_err();
        assert!(matches!(error, ApiError::Transport { sent: true, .. }), "{error:?}");
        cut.await.unwrap();
        let error = api.bytes(get()).await.unwrap_err();
        assert!(matches!(error, ApiError::Transport { sent: false, .. }), "{error:?}");
        assert!(error.to_string().contains("refused"), "{error}");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_that_is_silent_is_probed_every_second() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let uri = format!("http://{address}").parse().unwrap();
        let api = Api::new(client(kube::Config::new(uri)).unwrap(), Duration::from_secs(60));
        let silent = tokio::spawn(async move { api.bytes(get()).await });
        let (_held, peer) = listener.accept().await.unwrap();
        // The kernel's table has addresses in hexadecimal, and 02 with hundredths of a second if a keepalive is due.
        let peer = format!(":{:04X}", peer.port());
        let port = format!(":{:04X}", address.port());
        let timer = || {
            let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
            let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let mut ours = fields.filter(|fields| fields[1].ends_with(&peer) && fields[2].ends_with(&port));
            ours.next().map(|fields| fields[5].to_owned()).unwrap_or_default()
        };
        let hundredths = timeout(Duration::from_secs(10), async {
            loop {
                if let Some(due) = timer().strip_prefix("02:") {
                    return u32::from_str_radix(due, 16).unwrap();
                }
                tokio::task::yield_now().await;
            }
        });
        let due = hundredths.await.expect("no keepalive");
        assert!(due <= 100 * u32::try_from(PROBE.as_secs()).unwrap(), "{due}");
        silent.abort();
    }

    #[tokio::test]
    async fn only_requests_that_ask_for_a_new_connection_have_one() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let api = Api::new(client(kube::Config::new(uri)).unwrap(), Duration::from_secs(5));
        let accepted = Arc::new(AtomicU32::new(0));
        let counter = accepted.clone();
        let server = tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                counter.fetch_add(1, Relaxed);
                tokio::spawn(async move {
                    let mut request = [0; 1024];
                    while socket.read(&mut request).await.is_ok_and(|read| read > 0) {
                        socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
                    }
                });
            }
        });
        let mut new_connection = get();
        new_connection.extensions_mut().insert(NewConnection);
        for (request, connections) in
            [(get(), 1), (get(), 1), (new_connection.clone(), 2), (get(), 2), (new_connection, 3)]
        {
            assert_eq!(api.bytes(request).await.unwrap(), "{}");
            assert_eq!(accepted.load(Relaxed), connections);
        }
        server.abort();
    }

    /// Returns the head of the request that the API server receives, line by line in lower case.
    async fn head(config: impl FnOnce(&mut kube::Config), request: Request<Vec<u8>>) -> Vec<String> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let mut of_kubeconfig = kube::Config::new(uri);
        config(&mut of_kubeconfig);
        let api = Api::new(client(of_kubeconfig).unwrap(), Duration::from_secs(30));
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(socket.read_u8().await.unwrap());
            }
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.unwrap();
            String::from_utf8(head).unwrap().to_lowercase()
        });
        api.bytes(request).await.unwrap();
        server.await.unwrap().lines().map(str::to_owned).collect()
    }

    fn impersonating(config: &mut kube::Config) {
        config.auth_info.impersonate = Some("admin@example.com".to_owned());
        config.auth_info.impersonate_uid = Some("7".to_owned());
        config.auth_info.impersonate_groups = Some(vec!["system:masters".to_owned(), "ops".to_owned()]);
        config.auth_info.impersonate_user_extra = Some([("scopes".to_owned(), vec!["all".to_owned()])].into());
    }

    fn values(head: &[String], name: &str) -> Vec<String> {
        head.iter().filter(|line| line.starts_with(name)).cloned().collect()
    }

    #[tokio::test]
    async fn a_request_goes_through_the_proxy_of_the_kubeconfig() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut config = kube::Config::new(Uri::from_static("http://kubernetes.example:6443"));
        config.proxy_url = Some(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
        let api = Api::new(client(config).unwrap(), Duration::from_secs(30));
        let proxy = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut heads = Vec::new();
            for answer in ["HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"] {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(socket.read_u8().await.unwrap());
                }
                socket.write_all(answer.as_bytes()).await.unwrap();
                heads.push(String::from_utf8(head).unwrap().lines().next().unwrap_or_default().to_owned());
            }
            heads
        });
        assert_eq!(api.bytes(get()).await.unwrap(), "{}");
        assert_eq!(proxy.await.unwrap(), ["CONNECT kubernetes.example:6443 HTTP/1.1", "GET /api/v1/pods HTTP/1.1"]);
    }

    #[tokio::test]
    async fn a_plugins_requests_drop_the_kubeconfigs_impersonation() {
        let mut request = get();
        request.headers_mut().insert("impersonate-user", "system:serviceaccount:shop:a".parse().unwrap());
        let sent = head(impersonating, request).await;
        assert_eq!(values(&sent, "impersonate"), ["impersonate-user: system:serviceaccount:shop:a"], "{sent:?}");
    }

    #[tokio::test]
    async fn the_hosts_requests_have_the_kubeconfigs_impersonation() {
        let sent = head(impersonating, get()).await;
        let expected = [
            "impersonate-user: admin@example.com",
            "impersonate-uid: 7",
            "impersonate-group: system:masters",
            "impersonate-group: ops",
            "impersonate-extra-scopes: all",
        ];
        assert_eq!(values(&sent, "impersonate"), expected, "{sent:?}");
        assert_eq!(values(&head(|_| {}, get()).await, "impersonate"), [""; 0]);
    }

    #[tokio::test]
    async fn every_request_has_one_user_agent_the_hosts_or_its_own() {
        let agent = |text: String| vec![format!("user-agent: {}", text.to_lowercase())];
        assert_eq!(values(&head(|_| {}, get()).await, "user-agent"), agent(crate::user_agent()));
        let mut request = get();
        let of_plugin = crate::plugin_user_agent("shop/hello");
        request.headers_mut().insert(http::header::USER_AGENT, of_plugin.parse().unwrap());
        assert_eq!(values(&head(impersonating, request).await, "user-agent"), agent(of_plugin));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_retried_until_it_succeeds_or_is_refused() {
        let asked = AtomicU32::new(0);
        // The first two attempts are lost.
        let tcp = service_fn(async |_: Uri| match asked.fetch_add(1, Relaxed) {
            0 | 1 => std::future::pending().await,
            third => Ok::<_, String>(third),
        });
        let began = Instant::now();
        assert_eq!(connected(tcp, Uri::from_static("http://127.0.0.1")).await, Ok(2));
        assert_eq!(began.elapsed(), 2 * ASK_AGAIN);

        let refused = service_fn(async |_: Uri| Err::<(), _>("refused"));
        assert_eq!(connected(refused, Uri::from_static("http://127.0.0.1")).await, Err("refused"));
        assert_eq!(began.elapsed(), 2 * ASK_AGAIN);
    }
}
