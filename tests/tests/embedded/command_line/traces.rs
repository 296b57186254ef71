//! Traces of runs, by a real process: what a collector receives, what the API server receives, and that a collector
//! that misbehaves is in the way of nothing.

use std::{process::Command, sync::Arc};

use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{KeyValue, any_value::Value},
    trace::v1::{Span, status::StatusCode as SpanStatus},
};
use parking_lot::Mutex;
use prost::Message;

use super::*;

/// How a collector answers.
#[derive(Debug, Clone, Copy)]
enum Answers {
    Accepts,
    Never,
    Refuses,
    /// With 1 GB.
    Floods,
}

/// The requests that a collector received, each with its header `authorization`.
type Received = Arc<Mutex<Vec<(Option<String>, ExportTraceServiceRequest)>>>;

/// A collector on a socket.
struct Collector {
    received: Received,
    url: String,
}

impl Collector {
    async fn start(answers: Answers) -> Self {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Received::default();
        let noted = received.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let noted = noted.clone();
                let answer = service_fn(move |request| answer(request, answers, noted.clone()));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), answer));
            }
        });
        Self { received, url }
    }

    fn requests(&self) -> Vec<(Option<String>, ExportTraceServiceRequest)> {
        self.received.lock().clone()
    }

    /// Returns the spans of all requests.
    fn spans(&self) -> Vec<Span> {
        let requests = self.requests().into_iter().flat_map(|(_, request)| request.resource_spans);
        requests.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans).collect()
    }

    /// Waits for a trace that has this many writes, and returns its spans: the root first.
    async fn trace(&self, writes: usize) -> Vec<Span> {
        until("a trace", WITHIN, async || {
            let spans = self.spans();
            let of_trace = |root: &Span| -> Vec<Span> {
                spans.iter().filter(|span| span.trace_id == root.trace_id).cloned().collect()
            };
            let mut traces = spans.iter().filter(|span| span.parent_span_id.is_empty()).map(of_trace);
            let trace = traces.find(|trace| trace.iter().filter(|span| span.name == "write").count() == writes);
            anyhow::Context::context(trace, "no such trace")
        })
        .await
        .unwrap()
    }
}

async fn answer(
    request: Request<Incoming>,
    answers: Answers,
    received: Received,
) -> anyhow::Result<Response<UnsyncBoxBody<Bytes, std::io::Error>>> {
    assert_eq!((request.method().as_str(), request.uri().path()), ("POST", "/v1/traces"));
    assert_eq!(request.headers()["content-type"], "application/x-protobuf");
    let authorization = request.headers().get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let body = request.into_body().collect().await?.to_bytes();
    received.lock().push((authorization, ExportTraceServiceRequest::decode(body)?));
    let mebibytes = match answers {
        Answers::Never => std::future::pending().await,
        Answers::Accepts | Answers::Refuses => 0,
        Answers::Floods => 1_024,
    };
    let chunks = (0..mebibytes).map(|_| Ok(Frame::data(Bytes::from_static(&[0; 1 << 20]))));
    let status = if matches!(answers, Answers::Refuses) { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK };
    Ok(Response::builder().status(status).body(StreamBody::new(stream::iter(chunks)).boxed_unsync())?)
}

/// Returns the text of an attribute.
fn attribute<'a>(attributes: &'a [KeyValue], key: &str) -> Option<&'a str> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.value.as_ref()?;
    if let Value::StringValue(text) = value { Some(text) } else { None }
}

