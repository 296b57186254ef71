//! Scales each Deployment whose Pods have the annotation `example.com/day-replicas` down at night, in UTC.

use std::{num::NonZeroU32, time::Duration};

use podium_sdk::{ObjectRef, Outcome, Request, Result, ResultExt, Value, objects, reconciler};
use serde::Deserialize;

const DAY: &str = "example.com/day-replicas";
const HOUR: i64 = 3_600_000;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Night {
    from_hour: u8,
    to_hour: u8,
    replicas: NonZeroU32,
}

reconciler!(reconcile);

pub fn reconcile(request: &Request) -> Result<Outcome> {
    let night: Night = request.config()?;
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let Some(workload) = pod.workload()?.filter(|of| of.kind == "Deployment") else { return Ok(Outcome::settled()) };
    let Some(day) = pod.annotation(DAY)? else { return Ok(Outcome::settled()) };
    let now = request.now().0;
    let [from, to] = [night.from_hour, night.to_hour].map(i64::from);
    let is_night = (now / HOUR - from).rem_euclid(24) < (to - from).rem_euclid(24);
    let replicas: NonZeroU32 = if is_night { night.replicas } else { day.parse().terminal(DAY)? };
    let deployment = ObjectRef::new("apps/v1", "Deployment", pod.namespace(), &workload.name);
    // One with 0 replicas was scaled to it by hand, and stays so.
    let present: Option<Value> = objects::get(&deployment)?;
    if present.is_some_and(|present| present["spec"]["replicas"] != 0) {
        objects::scale(&deployment, replicas.get())?;
    }
    Ok(Outcome::requeue_after(Duration::from_millis((HOUR - now % HOUR).unsigned_abs())))
}
