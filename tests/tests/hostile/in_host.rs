//! Attacks in a whole host on the embedded cluster, in a simulation: the record of each attack, and a neighbour of
//! another tenant that labels a Pod meanwhile, with exactly as many runs and writes as without the attack.

use std::{fs, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use kube::api::DeleteParams;
use podium_devcluster::{Cluster, Options};
use podium_engine::status::{LoadState, PluginStatus};
use podium_host::app::App;
use podium_tests::{embedded, modules::NEIGHBOUR, sandbox, wire::Wire};
use podium_vocabulary::{KeyPattern, PluginId, PluginSpec, Source};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::MutexGuard;

use super::{
    attack::{ALONE, Attack, End, LIMIT, cut, is_one_line},
    components, guests, modules,
};

#[tokio::test(start_paused = true)]
async fn each_attack_of_the_guest_is_contained_and_recorded() {
    try_all(&guests::attacks()).await;
}

#[tokio::test(start_paused = true)]
async fn each_attack_of_a_module_is_contained_and_recorded() {
    try_all(&modules::attacks()).await;
}

#[tokio::test(start_paused = true)]
async fn each_hostile_component_is_contained_and_recorded() {
    try_all(&components::attacks()).await;
}

async fn try_all(attacks: &[Attack]) {
    let mut rig = HostRig::new().await.unwrap();
    let quiet = rig.round(None).await.unwrap();
    assert_eq!(quiet, rig.round(None).await.unwrap(), "without an attack");
    let mut escaped = Vec::new();
    for attack in attacks {
        match rig.round(Some(attack)).await {
            Ok(delta) if delta == quiet => {}
            Ok(delta) => escaped.push(format!("{}: the neighbour: {delta:?}, otherwise {quiet:?}", attack.name)),
            Err(error) => escaped.push(format!("{}: {error:#}", attack.name)),
        }
    }
    rig.app.shutdown().await;
    assert!(escaped.is_empty(), "{} of {} attacks:\n{}", escaped.len(), attacks.len(), escaped.join("\n"));
}

/// The neighbour's runs and writes in one round.
type Delta = (u64, u64, usize);

pub(super) struct HostRig {
    pub(super) cluster: Cluster,
    pub(super) app: App,
    folder: TempDir,
    neighbour: Arc<PluginStatus>,
    rounds: usize,
    _alone: MutexGuard<'static, ()>,
}

impl HostRig {
    pub(super) async fn new() -> Result<Self> {
        let alone = ALONE.lock().await;
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() })?;
        let wire = Wire::new(&cluster);
        let app = App::start_simulated(embedded::options(&cluster, wire.client())).await?;
        let folder = tempfile::tempdir()?;
        let mut spec = sandbox::spec("neighbour");
        spec.id = PluginId { namespace: Some("bank".into()), name: "neighbour".into() };
        spec.grants.write.labels = vec![KeyPattern("neighbour.podium.dev/*".into())];
        let file = folder.path().join("neighbour.wasm");
        spec.source = Source::File(file.clone());
        fs::write(&file, NEIGHBOUR.component()?)?;
        let neighbour = app.status().plugin(&spec.id);
        app.load(spec).await?;
        let rig = Self { cluster, app, folder, neighbour, rounds: 0, _alone: alone };
        ["shop", "bank"].iter().try_for_each(|namespace| rig.create_namespace(namespace))?;
        Ok(rig)
    }

    /// Commits an attack on a Pod of one tenant while a Pod of the other appears and goes.
    pub(super) async fn round(&mut self, attack: Option<&Attack>) -> Result<Delta> {
        self.rounds += 1;
        let (ours, theirs) = (format!("cart-{}", self.rounds), format!("vault-{}", self.rounds));
        let before = (self.neighbour.runs(), self.neighbour.writes_applied());
        self.create("shop", &ours)?;
        let loaded = match attack {
            Some(attack) => self.load(attack).await?,
            None => None,
        };
        self.create("bank", &theirs)?;
        embedded::at_rest(&self.cluster, &self.app).await?;
        let pods = embedded::pods(&self.cluster, Some("bank"));
        let labels = pods.get(&theirs).await?.metadata.labels.unwrap_or_default();
        ensure!(labels.get("neighbour.podium.dev/seen").is_some_and(|value| value == "yes"), "labels {labels:?}");
        if let Some((spec, status)) = loaded {
            let judged = attack.map_or(Ok(()), |attack| recorded(attack, &status));
            ensure!(self.app.unload(&spec.id).await, "it was not loaded");
            judged?;
        }
        self.delete("shop", &ours).await?;
        self.delete("bank", &theirs).await?;
        embedded::at_rest(&self.cluster, &self.app).await?;
        let failures = self.neighbour.failures().len();
        Ok((self.neighbour.runs() - before.0, self.neighbour.writes_applied() - before.1, failures))
    }

    /// Loads the plugin of an attack. `None` if it must be refused, and was.
    pub(super) async fn load(&self, attack: &Attack) -> Result<Option<(PluginSpec, Arc<PluginStatus>)>> {
        self.load_as(attack, "shop", &format!("attack-{}", self.rounds)).await
    }

    pub(super) async fn load_as(
        &self,
        attack: &Attack,
        namespace: &str,
        name: &str,
    ) -> Result<Option<(PluginSpec, Arc<PluginStatus>)>> {
        let mut spec = attack.spec();
        // Fuel is the only limit in a simulation, and a loop of one instruction uses it slowly.
        if spec.limits.cpu == LIMIT {
            spec.limits.cpu = Duration::from_millis(20);
        }
        spec.id = PluginId { namespace: Some(namespace.into()), name: name.into() };
        let file = self.folder.path().join(Path::new("attack.wasm"));
        spec.source = Source::File(file.clone());
        fs::write(&file, attack.component()?)?;
        let (id, status) = (spec.id.clone(), self.app.status().plugin(&spec.id));
        let loaded = self.app.load(spec.clone()).await;
        let End::Refused(text) = attack.end else {
            loaded?;
            return Ok(Some((spec, status)));
        };
        let error = loaded.err().context("loaded")?.to_string();
        ensure!(error.contains(text), "refused with {}", cut(&error));
        is_one_line(&error, 8 << 10)?;
        let state = self.app.plugins().into_iter().find(|plugin| plugin.id == id).context("not among the plugins")?;
        ensure!(matches!(state.load, LoadState::Refused { .. }) && status.runs() == 0, "{state:?}");
        self.app.unload(&id).await;
        Ok(None)
    }

    pub(super) fn create_namespace(&self, name: &str) -> Result<()> {
        self.cluster.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }))?;
        Ok(())
    }

    pub(super) fn create(&self, namespace: &str, name: &str) -> Result<()> {
        self.cluster.create(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": namespace, "labels": { "app": "cart" } },
            "spec": { "containers": [{ "name": "c", "image": "registry.example/c:1" }] },
        }))?;
        Ok(())
    }

    /// Deletes a Pod, unless the attack did.
    async fn delete(&self, namespace: &str, name: &str) -> Result<()> {
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        match embedded::pods(&self.cluster, Some(namespace)).delete(name, &now).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => Ok(deleted.map(drop)?),
        }
    }
}

/// Compares the counters of the plugin, which are its metrics, with the end of the attack.
fn recorded(attack: &Attack, status: &PluginStatus) -> Result<()> {
    let failures = status.failures();
    match attack.host_end.unwrap_or(attack.end) {
        End::Refused(_) => anyhow::bail!("loaded"),
        End::Fails(kind, text) => {
            let last = status.last_failure().unwrap_or_default();
            ensure!(failures.keys().eq([&kind.name()]), "failures {failures:?}: {}", cut(&last));
            ensure!(last.contains(text), "failed with {}", cut(&last));
            is_one_line(&last, 8 << 10)?;
            ensure!(!kind.is_panic() || status.panics() > 0, "no panic is counted");
            ensure!(status.requests.get() == 0 || attack.sends, "{} requests of failed runs", status.requests.get());
        }
        End::Succeeds(..) => {
            let last = status.last_failure();
            ensure!(failures.is_empty() && status.runs() > 0, "failures {failures:?}: {last:?}");
        }
    }
    Ok(())
}
