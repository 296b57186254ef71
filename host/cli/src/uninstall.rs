//! `podium uninstall`: deletes the plugin objects of a cluster, waits until the host has removed their finalizers, and
//! deletes the definitions of the kinds.
//!
//! The host itself is removed afterwards, with the tool that installed it: only a running host removes the finalizers
//! that plugins hold on Pods.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, value_parser};
use http::Request;
use kube::Client;
use podium_vocabulary::text;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    args::Output,
    cluster,
    deploy::apply::{field, path},
    ui,
};

const VERSION: &str = "podium.dev/v1alpha1";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The two kinds of plugins.
const KINDS: [&str; 2] = ["ReconcilePlugin", "ClusterReconcilePlugin"];
/// How often the objects are listed while they go.
const INTERVAL: Duration = Duration::from_millis(500);

/// Delete the plugins of a cluster, and wait until nothing of them is left on Pods
#[derive(Debug, Args)]
#[command(
    long_about = "Delete every ReconcilePlugin and ClusterReconcilePlugin of a cluster, and wait until they are gone.\
        \n\nPlugins with grants.write.finalizers hold finalizers of Pods, and a Pod with a finalizer is never removed. \
        The host removes these finalizers when a plugin is deleted, so it must be running: uninstall the host after \
        this command, not before.\n\nWithout --yes nothing is deleted: the plugins are listed, and the exit code is \
        1 if there are any.",
    after_help = "Examples:\n  \
        podium uninstall                  list the plugins that would be deleted\n  \
        podium uninstall --yes            delete them, and wait for the host\n  \
        podium uninstall --yes --crds     delete the definitions of the kinds too"
)]
pub struct Uninstall {
    /// Delete the plugins
    #[arg(long)]
    pub yes: bool,
    /// Delete the CustomResourceDefinitions too, when all plugins are gone
    #[arg(long)]
    pub crds: bool,
    /// Kubeconfig of the cluster [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE", env = "PODIUM_KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// How long to wait for the host
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Format of the result on stdout
    #[arg(long, value_enum, default_value_t)]
    pub output: Output,
}

pub(crate) async fn run(arguments: &Uninstall) -> anyhow::Result<ExitCode> {
    let client = cluster::connect(arguments.kubeconfig.as_deref(), None).await?;
    let plugins = plugins(&client).await?;
    let paths: Vec<String> = plugins.iter().map(path).collect();
    let names: Vec<String> = plugins.iter().map(shown).collect();
    if !arguments.yes && !plugins.is_empty() {
        bail!(
            "{} would be deleted: {}; nothing was deleted, repeat the command with --yes",
            count(plugins.len()),
            names.join(", ")
        );
    }
    for path in &paths {
        delete(&client, path).await?;
    }
    wait(&client, plugins.len(), Duration::from_secs(arguments.timeout)).await?;
    let mut definitions = Vec::new();
    if arguments.crds && arguments.yes {
        // RunReports are questions without an answer then.
        for kind in KINDS.into_iter().chain(["RunReport"]) {
            let name = format!("{}.podium.dev", text::plural(kind));
            delete(&client, &format!("{DEFINITIONS}/{name}")).await?;
            definitions.push(name);
        }
    }
    match arguments.output {
        Output::Json => {
            let result = json!({ "ok": true, "deleted": names, "definitions": definitions });
            ui::print(&format!("{result}\n"))?;
        }
        Output::Table => {
            let kinds = if definitions.is_empty() { "" } else { ", and the definitions of their kinds" };
            ui::print(&format!("{} deleted{kinds}; now the host can be uninstalled\n", count(names.len())))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn count(plugins: usize) -> String {
    if plugins == 1 { "1 plugin".to_owned() } else { format!("{plugins} plugins") }
}

/// Waits until no plugin is left.
async fn wait(client: &Client, deleted: usize, timeout: Duration) -> anyhow::Result<()> {
    let end = Instant::now() + timeout;
    let bar = ui::bar(deleted as u64);
    loop {
        let left = plugins(client).await?;
        bar.set_position(deleted.saturating_sub(left.len()) as u64);
        if let Some(first) = left.first() {
            bar.set_message(format!("{}: {}", shown(first), progress(first)));
        }
        if left.is_empty() {
            bar.finish_and_clear();
            return Ok(());
        }
        if Instant::now() >= end {
            bar.finish_and_clear();
            let left: Vec<_> = left.iter().map(|object| format!("{} ({})", shown(object), progress(object))).collect();
            bail!(
                "{} still there after {} s: {}; is the host running? See \"Removing plugins and the host\" in \
                 docs/operating.md for what to do if the host was removed first",
                count(left.len()),
                timeout.as_secs(),
                left.join(", ")
            );
        }
        sleep(INTERVAL).await;
    }
}

/// Returns all plugin objects; none of a kind that is not served.
async fn plugins(client: &Client) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for kind in KINDS {
        let resource = text::plural(kind);
        let request = Request::get(format!("/apis/{VERSION}/{resource}")).body(Vec::new())?;
        match client.request::<Value>(request).await {
            Ok(mut list) => {
                let items = list["items"].as_array_mut().map(std::mem::take).unwrap_or_default();
                all.extend(items.into_iter().map(|mut object| {
                    // Items of a list may have neither.
                    object["apiVersion"] = VERSION.into();
                    object["kind"] = kind.into();
                    object
                }));
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).with_context(|| format!("cannot list {resource}")),
        }
    }
    Ok(all)
}

/// Deletes an object; one that is gone is no error.
async fn delete(client: &Client, path: &str) -> anyhow::Result<()> {
    match client.request::<Value>(Request::delete(path).body(Vec::new())?).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop).with_context(|| format!("cannot delete {path}")),
    }
}

/// The name of a plugin, as the host shows it.
fn shown(object: &Value) -> String {
    match field(object, "namespace") {
        "" => text::name(field(object, "name")),
        namespace => text::name(&format!("{namespace}/{}", field(object, "name"))),
    }
}

/// The message of the condition Ready.
fn progress(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|condition| condition["type"] == "Ready");
    let message = ready.and_then(|ready| ready["message"].as_str()).unwrap_or_default();
    if message.is_empty() { "no status".to_owned() } else { text::line(message) }
}
