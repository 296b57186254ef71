//! The Events of scheduler and kubelet about a Pod. A repeated Event is counted instead of created again.

use serde_json::{Value, json};

use super::step::Step;
use crate::{
    core::Core,
    managed::Author,
    meta,
    state::State,
    store::Key,
    write::{self, Write},
};

/// Type, reason, component, message.
type Words<'a> = (&'a str, &'a str, &'a str, &'a str);

pub(super) const UNSCHEDULABLE: Words<'static> =
    ("Warning", "FailedScheduling", "default-scheduler", "0 nodes are available.");

/// Returns the kubelet's Event for a step; the scheduler's Events name the node.
pub(super) fn words(step: Step) -> Option<Words<'static>> {
    match step {
        Step::Start | Step::Restart => Some(("Normal", "Started", "kubelet", "Container started")),
        Step::BackOff => Some(("Warning", "BackOff", "kubelet", "Back-off restarting failed container")),
        Step::Terminate => Some(("Normal", "Killing", "kubelet", "Stopping containers")),
        Step::Bind | Step::Exit => None,
    }
}

pub(super) fn emit(state: &mut State, core: &Core, pod: &Value, (kind, reason, component, message): Words<'_>) {
    let Some(events) = state.kinds.find("", "v1", "events") else { return };
    let now = core.clock.now();
    let uid = meta::uid(pod);
    // One Event per Pod's life and reason; the uid distinguishes lives.
    let name = format!("{}.{}.{}", meta::name(pod), uid.get(..8).unwrap_or(uid), reason.to_lowercase());
    let key = Key::new(meta::namespace(pod), &name);
    let write = Write {
        author: Author {
            manager: component.into(),
            apply: false,
            subresource: String::new(),
            api_version: events.api_version(),
            time: now.clone(),
        },
        kind: events,
        dry_run: false,
    };
    let written = if state.store.get("events", &key).is_some() {
        write::update(state, &write, &key, |old| {
            let mut new = old.clone();
            meta::set(&mut new, &["count"], old["count"].as_u64().unwrap_or(1) + 1);
            meta::set(&mut new, &["lastTimestamp"], now);
            Ok(new)
        })
    } else {
        let event = json!({
            "metadata": {"name": name},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": key.namespace, "name": meta::name(pod), "uid": uid,
                "resourceVersion": meta::revision(pod),
            },
            "type": kind, "reason": reason, "message": message, "count": 1, "firstTimestamp": now,
            "lastTimestamp": now, "source": {"component": component}, "reportingComponent": component,
        });
        write::create(state, &core.clock, &write, Some(&key.namespace), event)
    };
    if let Err(failure) = written {
        // A Namespace that is being deleted accepts no new Events.
        tracing::debug!(name, ?failure, "an Event was refused");
    }
}
