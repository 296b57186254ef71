//! The checks of the cluster's final state. Each check is a function of the API server's responses; none uses the
//! host.

use std::{collections::BTreeMap, time::Duration};

use futures::TryFutureExt;
use k8s_openapi::api::{core::v1::Pod, events::v1::Event};
use kube::{Api, Client, ResourceExt, api::ListParams};
use serde::Serialize;

use super::{
    latency::{self, Comparison},
    progress::Progress,
    workloads::{CRASHING, CROWDED, EXPIRED, FINISHED, UNPINNED, UNWATCHED, WEB_AFTER, WEB_BEFORE, Workload},
};

/// How often the cluster is read.
const INTERVAL: Duration = Duration::from_millis(250);

/// The spinner's label. It is staged before the plugin spins, so it must never be sent.
const SPUN: &str = "spinner.podium.dev/ran";

/// The labels and annotations that the plugins set, from their sample configurations.
pub(super) const WORKLOAD: &str = "podium.dev/workload";
const DIAGNOSIS: &str = "triage.podium.dev/diagnosis";
const CRASH_REASON: &str = "CrashLoopDiagnosed";
const IMAGE_CONDITION: &str = "podium.dev/ImagePolicy";
const IMAGE_VIOLATED: &str = "False";
const IMAGE_REASON: &str = "MutableImage";
const CROWDING: &str = "podium.dev/crowded";

/// Why a check succeeds or fails, for people.
type Explanation = std::result::Result<String, String>;

/// A claim about the cluster.
pub(super) struct Check {
    name: &'static str,
    holds: fn(&Observed) -> Explanation,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Result {
    pub(super) name: &'static str,
    pub(super) ok: bool,
    pub(super) detail: String,
}

/// The API server's responses at the end and before.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pods: BTreeMap<(String, String), Pod>,
    events: Vec<Event>,
    evidence: Evidence,
}

/// Observations of the scenario that the final state of the cluster does not show.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// The uid of the Pod that had to finish, which proves that it existed.
    pub(super) finished: Option<String>,
    /// Times from a new Pod to the resulting write, without and with the spinning plugin; more than one measurement if
    /// the first was slow.
    pub(super) measured: Vec<Comparison>,
    /// Runs of the spinner that exceeded a limit.
    pub(super) cut: u64,
}

/// The checks, in the order of the scenario.
pub(super) const CHECKS: [Check; 11] = [
    Check { name: "every Pod carries its workload's name", holds: labelled },
    Check { name: "a rollout: new Pods carry it too, without the template's hash", holds: rolled_out },
    Check { name: "a crash loop is diagnosed, with an Event", holds: crash_loop },
    Check { name: "an unpinned image is a condition and one Event", holds: unpinned_image },
    Check { name: "a finished Pod is deleted after its time", holds: finished },
    Check { name: "a workload crowded on one node is marked", holds: crowded },
    Check { name: "healthy Pods are not changed", holds: left_alone },
    Check { name: "a plugin that loops without end is interrupted and writes nothing", holds: spinner_cut },
    Check { name: "a plugin beside one that spins is not held up", holds: undisturbed },
    Check { name: "a lost watch connection loses no change", holds: |seen| answered(seen, &UNWATCHED) },
    Check { name: "a revision that expired (410) loses no change", holds: |seen| answered(seen, &EXPIRED) },
];

