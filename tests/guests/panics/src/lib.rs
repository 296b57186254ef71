//! Stages a write and panics. Logs the panic's text first, as podium-sdk does.

use bindings::{Failure, Outcome, Request, log, writes};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    std::panic::set_hook(Box::new(|panic| log::write(log::Level::Error, &panic.to_string(), &[])));
    let _staged_and_never_sent = writes::set_label(&request.key, "guests.example/seen", "yes");
    here_it_goes_wrong(&request)
}

#[inline(never)]
fn here_it_goes_wrong(request: &Request) -> Result<Outcome, Failure> {
    panic!("no idea what to do with {}", request.key.name)
}
