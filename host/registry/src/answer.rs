//! One request over one connection, and its answer under bounds.
//!
//! A connection serves one request: nothing of one tenant's credentials or of one hostile answer is left for the next,
//! and a pull needs only a few.

#![expect(
    clippy::disallowed_types,
    reason = "connections to registries that the platform lists, at addresses that were checked"
)]

use std::{
    fmt::Write as _,
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1,
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    Client, Error, Proxy, Resolve,
    address::{Reach, reach},
    allowed::Endpoint,
    error::words,
    tls::advice,
};

/// The time to connect to one address and to agree on TLS.
const CONNECT: Duration = Duration::from_secs(10);
/// The time without a byte after which an answer has stalled. The deadline of the whole operation is the caller's.
const STALL: Duration = Duration::from_secs(30);
/// The bytes of a request that are sent in a second at least.
const SLOWEST: u64 = 16 << 10;
/// The most bytes of the head of an answer, and of one read.
const HEAD: usize = 64 << 10;
/// The most bytes of the head of a proxy's answer to CONNECT.
const PROXY_HEAD: usize = 8 << 10;
/// The most headers of an answer.
const HEADERS: usize = 100;
/// The most addresses of a name that are tried.
const ADDRESSES: usize = 4;
/// The most bytes of an error's text that are read.
const REFUSAL: u64 = 8 << 10;
/// The longest Retry-After that is passed on: a registry does not decide that a plugin is never loaded.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// A connection's stream, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Connection = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// The head of an answer, and the rest of it on its connection.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Whether a redirect led to it.
    pub(crate) redirected: bool,
    body: Incoming,
    connection: Option<Connection>,
}

/// Sends a request and waits for the head of its answer.
pub(crate) async fn ask(
    client: &Client,
    endpoint: &Endpoint,
    mut request: Request<Full<Bytes>>,
) -> Result<Answer, Error> {
    let proxy = client.proxies.find(endpoint.plain_http, endpoint.host.name(), endpoint.port());
    if let Some(proxy) = proxy.filter(|_| endpoint.plain_http) {
        // Without TLS the request itself is the proxy's.
        let url = format!("http://{}{}", endpoint.host, request.uri());
        *request.uri_mut() = url.parse().map_err(|_| Error::Invalid(format!("{} is not a URL", words(&url))))?;
        if let Some(authorization) = proxy.authorization()? {
            request.headers_mut().insert(header::PROXY_AUTHORIZATION, authorization);
        }
    }
    let stream = connect(&*client.resolver, endpoint, proxy).await?;
    let failed = |error: &hyper::Error| unavailable(endpoint, &chain(error));
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD).max_headers(HEADERS);
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let mut connection: Option<Connection> = Some(Box::pin(connection));
    let upload = Duration::from_secs(request.body().size_hint().lower() / SLOWEST);
    let answer = driven(&mut connection, sender.send_request(request));
    let answer = timeout(STALL + upload, answer).await.map_err(|_| unavailable(endpoint, "no answer in time"))?;
    let (head, body) = answer.map_err(|error| failed(&error))?.into_parts();
    Ok(Answer { status: head.status, headers: head.headers, redirected: false, body, connection })
}

