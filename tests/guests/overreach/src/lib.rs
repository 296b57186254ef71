//! Imports the deletion of Pods, which its grants do not cover.

use bindings::{Failure, Outcome, Request, pods, writes};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    let _ = pods::count(&bindings::types::PodQuery {
        namespace: None,
        node: None,
        owner_uid: None,
        phase: None,
        labels: Vec::new(),
    });
    let _ = writes::delete_pod(&request.key, None);
    Ok(Outcome::Settled)
}
