//! Refusals at load and at the call; a read of a Pod that is not granted looks like a read of a Pod that does not
//! exist.

use podium_runtime::inspect;
use podium_tests::{guests, modules::Module, sandbox::*};
use podium_vocabulary::{Grants, LimitClass, PluginSpec};

fn refusal(spec: &PluginSpec) -> String {
    load(&engine(), spec).unwrap_err().to_string()
}

#[tokio::test]
async fn imports_beyond_the_grants_are_refused_by_function() {
    let mut overreach = spec("overreach");
    let error = refusal(&overreach);
    assert!(error.starts_with("overreach.wasm: imports more than it is granted: "), "{error}");
    assert!(error.contains("podium:reconcile/writes.delete-pod (needs grants.write.delete);"), "{error}");
    let granted = error.split_once("granted are ").unwrap().1;
    assert!(granted.contains("podium:reconcile/writes.set-label") && granted.contains("pods.count"), "{error}");
    assert!(!granted.contains("delete-pod") && !granted.contains("get-live"), "{error}");

    overreach.grants.write.delete = true;
    assert!(load(&engine(), &overreach).is_ok());
    overreach.grants.read = None;
    assert!(refusal(&overreach).contains("podium:reconcile/pods.count (needs grants.read.pods)"));
}

#[tokio::test]
async fn an_interpreter_is_checked_by_interface_and_at_the_call() {
    let mut overreach = spec("overreach");
    overreach.limits.class = LimitClass::Interpreter;
    assert!(load(&engine(), &overreach).is_ok(), "the grant of labels opens the interface");
    overreach.grants.write = Grants::default().write;
    assert!(refusal(&overreach).contains("podium:reconcile/writes (needs one of grants.write.labels"), "by interface");
}

#[tokio::test]
async fn every_write_is_refused_at_the_call_where_nothing_covers_it() {
    let script = [
        "label guests.example/a 1",
        "label other.example/a 1",
        "unlabel other.example/a",
        "annotate guests.example/a 1",
        "unannotate guests.example/a",
        "finalize guests.example/a",
        "unfinalize guests.example/a",
        "condition guests.example/a",
        "uncondition guests.example/a",
        "delete",
        "evict",
        "apply {\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\",\"namespace\":\"shop\"}}",
        "drop ConfigMap a",
    ];
    let mut probe = probe(&script);
    probe.grants.write =
        podium_vocabulary::WriteGrants { labels: everything().write.labels, events: true, ..Default::default() };
    let answers = answers(&probe).await;
    assert_eq!(answers[0], "Ok(0)");
    assert_eq!(answers.len(), script.len());
    for (answer, line) in answers.iter().zip(script).skip(1) {
        assert_eq!(answer, "Err(CallError::NotGranted)", "{line}");
    }
    let lacking = run(&probe).await.1.lacking;
    assert_eq!(lacking.len(), script.len() - 1, "the world learns each of them: {lacking:?}");
    assert!(lacking[0].starts_with("add other.example/a to spec.grants.write.labels, which has ["), "{lacking:?}");
}