impl Answer {
    /// Reads the body and passes it on piece by piece. Returns its length.
    ///
    /// # Errors
    /// Returns an error as soon as the answer announces or sends more than `limit` bytes, if it is compressed, and if
    /// the connection fails. The bytes that were passed on by then are worth nothing.
    pub(crate) async fn read(&mut self, limit: u64, what: &str, mut sink: impl FnMut(&[u8])) -> Result<u64, Error> {
        // Compression was not asked for, and the size of inflated bytes is announced nowhere.
        if self.headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(Error::Invalid(format!("{what} was sent with a Content-Encoding, which is not accepted")));
        }
        let too_large = || Error::TooLarge(format!("{what} is larger than {limit} bytes"));
        if self.length().is_some_and(|length| length > limit) {
            return Err(too_large());
        }
        let mut length = 0;
        loop {
            let frame = driven(&mut self.connection, self.body.frame());
            let stalled = |_| Error::Unavailable(format!("{what} stalled after {length} bytes"));
            let Some(frame) = timeout(STALL, frame).await.map_err(stalled)? else { return Ok(length) };
            let failed = |error| Error::Unavailable(format!("{what} ended after {length} bytes: {}", chain(&error)));
            if let Ok(data) = frame.map_err(failed)?.into_data() {
                length += data.len() as u64;
                if length > limit {
                    return Err(too_large());
                }
                sink(&data);
            }
        }
    }

    /// Reads the body as one piece.
    pub(crate) async fn bytes(&mut self, limit: u64, what: &str) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.read(limit, what, |piece| bytes.extend_from_slice(piece)).await?;
        Ok(bytes)
    }

    /// Returns the length that the answer announces.
    pub(crate) fn length(&self) -> Option<u64> {
        self.headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
    }

    /// Returns an error about the answer's content as it may be shown.
    pub(crate) fn shown(&self, what: &str, error: Error) -> Error {
        if self.redirected { error.concealed(what) } else { error }
    }

    /// Makes an error of an answer that is none of those that were asked for.
    pub(crate) async fn refusal(mut self, what: &str) -> Error {
        let mut message = format!("{what}: the registry answered {}", self.status);
        // An error in the text of an error is of no interest.
        if !self.redirected
            && let Ok(body) = self.bytes(REFUSAL, "the error").await
            && let Some(reason) = reason(&body)
        {
            let _ = write!(message, ": {reason}");
        }
        match self.status.as_u16() {
            401 | 403 => Error::Denied(message),
            404 => Error::NotFound(message),
            429 => Error::Busy { message, retry_after: retry_after(&self.headers) },
            503 if self.headers.contains_key(header::RETRY_AFTER) => {
                Error::Busy { message, retry_after: retry_after(&self.headers) }
            }
            408 | 500..=599 => Error::Unavailable(message),
            _ => Error::Invalid(message),
        }
    }
}

/// Returns the first error's code and message of a registry's error.
fn reason(body: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Body {
        errors: Vec<One>,
    }
    #[derive(serde::Deserialize)]
    struct One {
        #[serde(default)]
        code: String,
        #[serde(default)]
        message: String,
    }
    let body: Body = serde_json::from_slice(body).ok()?;
    let One { code, message } = body.errors.into_iter().next()?;
    Some(words(&format!("{code} {message}")))
}

/// Returns the wait that a Retry-After asks for: seconds, or a date, which is compared with the answer's own date, so
/// that no clock has to be right.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = headers.get(header::DATE)?.to_str().ok()?;
            let until = httpdate::parse_http_date(text).ok()?;
            let from = httpdate::parse_http_date(date).ok()?;
            until.duration_since(from).unwrap_or_default()
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

/// Connects to an address of the endpoint that may be used, or to its proxy. The address that was checked is the one
/// that is connected to: a second look-up may have another answer. The platform chose the proxy, so its addresses are
/// not checked; neither are those that the proxy finds for a name.
async fn connect(resolver: &dyn Resolve, endpoint: &Endpoint, proxy: Option<&Proxy>) -> Result<Box<dyn Stream>, Error> {
    let own = (endpoint.host.name(), endpoint.port());
    let (name, port) = proxy.map_or(Ok(own), Proxy::address)?;
    let addresses = match name.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => {
            let found = timeout(CONNECT, resolver.resolve(name, port)).await;
            let found = found.map_err(|_| unavailable(endpoint, &format!("{name} was not resolved in time")))?;
            found.map_err(|error| unavailable(endpoint, &format!("{name} was not resolved: {error}")))?
        }
    };
    let may_use = |address: &SocketAddr| match reach(address.ip()) {
        Reach::Public => true,
        Reach::Private => endpoint.private_addresses,
        Reach::Never => false,
    };
    // A host that is written as an address is not resolved.
    let literal = own.0.parse().ok().map(|address| SocketAddr::new(address, own.1));
    let checked = if proxy.is_some() { literal.as_slice() } else { &addresses[..] };
    let refused = checked.first().copied().filter(|_| !checked.iter().any(may_use));
    let usable = addresses.iter().copied().filter(|address| proxy.is_some() || may_use(address));
    let usable: Vec<_> = usable.take(ADDRESSES).collect();
    if let Some(refused) = refused {
        return Err(Error::Forbidden(format!(
            "{}: its address {} is private or reserved, and it is not listed with private addresses",
            endpoint.host,
            refused.ip()
        )));
    }
    if usable.is_empty() {
        return Err(unavailable(endpoint, &format!("{name} has no address")));
    }
    let mut last = String::new();
    for address in usable {
        match timeout(CONNECT, open(endpoint, address, proxy)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = chain(&error),
            Err(_) => last = "it did not answer in time".to_owned(),
        }
    }
    Err(unavailable(endpoint, &proxy.map_or(last.clone(), |proxy| format!("through {proxy}: {last}"))))
}

