//! Stages a write and panics, at one of two places that have the same text.

use podium_sdk::{Outcome, Request, Result, reconciler};

reconciler!(reconcile);

fn reconcile(request: &Request) -> Result<Outcome> {
    let Some(pod) = request.pod() else { return Ok(Outcome::settled()) };
    pod.set_label("guests.example/seen", "yes")?;
    if pod.name().ends_with('1') { at_another_place(pod.name()) } else { here_it_goes_wrong(pod.name()) }
}

#[inline(never)]
fn here_it_goes_wrong(name: &str) -> Result<Outcome> {
    panic!("no idea what to do with {name}")
}

#[inline(never)]
fn at_another_place(name: &str) -> Result<Outcome> {
    panic!("no idea what to do with {name}")
}
