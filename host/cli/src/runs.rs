//! `podium runs` and `podium why`: the latest runs of plugins, and why a plugin did not run, asked of a running host.
//! Without access to its port, `why` asks with a RunReport.

use std::{fmt::Write, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use http::{Request, Response, Uri, uri::InvalidUri};
use http_body_util::BodyExt;
use kube::{Client, client::Body, config::Kubeconfig};
use podium_host::admin::{self, PluginOnPod, PluginRuns, PodRuns, Run, RunWrite};
use podium_vocabulary::text;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{args::Output, cluster, run_report, ui};

/// The host that is asked.
#[derive(Debug, Default, Clone, Args)]
pub struct Server {
    /// URL of the port of /metrics of the host that runs the plugins, https://localhost:8080 if it is asked without
    /// this option
    #[arg(long, value_name = "URL", env = "PODIUM_SERVER", value_parser = url)]
    pub server: Option<Uri>,
    /// File with a token whose user may get /debug; without it $PODIUM_TOKEN
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Trust only the authorities in this file, in PEM; without it a certificate of localhost is not verified
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// Another replica of the host, with the same token, which is asked if it runs the plugins [default: kubectl
    /// forwards the port of that replica's Pod]
    #[arg(long, value_name = "URL", value_parser = url)]
    pub replica: Vec<Uri>,
    /// Format of the answer on stdout
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
    /// The name in the certificate, if the URL has an address instead.
    #[arg(skip)]
    pub(crate) tls_server_name: Option<&'static str>,
}

/// Show the latest runs of a plugin or on a Pod, with their causes, writes and results
#[derive(Debug, Args)]
#[command(
    long_about = "Show the latest runs of a plugin, or on a Pod: what caused each, what it wrote, how it ended, and \
        how long it took.\n\nThe answer is of a running host, from its port of /metrics. The host keeps about 150 runs \
        of a tenant in memory, those that failed longest, and none over a restart. With replicas, the one that runs \
        the plugin is asked.",
    after_help = "To reach the host:\n  \
        kubectl -n podium port-forward deployment/podium-host 8080 &\n  \
        export PODIUM_TOKEN=$(kubectl -n podium create token operator)\n\n\
        Examples:\n  \
        podium runs --plugin shop/hello           the latest runs of a plugin\n  \
        podium runs --pod shop/cart               the latest runs of all plugins on a Pod\n  \
        podium runs --plugin audit --pod shop/cart --output json\n  \
        podium runs --pod shop/cart --server http://localhost:8080    a host without authentication\n\n\
        Exit codes: 0 the host answered, 1 it did not or has no such plugin, 2 called wrongly"
)]
pub struct Runs {
    /// Only runs of this plugin: NAMESPACE/NAME, or NAME of a ClusterReconcilePlugin
    #[arg(long, value_name = "PLUGIN", value_parser = path, required_unless_present = "pod")]
    pub plugin: Option<String>,
    /// Only runs on this Pod
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pod_path)]
    pub pod: Option<String>,
    #[command(flatten)]
    pub server: Server,
}

/// Explain why plugins do or do not run on a Pod
#[derive(Debug, Args)]
#[command(
    long_about = "Explain why plugins do or do not run on a Pod now, with the last run of each.\n\nThe answer is of a \
        running host. It is asked with a RunReport in the namespace of the Pod, and answers about the plugins of that \
        namespace; this needs the ClusterRole edit there, and `get` on the Pod. With --server, --token-file, --ca-file \
        or $PODIUM_TOKEN, and without --kubeconfig, its port of /metrics is asked instead, which also has the plugins \
        of the cluster. \
        docs/observing.md has the words of the answer, such as SelectorDoesNotMatch or BackOff.",
    after_help = "To reach the port of the host:\n  \
        kubectl -n podium port-forward deployment/podium-host 8080 &\n  \
        export PODIUM_TOKEN=$(kubectl -n podium create token operator)\n\n\
        Examples:\n  \
        podium why -n shop cart                        all plugins of namespace shop\n  \
        podium why -n shop cart --plugin shop/hello    one of them\n  \
        podium why -n shop cart --server https://localhost:8080    asks the host's port\n  \
        podium why -n shop cart --output json | jq '.plugins.items[].reasons'\n\n\
        Exit codes: 0 the host answered, 1 it did not or has no such plugin, 2 called wrongly"
)]
pub struct Why {
    /// The Pod: NAME, or NAMESPACE/NAME
    #[arg(value_parser = path)]
    pub pod: String,
    /// Namespace of a Pod that is named without one
    #[arg(long, short, value_name = "NAME", default_value = "default", value_parser = name)]
    pub namespace: String,
    /// Only this plugin: NAMESPACE/NAME, or NAME of one in the Pod's namespace; with --server NAME is that of a
    /// ClusterReconcilePlugin
    #[arg(long, value_name = "PLUGIN", value_parser = path)]
    pub plugin: Option<String>,
    /// Use a RunReport, by this kubeconfig, and no port [default: $PODIUM_KUBECONFIG, $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub server: Server,
}

