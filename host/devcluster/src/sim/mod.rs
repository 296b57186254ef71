//! A simulated scheduler and kubelet, and the controllers of workloads. The simulation observes changes like any
//! controller and acts when a step is due; everything it does depends on the objects, the seed and the clock.

mod containers;
mod controllers;
mod events;
mod step;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use controllers::Controllers;
use serde_json::{Value, json};
use step::Step;
use tokio::sync::watch;

use crate::{
    core::Core,
    delete::{self, Options},
    failure::Failure,
    kinds::Kind,
    managed::Author,
    meta, pods,
    state::State,
    store::Key,
    write::{self, Write},
};

/// The annotation that controls how a Pod behaves: `crash` (exits with 1, repeatedly), `oom` (the same, killed for
/// its memory), `finish` (exits with 0), `fail` (exits with 1 and is not restarted), `pending` (is never scheduled).
/// Without it the Pod runs until it is deleted. A Pod of a workload of `apps/v1` is always restarted.
pub const BEHAVIOUR: &str = "devcluster.podium.dev/behaviour";

/// The duration of each step of a Pod's life.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Time from creation to a node.
    pub schedule: Duration,
    /// Time from a node to running, plus up to half of it depending on the seed.
    pub start: Duration,
    /// Time from running to an exit, for a Pod that exits.
    pub run: Duration,
    /// Time before the first restart; doubled by each further one.
    pub back_off: Duration,
    pub longest_back_off: Duration,
    /// Time from a deletion to the end, if the Pod's own grace period is not shorter.
    pub terminate: Duration,
}

impl Default for Pace {
    /// Returns times that are short enough to watch, with the back-off of a real kubelet.
    fn default() -> Self {
        Self {
            schedule: Duration::from_millis(20),
            start: Duration::from_millis(200),
            run: Duration::from_secs(2),
            back_off: Duration::from_secs(10),
            longest_back_off: Duration::from_secs(300),
            terminate: Duration::from_millis(500),
        }
    }
}

/// Pauses and resumes the simulated scheduler, kubelet and controllers.
#[derive(Clone, Debug)]
#[must_use]
pub struct Simulation {
    pub(crate) paused: watch::Sender<bool>,
}

impl Simulation {
    /// Stops all Pods and workloads from changing; steps that become due meanwhile happen after
    /// [`resume`](Self::resume).
    pub fn pause(&self) {
        self.paused.send_replace(true);
    }

    pub fn resume(&self) {
        self.paused.send_replace(false);
    }
}

