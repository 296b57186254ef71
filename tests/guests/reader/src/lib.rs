//! Reads and scales objects as its configuration lists, one call a line, and logs what each answered. The probe makes
//! the other calls.

use bindings::{Failure, Outcome, Request, log, objects, pods, types::ObjectRef};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    for line in request.config.trim_matches('"').replace("\\n", "\n").lines() {
        let answer = match line.split(' ').collect::<Vec<_>>()[..] {
            ["live", namespace, name] => format!("{:?}", pods::get_live(namespace, name).map(|pod| pod.is_some())),
            ["read", kind, namespace, name] => format!("{:?}", objects::get(&object(kind, namespace, name))),
            ["scale", kind, namespace, name, replicas] => {
                format!("{:?}", objects::scale(&object(kind, namespace, name), replicas.parse().unwrap()))
            }
            _ => return Err(Failure::Terminal(format!("reader does not know {line}"))),
        };
        log::write(log::Level::Info, &answer, &[]);
    }
    Ok(Outcome::Settled)
}

fn object(kind: &str, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef { api_version: "v1".into(), kind: kind.into(), namespace: Some(namespace.to_owned()), name: name.into() }
}
