//! A registry that answers whatever a test says, and records what it was asked.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// An answer, written as it is.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

#[derive(Debug, Clone)]
enum Body {
    Sized(Vec<u8>),
    /// In chunks, for as long as the client reads, or up to this number of bytes.
    Chunks(u64),
    /// The header Content-Length is the reply's own affair.
    Raw(Vec<u8>),
    /// The head, and then nothing.
    Silence,
}

impl Reply {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: Body::Sized(body.into()) }
    }

    pub(crate) fn status(status: u16) -> Self {
        Self { status, ..Self::ok("") }
    }

    pub(crate) fn endless() -> Self {
        Self { body: Body::Chunks(u64::MAX), ..Self::ok("") }
    }

    pub(crate) fn chunks(bytes: u64) -> Self {
        Self { body: Body::Chunks(bytes), ..Self::ok("") }
    }

    pub(crate) fn raw(body: impl Into<Vec<u8>>) -> Self {
        Self { body: Body::Raw(body.into()), ..Self::ok("") }
    }

    pub(crate) fn silence() -> Self {
        Self { body: Body::Silence, ..Self::ok("") }
    }

    pub(crate) fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn with_body(self, body: impl Into<Vec<u8>>) -> Self {
        Self { body: Body::Sized(body.into()), ..self }
    }

    pub(crate) fn redirect(to: impl Into<String>) -> Self {
        Self::status(307).with("Location", to)
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }
}

type Handler = dyn Fn(&Asked) -> Reply + Send + Sync;

/// Serves until it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    written: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(handler: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::new(AtomicU64::new(0));
        let handler: Arc<Handler> = Arc::new(handler);
        let task = tokio::spawn({
            let asked = asked.clone();
            let written = written.clone();
            async move {
                let mut connections = tokio::task::JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    connections.spawn(serve(stream, handler.clone(), asked.clone(), written.clone()));
                }
            }
        });
        Self { address, asked, written, task }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Returns how many bytes of bodies left this side, with what the kernel holds.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers one request. A client that hangs up is no error.
async fn serve(stream: TcpStream, handler: Arc<Handler>, asked: Arc<Mutex<Vec<Asked>>>, written: Arc<AtomicU64>) {
    let mut stream = BufReader::new(stream);
    let Some(request) = read(&mut stream).await else { return };
    let reply = handler(&request);
    asked.lock().unwrap().push(request);
    let mut head = format!("HTTP/1.1 {} x\r\nConnection: close\r\n", reply.status);
    match &reply.body {
        Body::Sized(body) => head += &format!("Content-Length: {}\r\n", body.len()),
        Body::Chunks(_) | Body::Silence => head += "Transfer-Encoding: chunked\r\n",
        Body::Raw(_) => {}
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    let _ = send(stream.get_mut(), head.as_bytes(), &reply.body, &written).await;
}

async fn send(stream: &mut TcpStream, head: &[u8], body: &Body, written: &AtomicU64) -> std::io::Result<()> {
    stream.write_all(head).await?;
    match body {
        Body::Sized(body) | Body::Raw(body) => {
            for piece in body.chunks(16 << 10) {
                stream.write_all(piece).await?;
                written.fetch_add(piece.len() as u64, Ordering::SeqCst);
            }
        }
        Body::Chunks(bytes) => {
            let piece = [0; 16 << 10];
            let mut left = *bytes;
            while left > 0 {
                let length = left.min(piece.len() as u64);
                stream.write_all(format!("{length:x}\r\n").as_bytes()).await?;
                stream.write_all(&piece[..usize::try_from(length).unwrap()]).await?;
                stream.write_all(b"\r\n").await?;
                written.fetch_add(length, Ordering::SeqCst);
                left -= length;
            }
            stream.write_all(b"0\r\n\r\n").await?;
        }
        Body::Silence => {
            // Until the client hangs up.
            stream.flush().await?;
            stream.read_u8().await?;
        }
    }
    stream.shutdown().await
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Asked> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut words = line.split_whitespace();
    let method = words.next()?.to_owned();
    let path = words.next()?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Asked { method, path, headers, body })
}
