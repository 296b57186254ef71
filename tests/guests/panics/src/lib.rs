//! Stages a write and panics, at one of two places that have the same text.

use podium_sdk::{Outcome, Request, Result, reconciler};

reconciler!(reconcile);

fn reconcile(request: &Request) -> Result<Outcome> {
    if let Some(pod) = request.pod() {
        pod.set_label("guests.example/seen", "yes")?;
    }
    let name = &request.key().name;
    if name.ends_with('1') { at_another_place(name) } else { here_it_goes_wrong(name) }
}

#[inline(never)]
fn here_it_goes_wrong(name: &str) -> Result<Outcome> {
    panic!("no idea what to do with {name}")
}

#[inline(never)]
fn at_another_place(name: &str) -> Result<Outcome> {
    panic!("no idea what to do with {name}")
}
