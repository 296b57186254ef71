//! [`Exporter`]: sends the traces of an [`Outbox`] to a collector, a few in each request. A collector that does not
//! answer, or answers anything, costs the traces of its request and nothing else: a request is not repeated.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, future::BoxFuture};
use http::{HeaderMap, HeaderValue, Request, header::CONTENT_TYPE};
use opentelemetry_proto::tonic::{
    collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
    common::v1::InstrumentationScope,
    resource::v1::Resource,
    trace::v1::{ResourceSpans, ScopeSpans, Span},
};
use podium_api::Api;
use podium_engine::{clock::Clock, intervals::Intervals};
use podium_vocabulary::text;
use prost::Message;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{
    Outbox,
    spans::{self, Now, attribute},
};
use crate::telemetry::VERSION;

/// The deadline of one request, with its whole answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The same at the end of the process.
const LAST: Duration = Duration::from_millis(500);
/// The most bytes of an answer, which says how many spans were rejected.
const ANSWER: usize = 64 << 10;
/// The most bytes of a collector's message in a log line.
const MESSAGE: usize = 512;

/// Returns the headers of a request. It may read them from a file.
pub type Headers = Box<dyn Fn() -> BoxFuture<'static, Result<HeaderMap, String>> + Send + Sync>;

/// Sends traces to one collector.
pub struct Exporter {
    api: Api,
    path: String,
    headers: Headers,
    resource: Resource,
}

impl Exporter {
    /// Returns an exporter that sends to this path of the server of `client`. `resource` names the host.
    #[must_use]
    pub fn new(
        client: kube::Client,
        path: String,
        headers: Headers,
        resource: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let attributes = resource.into_iter().map(|(key, value)| attribute(&key, spans::text(value))).collect();
        let resource = Resource { attributes, ..Resource::default() };
        Self { api: Api::new(client, TIMEOUT), path, headers, resource }
    }

    /// Sends the records of the outbox until `stop`, and then once more.
    pub async fn run(self, outbox: Arc<Outbox>, clock: Clock, stop: CancellationToken) {
        let mut failures = Intervals::new();
        let mut last = Instant::now();
        loop {
            let stopped = stop.run_until_cancelled(outbox.due(last)).await.is_none();
            last = Instant::now();
            let records = outbox.take();
            let now = Now { instant: last, epoch_millis: clock.now_millis() };
            let spans: Vec<_> = records.iter().flat_map(|record| spans::spans(record, now)).collect();
            if !spans.is_empty() {
                let late = async {
                    stop.run_until_cancelled(sleep(TIMEOUT)).await;
                    if stop.is_cancelled() {
                        sleep(LAST).await;
                    }
                };
                let sent = tokio::select! {
                    sent = self.send(spans) => sent,
                    () = late => Err(format!("no answer within {} s", last.elapsed().as_secs_f32())),
                };
                outbox.sent(records.len(), sent.is_ok());
                if let Err(error) = sent
                    && let Some(count) = failures.occurred(Instant::now())
                {
                    let error = text::bounded(&error, MESSAGE);
                    tracing::warn!(error, count, "traces not exported; they are dropped");
                }
            }
            if stopped {
                return;
            }
        }
    }

