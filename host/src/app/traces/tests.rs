use std::{fs, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD};
use podium_engine::clock::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::telemetry::{Outbox, record};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

fn set<'a>(all: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    |name| all.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned())
}

fn options(all: &[(&str, &str)], headers_file: Option<PathBuf>) -> Result<Option<f64>, String> {
    let flags = TraceFlags { slow: Duration::from_secs(1), headers_file };
    let options = flags.options(set(all), &Proxies::default());
    options.map(|options| options.map(|options| options.ratio)).map_err(|mistake| mistake.to_string())
}

#[tokio::test]
async fn runs_are_traced_if_there_is_a_collector_and_a_sampler_that_draws() {
    let collector = (ENDPOINT, "http://127.0.0.1:4318");
    assert_eq!(options(&[("OTEL_TRACES_SAMPLER", "always_on")], None), Ok(None), "no collector");
    assert_eq!(options(&[(ENDPOINT, " ")], None), Ok(None), "an empty variable is not set");
    assert_eq!(options(&[collector], None), Ok(Some(0.01)));
    assert_eq!(options(&[collector, ("OTEL_SDK_DISABLED", "TRUE")], None), Ok(None));
    for (sampler, argument, ratio) in [
        ("always_on", "", Some(1.0)),
        ("parentbased_always_on", "0.5", Some(1.0)),
        ("always_off", "", None),
        ("parentbased_always_off", "", None),
        ("traceidratio", "0", Some(0.0)),
        ("parentbased_traceidratio", "0.25", Some(0.25)),
        ("parentbased_traceidratio", "", Some(0.01)),
        ("", "1", Some(1.0)),
    ] {
        let all = [collector, ("OTEL_TRACES_SAMPLER", sampler), ("OTEL_TRACES_SAMPLER_ARG", argument)];
        assert_eq!(options(&all, None), Ok(ratio), "{sampler} {argument}");
    }
}

#[tokio::test]
async fn a_variable_that_cannot_be_used_is_named() {
    let good = (ENDPOINT, "http://127.0.0.1:4318");
    for (name, value, part) in [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "not a url", "is not a URL"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4318", "such as http://"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://collector", "such as http://"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a:hunter2@collector", "without credentials"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote", "always_on"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5", "from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "NaN", "from 0 to 1"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "hunter2", "NAME=VALUE"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=hunter2%0a", "authorization"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nowhere.pem", "/nowhere.pem"),
        ("OTEL_RESOURCE_ATTRIBUTES", "cluster", "NAME=VALUE"),
    ] {
        let error = options(&[good, (name, value)], None).unwrap_err();
        assert!(error.starts_with(name) && error.contains(part) && !error.contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn headers_are_those_of_the_variable_and_of_the_file_as_it_is_now() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("headers");
    fs::write(&file, "Authorization=Bearer one\n\n").unwrap();
    let of_variable = [("OTEL_EXPORTER_OTLP_HEADERS", "x-scope=shop%20one, authorization=none")];
    let headers = headers(&Variables(set(&of_variable)), Some(file.clone())).unwrap();
    assert_eq!(headers().await.unwrap()["x-scope"], "shop one");
    assert_eq!(headers().await.unwrap()["authorization"], "Bearer one");
    fs::write(&file, "authorization=Bearer two=2").unwrap();
    assert_eq!(headers().await.unwrap()["authorization"], "Bearer two=2");
    fs::write(&file, "Bearer hunter2").unwrap();
    for error in [headers().await.unwrap_err(), options(&[(ENDPOINT, "http://a")], Some(file)).unwrap_err()] {
        assert!(error.contains("--trace-headers-file") && error.contains("NAME=VALUE"), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn the_resource_is_that_of_the_variables() {
    let resource = |all: &[(&str, &str)]| resource(&Variables(set(all))).unwrap();
    let own = resource(&[("HOSTNAME", "host-1")]);
    assert_eq!((own["service.name"].as_str(), own["service.instance.id"].as_str()), ("podium-host", "host-1"));
    let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,k8s.cluster.name=a%2Cb");
    let set = resource(&[attributes, ("OTEL_SERVICE_NAME", "podium")]);
    assert_eq!((set["service.name"].as_str(), set["k8s.cluster.name"].as_str()), ("podium", "a,b"));
    assert_eq!(resource(&[attributes])["service.name"], "other");
}

#[test]
fn a_url_of_traces_is_taken_as_it_is_and_another_one_gets_the_path() {
    let of = |name: &str, endpoint: &str| url((name.to_owned(), endpoint.to_owned())).unwrap().to_string();
    assert_eq!(of(ENDPOINT, "http://a:4318"), "http://a:4318/v1/traces");
    assert_eq!(of(ENDPOINT, "https://a/otlp/"), "https://a/otlp/v1/traces");
    assert_eq!(of("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://a/here?x=1"), "https://a/here?x=1");
}

#[test]
fn a_time_has_a_unit() {
    assert_eq!((duration("1s"), duration("500ms")), (Ok(Duration::from_secs(1)), Ok(Duration::from_millis(500))));
    for wrong in ["", "1", "s", "-1s", "1.5s", "1h", "99999999999999999999s", "1s "] {
        assert!(duration(wrong).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn only_a_collector_of_a_known_authority_is_trusted() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    let pem = BASE64_STANDARD.encode(made.cert.der());
    fs::write(&file, format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n")).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(vec![made.cert.into()], key);
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = tokio::net::TcpListener::bind("localhost:0").await.unwrap();
    let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let received = Arc::new(tokio::sync::Semaphore::new(0));
    let noted = received.clone();
    tokio::spawn(async move {
        loop {
            let Ok(mut stream) = tls.accept(listener.accept().await.unwrap().0).await else { continue };
            let mut head = [0; 16];
            stream.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"POST /v1/traces ");
            noted.add_permits(1);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        }
    });
    let certificate = ("OTEL_EXPORTER_OTLP_CERTIFICATE", file.to_str().unwrap());
    for (all, exported) in [(&[(ENDPOINT, &*endpoint), certificate][..], 1), (&[(ENDPOINT, &*endpoint)][..], 0)] {
        let flags = TraceFlags { slow: Duration::from_secs(1), headers_file: None };
        let options = flags.options(set(all), &Proxies::default()).unwrap().unwrap();
        let outbox = Arc::<Outbox>::default();
        let stop = CancellationToken::new();
        outbox.keep(Arc::new(record()));
        stop.cancel();
        options.exporter.run(outbox.clone(), Clock::starting_at(0), stop).await;
        assert_eq!((outbox.figures().exported, outbox.figures().export_failed), (exported, 1 - exported));
    }
    assert_eq!(received.available_permits(), 1);
}