/// Runs until the cluster stops.
pub(crate) async fn run(core: Arc<Core>, pace: Pace, seed: u64, mut paused: watch::Receiver<bool>) {
    let mut changed = core.revision.subscribe();
    let mut controllers = Controllers::default();
    let mut kubelet = Kubelet { pace, seen: 0, epoch: 0, lives: BTreeMap::new(), turn: seed, addresses: 0 };
    loop {
        changed.borrow_and_update();
        let next = if *paused.borrow_and_update() {
            None
        } else {
            core.write(|state| {
                controllers.round(state, &core);
                kubelet.round(state, &core);
            });
            let next = kubelet.lives.values().map(|life| life.due).min();
            next.into_iter().chain(controllers.due()).min()
        };
        let due = async {
            match next {
                Some(millis) => tokio::time::sleep_until(core.clock.instant_of(millis)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = core.stopping.cancelled() => return,
            paused = paused.changed() => {
                if paused.is_err() {
                    return;
                }
            }
            changed = changed.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = due => {}
        }
    }
}

/// The next simulated step of a Pod.
#[derive(Debug)]
struct Life {
    key: Key,
    step: Step,
    /// Milliseconds since the epoch.
    due: i64,
}

#[derive(Debug)]
struct Kubelet {
    pace: Pace,
    seen: u64,
    /// The epoch of `seen`.
    epoch: u64,
    /// Next steps by uid, without Pods for which no step is due.
    lives: BTreeMap<String, Life>,
    /// The next node of the round robin.
    turn: u64,
    addresses: u32,
}

impl Kubelet {
    fn round(&mut self, state: &mut State, core: &Core) {
        self.look(state, core.clock.now_millis());
        loop {
            let now = core.clock.now_millis();
            // The earliest first; Pods that are due together in the order of their names.
            let due = self.lives.iter().filter(|(_, life)| life.due <= now);
            let Some(uid) = due.min_by_key(|(_, life)| (life.due, life.key.clone())).map(|(uid, _)| uid.clone()) else {
                return;
            };
            if let Some(life) = self.lives.remove(&uid)
                && let Err(failure) = self.act(state, core, &life, &uid)
            {
                tracing::debug!(pod = life.key.name, ?failure, "a simulated step was refused");
            }
            self.look(state, now);
        }
    }

    /// Plans steps for the changes since the last call.
    fn look(&mut self, state: &mut State, now: i64) {
        if std::mem::replace(&mut self.epoch, state.store.epoch()) != self.epoch {
            self.seen = 0;
        }
        let changes = match state.store.since("pods", self.seen) {
            Ok(changes) => changes.into_iter().map(|c| (c.key, c.object, c.deleted)).collect::<Vec<_>>(),
            Err(_) => {
                self.lives.clear();
                state.store.iter("pods", None).map(|(key, pod)| (key.clone(), pod.clone(), false)).collect()
            }
        };
        self.seen = state.store.revision();
        for (key, pod, deleted) in changes {
            let uid = meta::uid(&pod).to_owned();
            let planned = if deleted { None } else { step::plan(&pod, &self.pace) };
            match planned {
                None => {
                    self.lives.remove(&uid);
                }
                Some((step, _)) if self.lives.get(&uid).is_some_and(|life| life.step == step) => {}
                Some((step, after)) => {
                    let mut millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                    if step == Step::Start {
                        millis += state.random_below(millis / 2 + 1);
                    }
                    let due = now.saturating_add_unsigned(millis);
                    self.lives.insert(uid, Life { key, step, due });
                }
            }
        }
    }

    fn act(&mut self, state: &mut State, core: &Core, life: &Life, uid: &str) -> Result<(), Failure> {
        let Some(kind) = state.kinds.find("", "v1", "pods") else { return Ok(()) };
        let Some(pod) = state.store.get("pods", &life.key).cloned() else { return Ok(()) };
        let now = core.clock.now();
        if let Some(words) = events::words(life.step) {
            events::emit(state, core, &pod, words);
        }
        match life.step {
            Step::Bind => self.schedule(state, core, &kind, &life.key, uid, &pod),
            Step::Terminate => {
                let options = Options { grace_seconds: Some(0), uid: Some(uid.to_owned()), ..Options::default() };
                delete::delete(state, &core.clock, &kind, &life.key, &options).map(drop)
            }
            Step::Start => {
                let node = state.store.get("nodes", &Key::new("", meta::text(&pod, &["spec", "nodeName"])));
                let host = node.map(|node| node_address(node)).unwrap_or_default();
                self.addresses += 1;
                let [_, high, middle, low] = self.addresses.to_be_bytes();
                let address = format!("10.{}.{middle}.{low}", 244_u8.wrapping_add(high));
                report(state, core, &kind, &life.key, |pod| containers::start(pod, &host, &address, &now))
            }
            Step::Exit => report(state, core, &kind, &life.key, |pod| containers::exit(pod, &now)),
            Step::BackOff => report(state, core, &kind, &life.key, |pod| containers::back_off(pod, &self.pace, &now)),
            Step::Restart => report(state, core, &kind, &life.key, |pod| containers::restart(pod, &now)),
        }
    }

    /// Returns a ready node that fits with the fewest Pods of the same controller, as the real scheduler spreads
    /// them; equal nodes take turns, and the seed determines the first.
    fn schedule(
        &mut self,
        state: &mut State,
        core: &Core,
        kind: &Arc<Kind>,
        key: &Key,
        uid: &str,
        pod: &Value,
    ) -> Result<(), Failure> {
        let nodes: Vec<String> = state
            .store
            .iter("nodes", None)
            .filter(|(_, node)| takes(node, pod))
            .map(|(key, _)| key.name.clone())
            .collect();
        let count = u64::try_from(nodes.len()).unwrap_or_default();
        let in_turn = (0..count).filter_map(|step| nodes.get(usize::try_from((self.turn + step) % count).ok()?));
        let siblings = siblings_by_node(state, key, pod);
        let Some(node) = in_turn.min_by_key(|node| siblings.get(node.as_str()).copied().unwrap_or_default()) else {
            // Tried again later, because nodes may be added.
            let due = core.clock.now_millis() + 1000;
            self.lives.insert(uid.to_owned(), Life { key: key.clone(), step: Step::Bind, due });
            let now = core.clock.now();
            events::emit(state, core, pod, events::UNSCHEDULABLE);
            return report(state, core, kind, key, |pod| containers::unschedulable(pod, &now));
        };
        self.turn = self.turn.wrapping_add(1);
        pods::assign(state, &author(core, kind, "kube-scheduler", ""), key, node)?;
        let message = format!("Successfully assigned {}/{} to {node}", key.namespace, key.name);
        events::emit(state, core, pod, ("Normal", "Scheduled", "default-scheduler", &message));
        Ok(())
    }
}

/// Returns how many Pods of the same controller each node has.
fn siblings_by_node<'a>(state: &'a State, key: &'a Key, pod: &Value) -> BTreeMap<&'a str, usize> {
    let mut nodes = BTreeMap::new();
    let Some(owner) = controller(pod) else { return nodes };
    for (_, other) in state.store.iter("pods", Some(&key.namespace)) {
        let node = meta::text(other, &["spec", "nodeName"]);
        if !node.is_empty() && controller(other) == Some(owner) {
            *nodes.entry(node).or_default() += 1;
        }
    }
    nodes
}

/// Returns the uid of the owner that manages the object.
fn controller(object: &Value) -> Option<&str> {
    let owners = meta::list(object, &["metadata", "ownerReferences"]);
    owners.iter().find(|owner| owner["controller"] == true).and_then(|owner| owner["uid"].as_str())
}

fn takes(node: &Value, pod: &Value) -> bool {
    let ready = meta::condition(node, "Ready").is_some_and(|c| c["status"] == "True");
    let selector = meta::at(pod, &["spec", "nodeSelector"]).and_then(Value::as_object);
    let fits = selector.is_none_or(|wanted| wanted.iter().all(|(k, v)| meta::label(node, k) == v.as_str()));
    ready && fits && node["spec"]["unschedulable"] != Value::Bool(true)
}

fn node_address(node: &Value) -> String {
    let addresses = meta::list(node, &["status", "addresses"]);
    let found = addresses.iter().find(|a| a["type"] == "InternalIP");
    found.map(|a| meta::text(a, &["address"]).to_owned()).unwrap_or_default()
}

fn author(core: &Core, kind: &Arc<Kind>, manager: &str, subresource: &str) -> Write {
    Write {
        kind: kind.clone(),
        author: Author {
            manager: manager.into(),
            apply: false,
            subresource: subresource.into(),
            api_version: kind.api_version(),
            time: core.clock.now(),
        },
        dry_run: false,
    }
}

/// Writes a Pod's status as the kubelet does.
fn report(
    state: &mut State,
    core: &Core,
    kind: &Arc<Kind>,
    key: &Key,
    change: impl FnOnce(&mut Value),
) -> Result<(), Failure> {
    let write = author(core, kind, "kubelet", "status");
    write::update(state, &write, key, |old| {
        let mut new = old.clone();
        change(&mut new);
        Ok(new)
    })
    .map(drop)
}

/// Returns a node as its kubelet reports it.
pub(crate) fn node(index: usize, now: &str) -> Value {
    let name = format!("node-{index}");
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        })
    };
    let capacity = json!({"cpu": "32", "memory": "256Gi", "pods": "1024", "ephemeral-storage": "1Ti"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
        "spec": {"podCIDR": format!("10.244.{}.0/24", index % 256)},
        "status": {
            "capacity": capacity, "allocatable": capacity,
            "addresses": [
                {
                    "type": "InternalIP",
                    "address": format!("10.{}.{}.{}", index >> 16 & 127, index >> 8 & 255, index & 255),
                },
                {"type": "Hostname", "address": name},
            ],
            "conditions": [
                condition(
                    "MemoryPressure",
                    "False",
                    "KubeletHasSufficientMemory",
                    "kubelet has sufficient memory available",
                ),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "", "containerRuntimeVersion": "podium://devcluster",
                "osImage": "Podium devcluster",
                "kernelVersion": "simulated", "bootID": "", "machineID": "", "systemUUID": "",
            },
        },
    })
}
