//! Stages a write and panics, at one of two places that have the same text, or where a part of std is missing.

use podium_sdk::{Outcome, Request, Result, reconciler};

reconciler!(reconcile);

fn reconcile(request: &Request) -> Result<Outcome> {
    if let Some(pod) = request.pod() {
        pod.set_label("guests.example/seen", "yes")?;
    }
    if request.config::<String>().is_ok_and(|what| what == "clock") {
        return the_time();
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

#[inline(never)]
fn the_time() -> Result<Outcome> {
    let since = std::time::SystemTime::now().elapsed();
    since.map(|_| Outcome::settled()).map_err(|error| podium_sdk::Error::terminal(error.to_string()))
}
