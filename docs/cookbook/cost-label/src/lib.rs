//! Labels each Pod with the cost of its requests, per month and rounded up.

use podium_sdk::{Outcome, Request, Result, reconciler};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Prices {
    per_cpu: f64,
    per_gib: f64,
}

reconciler!(reconcile);

pub fn reconcile(request: &Request) -> Result<Outcome> {
    let prices: Prices = request.config()?;
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    let cpus = pod.requests("cpu")?.millis() as f64 / 1000.0;
    let gibibytes = pod.requests("memory")?.value() as f64 / f64::from(1 << 30);
    let cost = (cpus * prices.per_cpu + gibibytes * prices.per_gib).ceil();
    pod.set_label("example.com/cost", &cost.to_string())?;
    Ok(Outcome::settled())
}