#[tokio::test]
async fn every_write_is_staged_in_order_where_it_is_granted() {
    let script = [
        "label guests.example/a 1",
        "unlabel guests.example/a",
        "annotate guests.example/a 1",
        "unannotate guests.example/a",
        "finalize guests.example/a",
        "unfinalize guests.example/a",
        "condition guests.example/a",
        "uncondition guests.example/a",
        "delete",
        "evict",
        "apply {\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\",\"namespace\":\"shop\"}}",
        "drop ConfigMap a",
    ];
    let (report, notes) = run(&probe(&script)).await;
    let expected: Vec<_> = (0..script.len()).map(|id| format!("Ok({id})")).collect();
    assert_eq!(notes.lines(), expected);
    let staged: Vec<_> = report.staged.writes.iter().map(|write| write.get().action.describe()).collect();
    assert_eq!(staged[0], "set label guests.example/a=1 on shop/cart-0");
    assert_eq!(staged[8], "delete pod shop/cart-0");
    assert_eq!(staged[10], "apply v1 ConfigMap shop/a");
    let ids: Vec<_> = report.staged.writes.iter().map(|write| write.get().id).collect();
    assert_eq!(ids, (0..12).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_applied_object_has_one_meaning_or_is_refused() {
    let secret = "apply {\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"kind\":\"Secret\",\
        \"metadata\":{\"name\":\"a\",\"namespace\":\"shop\"}}";
    let answers = answers(&probe(&[secret, "apply {", "apply []"])).await;
    let twice = "Err(CallError::Invalid(\"object: ";
    assert!(answers[0].starts_with(twice) && answers[0].contains("kind"), "{}", answers[0]);
    assert!(answers[1].starts_with("Err(CallError::Invalid(\"object: EOF"), "{}", answers[1]);
    assert!(answers[2].starts_with("Err(CallError::Invalid(\"object: apiVersion"), "{}", answers[2]);
}

#[tokio::test]
async fn a_read_without_a_grant_looks_like_a_read_of_nothing() {
    let script = ["get shop cart-1", "find * 10", "count *", "live shop cart-1", "get shop no-such"];
    let nothing = ["Ok(None)", "Ok((0, None))", "Ok(0)", "Ok(None)", "Ok(None)"];
    let mut blind = probe(&script);
    blind.grants.read = None;
    let mut spec = blind.clone();
    // The interface itself is refused at load without the grant, so the probe comes as a guest that may import it.
    assert!(refusal(&spec).contains("podium:reconcile/pods (needs one of grants.read.pods, grants.read.pods.live)"));
    spec.grants.read = Some(podium_vocabulary::ReadGrants::default());
    spec.config = serde_json::to_string(
        &["get bank vault-0", "find bank 10", "count bank", "live shop cart-1", "live bank vault-0"].join("\n"),
    )
    .unwrap()
    .into();
    let (report, notes) = run(&spec).await;
    assert!(report.result.is_ok());
    assert_eq!(notes.lines(), nothing);
    assert_eq!(notes.live, 0, "the world was not even asked");
}

#[tokio::test]
async fn an_object_is_read_by_the_grant_of_its_kind_in_the_own_namespace() {
    let script = [
        "read ConfigMap shop a",
        "read ConfigMap shop absent",
        "read ConfigMap bank a",
        "read Service shop a",
        "read Secret shop a",
        "read Pod shop cart-0",
        "read ConfigMap shop ../a",
    ];
    let (_, notes) = run(&reader(&script)).await;
    let lines = notes.lines();
    let object = r#"Ok(Some("{\"data\":{\"a\":\"b\"},\"metadata\":{\"name\":\"a\"}}"))"#;
    let refused = "Err(CallError::NotGranted)";
    assert_eq!(lines[..4], [object, "Ok(None)", refused, refused]);
    assert!(lines[4].contains("no plugin reads Secrets") && lines[5].contains("read with the functions of pods"));
    assert!(lines[6].starts_with("Err(CallError::Invalid(\"object name"), "{}", lines[6]);
    assert_eq!(notes.live, 2, "a refused read is not sent");
    assert!(notes.lacking[0].contains("outside of the namespace shop"), "{:?}", notes.lacking);
    assert!(notes.lacking[1].starts_with("add v1 Service to spec.grants.read.objects, which has [v1 ConfigMap]"));

    let mut blind = reader(&script[..1]);
    blind.grants.read_objects.clear();
    assert_eq!(answers(&blind).await, [refused], "the other grant of the interface is there");
    blind.grants.write.scale.clear();
    assert!(
        refusal(&blind).contains("podium:reconcile/objects (needs one of grants.read.objects, grants.write.scale)")
    );
}

#[tokio::test]
async fn replicas_are_staged_where_they_are_granted() {
    let mut reader =
        reader(&["scale ConfigMap shop a 3", "scale ConfigMap shop a 2147483648", "scale Service shop a 1"]);
    let (report, notes) = run(&reader).await;
    let lines = notes.lines();
    assert_eq!((lines[0], lines[2]), ("Ok(0)", "Err(CallError::NotGranted)"));
    assert!(lines[1].contains("replicas: 2147483648, at most 2147483647"), "{}", lines[1]);
    let staged: Vec<_> = report.staged.writes.iter().map(|write| write.get().action.describe()).collect();
    assert_eq!(staged, ["scale v1 ConfigMap shop/a to 3"]);
    reader.grants.write.scale.clear();
    assert_eq!(answers(&reader).await[0], "Err(CallError::NotGranted)");
}

#[tokio::test]
async fn a_namespaced_plugin_finds_only_its_own_namespace() {
    let script =
        ["find * 10", "count *", "find shop 1", "find shop 1 shop/cart-0", "count-phase Running", "count-phase x"];
    let mut probe = probe(&script);
    let refused = "Err(CallError::NotGranted)";
    assert_eq!(answers(&probe).await[4..], [refused, refused], "by phase, without the section status");
    let read = probe.grants.read.as_mut().unwrap();
    read.sections = read.sections.with(podium_wire::Section::Status);
    let own = answers(&probe).await;
    assert_eq!(own[1], "Ok(2)");
    assert!(own[2].ends_with("Some(\"shop/cart-0\")))"), "{}", own[2]);
    assert!(own[3].ends_with("None))"), "{}", own[3]);
    assert_eq!(own[4..], ["Ok(2)", "Ok(0)"], "by phase");
    probe.id.namespace = None;
    assert_eq!(answers(&probe).await[1], "Ok(3)");
}

#[tokio::test]
async fn hostile_arguments_of_reads_are_invalid() {
    let answers = answers(&probe(&["find * 0", "find * 1 ../../etc", "find-in-nothing", "find * 4294967295"])).await;
    assert!(answers[0].contains("limit: must be at least 1"), "{}", answers[0]);
    assert!(answers[1].contains("after: not the `next` of a page"), "{}", answers[1]);
    assert!(answers[2].contains("labels: In takes 1 to 64 values, not 0"), "{}", answers[2]);
    assert!(answers[3].starts_with("Ok("), "{}", answers[3]);
}

#[tokio::test]
async fn a_page_is_bounded_and_the_next_one_continues() {
    let engine = engine();
    let many: Vec<_> = (0..600).map(|index| pod("shop", &format!("cart-{index:03}"))).collect();
    let mut probe = probe(&["find shop 4294967295", "find shop 600 shop/cart-499"]);
    probe.limits.cpu = std::time::Duration::from_secs(1);
    let plugin = load(&engine, &probe).unwrap();
    let (_, notes) = run_in(&plugin, request(), FakeWorld::with_pods(many)).await;
    assert!(notes.lines()[0].ends_with("Some(\"shop/cart-499\")))"), "{}", notes.lines()[0]);
    assert!(notes.lines()[1].ends_with("None))"), "{}", notes.lines()[1]);

    // Three of 600 KiB: two would be more than 1 MiB; one of 2 MiB is a page by itself.
    let large = "x".repeat(600 << 10);
    let mut pods: Vec<_> = (0..3).map(|index| pod_with_label("shop", &format!("cart-{index}"), &large)).collect();
    pods.push(pod_with_label("shop", "cart-3", &"x".repeat(2 << 20)));
    probe.config = serde_json::to_string("find shop 4\nfind shop 4 shop/cart-2").unwrap().into();
    let plugin = load(&engine, &probe).unwrap();
    let (_, notes) = run_in(&plugin, request(), FakeWorld::with_pods(pods)).await;
    assert!(
        notes.lines()[0].starts_with("Ok((614") && notes.lines()[0].ends_with("Some(\"shop/cart-0\")))"),
        "{notes:?}"
    );
    assert!(notes.lines()[1].starts_with("Ok((2097") && notes.lines()[1].ends_with("None))"), "{notes:?}");
}

#[tokio::test]
async fn state_has_bounds_and_distinguishes_a_conflict_from_a_refusal() {
    let script = [
        "state-get there",
        "state-put there 1 9",
        "state-put there 65536",
        "state-put there 65537",
        "state-remove there",
    ];
    let answers = answers(&probe(&script)).await;
    assert!(answers[0].contains("version: 3"), "{}", answers[0]);
    assert!(answers[1].contains("Conflict"), "{}", answers[1]);
    assert_eq!(answers[2], "Ok(4)");
    assert!(answers[3].contains("value: 65537 bytes, at most 65536"), "{}", answers[3]);
    assert_eq!(answers[4], "Ok(())");
}

#[tokio::test]
async fn a_file_that_is_no_plugin_is_refused_with_the_reason() {
    let engine = engine();
    let refuse = |wasm: &[u8]| engine.compile(&spec("good"), wasm).unwrap_err().to_string();
    assert!(refuse(b"\0asm\x01\0\0\0").contains("good.wasm: this is a core WebAssembly module"));
    assert!(refuse(b"\0asm\x0d\0\x01\0").contains("exports neither podium:reconcile/reconciler@0.1.0"));
    assert!(refuse(b"apiVersion: v1").contains("not a WebAssembly component"));
}

#[test]
fn a_reconcile_of_another_type_is_refused_with_both_types() {
    // Each has the same parameters and results after it was lowered to WebAssembly, so that the module fits.
    for (from, to, found) in [
        ("record request {\n    key: pod-key,", "record request {\n    pod: pod-key,", "func(record { pod: record { "),
        ("now-millis: u64,", "now-millis: s64,", "now-millis: s64, attempt: u32"),
        ("config: string,", "config: list<u8>,", "config: list<u8>, unsettled-writes"),
        ("present(list<u8>),", "there(list<u8>),", "subject: variant { there(list<u8>), deleted("),
        ("retry(string),", "again(string),", "variant { again(string), terminal(string) }>"),
        ("requeue-after-millis(u64),", "requeue-after-millis(s64),", "requeue-after-millis(s64)"),
        ("-> result<outcome, failure>;\n}", "-> result<failure, outcome>;\n}", "result<variant { retry(string)"),
    ] {
        let contract = Module::DEFAULT.contract;
        assert!(contract.contains(from), "{from}");
        let wasm = Module { contract: &contract.replace(from, to), ..Module::DEFAULT }.component().unwrap();
        let error = podium_runtime::check(&spec("module"), &wasm).unwrap_err().to_string();
        let begin = "module.wasm: does not fit the contract: its podium:reconcile/reconciler@0.1.0.reconcile is func(";
        let (is, expected) = error.split_once("; expected is ").unwrap_or((&error, ""));
        assert!(is.starts_with(begin) && is.contains(found), "{to}: {error}");
        assert!(expected.starts_with("func(record { key: record { namespace: string"), "{to}: {error}");
        assert!(expected.ends_with("variant { retry(string), terminal(string) }>"), "{to}: {error}");
        assert_eq!(engine().compile(&spec("module"), &wasm).unwrap_err().to_string(), error);
    }
    engine().compile(&spec("module"), &Module::DEFAULT.component().unwrap()).unwrap();
}

#[test]
fn an_import_of_no_world_is_refused_by_name() {
    let error = refusal(&spec("wasi-files"));
    assert!(error.starts_with("wasi-files.wasm: imports wasi:filesystem/"), "{error}");
    assert!(error.contains("wasi:filesystem/types@0.2") && error.contains("wasi:filesystem/preopens@0.2"), "{error}");
    assert!(error.contains("componentize-py's --stub-wasi") && error.contains("docs/scripts.md"), "{error}");
    assert!(error.contains("a plugin can import podium:reconcile/pods@0.1.0, "), "{error}");
}

#[test]
fn imports_are_listed_without_compiling() {
    let imports = inspect(&guests::component("good").unwrap()).unwrap().imports;
    let with_functions: Vec<_> = imports
        .iter()
        .filter(|import| !import.functions.is_empty())
        .map(|import| (import.interface.as_str(), import.functions.join(",")))
        .collect();
    assert_eq!(
        with_functions,
        [("podium:reconcile/pods@0.1.0", "get".to_owned()), ("podium:reconcile/writes@0.1.0", "set-label".to_owned())]
    );
}

/// Returns a component of the world `plugin` that imports an instance with one export `a` of the type `export`.
fn importing(name: &str, types: &[u8], export: &[u8]) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&[u8::try_from(bytes.len()).unwrap()], bytes].concat();
    let named = |name: &str| [&[0][..], &sized(name.as_bytes())].concat();
    let declarations = 1 + u8::from(!types.is_empty());
    let instance_type = [&[1, 0x42, declarations], types, &[4], &*named("a"), export].concat();
    let import = [&[1], &*named(name), &[5, 0]].concat();
    // An instance without exports, exported as the reconciler.
    let reconciler = [&[1], &*named("podium:reconcile/reconciler@0.1.0"), &[5, 1, 0]].concat();
    let sections = [(7, instance_type), (10, import), (5, vec![1, 1, 0]), (11, reconciler)];
    let sections = sections.into_iter().flat_map(|(id, body)| [vec![id], sized(&body)].concat());
    b"\0asm\x0d\0\x01\0".iter().copied().chain(sections).collect()
}