/// Parses names that can be part of a URL.
pub(crate) fn path(text: &str) -> Result<String, String> {
    let valid = text.split('/').count() <= 2 && text.split('/').all(|part| name(part).is_ok());
    valid.then(|| text.to_owned()).ok_or_else(|| "must be NAME or NAMESPACE/NAME".to_owned())
}

/// Parses a URL. An empty one, as of a variable that is set to nothing, is [`Uri::default`].
pub(crate) fn url(text: &str) -> Result<Uri, InvalidUri> {
    if text.is_empty() { Ok(Uri::default()) } else { text.parse() }
}

fn name(text: &str) -> Result<String, String> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let valid = !text.is_empty() && text.bytes().all(allowed) && text != "." && text != "..";
    valid.then(|| text.to_owned()).ok_or_else(|| "must be NAME".to_owned())
}

fn pod_path(text: &str) -> Result<String, String> {
    path(text).ok().filter(|text| text.contains('/')).ok_or_else(|| "must be NAMESPACE/NAME".to_owned())
}

/// Shows runs.
pub(crate) async fn runs(Runs { plugin, pod, server }: &Runs) -> anyhow::Result<ExitCode> {
    let runs = match (pod, plugin) {
        (Some(pod), plugin) => {
            let mut replica = server.of_pod(pod, plugin.as_deref()).await?;
            let answer: PodRuns = replica.server()?.get(&pod_url(pod, plugin.as_deref())).await?;
            if server.output == Output::Json {
                return printed(&answer);
            }
            let mut runs: Vec<Run> = answer.plugins.items.into_iter().flat_map(|of| of.runs).collect();
            runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.number));
            runs
        }
        (None, plugin) => {
            let plugin = plugin.as_deref().unwrap_or_default();
            let mut replica = server.of_plugin(plugin).await?;
            let answer: PluginRuns = replica.server()?.get(&format!("/debug/plugins/{plugin}")).await?;
            if server.output == Output::Json {
                return printed(&answer);
            }
            answer.runs
        }
    };
    let rows = runs.iter().map(|run| {
        [run.plugin.clone(), subject(run), age(run.millis_ago), causes(run), writes(run), result(run), took(run)]
    });
    ui::print(&format!("{}\n", ui::table(["PLUGIN", "POD", "AGE", "CAUSES", "WRITES", "RESULT", "TOOK"], rows)))?;
    Ok(ExitCode::SUCCESS)
}

