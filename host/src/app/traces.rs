//! [`TraceFlags`]: whether runs are traced, by the flags and by the variables of OpenTelemetry, and the client of the
//! collector.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use podium_registry::{Proxies, authorities};
use podium_vocabulary::text;

use crate::telemetry::{Exporter, Headers, VERSION};

/// The part of runs that is traced without `OTEL_TRACES_SAMPLER_ARG`.
const RATIO: f64 = 0.01;
/// The most bytes of a file with headers or certificates.
const FILE: u64 = 1 << 20;

/// Which runs are traced, and where their traces go.
pub struct TraceOptions {
    /// Sends traces.
    pub exporter: Exporter,
    /// The part of all runs that is traced; runs that fail or are slow are traced too.
    pub ratio: f64,
    /// The time of a run, with its writes, beyond which it is slow.
    pub slow: Duration,
}

/// The flags of traces. Everything else is in the variables that OpenTelemetry defines.
#[derive(Debug, Clone, Args)]
pub(super) struct TraceFlags {
    /// Also trace every run that takes longer, with its writes: such as 1s or 500ms. Runs are traced if
    /// $OTEL_EXPORTER_OTLP_ENDPOINT is set
    #[arg(
        id = "trace_slow",
        long = "trace-slow",
        env = "PODIUM_TRACE_SLOW",
        value_name = "DURATION",
        default_value = "1s",
        value_parser = duration
    )]
    slow: Duration,
    /// Headers of requests to the collector of traces, such as credentials: lines of NAME=VALUE. Read before each
    /// request
    #[arg(
        id = "trace_headers_file",
        long = "trace-headers-file",
        env = "PODIUM_TRACE_HEADERS_FILE",
        value_name = "FILE"
    )]
    headers_file: Option<PathBuf>,
}

/// A variable or file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{of}: {message}")]
pub(super) struct Mistake {
    /// The variable, or the flag with its file.
    of: String,
    message: String,
}

impl Mistake {
    fn new(of: impl Into<String>, message: impl Into<String>) -> Self {
        Self { of: of.into(), message: message.into() }
    }
}

/// The variables that are set. One that is empty counts as missing.
struct Variables<F>(F);

impl<F: Fn(&str) -> Option<String>> Variables<F> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
    }

    /// Returns the first of the variables that is set: the one of traces, then the one of everything.
    fn first(&self, suffix: &str) -> Option<(String, String)> {
        let names = ["OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"].map(|prefix| format!("{prefix}{suffix}"));
        names.into_iter().find_map(|name| self.get(&name).map(|value| (name, value)))
    }
}

impl TraceFlags {
    /// Returns the traces that the flags and variables ask for; `None` without a collector. Blocks. Must be called
    /// within a runtime, to which the client belongs.
    ///
    /// # Errors
    /// Returns an error that names the variable, or the flag and the file, which cannot be used.
    pub(super) fn options(
        self,
        value: impl Fn(&str) -> Option<String>,
        proxies: &Proxies,
    ) -> Result<Option<TraceOptions>, Mistake> {
        let variables = Variables(value);
        let is_off = variables.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let Some(endpoint) = variables.first("ENDPOINT").filter(|_| !is_off) else { return Ok(None) };
        let Some(ratio) = ratio(&variables)? else { return Ok(None) };
        if let Some((name, protocol)) = variables.first("PROTOCOL").filter(|(_, protocol)| protocol != "http/protobuf")
        {
            let message = format!("must be http/protobuf, which collectors accept at port 4318, not {protocol:?}");
            return Err(Mistake::new(name, message));
        }
        let url = url(endpoint)?;
        let origin = Uri::builder().scheme(url.scheme_str().unwrap_or("http"));
        let origin = origin.authority(url.authority().map_or("", |authority| authority.as_str())).path_and_query("/");
        let mut config = kube::Config::new(origin.build().map_err(|error| Mistake::new("URL", error.to_string()))?);
        config.proxy_url = proxies.of_url(&url);
        if let Some((name, file)) = variables.first("CERTIFICATE") {
            let unusable = |error: String| Mistake::new(format!("{name}: file {}", text::line(&file)), error);
            let pem = read(Path::new(&file)).map_err(unusable)?;
            let certificates = authorities(pem.as_bytes()).map_err(|error| unusable(error.to_string()))?;
            config.root_cert = Some(certificates.iter().map(|certificate| certificate.to_vec()).collect());
        }
        let client = podium_api::client(config).map_err(|error| Mistake::new("TLS", error.to_string()))?;
        let path = url.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
        let headers = headers(&variables, self.headers_file)?;
        let resource = resource(&variables)?;
        let address = url.authority().map(ToString::to_string);
        tracing::info!(collector = address, path, ratio, slow_seconds = self.slow.as_secs_f32(), "exporting traces");
        let exporter = Exporter::new(client, path, headers, resource);
        Ok(Some(TraceOptions { exporter, ratio, slow: self.slow }))
    }
}

/// Returns the part of all runs that is traced; `None` if no run is. A run has no parent.
fn ratio(variables: &Variables<impl Fn(&str) -> Option<String>>) -> Result<Option<f64>, Mistake> {
    const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
    const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
    let sampler = variables.get(SAMPLER).unwrap_or_else(|| "traceidratio".to_owned());
    match sampler.strip_prefix("parentbased_").unwrap_or(&sampler) {
        "always_on" => Ok(Some(1.0)),
        "always_off" => Ok(None),
        "traceidratio" => {
            let Some(argument) = variables.get(ARGUMENT) else { return Ok(Some(RATIO)) };
            let ratio = argument.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
            let mistake = || Mistake::new(ARGUMENT, format!("must be a number from 0 to 1, not {argument:?}"));
            ratio.ok_or_else(mistake).map(Some)
        }
        _ => {
            let samplers = "always_on, always_off or traceidratio, which may follow parentbased_";
            Err(Mistake::new(SAMPLER, format!("must be {samplers}, not {sampler:?}")))
        }
    }
}

