//! Behaves: reads its Pod and sets one label.

use bindings::{Failure, Outcome, Request, pods, writes};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    let found =
        pods::get(&request.key.namespace, &request.key.name).map_err(|error| Failure::Retry(format!("{error:?}")))?;
    let seen = if found.is_some() { "yes" } else { "no" };
    writes::set_label(&request.key, "guests.example/seen", seen)
        .map_err(|error| Failure::Retry(format!("{error:?}")))?;
    Ok(Outcome::RequeueAfterMillis(1_500))
}
