//! Real objects as templates: values that identify a Pod become placeholders, the rest is kept.
//!
//! Their status keeps its structure; events change its times, ids and counts of restarts.

use std::{fs, path::Path};

use anyhow::Context;

use super::{
    json::{Json, text},
    template::{Hole, container_numbers, init_container_numbers},
    workload::Workload,
};

/// One real object.
pub(super) struct Sample {
    namespace: String,
    prefix: String,
    pod: Json,
}

/// Reads the objects in the order of their files' names.
pub(super) fn read(folder: &Path) -> anyhow::Result<Vec<Sample>> {
    // The objects may be in a subfolder beside notes about them.
    let folder = [folder.join("pods"), folder.to_owned()].into_iter().find(|folder| folder.is_dir());
    let folder = folder.context("there is no such folder")?;
    let mut files: Vec<_> =
        fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?.iter().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut samples = Vec::new();
    for file in files {
        let json = fs::read_to_string(&file)?;
        let pod: Json = serde_json::from_str(&json).with_context(|| format!("{} is no JSON", file.display()))?;
        samples.push(Sample::new(pod).with_context(|| format!("{} is no Pod", file.display()))?);
    }
    anyhow::ensure!(!samples.is_empty(), "there is no .json in it");
    Ok(samples)
}

impl Sample {
    fn new(mut pod: Json) -> Option<Self> {
        let metadata = pod.get("metadata")?;
        let field = |name: &str| metadata.get(name).and_then(Json::as_text).map(str::to_owned);
        let (name, uid) = (field("name")?, field("uid")?);
        let namespace = field("namespace").unwrap_or_else(|| "default".to_owned());
        let prefix = field("generateName").unwrap_or_else(|| format!("{name}-"));
        let token = find(&pod, "kube-api-access-").unwrap_or_default();
        let spec = pod.get("spec")?;
        let node = spec.get("nodeName").and_then(Json::as_text).unwrap_or_default().to_owned();
        let of_status = |name: &str| Some(pod.get("status")?.get(name)?.as_text()?.to_owned());
        let known = [
            (name, Hole::Name),
            (uid, Hole::Uid),
            (token, Hole::Token),
            (node, Hole::Node),
            (of_status("podIP").unwrap_or_default(), Hole::PodIp),
            (of_status("hostIP").unwrap_or_default(), Hole::HostIp),
        ];
        replace(&mut pod, &known);
        let metadata = pod.get_mut("metadata")?;
        metadata.set("resourceVersion", Hole::Revision.text());
        metadata.set("creationTimestamp", Hole::Created.text());
        pod.get_mut("status").map(set_status_holes);
        // An object of a list or of kubectl may have another order of keys, or no kind.
        let parts = ["metadata", "spec", "status"].map(|part| Some((part, pod.get(part)?.clone())));
        let pod = super::json::object(
            [("kind", text("Pod")), ("apiVersion", text("v1"))].into_iter().chain(parts.into_iter().flatten()),
        );
        Some(Self { namespace, prefix, pod })
    }

    /// Returns the same workload with another name for each round.
    pub(super) fn workload(&self, round: usize) -> Workload {
        let prefix = self.prefix.trim_end_matches('-');
        let mut pod = self.pod.clone();
        let known = [(prefix.to_owned(), format!("{prefix}-{round}"))];
        if let Some(metadata) = pod.get_mut("metadata") {
            rename(metadata, &known[0].0, &known[0].1);
        }
        Workload::real(self.namespace.clone(), format!("{prefix}-{round}-"), &pod)
    }
}

fn set_status_holes(status: &mut Json) {
    let condition = |condition: &mut Json| {
        let hole = match condition.get("type").and_then(Json::as_text) {
            Some("Ready" | "ContainersReady") => Hole::Ready,
            _ => Hole::Scheduled,
        };
        set_if_there(condition, "lastTransitionTime", hole.text());
    };
    if let Some(conditions) = status.get_mut("conditions") {
        conditions.items_mut().iter_mut().for_each(condition);
    }
    set_if_there(status, "startTime", Hole::Scheduled.text());
    for (list, numbers) in [
        ("containerStatuses", container_numbers().collect::<Vec<_>>()),
        ("initContainerStatuses", init_container_numbers().collect()),
    ] {
        let Some(statuses) = status.get_mut(list) else { continue };
        for (container, at) in statuses.items_mut().iter_mut().zip(numbers) {
            container_status(container, at);
        }
    }
}

fn container_status(status: &mut Json, at: u8) {
    set_if_there(status, "restartCount", Json::Number(Hole::Restarts(at).character().to_string()));
    containerd(status, "containerID", Hole::ContainerId(at));
    for (state, id) in [("state", Hole::ContainerId(at)), ("lastState", Hole::LastContainerId(at))] {
        let Some(state) = status.get_mut(state) else { continue };
        if let Some(running) = state.get_mut("running") {
            set_if_there(running, "startedAt", Hole::Started(at).text());
        }
        if let Some(terminated) = state.get_mut("terminated") {
            set_if_there(terminated, "startedAt", Hole::LastStarted(at).text());
            set_if_there(terminated, "finishedAt", Hole::LastFinished(at).text());
            containerd(terminated, "containerID", id);
        }
    }
}

/// Replaces an id, and keeps the runtime's name before it.
fn containerd(object: &mut Json, key: &str, hole: Hole) {
    if let Some(Json::Text(id)) = object.get_mut(key)
        && let Some((runtime, _)) = id.split_once("://")
    {
        *id = format!("{runtime}://{}", hole.character());
    }
}

fn set_if_there(object: &mut Json, key: &str, value: Json) {
    if let Some(old) = object.get_mut(key) {
        *old = value;
    }
}

/// Returns the rest of the first string that begins with `prefix`.
fn find(json: &Json, prefix: &str) -> Option<String> {
    match json {
        Json::Text(text) => text.strip_prefix(prefix).map(str::to_owned),
        Json::List(items) => items.iter().find_map(|item| find(item, prefix)),
        Json::Object(fields) => fields.iter().find_map(|(_, value)| find(value, prefix)),
        _ => None,
    }
}

fn replace(json: &mut Json, known: &[(String, Hole)]) {
    let mut renamed = |text: &mut String| {
        for (old, hole) in known.iter().filter(|(old, _)| old.len() > 3) {
            if text.contains(old.as_str()) {
                *text = text.replace(old.as_str(), &hole.character().to_string());
            }
        }
    };
    each_text(json, &mut renamed);
}

fn rename(json: &mut Json, old: &str, new: &str) {
    each_text(json, &mut |text| {
        if text.contains(old) {
            *text = text.replace(old, new);
        }
    });
}

/// Changes keys too, because managedFields contain addresses and uids in them.
fn each_text(json: &mut Json, change: &mut impl FnMut(&mut String)) {
    match json {
        Json::Text(text) => change(text),
        Json::List(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Json::Object(fields) => {
            for (key, value) in fields {
                if key.starts_with("k:") {
                    change(key);
                }
                each_text(value, change);
            }
        }
        _ => {}
    }
}