/// Explains.
pub(crate) async fn why(why: &Why) -> anyhow::Result<ExitCode> {
    let server = &why.server;
    let pod = why.pod();
    let plugin = why.plugin.as_deref();
    let asks_server = why.asks_server(token().is_some());
    let (answer, note): (PodRuns, _) = if asks_server {
        let mut replica = server.of_pod(&pod, plugin).await?;
        (replica.server()?.get(&pod_url(&pod, plugin)).await?, "")
    } else {
        let (namespace, name) = pod.split_once('/').unwrap_or_default();
        let kubeconfig = why.kubeconfig.clone().or_else(|| variable("PODIUM_KUBECONFIG").map(PathBuf::from));
        let status = run_report::ask(kubeconfig.as_deref(), (namespace, name), plugin).await?;
        let mut report = status.report.context("the RunReport has neither a report nor an error")?;
        escape(&mut report);
        (serde_json::from_value(report).context("the report cannot be read")?, note(status.truncated))
    };
    if server.output == Output::Json {
        return printed(&answer);
    }
    let of_cluster = if asks_server { " or of the cluster" } else { "" };
    let mut text = match answer.revision {
        Some(revision) => format!("{} at revision {revision}\n", answer.pod),
        None => format!("{}: the host's cache has no Pod of this name\n", answer.pod),
    };
    if let Some(stale) = &answer.stale {
        writeln!(text, "{stale}")?;
    }
    for of in &answer.plugins.items {
        text += &explained(of);
    }
    if answer.plugins.total == 0 {
        text += &format!("no plugin of this namespace{of_cluster} is configured\n");
    }
    ui::print(&(text + note))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the last lines of an answer in a RunReport.
fn note(truncated: bool) -> &'static str {
    if truncated {
        "\nplugins of the cluster are not shown, and older runs or some plugins neither: the answer has more than 32 \
         KiB; use --plugin\n"
    } else {
        "\nplugins of the cluster are not shown; an operator may ask about them with --server\n"
    }
}

/// Returns the token of the environment.
fn token() -> Option<String> {
    variable("PODIUM_TOKEN")
}

/// Returns a variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn explained(PluginOnPod { plugin, state, reasons, runs }: &PluginOnPod) -> String {
    let state = state.as_deref().unwrap_or("-");
    let mut text = format!("\n{plugin}  {state}\n");
    for reason in reasons {
        let wait = reason.wait_millis.map_or_else(String::new, |millis| format!(", for another {}", age(millis)));
        text += &format!("  {}: {}{wait}\n", reason.reason, reason.message);
    }
    if let Some(run) = runs.first() {
        text += &format!("  last run {} ago: {}\n", age(run.millis_ago), summary(run));
    }
    text
}

fn printed(answer: &impl Serialize) -> anyhow::Result<ExitCode> {
    ui::print(&format!("{}\n", serde_json::to_string_pretty(answer)?))?;
    Ok(ExitCode::SUCCESS)
}

fn pod_url(pod: &str, plugin: Option<&str>) -> String {
    let query = plugin.map_or_else(String::new, |plugin| format!("?plugin={plugin}"));
    format!("/debug/pods/{pod}{query}")
}

impl Why {
    /// Returns namespace and name of the Pod.
    fn pod(&self) -> String {
        let Self { namespace, pod, .. } = self;
        if pod.contains('/') { pod.clone() } else { format!("{namespace}/{pod}") }
    }

    /// Returns whether the host's port is asked, which a kubeconfig in the command excludes.
    fn asks_server(&self, has_token: bool) -> bool {
        self.kubeconfig.is_none() && self.server.is_asked(has_token)
    }
}

impl Server {
    /// Returns whether the host's port is asked, which an option for it or a token of the environment says.
    fn is_asked(&self, has_token: bool) -> bool {
        has_token || self.server().is_some() || self.token_file.is_some() || self.ca_file.is_some()
    }

    fn server(&self) -> Option<&Uri> {
        self.server.as_ref().filter(|url| **url != Uri::default())
    }

    pub(crate) fn url(&self) -> Uri {
        self.server().cloned().unwrap_or_else(|| Uri::from_static("https://localhost:8080"))
    }

    /// # Errors
    /// Returns an error if a token would be sent unencrypted to another machine.
    fn kubeconfig(&self, token: Option<String>) -> anyhow::Result<Kubeconfig> {
        let url = self.url();
        let is_local = admin::is_loopback(url.host().unwrap_or_default());
        let is_encrypted = url.scheme_str() == Some("https");
        anyhow::ensure!(
            is_local || is_encrypted || (token.is_none() && self.token_file.is_none()),
            "{url} is not encrypted: --server must be https:// to send a token; unset $PODIUM_TOKEN to send none"
        );
        Ok(serde_json::from_value(json!({
            "current-context": "host",
            "contexts": [{ "name": "host", "context": { "cluster": "host", "user": "host" } }],
            "clusters": [{ "name": "host", "cluster": {
                "server": url.to_string(),
                "certificate-authority": self.ca_file,
                "tls-server-name": self.tls_server_name,
                "insecure-skip-tls-verify": is_local && self.ca_file.is_none(),
            } }],
            "users": [{ "name": "host", "user": { "token": token, "tokenFile": self.token_file } }],
        }))?)
    }

