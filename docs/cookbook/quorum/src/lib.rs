//! Marks all Pods of a StatefulSet while fewer than a majority of them is ready.

use podium_sdk::{Outcome, Pod, Request, Result, reconciler};

reconciler!(reconcile);

pub fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let is_set = pod.controller()?.is_some_and(|controller| controller.kind == "StatefulSet");
    let Some(members) = pod.siblings()?.filter(|_| is_set) else { return Ok(Outcome::settled()) };
    let members = members.into_iter().collect::<Result<Vec<_>>>()?;
    let replicas = members.iter().filter_map(ordinal).max().map_or(0, |highest| highest + 1);
    let mut ready = 0;
    for member in &members {
        ready += u32::from(member.is_ready()? && !member.is_terminating()?);
    }
    for member in &members {
        member.label_to("example.com/quorum", (ready <= replicas / 2).then_some("lost"))?;
    }
    Ok(Outcome::settled())
}

/// Returns the number at the end of the name, so that a Pod that is away counts too.
fn ordinal(pod: &Pod) -> Option<u32> {
    pod.name().rsplit_once('-')?.1.parse().ok()
}
