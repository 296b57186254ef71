//! Logs a field that only the section `full` has, of the Pod of the request and of Pods that host calls return.

use podium_sdk::{Outcome, Pod, Request, Result, Value, log, pods, reconciler};

reconciler!(reconcile);

fn reconcile(request: &Request) -> Result<Outcome> {
    let key = request.key();
    log_pod("subject", request.pod());
    log_pod("deleted", request.deleted());
    log_pod("get", pods::get(&key.namespace, &key.name)?.as_ref());
    log_pod("live", pods::get_live(&key.namespace, &key.name)?.as_ref());
    for pod in pods::find().in_namespace(&key.namespace) {
        log_pod("find", Some(&pod?));
    }
    Ok(Outcome::settled())
}

fn log_pod(way: &str, pod: Option<&Pod>) {
    let seen = match pod.map(|pod| pod.full_as::<Value>()) {
        None => "nothing".to_owned(),
        Some(Ok(full)) => format!("{} managed {}", full["spec"]["later"], full["metadata"]["managedFields"]),
        Some(Err(error)) => error.to_string(),
    };
    log::info(&format!("{way}: {seen}"), &[]);
}
