//! The dashboard, the alerts and the objectives of `deploy/chart/monitoring`, with Prometheus' own programs: a real
//! Prometheus scrapes a real host as an account, over TLS, and evaluates each query.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{ErrorKind, Write},
    net::TcpListener,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use http_body_util::{BodyExt, Empty};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use podium_tests::{
    plugins::guest_yaml,
    process::{Host, HostOptions, Process, workspace_dir},
    wait::until,
};
use serde_json::{Value, json};

use crate::{
    cluster,
    kubectl::Kubectl,
    metrics_access::bind,
    workloads::{account, namespace, pod},
};

const SOON: Duration = Duration::from_secs(60);
/// Metrics whose series begin with an occurrence that this suite does not cause: drops of log lines.
const RARE: [&str; 1] = ["podium_plugin_log_dropped_lines_total"];
/// Labels that Prometheus adds.
const OF_PROMETHEUS: [&str; 2] = ["job", "instance"];

fn file(name: &str) -> PathBuf {
    workspace_dir().join("deploy/chart/monitoring").join(name)
}

/// Returns false if the program is not installed, which is reported on stderr.
fn installed(program: &str) -> Result<bool> {
    match Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            ensure!(env::var("CI").map_or(true, |ci| ci != "true"), "CI needs {program}: apt-get install prometheus");
            writeln!(std::io::stderr(), "skipped: {program} is not installed; it is in Debian's package prometheus")?;
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns an object of a file in YAML.
fn yaml(name: &str) -> Result<Value> {
    Ok(serde_saphyr::from_str(&fs::read_to_string(file(name))?)?)
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// Returns the rules of all groups.
fn rules() -> Result<Vec<Value>> {
    Ok(items(&yaml("rules.yaml")?["groups"]).flat_map(|group| items(&group["rules"])).cloned().collect())
}

/// Returns the queries of panels and of variables, with the values that a user would choose.
fn dashboard_queries() -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file("dashboard.json"))?)?;
    let panels = items(&dashboard["panels"]).flat_map(|panel| items(&panel["targets"]));
    let mut queries: Vec<String> =
        panels.map(|target| target["expr"].as_str().map(str::to_owned)).collect::<Option<_>>().context("no expr")?;
    for variable in items(&dashboard["templating"]["list"]) {
        if let Some(definition) = variable["definition"].as_str() {
            let arguments = definition.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (selector, label) = arguments.and_then(|both| both.rsplit_once(", ")).context("not label_values")?;
            queries.push(format!("count by ({label}) ({selector})"));
        }
    }
    let chosen = [("$job", "podium-host"), ("$plugin", ".*"), ("$tenant", ".*"), ("$__rate_interval", "1m")];
    let choose = |query: String| chosen.iter().fold(query, |query, (name, value)| query.replace(name, value));
    Ok(queries.into_iter().map(choose).collect())
}

/// The metrics of an exposition, with the labels of their samples.
struct Exposition {
    /// Names in `# TYPE`, as queries use them.
    known: BTreeSet<String>,
    samples: BTreeMap<String, Vec<String>>,
}

impl Exposition {
    fn parse(text: &str) -> Self {
        let mut known = BTreeSet::new();
        let mut samples = BTreeMap::<_, Vec<_>>::new();
        for line in text.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                let suffixes: &[&str] = match kind {
                    "counter" => &["_total"],
                    "histogram" => &["_bucket", "_count", "_sum"],
                    _ => &[""],
                };
                known.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
            } else if !line.starts_with('#') {
                let end = line.find(['{', ' ']).unwrap_or(line.len());
                samples.entry(line[..end].to_owned()).or_default().push(line[end..].to_owned());
            }
        }
        Self { known, samples }
    }

    /// Checks that the host has each metric of the query, with its labels. Returns the metrics without samples.
    fn check(&self, query: &str) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for (name, matchers) in selectors(query) {
            if name.contains(':') {
                let records = rules()?;
                ensure!(records.iter().any(|rule| rule["record"] == name), "no rule records {name}: {query}");
                continue;
            }
            ensure!(self.known.contains(&name), "the host has no metric {name}: {query}");
            let Some(samples) = self.samples.get(&name) else {
                missing.push(name);
                continue;
            };
            for matcher in matchers {
                let label = matcher.split(['=', '!', '~']).next().unwrap_or_default().trim();
                let is_known = OF_PROMETHEUS.contains(&label)
                    || samples.iter().any(|sample| sample.contains(&format!("{label}=\"")));
                ensure!(is_known, "{name} has no label {label}: {query}");
                let is_exact = !matcher.contains("=~") && !matcher.contains("!=") && label != "job";
                let has_value = samples.iter().any(|sample| sample.contains(matcher.trim()));
                ensure!(!is_exact || has_value, "{name} has no {matcher}: {query}");
            }
        }
        Ok(missing)
    }
}