fn hex(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts a host with a plugin that labels Pods of the app `good`, once by a commit and once at its end, and one that
/// fails on those of `bad`.
async fn host(fixture: &Fixture, environment: &[(&str, &str)], arguments: &[&str]) -> Host {
    let plugin = |name: &str, app: &str, script: &str| {
        let watch = format!("watch: {{ selector: {{ matchLabels: {{ app: {app} }} }}, sections: [labels] }}");
        let more = format!("  {watch}\n  config: {{ script: \"{script}\" }}");
        // The probe imports all functions.
        let granted = plugins::guest_yaml("probe", name, &more).unwrap();
        let granted = granted.replace("sections: [labels] } }", "sections: [labels], live: true } }").replace(
            "annotations: [guests.example/*] }",
            "annotations: [guests.example/*], finalizers: [guests.example/*], conditions: [guests.example/*], events: \
             true, delete: true, evict: true, objects: [{ apiVersion: v1, kind: ConfigMap, resource: configmaps }] }",
        );
        fixture.write(&format!("{name}.yaml"), &granted);
        fixture.path(&format!("{name}.yaml"))
    };
    let writes = r"label guests.example/one 1\ncommit\nlabel guests.example/seen 2";
    let options = HostOptions {
        kubeconfig: fixture.path("kubeconfig"),
        plugins: vec![plugin("labels", "good", writes), plugin("fails", "bad", "retry teapot")],
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
    };
    let mut command = Command::new(host_binary().unwrap());
    command.envs(environment.iter().copied());
    Host::spawn_by(command, &options).await.unwrap()
}

async fn failed(host: &Host) {
    until("failures", WITHIN, async || {
        let failures = host.metric("podium_run_failures_total", &[r#"controller="fails""#]).await?;
        ensure!(failures >= 1.0);
        Ok(())
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_run_arrives_with_its_parts_and_the_api_server_knows_them() {
    let fixture = Fixture::still().await;
    let collector = Collector::start(Answers::Accepts).await;
    let environment = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url),
        ("OTEL_TRACES_SAMPLER", "always_on"),
        ("OTEL_SERVICE_NAME", "podium-of-test"),
        ("HOSTNAME", "replica-1"),
    ];
    fixture.write("headers", "authorization=Bearer of-a-file\n");
    let headers = fixture.path("headers").display().to_string();
    let host = host(&fixture, &environment, &["--trace-headers-file", &headers, "--log-level", "debug"]).await;
    let uid = embedded::create_pod(&fixture.cluster, "cart-0", "good").unwrap();
    let spans = collector.trace(2).await;

    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["reconcile", "queue", "run", "write", "write"]);
    let [root, _, run, committed, at_end] = &spans[..] else { unreachable!() };
    assert_eq!((&committed.parent_span_id, &at_end.parent_span_id), (&run.span_id, &root.span_id));
    for (key, value) in [
        ("podium.plugin", "labels"),
        ("podium.tenant", "cluster/labels"),
        ("podium.result", "settled"),
        ("k8s.namespace.name", "default"),
        ("k8s.pod.name", "cart-0"),
        ("k8s.pod.uid", &uid),
    ] {
        assert_eq!(attribute(&root.attributes, key), Some(value), "{key}");
    }
    assert!(spans.iter().all(|span| {
        root.start_time_unix_nano <= span.start_time_unix_nano
            && span.start_time_unix_nano <= span.end_time_unix_nano
            && span.end_time_unix_nano <= root.end_time_unix_nano
    }));

    // The requests of the run, in their order, and no other one.
    let logged = fixture.cluster.requests().writes();
    let sent: Vec<_> = logged.iter().filter_map(|request| request.traceparent.clone()).collect();
    let parent = |span: &Span| format!("00-{}-{}-01", hex(&root.trace_id), hex(&span.span_id));
    assert_eq!(sent, [parent(committed), parent(at_end)]);
    let reads = fixture.cluster.requests().count(|request| !request.is_write() && request.traceparent.is_some());
    assert_eq!(reads, 0);

    let trace_id = format!("trace_id={}", hex(&root.trace_id));
    let log = host.log();
    assert!(log.lines().any(|line| line.contains(&trace_id) && line.contains("ran result=")), "{log}");
    let (authorization, request) = &collector.requests()[0];
    assert_eq!(authorization.as_deref(), Some("Bearer of-a-file"));
    let resource = &request.resource_spans[0].resource.as_ref().unwrap().attributes;
    assert_eq!(attribute(resource, "service.name"), Some("podium-of-test"));
    assert_eq!(attribute(resource, "service.instance.id"), Some("replica-1"));
    assert!(host.metric("podium_traces_exported_total", &[]).await.unwrap() >= 1.0);
    assert!(!log.contains("of-a-file"), "{log}");
}

#[tokio::test]
async fn without_a_sample_only_failures_are_traced_and_no_request_says_so() {
    let fixture = Fixture::still().await;
    let collector = Collector::start(Answers::Accepts).await;
    let environment = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*format!("{}/v1/traces", collector.url)),
        ("OTEL_TRACES_SAMPLER_ARG", "0"),
    ];
    let host = host(&fixture, &environment, &["--trace-slow", "1000s"]).await;
    embedded::create_pod(&fixture.cluster, "cart-0", "good").unwrap();
    fixture.labelled("cart-0").await;
    embedded::create_pod(&fixture.cluster, "cart-1", "bad").unwrap();
    let trace = collector.trace(0).await;
    let root = &trace[0];
    let status = root.status.as_ref().unwrap();
    assert_eq!((status.code(), status.message.as_str()), (SpanStatus::Error, "teapot"));
    let log = host.log();
    let trace_id = format!("trace_id={}", hex(&root.trace_id));
    assert!(log.lines().any(|line| line.contains(&trace_id) && line.contains("run failed")), "{log}");
    assert!(log.lines().filter(|line| line.contains("trace_id=")).all(|line| line.contains("plugin=fails")), "{log}");
    // The last traces are sent at the end.
    assert!(host.terminate().await.unwrap().success());
    let roots: Vec<_> = collector.spans().into_iter().filter(|span| span.parent_span_id.is_empty()).collect();
    let of_plugin = |root: &Span| attribute(&root.attributes, "podium.plugin").map(str::to_owned);
    assert!(roots.iter().all(|root| of_plugin(root).as_deref() == Some("fails")), "{roots:?}");
    assert_eq!(fixture.cluster.requests().count(|request| request.traceparent.is_some()), 0);
}

/// A collector that misbehaves, while its first request is under way.
async fn a_collector_that_fails_is_in_the_way_of_nothing(answers: Answers) {
    let fixture = Fixture::still().await;
    let collector = Collector::start(answers).await;
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url), ("OTEL_TRACES_SAMPLER", "always_on")];
    let host = host(&fixture, &environment, &[]).await;
    embedded::create_pod(&fixture.cluster, "cart-0", "good").unwrap();
    until("a request to the collector", WITHIN, async || {
        ensure!(!collector.requests().is_empty());
        Ok(())
    })
    .await
    .unwrap();
    embedded::create_pod(&fixture.cluster, "cart-1", "good").unwrap();
    fixture.labelled("cart-1").await;
    assert!(host.log().lines().filter(|line| line.contains("WARN")).all(|line| line.contains("traces not exported")));
    until("the loss to be counted", WITHIN, async || {
        let failed = host.metric("podium_traces_dropped_total", &[r#"reason="export_failed""#]).await?;
        ensure!(failed >= 1.0, "{failed}");
        Ok(())
    })
    .await
    .unwrap();
    assert_eq!(host.metric("podium_traces_exported_total", &[]).await.unwrap(), 0.0);
    let log = host.log();
    assert_eq!(log.matches("traces not exported").count(), 1, "{log}");
    let memory = host.metric("process_resident_memory_bytes", &[]).await.unwrap();
    assert!(memory < 600e6, "{memory} bytes");
    assert!(host.terminate().await.unwrap().success());
}

#[tokio::test]
async fn a_collector_that_never_answers_is_in_the_way_of_nothing() {
    a_collector_that_fails_is_in_the_way_of_nothing(Answers::Never).await;
}

#[tokio::test]
async fn a_collector_that_answers_500_is_in_the_way_of_nothing() {
    a_collector_that_fails_is_in_the_way_of_nothing(Answers::Refuses).await;
}

#[tokio::test]
async fn a_collector_that_answers_a_gigabyte_is_in_the_way_of_nothing() {
    a_collector_that_fails_is_in_the_way_of_nothing(Answers::Floods).await;
}

#[tokio::test]
async fn a_sampler_that_is_off_sends_nothing() {
    let fixture = Fixture::still().await;
    let collector = Collector::start(Answers::Accepts).await;
    let environment = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*collector.url), ("OTEL_TRACES_SAMPLER", "always_off")];
    let host = host(&fixture, &environment, &["--trace-slow", "0s"]).await;
    embedded::create_pod(&fixture.cluster, "cart-0", "good").unwrap();
    embedded::create_pod(&fixture.cluster, "cart-1", "bad").unwrap();
    fixture.labelled("cart-0").await;
    failed(&host).await;
    assert!(!host.get("/metrics").await.unwrap().contains("podium_traces"));
    let log = host.log();
    assert!(host.terminate().await.unwrap().success());
    assert!(collector.requests().is_empty() && !log.contains("trace_id"), "{log}");
}

#[tokio::test]
async fn a_collector_or_a_ratio_that_cannot_be_used_ends_the_start() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    let url = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    for (name, value) in [("OTEL_TRACES_SAMPLER_ARG", "2"), ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318")] {
        let mut command = tokio::process::Command::new(host_binary().unwrap());
        let ports = ["--health-probe-bind-address", "0", "--metrics-bind-address", "0"];
        command.current_dir(fixture.directory.path()).envs([url, (name, value)]).args(ports).kill_on_drop(true);
        command.args(["--kubeconfig", "kubeconfig", "--plugins", "registrar.yaml"]);
        let output = tokio::time::timeout(WITHIN, command.output()).await.unwrap().unwrap();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{log}");
        let line = log.lines().find(|line| line.contains("traces refused")).unwrap();
        assert!(line.contains(" ERROR ") && line.contains(&format!("{name}: must be")), "{line}");
    }
}