    async fn send(&self, spans: Vec<Span>) -> Result<(), String> {
        let scope = InstrumentationScope {
            name: "podium-host".to_owned(),
            version: VERSION.to_owned(),
            ..InstrumentationScope::default()
        };
        let scope_spans = vec![ScopeSpans { scope: Some(scope), spans, ..ScopeSpans::default() }];
        let resource = Some(self.resource.clone());
        let body = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { resource, scope_spans, ..ResourceSpans::default() }],
        };
        let mut request = Request::post(&self.path).body(body.encode_to_vec()).map_err(|error| error.to_string())?;
        *request.headers_mut() = (self.headers)().await?;
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let mut chunks = self.api.stream(request).await.map_err(|error| error.to_string())?;
        let mut answer = Vec::new();
        while let Some(chunk) = chunks.next().await {
            answer.extend(chunk.map_err(|error| error.to_string())?);
            if answer.len() > ANSWER {
                return Err(format!("an answer of more than {ANSWER} bytes"));
            }
        }
        let rejected = ExportTraceServiceResponse::decode(&*answer).ok().and_then(|answer| answer.partial_success);
        match rejected {
            Some(rejected) if rejected.rejected_spans > 0 => {
                Err(format!("{} spans were rejected: {}", rejected.rejected_spans, rejected.error_message))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::FutureExt;
    use http::Response;
    use kube::client::Body;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;
    use podium_engine::dispatch::RunRecord;
    use tower::service_fn;

    use super::{
        super::{TraceFigures, record},
        *,
    };

    /// Runs an exporter whose collector answers with `answer`, with one record in its outbox, until it was counted.
    /// Returns the counts, and the time that this took.
    async fn exported<A>(answer: impl Fn() -> A + Send + Sync + 'static) -> (TraceFigures, Duration)
    where
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        let outbox = Arc::<Outbox>::default();
        outbox.keep(Arc::new(record()));
        let began = Instant::now();
        let exporting = tokio::spawn(exporter(answer).run(outbox.clone(), clock(), CancellationToken::new()));
        while outbox.figures() == TraceFigures::default() {
            sleep(Duration::from_millis(100)).await;
        }
        exporting.abort();
        (outbox.figures(), began.elapsed())
    }

    fn clock() -> Clock {
        Clock::starting_at(1_000_000)
    }

    fn exporter<A>(answer: impl Fn() -> A + Send + Sync + 'static) -> Exporter
    where
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        let answer = Arc::new(answer);
        let client = service_fn(move |_: Request<Body>| answer().map(Ok::<_, Infallible>));
        let headers = || std::future::ready(Ok(HeaderMap::new())).boxed();
        Exporter::new(kube::Client::new(client, "default"), "/v1/traces".to_owned(), Box::new(headers), [])
    }

    fn answered(status: u16, body: Vec<u8>) -> Response<Body> {
        Response::builder().status(status).body(Body::from(body)).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_collector_answers_is_counted() {
        let accepted = TraceFigures { exported: 1, ..TraceFigures::default() };
        let failed = TraceFigures { export_failed: 1, ..TraceFigures::default() };
        let rejected = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess { rejected_spans: 1, error_message: "too old".into() }),
        };
        for (status, body, expected) in [
            (200, Vec::new(), accepted),
            (200, b"<html>".to_vec(), accepted),
            (200, rejected.encode_to_vec(), failed),
            (200, vec![0; ANSWER + 1], failed),
            (404, Vec::new(), failed),
            (503, vec![b'x'; ANSWER + 1], failed),
        ] {
            let length = body.len();
            let (figures, took) = exported(move || std::future::ready(answered(status, body.clone()))).await;
            assert_eq!(figures, expected, "{status}, {length} bytes");
            assert!(took < Duration::from_secs(6), "{took:?}");
        }
        let (figures, took) = exported(std::future::pending).await;
        assert_eq!(figures, failed);
        assert!(took > TIMEOUT && took < TIMEOUT + Duration::from_secs(6), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_waits_for_a_collector_for_half_a_second() {
        for (waits, is_exported) in [(Duration::from_millis(400), true), (Duration::MAX, false)] {
            let outbox = Arc::<Outbox>::default();
            let stop = CancellationToken::new();
            let exporter = exporter(move || sleep(waits).map(|()| answered(200, Vec::new())));
            let exporting = tokio::spawn(exporter.run(outbox.clone(), clock(), stop.clone()));
            outbox.keep(Arc::new(record()));
            outbox.keep(Arc::new(RunRecord { trace: None, ..record() }));
            let began = Instant::now();
            stop.cancel();
            exporting.await.unwrap();
            assert!(began.elapsed() <= LAST + Duration::from_millis(1), "{:?}", began.elapsed());
            assert_eq!(outbox.figures().exported > 0, is_exported);
        }
    }
}
