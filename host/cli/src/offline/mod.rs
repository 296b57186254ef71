//! A plugin in the whole host, over a cluster in this process and in virtual time, for `podium run` and `podium test`.
//!
//! Sandbox, grants, limits, the decoding of Pods, the order of runs and the plan of requests are the host's own, and
//! the cluster is that of `podium dev`. Between the host and the plugin's code is only [`observe`], which notes what
//! passes. A host and a cluster are made for each case; the code is compiled once for all of them.

mod code;
mod inputs;
mod observe;
mod pods;
mod recorder;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, bail};
pub(crate) use code::{Code, Compiled};
pub(crate) use inputs::{Inputs, argument as input_argument, read as read_inputs};
pub(crate) use observe::Ran;
use podium_devcluster::{Cluster, Options, StartError};
use podium_engine::wake::Wake;
use podium_host::app::{self, App};
use podium_pods::pod::CachedPod;
use podium_vocabulary::{PluginSpec, PodKey, Prune};
pub(crate) use pods::{InputPod, read};
pub(crate) use recorder::Request;
use serde_json::{Value, json};

use observe::Observer;
use recorder::Recorder;

use crate::{args::Impersonation, inspect};

/// The time for which nothing happens when a plugin has settled; the host looks for its own writes again before that.
const QUIET: Duration = Duration::from_millis(300);
/// The steps of other tasks in which the host has its first list of Pods.
const STEPS: u32 = 100_000;
/// How often it is looked whether the plugin has settled.
const ROUNDS: u32 = 2_000;
/// The time in which the host has sent all Events, after no more runs are admitted.
const EVENTS: Duration = Duration::from_secs(30);
/// The account of a host that has all rights; a plugin's account has those that `podium deploy` would derive.
const HOST: &str = "podium/podium-host";

/// The Pods, the time and the state of a plugin.
#[derive(Debug, Clone)]
pub(crate) struct Scenario {
    pub(crate) pods: Vec<InputPod>,
    /// The only Pods that it runs on, as namespace and name; `None` for all that it watches.
    pub(crate) on: Option<Vec<String>>,
    pub(crate) inputs: Inputs,
    /// The time at the start in milliseconds since the epoch.
    pub(crate) now_millis: i64,
    /// Its state before the first run.
    pub(crate) state: BTreeMap<String, Vec<u8>>,
    /// The most runs on a Pod without time in between.
    pub(crate) runs: u32,
    /// Whether further runs are left out in silence.
    pub(crate) once: bool,
    /// The time that passes after the plugin has settled.
    pub(crate) then: Duration,
}

/// The effects of a plugin.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    /// Its runs in their order.
    pub(crate) runs: Vec<Ran>,
    /// The requests that would have changed a cluster, in their order.
    pub(crate) requests: Vec<Request>,
    pub(crate) log: Vec<String>,
    /// The advice on each call that the grants do not permit.
    pub(crate) lacking: Vec<String>,
    /// Why it did not come to its end.
    pub(crate) unfinished: Option<String>,
    /// Why it did not run, by Pod: by each of `on`, and by each other one if it ran on none.
    pub(crate) not_run: BTreeMap<String, String>,
}

/// Runs a plugin.
///
/// # Errors
/// Returns an error if a Pod is none, with its place, or if the host refuses the plugin.
pub(crate) fn observe(compiled: &Compiled, spec: &PluginSpec, scenario: &Scenario) -> anyhow::Result<Observed> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().start_paused(true).build().context("cannot start a thread")?;
    runtime.block_on(async {
        let code = compiled.plugin(spec).await?;
        let cluster = Cluster::start(Options {
            nodes: 0,
            simulate: false,
            // The owners of a Pod, such as its Node, are elsewhere.
            collect: false,
            start_millis: scenario.now_millis,
            ..Options::default()
        })?;
        provide(&cluster, spec, scenario)?;
        let recorder = Recorder::new(&cluster);
        let observer = Observer::new(code, &with_groups(spec, scenario));
        let sender = observer.clone();
        let now_millis = u64::try_from(scenario.now_millis)?;
        let app = App::start_simulated(app::Options {
            workers: 1,
            policy: compiled.policy.clone(),
            code: [(spec.id.clone(), observer.reconcile())].into(),
            around_deliver: Box::new(move |deliver| sender.deliver(deliver)),
            ..app::Options::new(recorder.client(), 1, now_millis)
        });
        let app = app.await?;
        let ran = run(&app, spec, &observer, scenario).await;
        let observed = observer.observed().map(|mut observed| {
            observed.requests = recorder.requests().clone();
            observed.not_run = not_run(&app, spec, scenario, &observed.runs);
            observed
        });
        app.shutdown().await;
        cluster.shutdown().await;
        ran.and(observed)
    })
}

