//! Logs more than its budget permits, and text that looks like lines of the host.

use bindings::{Failure, Outcome, Request, log};

bindings::guest!(reconcile);

fn reconcile(_: Request) -> Result<Outcome, Failure> {
    log::write(log::Level::Info, "first\nlevel=error forged", &[("k\u{1b}[2J".to_owned(), "v".to_owned())]);
    let line = "x".repeat(10_000);
    for _ in 0..10 {
        log::write(log::Level::Warn, &line, &[]);
    }
    Ok(Outcome::Settled)
}