/// Reads the cluster repeatedly until all checks succeed, or the failing ones have not changed for a while.
pub(super) async fn all(client: &Client, evidence: Evidence) -> Vec<Result> {
    let mut progress = Progress::new();
    loop {
        let results = match observe(client, evidence.clone()).await {
            Ok(observed) => evaluate(&observed),
            Err(error) => {
                let detail = format!("the cluster could not be read: {error}");
                CHECKS.iter().map(|check| Result { name: check.name, ok: false, detail: detail.clone() }).collect()
            }
        };
        let failing: Vec<_> = results.iter().filter(|result| !result.ok).cloned().collect();
        if failing.is_empty() || !progress.continues(failing) {
            return results;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn observe(client: &Client, evidence: Evidence) -> kube::Result<Observed> {
    let everything = ListParams::default();
    let pods = Api::<Pod>::all(client.clone());
    let events = Api::<Event>::all(client.clone());
    let (pods, events) =
        futures::try_join!(pods.list(&everything), events.list(&everything).map_ok(|list| list.items))?;
    let pods = pods.into_iter().map(|pod| ((pod.namespace().unwrap_or_default(), pod.name_any()), pod)).collect();
    Ok(Observed { pods, events, evidence })
}

fn evaluate(observed: &Observed) -> Vec<Result> {
    let evaluated = |check: &Check| {
        let verdict = (check.holds)(observed);
        let ok = verdict.is_ok();
        let (Ok(detail) | Err(detail)) = verdict;
        Result { name: check.name, ok, detail }
    };
    CHECKS.iter().map(evaluated).collect()
}

impl Observed {
    /// Returns each Pod of a workload by its name; `None` if it does not exist.
    fn pods<'a>(&'a self, workload: &Workload) -> impl Iterator<Item = (String, Option<&'a Pod>)> + use<'a> {
        workload.pod_names().map(|(namespace, name)| {
            let key = (namespace.to_owned(), name);
            let pod = self.pods.get(&key);
            (key.1, pod)
        })
    }

    /// Returns the only Pod of an incident.
    fn one(&self, workload: &Workload) -> std::result::Result<(String, &Pod), String> {
        match self.pods(workload).next() {
            Some((name, Some(pod))) => Ok((name, pod)),
            Some((name, None)) => Err(format!("Pod {name} is not there")),
            None => Err(format!("{} has no Pods", workload.name)),
        }
    }

    /// Returns the Events about a Pod with this reason.
    fn events(&self, pod: &Pod, reason: &str) -> Vec<&Event> {
        let about = |event: &&Event| {
            event.reason.as_deref() == Some(reason)
                && event.regarding.as_ref().is_some_and(|regarding| regarding.uid == pod.metadata.uid)
        };
        self.events.iter().filter(about).collect()
    }
}

fn labelled(seen: &Observed) -> Explanation {
    let without: Vec<_> = seen
        .pods
        .values()
        .filter(|pod| {
            pod.metadata.deletion_timestamp.is_none() && pod.labels().get(WORKLOAD) != pod.labels().get("app")
        })
        .map(ResourceExt::name_any)
        .collect();
    match without.first() {
        None if seen.pods.is_empty() => Err("there are no Pods".to_owned()),
        None => Ok(format!("{} Pods, each with {WORKLOAD}", seen.pods.len())),
        Some(first) => Err(format!("{} Pods lack {WORKLOAD} or have another's, {first} among them", without.len())),
    }
}

fn rolled_out(seen: &Observed) -> Explanation {
    for (name, pod) in seen.pods(&WEB_AFTER) {
        let label = pod.and_then(|pod| pod.labels().get(WORKLOAD));
        if label.map(String::as_str) != Some(WEB_AFTER.name) {
            return Err(format!("Pod {name} has {WORKLOAD}={label:?}"));
        }
    }
    match seen.pods(&WEB_BEFORE).find(|(_, pod)| pod.is_some()) {
        Some((name, _)) => Err(format!("old Pod {name} is still there")),
        None => Ok(format!("{} new Pods, each with {WORKLOAD}={}", seen.pods(&WEB_AFTER).count(), WEB_AFTER.name)),
    }
}

fn crash_loop(seen: &Observed) -> Explanation {
    let (name, pod) = seen.one(&CRASHING.pod)?;
    let diagnosis = pod.annotations().get(DIAGNOSIS).ok_or_else(|| format!("Pod {name} has no {DIAGNOSIS}"))?;
    if seen.events(pod, CRASH_REASON).is_empty() {
        return Err(format!("no Event {CRASH_REASON} about Pod {name}"));
    }
    Ok(format!("{name}: {diagnosis}"))
}

fn unpinned_image(seen: &Observed) -> Explanation {
    let (name, pod) = seen.one(&UNPINNED.pod)?;
    let message = violation(pod).ok_or_else(|| format!("Pod {name} has no condition {IMAGE_CONDITION}"))?;
    match seen.events(pod, IMAGE_REASON).len() {
        1 => Ok(format!("{name}: {message}")),
        count => Err(format!("{count} Events {IMAGE_REASON} about Pod {name}")),
    }
}

fn finished(seen: &Observed) -> Explanation {
    let uid = seen.evidence.finished.as_deref().ok_or("no such Pod was ever there")?;
    match seen.pods.values().find(|pod| pod.uid().as_deref() == Some(uid)) {
        Some(pod) => {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("unknown");
            Err(format!("Pod {} is still there, {phase}", pod.name_any()))
        }
        None => Ok(format!("the Pod of {} is gone", FINISHED.pod.name)),
    }
}

fn crowded(seen: &Observed) -> Explanation {
    let mut text = String::new();
    for (name, pod) in seen.pods(&CROWDED.pod) {
        let pod = pod.ok_or_else(|| format!("Pod {name} is not there"))?;
        text = pod.annotations().get(CROWDING).ok_or_else(|| format!("Pod {name} has no {CROWDING}"))?.clone();
    }
    Ok(format!("{}: {CROWDING}={text}", CROWDED.pod.name))
}

fn left_alone(seen: &Observed) -> Explanation {
    let is_injected = |workload: &Workload, pod: &Pod| pod.labels().get("app").is_some_and(|app| app == workload.name);
    let mut healthy = 0;
    for ((_, name), pod) in &seen.pods {
        let annotated =
            |key: &str, incident: &Workload| pod.annotations().contains_key(key) && !is_injected(incident, pod);
        if annotated(DIAGNOSIS, &CRASHING.pod) {
            return Err(format!("Pod {name} is called crash-looping"));
        }
        if annotated(CROWDING, &CROWDED.pod) {
            return Err(format!("Pod {name} is called crowded"));
        }
        if violation(pod).is_some() && !is_injected(&UNPINNED.pod, pod) {
            return Err(format!("Pod {name} is reported to violate the image policy"));
        }
        healthy += 1;
    }
    if healthy == 0 {
        Err("there are no Pods".to_owned())
    } else {
        Ok(format!("{healthy} Pods, none reported without reason"))
    }
}

fn spinner_cut(seen: &Observed) -> Explanation {
    if let Some((_, name)) = seen.pods.iter().find(|(_, pod)| pod.labels().contains_key(SPUN)).map(|(key, _)| key) {
        return Err(format!("Pod {name} has a label that a cut run had staged"));
    }
    match seen.evidence.cut {
        0 => Err("the run was never cut".to_owned()),
        cut => Ok(format!("cut {cut} times; no Pod has the label {SPUN}")),
    }
}

fn undisturbed(seen: &Observed) -> Explanation {
    let measured = &seen.evidence.measured;
    let Some(Comparison { alone, beside }) = measured.last() else { return Err("it was not measured".to_owned()) };
    if alone.len() == 0 || beside.len() == 0 {
        return Err("it was not measured".to_owned());
    }
    let times = |percent| {
        format!("{} before, {} beside", millis(alone.percentile(percent)), millis(beside.percentile(percent)))
    };
    let text = format!("p50 {}; p99 {}; {} and {} changes", times(50), times(99), alone.len(), beside.len());
    if latency::held_up(measured) {
        Err(format!("{text}; {} measurements show the same", measured.len()))
    } else {
        Ok(text)
    }
}

fn answered(seen: &Observed, workload: &Workload) -> Explanation {
    let (name, pod) = seen.one(workload)?;
    match pod.labels().get(WORKLOAD) {
        Some(label) if label == workload.name => Ok(format!("{name}, made meanwhile, has {WORKLOAD}={label}")),
        other => Err(format!("Pod {name}, made meanwhile, has {WORKLOAD}={other:?}")),
    }
}

/// Returns the message of the condition that image-policy sets on a Pod that violates it.
fn violation(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let condition = conditions.iter().find(|condition| condition.type_ == IMAGE_CONDITION)?;
    (condition.status == IMAGE_VIOLATED).then(|| condition.message.as_deref().unwrap_or_default())
}

fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ObjectReference, PodCondition, PodStatus};
    use serde_json::json;

    fn key(workload: &Workload) -> (String, String) {
        workload.pod_names().next().map(|(namespace, name)| (namespace.to_owned(), name)).unwrap()
    }

    fn event(pod: &Pod, reason: &str) -> Event {
        let regarding = ObjectReference { uid: pod.metadata.uid.clone(), ..<_>::default() };
        Event { reason: Some(reason.into()), regarding: Some(regarding), ..<_>::default() }
    }

    /// Returns a cluster for which every check succeeds.
    fn healthy() -> Observed {
        let mut seen = Observed::default();
        for workload in [&WEB_AFTER, &CRASHING.pod, &UNPINNED.pod, &CROWDED.pod, &UNWATCHED, &EXPIRED] {
            for mut pod in workload.pods(None, None).unwrap() {
                let key = (pod.namespace().unwrap(), pod.name_any());
                pod.metadata.uid = Some(format!("uid-{}", key.1));
                pod.labels_mut().insert(WORKLOAD.into(), workload.name.into());
                if workload.name == CROWDED.pod.name {
                    pod.annotations_mut().insert(CROWDING.into(), "node-0".into());
                }
                seen.pods.insert(key, pod);
            }
        }
        let crashing = seen.pods.get_mut(&key(&CRASHING.pod)).unwrap();
        crashing.annotations_mut().insert(DIAGNOSIS.into(), "main=Error".into());
        seen.events.push(event(crashing, CRASH_REASON));
        let unpinned = seen.pods.get_mut(&key(&UNPINNED.pod)).unwrap();
        unpinned.status = Some(violated());
        seen.events.push(event(unpinned, IMAGE_REASON));
        seen.evidence = Evidence { finished: Some("uid-finished".into()), cut: 3, ..Evidence::default() };
        let mut measured = Comparison::default();
        for millis in 1..=100 {
            measured.alone.add(Duration::from_millis(millis));
            measured.beside.add(Duration::from_millis(9 * millis));
        }
        seen.evidence.measured.push(measured);
        seen
    }

    fn violated() -> PodStatus {
        let condition = PodCondition { type_: IMAGE_CONDITION.into(), status: IMAGE_VIOLATED.into(), ..<_>::default() };
        PodStatus { conditions: Some(vec![condition]), ..<_>::default() }
    }

    fn change(seen: &mut Observed, workload: &Workload, change: impl FnOnce(&mut Pod)) {
        change(seen.pods.get_mut(&key(workload)).unwrap());
    }

    #[test]
    fn all_checks_hold_for_a_healthy_cluster() {
        for result in evaluate(&healthy()) {
            assert!(result.ok, "{result:?}");
        }
    }

    #[test]
    fn no_check_holds_for_an_empty_cluster() {
        let ok: Vec<_> = evaluate(&Observed::default()).into_iter().filter(|result| result.ok).collect();
        assert_eq!(ok, []);
    }

    #[test]
    fn each_check_fails_when_its_claim_is_false() {
        type Break = fn(&mut Observed);
        let breaks: [(usize, Break); 15] = [
            (0, |seen| change(seen, &EXPIRED, |pod| drop(pod.labels_mut().insert(WORKLOAD.into(), "other".into())))),
            (1, |seen| change(seen, &WEB_AFTER, |pod| drop(pod.labels_mut().insert(WORKLOAD.into(), "web-7c".into())))),
            (1, |seen| drop(seen.pods.insert(key(&WEB_BEFORE), WEB_BEFORE.pods(None, None).unwrap().remove(0)))),
            (2, |seen| change(seen, &CRASHING.pod, |pod| pod.annotations_mut().clear())),
            (2, |seen| seen.events.retain(|event| event.reason.as_deref() != Some(CRASH_REASON))),
            (3, |seen| change(seen, &UNPINNED.pod, |pod| pod.status = None)),
            (3, |seen| seen.events.extend_from_within(..)),
            (4, |seen| change(seen, &EXPIRED, |pod| pod.metadata.uid = Some("uid-finished".into()))),
            (5, |seen| change(seen, &CROWDED.pod, |pod| pod.annotations_mut().clear())),
            (6, |seen| change(seen, &EXPIRED, |pod| pod.status = Some(violated()))),
            (7, |seen| change(seen, &EXPIRED, |pod| drop(pod.labels_mut().insert(SPUN.into(), "true".into())))),
            (8, |seen| (0..2).for_each(|_| seen.evidence.measured[0].beside.add(Duration::from_secs(1)))),
            (8, |seen| seen.evidence.measured.clear()),
            (9, |seen| drop(seen.pods.remove(&key(&UNWATCHED)))),
            (10, |seen| drop(seen.pods.remove(&key(&EXPIRED)))),
        ];
        for (index, (check, falsify)) in breaks.into_iter().enumerate() {
            let mut seen = healthy();
            falsify(&mut seen);
            assert!(!evaluate(&seen)[check].ok, "break {index} of {:?} was not seen", CHECKS[check].name);
        }
    }

    #[test]
    fn a_result_is_serialised_with_name_ok_and_detail() {
        let result = evaluate(&healthy()).remove(0);
        let value = serde_json::to_value(&result).unwrap();
        assert_eq!(value["name"], json!(CHECKS[0].name));
        assert_eq!(value["ok"], json!(true));
        assert!(value["detail"].is_string());
    }
}
