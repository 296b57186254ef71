//! Stages a label and spins for ever: the run is cut, and nothing of it arrives.

use podium_sdk::{Outcome, Request, Result, reconciler};

reconciler!(reconcile);

fn reconcile(request: &Request) -> Result<Outcome> {
    if let Some(pod) = request.pod() {
        pod.set_label("spinner.podium.dev/ran", "true")?;
    }
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}
