//! Makes the host calls that its configuration lists, with any arguments, and logs the answer of each: to request from
//! the host what another tenant owns.
//!
//! The configuration is `{"calls": [[name, argument, ..], ..]}`. A Pod is `own`, the Pod of the run, or
//! `namespace/name/uid`.

use bindings::{
    Failure, Outcome, Request, events, log, pods, state,
    types::{ConditionStatus, EventType, ObjectOwner, ObjectRef, PodKey, PodQuery},
    writes,
};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    let config: serde_json::Value = serde_json::from_str(&request.config).expect("a configuration");
    for call in config["calls"].as_array().expect("calls") {
        let words = call.as_array().expect("a call").iter();
        let words: Vec<&str> = words.map(|word| word.as_str().expect("text")).collect();
        match words.as_slice() {
            ["retry", text] => return Err(Failure::Retry((*text).to_owned())),
            ["terminal", text] => return Err(Failure::Terminal((*text).to_owned())),
            ["requeue", millis] => return Ok(Outcome::RequeueAfterMillis(millis.parse().expect("a number"))),
            ["log", text] => log::write(log::Level::Error, text, &[]),
            ["field", key, value] => {
                log::write(log::Level::Warn, "a field", &[((*key).to_owned(), (*value).to_owned())]);
            }
            // Never ends by itself, whatever the answers are.
            ["forever", call @ ..] => loop {
                answer(&request, call);
            },
            call => {
                let said = answer(&request, call);
                log::write(log::Level::Warn, &format!("{}: {said}", call[0]), &[]);
            }
        }
    }
    Ok(Outcome::Settled)
}

fn pod(request: &Request, text: &str) -> PodKey {
    if text == "own" {
        return request.key.clone();
    }
    let parts: Vec<&str> = text.split('/').collect();
    let [namespace, name, uid] = parts.as_slice() else { panic!("no Pod: {text}") };
    PodKey { namespace: (*namespace).into(), name: (*name).into(), uid: (*uid).into() }
}

fn query(namespace: &str) -> PodQuery {
    PodQuery { namespace: Some(namespace.into()), node: None, owner_uid: None, phase: None, labels: Vec::new() }
}

fn answer(request: &Request, call: &[&str]) -> String {
    let pod = |text: &str| pod(request, text);
    match call {
        ["get", namespace, name] => format!("{:?}", pods::get(namespace, name).map(|pod| pod.map(|pod| pod.len()))),
        ["live", namespace, name] => {
            format!("{:?}", pods::get_live(namespace, name).map(|pod| pod.map(|pod| pod.len())))
        }
        ["count", namespace] => format!("{:?}", pods::count(&query(namespace))),
        ["find", namespace] => {
            format!("{:?}", pods::find(&query(namespace), 10, None).map(|page| (page.pods.len(), page.next)))
        }
        ["label", target, key, value] => format!("{:?}", writes::set_label(&pod(target), key, value)),
        ["annotate", target, key, value] => format!("{:?}", writes::set_annotation(&pod(target), key, value)),
        ["finalize", target, name] => format!("{:?}", writes::add_finalizer(&pod(target), name)),
        ["condition", target, name, message] => {
            let status = ConditionStatus::True;
            format!("{:?}", writes::set_condition(&pod(target), name, status, "Probed", message))
        }
        ["delete", target] => format!("{:?}", writes::delete_pod(&pod(target), Some(0))),
        ["evict", target] => format!("{:?}", writes::evict_pod(&pod(target))),
        ["apply", object] => format!("{:?}", writes::apply_object(object, None)),
        ["apply-owned", object, owner] => {
            format!("{:?}", writes::apply_object(object, Some(&ObjectOwner::Pod(pod(owner)))))
        }
        ["drop", kind, namespace, name] => {
            let (api_version, kind, name) = ("v1".into(), (*kind).into(), (*name).into());
            let object = ObjectRef { api_version, kind, namespace: Some((*namespace).into()), name };
            format!("{:?}", writes::delete_object(&object, None))
        }
        ["event", target, reason, note] => {
            format!("{:?}", events::emit(&pod(target), EventType::Normal, reason, "Probe", note))
        }
        ["state", key] => format!("{:?}", state::get(key).map(|entry| entry.is_some())),
        ["commit"] => {
            let reports = writes::commit();
            format!("{:?}", reports.map(|all| all.into_iter().map(|report| report.result).collect::<Vec<_>>()))
        }
        other => panic!("no such call: {other:?}"),
    }
}