#[test]
fn an_import_without_functions_may_have_only_plain_types() {
    let check = |wasm: &[u8]| podium_runtime::check(&spec("good"), wasm);
    // Types are declared before they are exported: an empty instance, the own resource, a type equal to u8.
    let nested = importing("x:y/z", &[1, 0x42, 0], &[5, 0]);
    let resource = importing("x:y/z", &[], &[3, 1]);
    let plain = importing("x:y/z", &[1, 0x7d], &[3, 0, 0]);
    for wasm in [nested, resource] {
        let error = check(&wasm).unwrap_err().to_string();
        assert!(
            error.starts_with("good.wasm: imports x:y/z") && error.contains("which the world plugin of podium"),
            "{error}"
        );
    }
    let error = check(&plain).unwrap_err().to_string();
    let expected =
        "good.wasm: does not fit the contract: its podium:reconcile/reconciler@0.1.0.reconcile is no function";
    assert!(error.starts_with(expected), "the import is not refused: {error}");
}

#[test]
fn a_component_may_not_import_the_reads_of_the_other_world() {
    let function_type = [1, 0x40, 0, 1, 0];
    let wasm = importing("podium:reconcile/pods-json@0.1.0", &function_type, &[1, 0]);
    let error = podium_runtime::check(&probe(&[]), &wasm).unwrap_err().to_string();
    let expected =
        "probe.wasm: imports podium:reconcile/pods-json@0.1.0, which the world plugin of podium:reconcile@0.1.0";
    assert!(error.starts_with(expected), "{error}");
    assert!(error.contains("podium:reconcile/pods@0.1.0, "), "{error}");
}
