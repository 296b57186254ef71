//! The requests for Leases, on a connection of their own. Replicas that share the shards read all Leases with one list.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::{Method, Request, header};
use podium_api::{Api, ApiError, Connection};
use podium_engine::intervals::Intervals;
use podium_lease::{Answer, Call, Input, Lease, Mode, Place, Record, Sharing};
use podium_vocabulary::text;
use podium_wire::Timestamp;
use serde::Deserialize;
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

use super::{Leadership, NAME};

/// A Lease, and the number of a request for it.
type Asked = (usize, u64);

/// Answers to one request of this client.
struct Ended {
    asked: Vec<Asked>,
    /// By Lease.
    answers: Result<BTreeMap<usize, Answer>, ApiError>,
    is_read: bool,
}

/// The requests under way, and the reads that wait for a list.
pub(super) struct Requests {
    connection: Connection,
    place: Place,
    duration: Duration,
    mode: Mode,
    under_way: JoinSet<Ended>,
    waiting: Vec<Asked>,
    is_reading: bool,
    /// When the latest read began.
    read: Option<Instant>,
    failures: Intervals,
}

impl Requests {
    pub(super) fn new(connection: Connection, place: Place, duration: Duration, mode: Mode) -> Self {
        let (under_way, waiting) = <_>::default();
        let failures = Intervals::new();
        Self { connection, place, duration, mode, under_way, waiting, is_reading: false, read: None, failures }
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the time until reads that wait are due.
    pub(super) fn due(&self) -> Duration {
        if self.waiting.is_empty() || self.is_reading {
            return Duration::MAX;
        }
        // Reads of many Leases wait for each other.
        let pause = if self.mode == Mode::All { self.duration / 32 } else { Duration::ZERO };
        self.read.map_or(Duration::ZERO, |read| pause.saturating_sub(read.elapsed()))
    }

    /// Waits for answers; `None` if nothing is under way.
    pub(super) async fn next(&mut self, leadership: &Leadership) -> Option<anyhow::Result<Vec<(usize, Input)>>> {
        let Ended { asked, answers, is_read } = match self.under_way.join_next().await? {
            Ok(ended) => ended,
            Err(error) => return Some(Err(error.into())),
        };
        self.is_reading &= !is_read;
        let mut answers = answers.unwrap_or_else(|error| {
            let error = text::line(&error.to_string());
            if let Some(count) = self.failures.occurred(Instant::now()) {
                tracing::warn!(namespace = self.place.namespace, lease = NAME, error, count, "request failed");
            }
            leadership.inner.lock().failure = Some(error);
            BTreeMap::new()
        });
        let input = |(index, request): Asked| {
            let answer = answers.remove(&index).unwrap_or(Answer::Failed);
            (index, Input::Answer { request, answer })
        };
        Some(Ok(asked.into_iter().map(input).collect()))
    }

    /// Has a Lease read soon.
    pub(super) fn wants(&mut self, index: usize, request: u64) {
        self.waiting.push((index, request));
    }

    /// Begins the reads that wait, if they are due.
    pub(super) fn begin_reads(&mut self) {
        if self.due() > Duration::ZERO {
            return;
        }
        self.is_reading = true;
        self.read = Some(Instant::now());
        let asked = std::mem::take(&mut self.waiting);
        let (api, within) = self.api(self.duration / 4);
        let mode = self.mode;
        let path = match mode {
            Mode::One => format!("{}/{NAME}", self.path()),
            // By no label: one that was changed would hide a Lease that exists.
            Mode::All => self.path(),
        };
        let installation = self.place.installation.clone();
        self.under_way.spawn(async move {
            let answers = match get(&api, path, within).await {
                Err(error) if error.code() == Some(404) => Ok(Vec::new()),
                answer => answer.and_then(|answer| leases(&answer, mode)),
            };
            let answers = answers.map(|leases| {
                let answer = |(index, _): &Asked| {
                    let lease = leases.iter().find(|lease| lease.name() == Sharing::name(NAME, *index));
                    let found = lease.map(|lease| (lease.revision().to_owned(), lease.record(&installation)));
                    (*index, Answer::Read(found))
                };
                asked.iter().map(answer).collect()
            });
            Ended { asked, answers, is_read: true }
        });
    }

    /// Sends a write. `now_millis` is the time of day, for people.
    pub(super) fn send(&mut self, index: usize, request: u64, call: &Call, within: Duration, now_millis: u64) {
        let place = Place { name: Sharing::name(NAME, index), ..self.place.clone() };
        let seconds = i64::try_from(now_millis / 1_000 * 1_000).unwrap_or(i64::MAX);
        let time = format!("{}.000000Z", Timestamp(seconds).to_string().trim_end_matches('Z'));
        let lease = |record: &Record, revision| serde_json::to_vec(&Lease::new(record, &place, revision, time));
        let (method, path, body) = match call {
            Call::Read => return self.wants(index, request),
            Call::Create(record) => (Method::POST, self.path(), lease(record, None)),
            Call::Update { revision, record } => {
                (Method::PUT, format!("{}/{}", self.path(), place.name), lease(record, Some(revision.as_str())))
            }
        };
        let is_new = matches!(call, Call::Create(_));
        let (api, within) = self.api(within);
        self.under_way.spawn(async move {
            let answer = write(&api, (method, path, body), within, is_new.then_some(&*place.namespace)).await;
            let answers = answer.map(|answer| BTreeMap::from([(index, answer)]));
            Ended { asked: vec![(index, request)], answers, is_read: false }
        });
    }

    fn api(&self, within: Duration) -> (Api, Duration) {
        (Api::new(self.connection.clone(), within), within)
    }

    fn path(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.place.namespace)
    }
}

fn unusable(error: impl ToString) -> ApiError {
    ApiError::Transport { sent: false, message: error.to_string() }
}

/// Sends a request. A renewal of the credentials takes longer than the deadline of the request.
async fn bytes(api: &Api, request: Request<Vec<u8>>, within: Duration) -> Result<Bytes, ApiError> {
    timeout(within, api.bytes(request)).await.unwrap_or(Err(ApiError::Timeout(within)))
}

async fn get(api: &Api, path: String, within: Duration) -> Result<Bytes, ApiError> {
    bytes(api, Request::get(path).body(Vec::new()).map_err(unusable)?, within).await
}

fn parsed<T: for<'a> Deserialize<'a>>(answer: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(answer).map_err(|error| ApiError::Malformed(text::line(&error.to_string())))
}

/// Returns the Leases of an answer to a read.
fn leases(answer: &[u8], mode: Mode) -> Result<Vec<Lease>, ApiError> {
    #[derive(Deserialize)]
    struct List {
        items: Vec<Lease>,
    }
    match mode {
        Mode::One => parsed(answer).map(|lease| vec![lease]),
        Mode::All => parsed(answer).map(|List { items }| items),
    }
}

/// Sends a write. With `namespace` it creates the Lease in this one.
async fn write(
    api: &Api,
    (method, path, body): (Method, String, serde_json::Result<Vec<u8>>),
    within: Duration,
    namespace: Option<&str>,
) -> Result<Answer, ApiError> {
    let body = body.map_err(unusable)?;
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    match bytes(api, request.body(body).map_err(unusable)?, within).await {
        Err(error) if error.code() == Some(404) && namespace.is_some() => {
            Err(unusable(format!("create the namespace {}: {error}", namespace.unwrap_or_default())))
        }
        Err(error) if matches!(error.code(), Some(404 | 409)) => Ok(Answer::Conflict),
        answer => Ok(Answer::Written(parsed::<Lease>(&answer?)?.revision().to_owned())),
    }
}