async fn open(endpoint: &Endpoint, address: SocketAddr, proxy: Option<&Proxy>) -> io::Result<Box<dyn Stream>> {
    let mut tcp = TcpStream::connect(address).await?;
    tcp.set_nodelay(true)?;
    if let Some(proxy) = proxy.filter(|_| !endpoint.plain_http) {
        tunnel(&mut tcp, endpoint, proxy).await?;
    }
    if endpoint.plain_http {
        return Ok(Box::new(tcp));
    }
    let name = ServerName::try_from(endpoint.host.name().to_owned()).map_err(io::Error::other)?;
    Ok(Box::new(TlsConnector::from(endpoint.tls.clone()).connect(name, tcp).await?))
}

/// Has a proxy connect to the endpoint: the bytes after its answer are the endpoint's.
async fn tunnel(proxied: &mut TcpStream, endpoint: &Endpoint, proxy: &Proxy) -> io::Result<()> {
    let name = endpoint.host.name();
    let name = if name.contains(':') { format!("[{name}]") } else { name.to_owned() };
    let mut head = format!("CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n", port = endpoint.port());
    if let Some(authorization) = proxy.authorization().map_err(io::Error::other)? {
        let _ = write!(head, "Proxy-Authorization: {}\r\n", authorization.to_str().unwrap_or_default());
    }
    proxied.write_all(format!("{head}\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == PROXY_HEAD {
            return Err(io::Error::other("the proxy's answer is too long"));
        }
        answer.push(proxied.read_u8().await?);
    }
    let answer = String::from_utf8_lossy(&answer);
    let line = answer.lines().next().unwrap_or_default();
    match line.split(' ').nth(1) {
        Some(code) if code.starts_with('2') => Ok(()),
        _ => Err(io::Error::other(format!("the proxy answered {}", words(line)))),
    }
}

fn unavailable(endpoint: &Endpoint, why: &str) -> Error {
    Error::Unavailable(format!("{}://{}: {}{}", endpoint.scheme(), endpoint.host, words(why), advice(why)))
}

/// An error with its causes. Those of TLS are in the causes only.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            let _ = write!(text, ": {cause_text}");
        }
        source = cause.source();
    }
    words(&text)
}

/// Waits for a future that needs its connection to make progress. The connection has no task of its own.
async fn driven<T>(connection: &mut Option<Connection>, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| {
        if let Some(open) = connection
            && open.as_mut().poll(context).is_ready()
        {
            *connection = None;
        }
        future.as_mut().poll(context)
    })
    .await
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn wait(after: &'static str, date: Option<&'static str>) -> Option<Duration> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static(after));
        headers.extend(date.map(|date| (header::DATE, HeaderValue::from_static(date))));
        retry_after(&headers)
    }

    #[test]
    fn a_retry_after_is_seconds_or_a_date_and_is_bounded() {
        const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(wait("7", None), Some(Duration::from_secs(7)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:07 GMT", Some(DATE)), Some(Duration::from_secs(30)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:40:07 GMT", Some(DATE)), Some(Duration::ZERO));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:07 GMT", None), None);
        assert_eq!(wait("99999999999", None), Some(LONGEST_WAIT));
        assert_eq!(wait("soon", Some(DATE)), None);
    }

    #[test]
    fn the_reason_of_a_registry_is_escaped_and_bounded() {
        let body =
            format!(r#"{{"errors":[{{"code":"TOOMANYREQUESTS","message":"a\n\u001b[2J{}"}}]}}"#, "x".repeat(5_000));
        let reason = reason(body.as_bytes()).unwrap();
        assert!(reason.starts_with("TOOMANYREQUESTS a") && reason.len() <= 300, "{reason}");
        assert!(!reason.contains(['\n', '\u{1b}']), "{reason}");
        assert_eq!(super::reason(b"<html>"), None);
        assert_eq!(super::reason(br#"{"errors":[]}"#), None);
    }
}
