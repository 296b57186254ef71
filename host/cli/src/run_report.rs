//! `podium why` without access to the host's port: a RunReport, which the host answers in its status.

use std::{path::Path, time::Duration};

use anyhow::{Context, anyhow, bail};
use http::{Request, header};
use kube::Client;
use podium_config::run_report::Status;
use podium_vocabulary::text;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::cluster;

const API_VERSION: &str = "podium.dev/v1alpha1";
/// How long to wait for the API server and the host, which answers one report of a namespace a second, of 8 that wait.
const WITHIN: Duration = Duration::from_secs(10);
/// How long to wait for the deletion.
const DELETED_WITHIN: Duration = Duration::from_secs(2);
/// How often the object is read meanwhile.
const INTERVAL: Duration = Duration::from_millis(200);

/// Returns the answer about a Pod, and about one plugin of its namespace or all of them.
///
/// # Errors
/// Returns an error without an answer, with the next step.
pub(crate) async fn ask(
    kubeconfig: Option<&Path>,
    (namespace, pod): (&str, &str),
    plugin: Option<&str>,
) -> anyhow::Result<Status> {
    let plugin = plugin.map(|plugin| own(namespace, plugin)).transpose()?;
    let client = cluster::connect(kubeconfig, None)
        .await
        .context("no cluster to ask; to ask the host's port instead, use --server and $PODIUM_TOKEN")?;
    let mut spec = json!({ "pod": { "name": pod } });
    if let Some(plugin) = plugin {
        spec["plugin"] = plugin.into();
    }
    let mut made = None;
    let answer = timeout(WITHIN, async {
        let path = create(&client, namespace, &spec).await?;
        answer(&client, made.insert(path), namespace).await
    });
    let answer = answer.await;
    let Some(path) = made else {
        return answer.unwrap_or_else(|_| bail!("the API server did not answer within {} s", WITHIN.as_secs()));
    };
    // Otherwise the host deletes it after a minute.
    let deletion = Request::delete(path).body(Vec::new())?;
    let _ = timeout(DELETED_WITHIN, client.request::<Value>(deletion)).await;
    answer.unwrap_or_else(|_| {
        bail!(
            "no host answered within {} s: others of namespace {namespace} may wait before this one, or no host runs, \
             or none follows the plugin objects of the namespace; try again, and ask the platform team whether \
             podium-host is ready and its version answers RunReports",
            WITHIN.as_secs()
        )
    })
}

/// Creates a RunReport, and returns its path.
async fn create(client: &Client, namespace: &str, spec: &Value) -> anyhow::Result<String> {
    let all = format!("/apis/{API_VERSION}/namespaces/{namespace}/runreports");
    let report = json!({
        "apiVersion": API_VERSION, "kind": "RunReport", "metadata": { "generateName": "why-" }, "spec": spec,
    });
    let create = Request::post(&all).header(header::CONTENT_TYPE, "application/json");
    let made: Result<Value, _> = client.request(create.body(report.to_string().into_bytes())?).await;
    let made = made.map_err(|error| refused(error, namespace))?;
    let name = made["metadata"]["name"].as_str().context("the API server answered without a name")?;
    Ok(format!("{all}/{name}"))
}

/// Returns the name of a plugin in its namespace.
fn own<'a>(namespace: &str, plugin: &'a str) -> anyhow::Result<&'a str> {
    match plugin.split_once('/') {
        None => Ok(plugin),
        Some((of, name)) if of == namespace => Ok(name),
        Some((of, _)) => bail!(
            "--plugin is one of namespace {of}, and the Pod of {namespace}; plugins run on Pods of their own namespace"
        ),
    }
}

/// Waits for the answer.
async fn answer(client: &Client, path: &str, namespace: &str) -> anyhow::Result<Status> {
    loop {
        sleep(INTERVAL).await;
        let mut report: Value = match client.request(Request::get(path).body(Vec::new())?).await {
            Err(kube::Error::Api(status)) if status.code == 404 => bail!(
                "the RunReport was deleted before it had an answer: namespace {namespace} has more than 8 of them that \
                 wait; try again, and see `kubectl -n {namespace} get runreports`"
            ),
            report => report.map_err(|error| refused(error, namespace))?,
        };
        let status = report["status"].take();
        if status.is_null() {
            continue;
        }
        let status: Status = serde_json::from_value(status).context("the status of the RunReport cannot be read")?;
        if let Some(error) = &status.error {
            bail!("{}", text::line(error));
        }
        return Ok(status);
    }
}

/// Returns the answer of the API server with the next step.
fn refused(error: kube::Error, namespace: &str) -> anyhow::Error {
    let kube::Error::Api(status) = &error else {
        return anyhow::Error::new(error).context("cannot reach the API server");
    };
    let message = text::line(&status.message);
    match status.code {
        404 if message.contains("namespaces") => anyhow!("{message}"),
        404 => anyhow!(
            "this cluster has no RunReports: its podium-host is not installed, or older than this command; ask the \
             platform team to install it with its CustomResourceDefinitions, or ask the host's port with --server"
        ),
        403 => anyhow!(
            "{message}; asking needs `create, get, delete` on runreports.podium.dev, which the ClusterRole edit has, \
             and `get` on the Pod in namespace {namespace}"
        ),
        _ => anyhow!("cannot ask with a RunReport: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use tokio::{net::TcpListener, time::Instant};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_never_answers_is_not_waited_for_longer() {
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let directory = tempfile::tempdir().unwrap();
        let kubeconfig = directory.path().join("kubeconfig");
        let config = json!({
            "current-context": "a", "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
            "clusters": [{ "name": "a", "cluster": { "server": format!("http://{}", silent.local_addr().unwrap()) } }],
            "users": [{ "name": "a", "user": {} }],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let began = Instant::now();
        let error = ask(Some(&kubeconfig), ("shop", "cart"), None).await.unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(13), "{:?}: {error:#}", began.elapsed());
        assert!(error.to_string().contains("the API server did not answer within 10 s"), "{error:#}");
    }

    #[test]
    fn a_plugin_of_another_namespace_is_not_asked_about() {
        assert_eq!(own("shop", "hello").unwrap(), "hello");
        assert_eq!(own("shop", "shop/hello").unwrap(), "hello");
        let refusal = own("shop", "bank/hello").unwrap_err().to_string();
        assert!(refusal.contains("namespace bank, and the Pod of shop"), "{refusal}");
    }

    #[test]
    fn each_refusal_names_the_next_step() {
        let of = |code: u16, message: &str| {
            let status = kube::core::Status { code, message: message.to_owned(), ..<_>::default() };
            refused(kube::Error::Api(Box::new(status)), "shop").to_string()
        };
        assert!(of(404, "404 page not found").contains("CustomResourceDefinitions, or ask the host's port"));
        assert_eq!(of(404, "namespaces \"shop\" not found"), "namespaces \"shop\" not found");
        let forbidden = of(403, "spec.pod.name: bob may not get the pod cart\u{1b}");
        assert!(forbidden.contains("bob may not get the pod cart\\u001b; asking needs"), "{forbidden}");
        assert!(of(500, "x").ends_with("RunReport: x"));
    }
}
