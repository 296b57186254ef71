//! Stages a label and loops without end: the run is interrupted, and its write is not sent.

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