/// Returns the names of the host's metrics, and of recorded ones, in a query, each with its matchers.
fn selectors(query: &str) -> Vec<(String, Vec<String>)> {
    const PREFIXES: [&str; 5] = ["podium", "controller_runtime_", "workqueue_", "process_", "rest_client_"];
    let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == ':';
    let (mut found, mut rest) = (Vec::new(), query);
    while let Some(start) = rest.find(is_of_name) {
        let after = &rest[start..];
        let end = after.find(|letter| !is_of_name(letter)).unwrap_or(after.len());
        let (name, tail) = after.split_at(end);
        rest = tail;
        if let Some(inside) = tail.strip_prefix('{') {
            let (matchers, tail) = inside.split_once('}').unwrap_or((inside, ""));
            rest = tail;
            found.push((name.to_owned(), matchers.split(',').map(|one| one.trim().to_owned()).collect()));
        } else if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            found.push((name.to_owned(), Vec::new()));
        }
    }
    found
}

/// A running Prometheus that scrapes the host every second.
struct Prometheus {
    process: Process,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    fn start(host: &Host, token: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        fs::write(path("token"), token)?;
        let target = host.metrics_address().to_string();
        let configuration = json!({
            "global": { "scrape_interval": "1s", "evaluation_interval": "1s" },
            "rule_files": [file("rules.yaml")],
            "scrape_configs": [{
                "job_name": "podium-host", "scheme": "https", "scrape_timeout": "1s",
                "tls_config": { "insecure_skip_verify": true },
                "authorization": { "credentials_file": path("token") },
                "static_configs": [{ "targets": [target] }],
            }],
        });
        // JSON is YAML.
        fs::write(path("prometheus.yml"), configuration.to_string())?;
        // A port that was free a moment ago: Prometheus does not say which one it chose.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", path("prometheus.yml").display()));
        command.arg(format!("--storage.tsdb.path={}", path("data").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let process = Process::spawn("prometheus", &mut command, path("log"))?;
        Ok(Self { process, port, _directory: directory })
    }

    async fn get(&self, path: &str) -> Result<Value> {
        let client: Client<HttpConnector, Empty<bytes::Bytes>> =
            Client::builder(TokioExecutor::new()).build(HttpConnector::new());
        let url = format!("http://127.0.0.1:{}/api/v1/{path}", self.port).parse()?;
        let answer = tokio::time::timeout(Duration::from_secs(10), client.get(url)).await??;
        let body = answer.into_body().collect().await?.to_bytes();
        let answer: Value = serde_json::from_slice(&body)?;
        ensure!(answer["status"] == "success", "{path}: {answer}");
        Ok(answer["data"].clone())
    }

    /// Returns the number of series in the result.
    async fn query(&self, query: &str) -> Result<usize> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let data = self.get(&format!("query?query={encoded}")).await.with_context(|| query.to_owned())?;
        Ok(items(&data["result"]).count())
    }
}

/// Writes plugins that label Pods, trap, contradict each other, and lack a right.
fn write_plugins(directory: &std::path::Path) -> Result<()> {
    let watch = "  watch: { sections: [labels] }";
    let probe = |script: &str, more: &str| {
        format!("{watch}\n  limits: {{ class: interpreter }}\n{more}  config: {}", json!({ "script": script }))
    };
    let account = "  serviceAccountName: powerless\n  serviceAccountNamespace: monitored\n";
    for (guest, name, more) in [
        ("panics", "broken", watch.to_owned()),
        ("probe", "left", probe("label guests.example/x left", "")),
        ("probe", "right", probe("label guests.example/x right", "")),
        ("probe", "refused", probe("label guests.example/y 1", account)),
    ] {
        fs::write(
            directory.join(format!("{name}.yaml")),
            guest_yaml(guest, name, &more)?.replace("write: {", "write: { events: true,"),
        )?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_has_data_for_each_query() -> Result<()> {
    if !installed("prometheus")? {
        return Ok(());
    }
    let Some((plane, admin, _turn)) = cluster(0).await? else { return Ok(()) };
    Kubectl::new(&plane).install(&["namespace.yaml", "metrics-rbac.yaml"])?;
    for (space, name) in [("monitoring", "prometheus"), ("monitored", "powerless")] {
        namespace(&admin, space).await?;
        account(&admin, space, name).await?;
    }
    bind(&admin, "podium-metrics-reader").await?;
    let token = plane.token_of("monitoring", "prometheus").await?;
    for name in ["a", "b"] {
        pod(&admin, "monitored", name).await?;
    }
    let directory = tempfile::tempdir()?;
    let (plugins, state) = (directory.path().join("plugins"), directory.path().join("state"));
    fs::create_dir(&plugins)?;
    fs::create_dir(&state)?;
    write_plugins(&plugins)?;
    let policy = directory.path().join("policy.yaml");
    fs::write(&policy, "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {}\n")?;
    let mut arguments = vec!["--state-dir".to_owned(), state.to_string_lossy().into_owned()];
    arguments.extend(["--policy".to_owned(), policy.to_string_lossy().into_owned()]);
    arguments.extend(["--metrics-authentication", "on", "--lease", "on"].map(str::to_owned));
    let host =
        Host::spawn(&HostOptions { kubeconfig: plane.kubeconfig_path(), plugins: vec![plugins], arguments }).await?;

    let scraped = crate::metrics_access::client(&host, Some(&token))?;
    let exposition = until("loops, refused writes and traps", SOON, async || {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let exposition = Exposition::parse(&scraped.request_text(request).await?);
        for name in ["podium_write_loops_total", "podium_writes_withheld_total", "podium_forbidden_closings_total"] {
            ensure!(exposition.samples.contains_key(name), "no {name}: {}", host.log());
        }
        Ok(exposition)
    })
    .await?;
    let queries = dashboard_queries()?;
    let expressions: Vec<String> =
        rules()?.iter().filter_map(|rule| rule["expr"].as_str().map(str::to_owned)).collect();
    ensure!(queries.len() > 50 && expressions.len() == 44, "{} and {}", queries.len(), expressions.len());
    let mut without_data = BTreeSet::new();
    for query in &expressions {
        ensure!(exposition.check(query)?.is_empty(), "no data for {query}");
    }
    for query in &queries {
        let missing = exposition.check(query)?;
        ensure!(missing.iter().all(|name| RARE.contains(&name.as_str())), "no samples of {missing:?}: {query}");
        if !missing.is_empty() {
            without_data.insert(query.clone());
        }
    }

    let mut prometheus = Prometheus::start(&host, &token)?;
    until("data for each query of the dashboard", SOON, async || {
        prometheus.process.check_running()?;
        let mut empty = Vec::new();
        for query in queries.iter().filter(|query| !without_data.contains(*query)) {
            if prometheus.query(query).await? == 0 {
                empty.push(query);
            }
        }
        ensure!(empty.is_empty(), "no data for {empty:#?}");
        Ok(())
    })
    .await?;
    // The API server answers the others, too: they are valid.
    for query in &without_data {
        prometheus.query(query).await?;
    }
    the_rules_fire(&prometheus).await
}

async fn the_rules_fire(prometheus: &Prometheus) -> Result<()> {
    until("the rules", SOON, async || {
        let data = prometheus.get("rules").await?;
        let mut firing = BTreeSet::new();
        for rule in items(&data["groups"]).flat_map(|group| items(&group["rules"])) {
            ensure!(rule["health"] == "ok", "{rule}");
            if rule["state"] == "firing" {
                firing.insert(rule["name"].as_str().unwrap_or_default().to_owned());
            }
        }
        for alert in ["PodiumRunsTrap", "PodiumWriteLoop", "PodiumWritesRefused"] {
            ensure!(firing.contains(alert), "{alert} is not among {firing:?}");
        }
        if firing.contains("PodiumHostDown") || firing.contains("PodiumCacheStale") {
            bail!("{firing:?}");
        }
        Ok(())
    })
    .await
}

#[test]
fn prometheus_accepts_the_rules_and_their_unit_tests_pass() -> Result<()> {
    if !installed("promtool")? {
        return Ok(());
    }
    let test = |name: &str| workspace_dir().join("tests/monitoring").join(name);
    let checks: [(&str, Vec<PathBuf>); 2] =
        [("check", vec![file("rules.yaml")]), ("test", vec![test("rules.test.yaml"), test("slo.test.yaml")])];
    for (action, files) in checks {
        let output = Command::new("promtool").args([action, "rules"]).args(files).output()?;
        let text = [output.stdout, output.stderr].concat();
        ensure!(output.status.success(), "promtool {action}: {}", String::from_utf8_lossy(&text));
    }
    Ok(())
}

#[test]
fn each_alert_has_a_severity_a_summary_a_description_and_a_runbook() -> Result<()> {
    let runbooks = fs::read_to_string(workspace_dir().join("docs/runbooks.md"))?;
    let mut alerts = 0;
    for rule in rules()?.iter().filter(|rule| !rule["alert"].is_null()) {
        let (name, annotations) = (rule["alert"].as_str().context("no name")?, &rule["annotations"]);
        alerts += 1;
        ensure!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap_or_default()), "{name}");
        for text in ["summary", "description"] {
            ensure!(annotations[text].as_str().is_some_and(|text| !text.is_empty()), "{name} has no {text}");
        }
        let runbook = format!("docs/runbooks.md#{}", name.to_lowercase());
        ensure!(annotations["runbook_url"] == runbook, "{name}: {annotations}");
        ensure!(runbooks.lines().any(|line| line == format!("## {name}")), "docs/runbooks.md has no section {name}");
    }
    let sections = runbooks.lines().filter(|line| line.starts_with("## Podium")).count();
    ensure!(sections == alerts, "{sections} sections for {alerts} alerts");
    Ok(())
}

#[test]
fn the_rules_record_the_queries_of_the_objectives_for_each_window() -> Result<()> {
    let rules = rules()?;
    let objectives = yaml("slo.yaml")?;
    let mut recorded = 0;
    for objective in items(&objectives["slos"]) {
        let name = objective["name"].as_str().context("no name")?;
        let query = objective["sli"]["raw"]["error_ratio_query"].as_str().context("no query")?;
        for window in ["5m", "30m", "1h", "2h", "6h", "1d", "3d"] {
            let record = format!("podium:slo_{name}:error_ratio_rate{window}");
            let rule = rules.iter().find(|rule| rule["record"] == record).with_context(|| format!("no {record}"))?;
            ensure!(rule["expr"] == query.replace("{{.window}}", window), "{record} differs from slo.yaml");
            recorded += 1;
        }
        let percent = objective["objective"].as_f64().context("no objective")?;
        let budget = format!("> 14.4 * {}", ((100.0 - percent) * 1_000.0).round() / 100_000.0);
        let burns = rules.iter().filter(|rule| rule["expr"].as_str().is_some_and(|expr| expr.contains(&budget)));
        ensure!(burns.filter(|rule| rule["expr"].to_string().contains(name)).count() == 1, "{name}: {budget}");
    }
    let all =
        rules.iter().filter(|rule| rule["record"].as_str().is_some_and(|name| name.starts_with("podium:slo_"))).count();
    ensure!(all == recorded, "{all} rules record, {recorded} of them an objective");
    Ok(())
}
