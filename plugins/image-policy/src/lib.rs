//! Reports on the Pod itself when its images can change under the same name, or its containers have no limits: the
//! condition `podium.dev/ImagePolicy`, and one Event when it begins.
//!
//! It only reports and prevents nothing. A Pod that never violated the policy gets no condition, so a compliant
//! cluster costs no writes.

mod image;
mod policy;

use podium_sdk::{Condition, ConditionStatus, Event, Outcome, Request, Result, reconciler};
pub use policy::Policy;

/// The type of the condition: true means that the Pod follows the policy.
pub const CONDITION: &str = "podium.dev/ImagePolicy";

reconciler!(reconcile);

/// # Errors
/// Returns an error if spec or status are not granted, or if the configuration is not a [`Policy`].
pub fn reconcile(request: &Request) -> Result<Outcome> {
    let policy: Policy = request.config()?;
    let Some(pod) = request.live_pod()? else { return Ok(Outcome::settled()) };
    if pod.is_finished()? {
        return Ok(Outcome::settled());
    }
    let violations = policy.violations(pod.spec()?);
    let Some((reason, message)) = policy::summary(&violations) else {
        if pod.condition(CONDITION)?.is_some() {
            let kept = Condition::new(CONDITION, ConditionStatus::True);
            pod.set_condition(&kept.because("Kept", "images are pinned and limits are set"))?;
        }
        return Ok(Outcome::settled());
    };
    let broken = Condition::new(CONDITION, ConditionStatus::False).because(reason, &message);
    pod.report(&broken, Event::warning(reason, message).action("CheckImages"))?;
    Ok(Outcome::settled())
}
