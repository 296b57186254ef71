//! The fault of calls in another namespace, by a plugin whose configuration is replaced while its run is under way.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kube::Client;
use podium_engine::ports::FailureKind;
use podium_host::app::{App, Options};
use podium_tests::{controlplane::ControlPlane, plugins::configured, wait::until};
use podium_vocabulary::PluginSpec;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{NARROW, OPEN, SOON, Victims, Wall, is_labelled, of_plugins};

pub(super) const FAULT: &str = "  the same by a reload with other grants";
const NAME: &str = "reload";

/// The time at which the host starts; nothing here depends on it.
const NOW_MILLIS: u64 = 1_767_323_045_678;

fn planted() -> Value {
    let metadata = json!({ "namespace": "bank", "name": "planted-e" });
    json!(["apply", json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata }).to_string()])
}

fn label() -> Value {
    json!(["label", "own", format!("guests.example/{NAME}"), "yes"])
}

/// The widest configuration, with an account that may do everything or what its tenant may.
fn wide(account: &str, calls: &Value) -> Result<PluginSpec> {
    let mut spec = configured(&Wall::Second.plugin(NAME, calls, "")?)?;
    spec.impersonate = Some(account.to_owned());
    spec.limits.host_calls = 1_000_000;
    (spec.limits.cpu, spec.limits.wall) = (Duration::from_secs(10), Duration::from_secs(60));
    Ok(spec)
}

/// The same without the right to write objects and to read live.
fn narrow(account: &str, calls: &Value) -> Result<PluginSpec> {
    let mut spec = wide(account, calls)?;
    spec.grants.write.objects.clear();
    if let Some(read) = &mut spec.grants.read {
        read.live = false;
    }
    Ok(spec)
}

async fn start(plane: &ControlPlane) -> Result<App> {
    App::start(Options { workers: 2, ..Options::new(plane.client().await?, 7, NOW_MILLIS) }).await
}

/// A plugin has staged a write of another namespace and reads on and on; then its grants are narrowed. Returns how long
/// its run continued after that.
pub(super) async fn refused_by_the_host(plane: &ControlPlane, client: &Client, victims: &Victims) -> Result<Duration> {
    let (audit, app) = (plane.audit(), start(plane).await?);
    let mark = audit.now()?;
    app.load(wide(OPEN, &json!([planted(), ["forever", "count", "bank"]]))?).await?;
    let status = || app.status().plugins().into_iter().next().map(|(_, status)| status).context("no plugin");
    until("a run under way", SOON, async || {
        ensure!(status()?.active() == 1, "none");
        Ok(())
    })
    .await?;
    let narrowed = Instant::now();
    let next = app.prepare(narrow(OPEN, &json!([planted(), ["commit"], label()]))?);
    let cut = async {
        until("the run to be cut", SOON, async || {
            ensure!(status()?.active() == 0, "it continues");
            Ok(narrowed.elapsed())
        })
        .await
    };
    let (next, cut) = tokio::join!(next, cut);
    let (next, cut) = (next?, cut?);
    ensure!(status()?.failures_by(FailureKind::Revoked) == 1, "{:?}", status()?.failures());
    app.install(next).await;
    until("a run of the next version", SOON, async || is_labelled(client, NAME).await).await?;
    app.shutdown().await;
    let foreign: Vec<_> = of_plugins(&audit, mark)?.into_iter().filter(|of| of.namespace != "shop").collect();
    ensure!(foreign.is_empty(), "the host sent a request in another namespace: {foreign:?}");
    ensure!(*victims == Victims::read(client).await?, "{victims:?} is not as it was");
    Ok(cut)
}

/// The grants of a plugin are widened over what its account may do.
pub(super) async fn refused_by_rbac(plane: &ControlPlane, client: &Client, victims: &Victims) -> Result<()> {
    let (audit, app) = (plane.audit(), start(plane).await?);
    let mark = audit.now()?;
    app.load(narrow(NARROW, &json!([["commit"]]))?).await?;
    app.load(wide(NARROW, &json!([label(), ["live", "bank", "vault"], planted()]))?).await?;
    until("the refusals of RBAC", SOON, async || {
        let foreign: Vec<_> = of_plugins(&audit, mark)?.into_iter().filter(|of| of.namespace != "shop").collect();
        ensure!(foreign.iter().all(|of| of.code == 403), "{foreign:?}");
        for [verb, resource] in [["get", "pods"], ["patch", "configmaps"]] {
            let is_there = foreign.iter().any(|of| of.verb == verb && of.resource == resource);
            ensure!(is_there, "no {verb} of {resource}: {foreign:?}");
        }
        is_labelled(client, NAME).await
    })
    .await?;
    app.shutdown().await;
    ensure!(*victims == Victims::read(client).await?, "{victims:?} is not as it was");
    Ok(())
}
