//! Well-behaved; records its requests: labels its Pod with the Pod's own uid, and writes deletions and unsettled writes
//! as annotations of another Pod, the register, which its configuration names.

use bindings::{Failure, Outcome, Request, Subject, types::PodKey, writes};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    let key = &request.key;
    if let Subject::Present(_) = request.subject {
        let label = text(&request.config, "label").unwrap_or("guests.example/seen");
        writes::set_label(key, label, &key.uid).map_err(refused)?;
    } else {
        note(&request, "deleted", &key.uid)?;
    }
    for report in &request.unsettled_writes {
        note(&request, "unsettled", &format!("{}: {:?}", report.description, report.result))?;
    }
    Ok(Outcome::Settled)
}

fn note(request: &Request, what: &str, text_of_it: &str) -> Result<(), Failure> {
    let Some(uid) = text(&request.config, "register") else { return Ok(()) };
    let key = &request.key;
    let register = PodKey { namespace: key.namespace.clone(), name: "register".into(), uid: uid.into() };
    // One entry for each incarnation.
    let name = format!("guests.example/{what}-{}", &key.uid);
    writes::set_annotation(&register, &name, text_of_it).map_err(refused).map(drop)
}

/// The text of one field of the configuration.
fn text<'a>(config: &'a str, field: &str) -> Option<&'a str> {
    let (_, rest) = config.split_once(&format!("\"{field}\":\""))?;
    rest.split('"').next()
}

fn refused(error: bindings::types::CallError) -> Failure {
    Failure::Retry(format!("{error:?}"))
}
