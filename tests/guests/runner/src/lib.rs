//! A runner whose language has two kinds of lines: the name of a host function, which a run calls and logs the answer
//! of, and, as the first line, what the preparation does instead of returning the script.

wit_bindgen::generate!({ path: "../../../wit", world: "script" });

use exports::podium::reconcile::{
    preparation::{Guest as Preparation, ScriptError},
    reconciler_json::{Failure, Guest, Outcome, Request},
};
use podium::reconcile::{
    events, log, objects, pods_json, program, state,
    types::{ConditionStatus, EventType, ObjectRef, PodKey, PodQuery},
    writes,
};

struct Runner;

impl Preparation for Runner {
    fn prepare(source: String) -> Result<Vec<u8>, ScriptError> {
        let mistake = |message: &str, line, column| Err(ScriptError { message: message.to_owned(), line, column });
        match source.lines().next().unwrap_or_default() {
            "loop" => loop {
                std::hint::black_box(());
            },
            "panic" => panic!("prepared to fail"),
            "grow" => {
                let mut all = Vec::new();
                loop {
                    all.push(vec![1_u8; 1 << 20]);
                }
            }
            "large" => Ok(vec![7; 3 << 20]),
            "huge" => Ok(vec![7; 6 << 20]),
            "mistake" => mistake("SyntaxError: unexpected token", 3, 14),
            "lie" => mistake(&"x\n\u{1b}[31m".repeat(10_000), u32::MAX, u32::MAX),
            // The answers to the calls of the preparation are the script, which a run logs.
            "calls" => {
                let code = format!("{} bytes of code", program::code().len());
                let answers = source.lines().skip(1).map(|name| format!("answer {}", answer(&key(), name)));
                Ok(std::iter::once(format!("answer {code}")).chain(answers).collect::<Vec<_>>().join("\n").into_bytes())
            }
            _ => Ok(source.into_bytes()),
        }
    }
}

static mut RUNS: u32 = 0;

impl Guest for Runner {
    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        let say = |text: &str| log::write(log::Level::Info, text, &[]);
        let code = String::from_utf8(program::code()).unwrap();
        for line in code.lines() {
            match line {
                "runs" => {
                    // SAFETY: a guest has one thread.
                    let runs = unsafe {
                        RUNS += 1;
                        RUNS
                    };
                    say(&runs.to_string());
                }
                "code" => (0..1_000).for_each(|_| drop(program::code())),
                line => match line.strip_prefix("answer ") {
                    Some(answer) => say(answer),
                    None if line.starts_with('#') => {}
                    None => say(&answer(&request.key, line)),
                },
            }
        }
        Ok(Outcome::Settled)
    }
}

fn key() -> PodKey {
    PodKey { namespace: "shop".into(), name: "cart-0".into(), uid: "uid-of-cart-0".into() }
}

/// Calls a function with arguments that the grants of all tests permit.
fn answer(key: &PodKey, function: &str) -> String {
    let query = PodQuery { namespace: None, node: None, owner_uid: None, phase: None, labels: Vec::new() };
    let name = "guests.example/seen";
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"shop"}}"#;
    let reference = ObjectRef {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some("shop".into()),
        name: "a".into(),
    };
    match function {
        "pods.get" => format!("{:?}", pods_json::get("shop", "cart-1")),
        "pods.find" => format!("{:?}", pods_json::find(&query, 10, None).map(|page| (page.pods, page.next))),
        "pods.count" => format!("{:?}", pods_json::count(&query)),
        "pods.get-live" => format!("{:?}", pods_json::get_live("shop", "cart-1")),
        "writes.set-label" => format!("{:?}", writes::set_label(key, name, "a")),
        "writes.remove-label" => format!("{:?}", writes::remove_label(key, name)),
        "writes.set-annotation" => format!("{:?}", writes::set_annotation(key, name, "a")),
        "writes.remove-annotation" => format!("{:?}", writes::remove_annotation(key, name)),
        "writes.add-finalizer" => format!("{:?}", writes::add_finalizer(key, name)),
        "writes.remove-finalizer" => format!("{:?}", writes::remove_finalizer(key, name)),
        "writes.set-condition" => {
            format!("{:?}", writes::set_condition(key, name, ConditionStatus::True, "Probed", "by a runner"))
        }
        "writes.remove-condition" => format!("{:?}", writes::remove_condition(key, name)),
        "writes.delete-pod" => format!("{:?}", writes::delete_pod(key, None)),
        "writes.evict-pod" => format!("{:?}", writes::evict_pod(key)),
        "writes.apply-object" => format!("{:?}", writes::apply_object(object, None)),
        "writes.delete-object" => format!("{:?}", writes::delete_object(&reference, None)),
        "writes.commit" => format!("{:?}", writes::commit().map(|reports| reports.len())),
        "objects.get" => format!("{:?}", objects::get(&reference)),
        "objects.scale" => format!("{:?}", objects::scale(&reference, 3)),
        "events.emit" => format!("{:?}", events::emit(key, EventType::Normal, "Probed", "Probe", "by a runner")),
        "state.get" => format!("{:?}", state::get("there")),
        "state.put" => format!("{:?}", state::put("there", &[1], None)),
        "state.remove" => format!("{:?}", state::remove("there", None)),
        "log.write" => {
            log::write(log::Level::Info, "a line", &[]);
            "written".to_owned()
        }
        other => format!("no function {other}"),
    }
}

export!(Runner);
