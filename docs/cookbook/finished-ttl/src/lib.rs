//! Deletes each finished Pod after the time in its annotation, such as `example.com/ttl: 1h30m`.

use podium_sdk::{Event, Outcome, Request, Result, ResultExt, duration, reconciler};

const TTL: &str = "example.com/ttl";

reconciler!(reconcile);

pub fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let Some(ttl) = pod.annotation(TTL)? else { return Ok(Outcome::settled()) };
    let Some(finished) = pod.finished_at()? else { return Ok(Outcome::settled()) };
    let left = (finished + duration(ttl).context(TTL)?).since(request.now());
    if !left.is_zero() {
        return Ok(Outcome::requeue_after(left));
    }
    pod.emit(Event::normal("Expired", format!("finished at {finished}, kept for {ttl}")))?;
    pod.delete()?;
    Ok(Outcome::settled())
}