async fn run(app: &App, spec: &PluginSpec, observer: &Observer, scenario: &Scenario) -> anyhow::Result<()> {
    // Without a wait, so that no time passes before the first run.
    for _ in 0..STEPS {
        if app.unready().is_none() {
            break;
        }
        tokio::task::yield_now().await;
    }
    if let Some(why) = app.unready() {
        bail!("the host does not start: {why}");
    }
    app.load(spec.clone()).await?;
    let settled = || app.is_idle();
    rest(settled).await?;
    if !scenario.then.is_zero() {
        tokio::time::sleep(scenario.then).await;
        rest(settled).await?;
    }
    observer.close();
    tokio::time::sleep(EVENTS).await;
    Ok(())
}

/// Waits until a condition holds for a while.
async fn rest(holds: impl Fn() -> bool) -> anyhow::Result<()> {
    for _ in 0..ROUNDS {
        let held = holds();
        tokio::time::sleep(QUIET).await;
        if held && holds() {
            return Ok(());
        }
    }
    bail!("the plugin does not come to rest within {} s", (QUIET * ROUNDS).as_secs())
}

/// Stores the Pods, the objects of inputs, their namespaces, and the account of the plugin with the rights of its
/// grants.
fn provide(cluster: &Cluster, spec: &PluginSpec, scenario: &Scenario) -> anyhow::Result<()> {
    let rights = match &spec.impersonate {
        Some(_) => inspect::rights(spec, &inspect::host(HOST)?, Impersonation::Plain),
        None => Vec::new(),
    };
    let namespace_of = |object: &Value| object["metadata"]["namespace"].as_str().map(str::to_owned);
    let namespaces = rights.iter().chain(scenario.pods.iter().map(|input| &input.pod)).filter_map(namespace_of);
    for name in namespaces.chain(spec.id.namespace.as_deref().map(str::to_owned)) {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        match cluster.create(namespace) {
            Ok(_) | Err(StartError::Refused { code: 409, .. }) => {}
            Err(error) => return Err(error).with_context(|| format!("namespace {name}")),
        }
    }
    for object in rights {
        cluster.create(object).context("the plugin's account cannot be created")?;
    }
    inputs::store(cluster, spec, &scenario.inputs)?;
    for InputPod { pod, place, .. } in &scenario.pods {
        match cluster.restore(pod.clone()) {
            Ok(_) => {}
            Err(StartError::Refused { code: 409, .. }) => {
                bail!("{place}: is a second Pod {}; rename one", pods::name(pod));
            }
            Err(StartError::Refused { message, .. }) => bail!("{place}: {message}"),
            Err(error) => return Err(error).with_context(|| place.clone()),
        }
    }
    Ok(())
}

/// Returns why the plugin did not run on Pods that it was to run on.
fn not_run(app: &App, spec: &PluginSpec, scenario: &Scenario, runs: &[Ran]) -> BTreeMap<String, String> {
    let is_missing = |pod: &&str| match scenario.on {
        // A group runs on another Pod of it.
        Some(_) if spec.watch.related.is_none() => runs.iter().all(|ran| ran.pod != **pod),
        _ => runs.is_empty(),
    };
    let why = |pod: &str| {
        let (namespace, name) = pod.split_once('/')?;
        let runs = app.pod_runs(namespace, name, Some(&spec.id.to_string()))?;
        let reasons = runs.plugins.items.into_iter().flat_map(|of| of.reasons);
        Some(reasons.map(|why| format!("{}: {}", why.reason, why.message)).collect::<Vec<_>>().join("; "))
    };
    let missing = scenario.subjects().filter(is_missing);
    missing.map(|pod| (pod.to_owned(), why(pod).unwrap_or_else(|| "it is not there".to_owned()))).collect()
}

/// Returns the scenario with the other Pods of the groups of `on`, because a plugin that runs for groups runs on the
/// first Pod of each.
fn with_groups(spec: &PluginSpec, scenario: &Scenario) -> Scenario {
    let mut scenario = scenario.clone();
    if let (Some(on), Some(_)) = (&mut scenario.on, &spec.watch.related) {
        let wake = Wake::new([((), spec)]);
        let group = |input: &InputPod| {
            let mut pod = input.pod.clone();
            // The cluster assigns both.
            pod["metadata"]["resourceVersion"] = "1".into();
            pod["metadata"]["uid"] = "1".into();
            let pod = CachedPod::unshared(pod.to_string().as_bytes(), &Prune::NOTHING).ok()?;
            wake.group(&Arc::new(pod))
        };
        let named = scenario.pods.iter().map(|input| (&input.name, group(input)));
        let (subjects, others): (Vec<_>, Vec<_>) = named.partition(|(name, _)| on.contains(name));
        let is_same = |of: &Option<PodKey>| of.is_some() && subjects.iter().any(|(_, group)| group == of);
        on.extend(others.into_iter().filter(|(_, group)| is_same(group)).map(|(name, _)| name.clone()));
    }
    scenario
}

impl Scenario {
    /// Returns the Pods that the plugin runs on, as far as it watches them.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &str> {
        let names = self.pods.iter().map(|input| &*input.name);
        names.filter(|name| self.on.as_ref().is_none_or(|on| on.iter().any(|one| one == name)))
    }
}