/// Returns the URL that traces are sent to.
fn url((name, endpoint): (String, String)) -> Result<Uri, Mistake> {
    let is_of_traces = name.contains("TRACES");
    let url = if is_of_traces { endpoint } else { format!("{}/v1/traces", endpoint.trim_end_matches('/')) };
    let uri: Uri = url.parse().map_err(|error| Mistake::new(&name, format!("{url:?} is not a URL: {error}")))?;
    // The text may have a password.
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        let message = "must be a URL without credentials; use OTEL_EXPORTER_OTLP_HEADERS or --trace-headers-file";
        return Err(Mistake::new(name, message));
    }
    let is_http = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    let mistake = || format!("must be a URL such as http://collector.monitoring.svc:4318, not {url:?}");
    if is_http { Ok(uri) } else { Err(Mistake::new(name, mistake())) }
}

/// Returns the headers of the variable, and with each request those of the file. The file is read now too.
fn headers(variables: &Variables<impl Fn(&str) -> Option<String>>, file: Option<PathBuf>) -> Result<Headers, Mistake> {
    let mut fixed = HeaderMap::new();
    if let Some((name, list)) = variables.first("HEADERS") {
        let mistake = |error| Mistake::new(&name, error);
        for (key, value) in pairs(&list).map_err(mistake)? {
            insert(&mut fixed, &key, &value).map_err(mistake)?;
        }
    }
    let Some(file) = file else { return Ok(Box::new(move || std::future::ready(Ok(fixed.clone())).boxed())) };
    let with_file = move |mut headers: HeaderMap| {
        let of_file = read(&file).and_then(|lines| {
            let mut lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
            lines.try_for_each(|line| {
                let (key, value) = line.split_once('=').ok_or("a line is not NAME=VALUE")?;
                insert(&mut headers, key.trim(), value.trim())
            })
        });
        of_file
            .map(|()| headers)
            .map_err(|error| Mistake::new(format!("--trace-headers-file {}", text::path(&file)), error))
    };
    with_file(fixed.clone())?;
    let with_file = std::sync::Arc::new(with_file);
    Ok(Box::new(move || {
        let with_file = with_file.clone();
        let fixed = fixed.clone();
        let reading = tokio::task::spawn_blocking(move || with_file(fixed));
        async { reading.await.map_err(|error| error.to_string())?.map_err(|mistake| mistake.to_string()) }.boxed()
    }))
}

/// Adds a header. An error does not contain the value, which may be a secret.
fn insert(headers: &mut HeaderMap, key: &str, value: &str) -> Result<(), String> {
    let name = HeaderName::try_from(key).map_err(|_| format!("{key:?} is not the name of a header"))?;
    let mut value = HeaderValue::try_from(value).map_err(|_| format!("the value of {key} cannot be in a header"))?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// Returns the attributes of the host's resource.
fn resource(variables: &Variables<impl Fn(&str) -> Option<String>>) -> Result<BTreeMap<String, String>, Mistake> {
    const ATTRIBUTES: &str = "OTEL_RESOURCE_ATTRIBUTES";
    let mut attributes = BTreeMap::new();
    let mut set = |key: &str, value: Option<String>| attributes.extend(value.map(|value| (key.to_owned(), value)));
    set("service.name", Some("podium-host".to_owned()));
    set("service.version", Some(VERSION.to_owned()));
    set("service.instance.id", variables.get("POD_NAME").or_else(|| variables.get("HOSTNAME")));
    for (key, value) in
        pairs(&variables.get(ATTRIBUTES).unwrap_or_default()).map_err(|e| Mistake::new(ATTRIBUTES, e))?
    {
        set(&key, Some(value));
    }
    set("service.name", variables.get("OTEL_SERVICE_NAME"));
    Ok(attributes)
}

/// Reads a list `name=value,name=value`, whose values are percent-encoded.
fn pairs(list: &str) -> Result<Vec<(String, String)>, String> {
    let items = list.split(',').map(str::trim).filter(|item| !item.is_empty());
    let pair = |item: &str| {
        let (key, value) = item.split_once('=').ok_or("must be a list NAME=VALUE,NAME=VALUE")?;
        let value = percent_decode_str(value.trim()).decode_utf8();
        let value = value.map_err(|_| format!("the value of {:?} is not UTF-8", key.trim()))?;
        Ok((key.trim().to_owned(), value.into_owned()))
    };
    items.map(pair).collect()
}

fn read(file: &Path) -> Result<String, String> {
    let mut read = String::new();
    let opened = File::open(file).and_then(|file| file.take(FILE).read_to_string(&mut read));
    opened.map(|_| read).map_err(|error| format!("cannot be read: {error}"))
}

/// Reads a time such as `1s` or `500ms`.
fn duration(text: &str) -> Result<Duration, &'static str> {
    let (number, unit) = text.split_at(text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len()));
    let number = number.parse().ok();
    let duration = match unit {
        "ms" => number.map(Duration::from_millis),
        "s" => number.map(Duration::from_secs),
        _ => None,
    };
    duration.ok_or("must be a time such as 1s or 500ms")
}

#[cfg(test)]
mod tests;