    /// Returns the same for another host.
    pub(crate) fn at(&self, url: Uri) -> Self {
        Self { server: Some(url), tls_server_name: None, ..self.clone() }
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.read(path).await?.map_err(|error| self.unread(path, &error))
    }

    /// Returns `None` if the host has nothing there.
    pub(crate) async fn find<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Option<T>> {
        match self.read(path).await? {
            Ok(answer) => Ok(Some(answer)),
            Err(error) => match error.downcast_ref() {
                Some(kube::Error::Api(status)) if status.code == 404 => Ok(None),
                _ => Err(self.unread(path, &error)),
            },
        }
    }

    /// Returns the answer within 10 s, or why there is none.
    async fn read<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<anyhow::Result<T>> {
        let client = self.client().await?;
        let answer = client.request(Request::get(path).body(Vec::new())?);
        let answer = tokio::time::timeout(Duration::from_secs(10), answer).await.context("no answer within 10 s")?;
        let read = |mut answer: Value| {
            escape(&mut answer);
            Ok(serde_json::from_value(answer)?)
        };
        Ok(answer.map_err(anyhow::Error::from).and_then(read))
    }

    /// Returns the answer to a request that takes at most `within`.
    pub(crate) async fn fetch(&self, path: &str, within: Duration) -> anyhow::Result<Response<Bytes>> {
        let client = self.client().await?;
        let answer = async {
            let (head, body) = client.send(Request::get(path).body(Body::empty())?).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            // The host says in a sentence why it refuses.
            anyhow::ensure!(head.status.is_success(), "{}: {}", head.status, String::from_utf8_lossy(&body));
            Ok(Response::from_parts(head, body))
        };
        let answer = tokio::time::timeout(within, answer).await;
        let answer = answer.with_context(|| format!("no answer within {} s", within.as_secs()))?;
        answer.map_err(|error| self.unread(path, &error))
    }

    async fn client(&self) -> anyhow::Result<Client> {
        cluster::client(self.kubeconfig(token().filter(|_| self.token_file.is_none()))?).await
    }

    fn unread(&self, path: &str, error: &anyhow::Error) -> anyhow::Error {
        anyhow::anyhow!(
            "cannot read {path} of {}; --server is the host's port of /metrics, with http:// if it has no \
             authentication, and $PODIUM_TOKEN a token whose user may get /debug: {}",
            self.url(),
            text::line(&format!("{error:#}"))
        )
    }
}

