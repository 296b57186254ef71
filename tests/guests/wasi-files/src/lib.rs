//! Built for wasm32-wasip2: opens a file, for which there is no grant at all.

use bindings::{Failure, Outcome, Request};

bindings::guest!(reconcile);

fn reconcile(_: Request) -> Result<Outcome, Failure> {
    std::fs::read("/etc/hostname").map(|_| Outcome::Settled).map_err(|error| Failure::Terminal(error.to_string()))
}
