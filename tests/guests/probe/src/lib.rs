//! Makes the host calls that its configuration lists, one a line, and logs what each answered.

use bindings::{
    Failure, Outcome, Request, Subject, events, log, pods, state,
    types::{ConditionStatus, EventType, LabelOperator, LabelRequirement, ObjectOwner, ObjectRef, PodQuery},
    writes,
};

bindings::guest!(reconcile);

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    // The configuration is one JSON string, or an object with it as `script` and nothing else.
    let config = request.config.trim_start_matches("{\"script\":").trim_end_matches('}');
    let script = config.trim_matches('"').replace("\\n", "\n").replace("\\\"", "\"");
    for line in script.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match answer(&request, &words) {
            Some(answer) => answer,
            None => return finish(&words),
        };
        log::write(log::Level::Info, &answer, &[]);
    }
    Ok(Outcome::Settled)
}

fn finish(words: &[&str]) -> Result<Outcome, Failure> {
    match words {
        ["retry", text] => Err(Failure::Retry((*text).to_owned())),
        ["terminal", text] => Err(Failure::Terminal((*text).to_owned())),
        ["stop"] => Ok(Outcome::Stop),
        ["requeue", millis] => Ok(Outcome::RequeueAfterMillis(millis.parse().unwrap())),
        other => Err(Failure::Terminal(format!("probe does not know {other:?}"))),
    }
}

fn apply(data: &str) -> String {
    let head = r#""apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"}"#;
    format!("{:?}", writes::apply_object(&format!("{{{head},\"data\":{data}}}"), None))
}

fn query(namespace: &str) -> PodQuery {
    let namespace = (namespace != "*").then(|| namespace.to_owned());
    PodQuery { namespace, node: None, owner_uid: None, phase: None, labels: Vec::new() }
}

fn answer(request: &Request, words: &[&str]) -> Option<String> {
    let key = &request.key;
    Some(match words {
        ["subject"] => match &request.subject {
            Subject::Present(record) => format!("present {}", record.len()),
            Subject::Deleted(record) => format!("deleted {:?}", record.as_ref().map(Vec::len)),
        },
        ["unsettled"] => format!("{:?}", request.unsettled_writes),
        ["get", namespace, name] => format!("{:?}", pods::get(namespace, name).map(|pod| pod.map(|pod| pod.len()))),
        ["live", namespace, name] => {
            format!("{:?}", pods::get_live(namespace, name).map(|pod| pod.map(|pod| pod.len())))
        }
        ["find", namespace, limit, after @ ..] => {
            let page = pods::find(&query(namespace), limit.parse().unwrap(), after.first().copied());
            format!("{:?}", page.map(|page| (page.pods.len(), page.next)))
        }
        ["find-in-nothing"] => {
            let mut query = query("*");
            query.labels = vec![LabelRequirement { key: "a".into(), operator: LabelOperator::In, values: Vec::new() }];
            format!("{:?}", pods::find(&query, 1, None).map(|_| ()))
        }
        ["count-phase", phase] => {
            let query = PodQuery { phase: Some((*phase).to_owned()), ..query("*") };
            format!("{:?}", pods::count(&query))
        }
        ["count", namespace] => format!("{:?}", pods::count(&query(namespace))),
        ["label", name, value] => format!("{:?}", writes::set_label(key, name, value)),
        ["unlabel", name] => format!("{:?}", writes::remove_label(key, name)),
        ["annotate", name, value] => format!("{:?}", writes::set_annotation(key, name, value)),
        ["annotate-bytes", bytes, times] => {
            let value = "x".repeat(bytes.parse().unwrap());
            let stage = |turn: u32| writes::set_annotation(key, &format!("guests.example/{turn}"), &value).err();
            let refused = (0..times.parse().unwrap()).find_map(|turn| stage(turn).map(|refused| (turn, refused)));
            refused.map_or("all staged".to_owned(), |(turn, refused)| format!("{turn} staged, then {refused:?}"))
        }
        ["unannotate", name] => format!("{:?}", writes::remove_annotation(key, name)),
        ["finalize", name] => format!("{:?}", writes::add_finalizer(key, name)),
        ["unfinalize", name] => format!("{:?}", writes::remove_finalizer(key, name)),
        ["condition", name] => {
            format!("{:?}", writes::set_condition(key, name, ConditionStatus::True, "Probed", "by a probe"))
        }
        ["uncondition", name] => format!("{:?}", writes::remove_condition(key, name)),
        ["delete"] => format!("{:?}", writes::delete_pod(key, Some(0))),
        ["evict"] => format!("{:?}", writes::evict_pod(key)),
        ["apply", object @ ..] => format!("{:?}", writes::apply_object(&object.join(" "), None)),
        ["apply-of-workload", object @ ..] => {
            let owner = ObjectOwner::Workload(key.clone());
            format!("{:?}", writes::apply_object(&object.join(" "), Some(&owner)))
        }
        // By bytes, and by values, plus a few.
        ["apply-bytes", bytes] => apply(&format!("\"{}\"", "x".repeat(bytes.parse().unwrap()))),
        ["apply-values", values] => {
            let zeros = vec!["0"; values.parse().unwrap()];
            apply(&format!("[{}]", zeros.join(",")))
        }
        ["drop", kind, name] => {
            let object = ObjectRef {
                api_version: "v1".into(),
                kind: (*kind).into(),
                namespace: Some(key.namespace.clone()),
                name: (*name).into(),
            };
            format!("{:?}", writes::delete_object(&object, None))
        }
        ["commit"] => format!("{:?}", writes::commit()),
        ["event", reason] => format!("{:?}", events::emit(key, EventType::Normal, reason, "Probe", "a note")),
        ["log-empty", times] => {
            (0..times.parse::<u32>().unwrap()).for_each(|_| log::write(log::Level::Info, "", &[]));
            "done".to_owned()
        }
        ["state-get", name] => format!("{:?}", state::get(name)),
        ["state-put", name, bytes, expected @ ..] => {
            let expected = expected.first().map(|expected| expected.parse().unwrap());
            format!("{:?}", state::put(name, &vec![7; bytes.parse().unwrap()], expected))
        }
        ["state-label", label, name] => {
            let bytes = state::get(name).unwrap().map_or("none".to_owned(), |entry| entry.value.len().to_string());
            format!("{:?}", writes::set_label(key, label, &bytes))
        }
        ["state-remove", name] => format!("{:?}", state::remove(name, None)),
        _ => return None,
    })
}