/// Escapes and bounds all texts of an answer, for terminals.
fn escape(answer: &mut Value) {
    match answer {
        Value::String(of) => *of = text::line(of),
        Value::Array(items) => items.iter_mut().for_each(escape),
        Value::Object(members) => members.values_mut().for_each(escape),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns a run as one line: `shop/cart  labels -> set label team=web  settled  3 ms`.
pub(crate) fn line(run: &Run) -> String {
    format!("{}  {}", subject(run), summary(run))
}

/// Returns the Pod of a run, or the group with its Pod: `label/app=web on shop/cart`.
fn subject(Run { pod, group, deleted, .. }: &Run) -> String {
    match (group, deleted) {
        (None, _) => pod.clone(),
        (Some(group), false) => format!("{group} on {pod}"),
        (Some(group), true) => format!("end of {group}, last {pod}"),
    }
}

fn summary(run: &Run) -> String {
    let writes = Some(writes(run)).filter(|writes| !writes.is_empty()).map_or_else(String::new, |of| of + "  ");
    format!("{} -> {writes}{}  {}", causes(run), result(run), took(run))
}

fn causes(run: &Run) -> String {
    let mut causes = run.causes.join(", ");
    if let Some(by) = &run.written_by {
        causes += &format!(" by {by}");
    }
    if run.attempt > 1 {
        causes += &format!(", attempt {}", run.attempt);
    }
    causes
}

fn writes(run: &Run) -> String {
    let own = format!(" on {}", run.pod);
    let one = |RunWrite { write, result, message }: &RunWrite| {
        let write = write.strip_suffix(&own).unwrap_or(write);
        match (&**result, message) {
            ("applied", _) => write.to_owned(),
            (result, None) => format!("{write} ({result})"),
            (result, Some(message)) => format!("{write} ({result}: {message})"),
        }
    };
    let mut writes: Vec<String> = run.writes.iter().map(one).collect();
    writes.extend((run.writes_unlisted > 0).then(|| format!("and {} more", run.writes_unlisted)));
    writes.join(", ")
}

fn result(run: &Run) -> String {
    match (&run.message, run.requeue_after_millis) {
        (Some(message), _) => format!("{}: {message}", run.result),
        (None, Some(millis)) => format!("{} {}", run.result, age(millis)),
        (None, None) => run.result.clone(),
    }
}

fn took(run: &Run) -> String {
    format!("{} ms", run.took_micros.div_ceil(1_000))
}

/// Formats a time in its largest unit.
fn age(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..120_000 => format!("{} s", millis / 1_000),
        120_000..7_200_000 => format!("{} min", millis / 60_000),
        _ => format!("{} h", millis / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> Run {
        serde_json::from_value(json!({
            "number": 7, "plugin": "shop/hello", "pod": "shop/cart", "uid": "1", "deleted": false,
            "causes": ["labels"], "writtenBy": null, "attempt": 1, "millisAgo": 0, "waitedMicros": 1,
            "tookMicros": 2_400, "cpuMicros": 300, "fuel": 9, "hostCalls": 1, "result": "settled",
            "requeueAfterMillis": null, "message": null, "writesUnlisted": 0,
            "writes": [{ "write": "set label team=web on shop/cart", "result": "applied", "message": null }],
        }))
        .unwrap()
    }

    #[test]
    fn a_run_is_one_line() {
        assert_eq!(line(&run()), "shop/cart  labels -> set label team=web  settled  3 ms");
        let quiet = Run { writes: Vec::new(), written_by: Some("shop/hello".to_owned()), ..run() };
        assert_eq!(line(&quiet), "shop/cart  labels by shop/hello -> settled  3 ms");
        let refused = RunWrite {
            write: "delete pod shop/other".to_owned(),
            result: "forbidden".to_owned(),
            message: Some("no".to_owned()),
        };
        let failed = Run {
            causes: vec!["status".to_owned(), "retry".to_owned()],
            attempt: 3,
            writes: vec![refused],
            writes_unlisted: 2,
            result: "trap".to_owned(),
            message: Some("unreachable".to_owned()),
            ..run()
        };
        assert_eq!(
            line(&failed),
            "shop/cart  status, retry, attempt 3 -> delete pod shop/other (forbidden: no), and 2 more  \
             trap: unreachable  3 ms"
        );
        let later = Run { result: "requeueAfter".to_owned(), requeue_after_millis: Some(90_000), ..run() };
        assert!(line(&later).ends_with("requeueAfter 90 s  3 ms"));
    }

    #[test]
    fn only_names_become_part_of_a_url() {
        for good in ["shop/hello", "audit", "a.b-1"] {
            assert_eq!(path(good).as_deref(), Ok(good));
        }
        for bad in ["", "a/b/c", "/a", "a/", "..", "a?b", "A", "a b", "a/../b"] {
            assert!(path(bad).is_err(), "{bad}");
        }
        assert!(pod_path("cart").is_err());
        assert!(name("shop/cart").is_err() && name("cart-0").is_ok());
    }

    fn server(url: &str) -> Server {
        Server { server: Some(url.parse().unwrap()), ..Server::default() }
    }

    #[test]
    fn certificates_are_verified_and_tokens_encrypted_off_loopback() {
        let token = || Some("secret".to_owned());
        let skips = |url: &str| {
            let config = serde_json::to_value(server(url).kubeconfig(token()).unwrap()).unwrap();
            config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] == true
        };
        for local in ["localhost", "LOCALHOST", "127.0.0.1", "127.9.8.7", "[::1]"] {
            assert!(skips(&format!("https://{local}:8080")), "{local}");
            assert!(server(&format!("http://{local}:8080")).kubeconfig(token()).is_ok(), "{local}");
        }
        for other in ["127.0.0.1.evil.example", "127.evil.example", "localhost.evil.example", "[::2]", "10.0.0.1"] {
            assert!(!skips(&format!("https://{other}:8080")), "{other}");
            let file = Server { token_file: Some("token".into()), ..server(&format!("http://{other}:8080")) };
            assert!(file.kubeconfig(None).is_err(), "{other}");
            assert!(server(&format!("http://{other}:8080")).kubeconfig(token()).is_err(), "{other}");
            assert!(server(&format!("http://{other}:8080")).kubeconfig(None).is_ok(), "{other}");
        }
        let url = server("https://127.0.0.1:40123");
        let forwarded = Server { ca_file: Some("ca.pem".into()), tls_server_name: Some("localhost"), ..url };
        let config = serde_json::to_value(forwarded.kubeconfig(token()).unwrap()).unwrap();
        let cluster = &config["clusters"][0]["cluster"];
        assert!(cluster["tls-server-name"] == "localhost" && cluster["insecure-skip-tls-verify"] != true, "{cluster}");
    }

    #[test]
    fn texts_of_an_answer_are_escaped_and_bounded() {
        let nasty = "\u{1b}[2J\n\u{202e}".repeat(1_000);
        let mut answer = serde_json::to_value(Run { result: nasty.clone(), causes: vec![nasty], ..run() }).unwrap();
        escape(&mut answer);
        let line = line(&serde_json::from_value(answer).unwrap());
        assert!(line.len() < 3 * text::MESSAGE_BYTES && text::escape(&line) == line, "{line:?}");
    }

    #[test]
    fn the_port_of_the_host_is_asked_where_an_option_or_a_token_says_so() {
        let none = Server::default();
        assert!(!none.is_asked(false) && none.is_asked(true));
        assert!(server("http://localhost:1").is_asked(false));
        assert_eq!(none.url(), "https://localhost:8080");
        let file = || Some(PathBuf::from("file"));
        assert!(Server { server: None, token_file: file(), ..server("x:1") }.is_asked(false));
        assert!(Server { server: None, ca_file: file(), ..none }.is_asked(false));
    }

    fn parsed(arguments: &[&str]) -> Option<Why> {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            why: Why,
        }
        let parsed = <Command as clap::Parser>::try_parse_from([&["why"], arguments].concat());
        parsed.ok().map(|Command { why }| why)
    }

    #[test]
    fn a_kubeconfig_in_the_command_is_used_and_an_empty_url_is_none() {
        let of =
            |arguments: &[&str], has_token| parsed(&[&["cart"], arguments].concat()).unwrap().asks_server(has_token);
        assert!(of(&["--server", "http://localhost:1"], false) && of(&["--server", ""], true));
        assert!(!of(&["--server", ""], false));
        assert!(!of(&["--server", "http://localhost:1", "--kubeconfig", "file"], true));
        assert_eq!(parsed(&["cart", "--server", ""]).unwrap().server.url(), "https://localhost:8080");
        assert!(parsed(&["cart", "--server", "http:// x"]).is_none());
    }

    #[test]
    fn a_pod_is_named_with_or_without_its_namespace() {
        let of = |arguments: &[&str]| parsed(arguments).map(|why| why.pod());
        assert_eq!(of(&["cart"]).unwrap(), "default/cart");
        assert_eq!(of(&["-n", "shop", "cart"]).unwrap(), "shop/cart");
        assert_eq!(of(&["shop/cart"]).unwrap(), "shop/cart");
        assert!(of(&["-n", "shop/x", "cart"]).is_none());
    }
}
