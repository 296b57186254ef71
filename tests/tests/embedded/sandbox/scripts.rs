//! Scripts: a runner that all of them share and that may call everything, and what each of them can reach.

use std::{path::Path, sync::Arc, time::Duration};

use podium_engine::ports::{RunReport, Staged};
use podium_runtime::{Engine, Plugin, Runner, check};
use podium_tests::{guests, modules::Module, sandbox::*};
use podium_vocabulary::{Function, Grant, Grants, Language, LimitClass, PluginSpec};

/// More than any test has.
const CODE_BYTES: u64 = 1 << 20;

fn wasm() -> Arc<[u8]> {
    guests::component("runner").unwrap()
}

fn runner(engine: &Engine) -> Runner {
    engine.runner(Path::new("test-1.wasm"), &wasm()).unwrap()
}

fn script(grants: Grants) -> PluginSpec {
    let mut spec = PluginSpec { grants, language: Some(Language::JavaScript), ..spec("script") };
    spec.limits.class = LimitClass::Interpreter;
    spec
}

async fn prepare(engine: &Engine, source: &str) -> Result<Plugin, String> {
    let prepared = engine.prepare(&script(everything()), &runner(engine), source.as_bytes(), CODE_BYTES).await;
    prepared.map_err(|error| error.to_string())
}

/// Runs a script, and returns what it logged.
async fn run_script(spec: &PluginSpec, source: &str) -> (RunReport<Staged>, Notes) {
    let engine = engine();
    let plugin = engine.prepare(spec, &runner(&engine), source.as_bytes(), CODE_BYTES).await.unwrap();
    run_in(&plugin, request(), FakeWorld::default()).await
}

/// Grants that meet one need, and what a read needs besides.
fn only(need: Grant) -> Grants {
    let all = everything();
    let mut grants = Grants::default();
    let write = &mut grants.write;
    let all_writes = all.write;
    match need {
        Grant::Read | Grant::Live => grants.read = all.read,
        Grant::ReadObjects => grants.read_objects = all.read_objects,
        Grant::Labels => write.labels = all_writes.labels,
        Grant::Annotations => write.annotations = all_writes.annotations,
        Grant::Finalizers => write.finalizers = all_writes.finalizers,
        Grant::Conditions => write.conditions = all_writes.conditions,
        Grant::Delete => write.delete = true,
        Grant::Evict => write.evict = true,
        Grant::Objects => write.objects = all_writes.objects,
        Grant::Scale => write.scale = all_writes.scale,
        Grant::Events => write.events = true,
    }
    if let (Grant::Read, Some(read)) = (need, &mut grants.read) {
        read.live = false;
    }
    grants
}

fn called(functions: impl Iterator<Item = Function>) -> Vec<String> {
    functions.map(|function| format!("{}.{}", function.interface(), function.name())).collect()
}

/// The answer to a call that is not granted: a read finds nothing, where there are Pods.
fn refusal(function: Function) -> &'static str {
    match function {
        Function::Get | Function::GetLive => "Ok(None)",
        Function::Find => "Ok((\"[]\", None))",
        Function::Count => "Ok(0)",
        _ => "Err(CallError::NotGranted)",
    }
}

#[tokio::test]
async fn a_script_reaches_with_each_grant_what_this_one_permits() {
    // The writes that it stages are looked at, so nothing is sent before.
    let functions = || Function::ALL.into_iter().filter(|function| *function != Function::Commit);
    let source = called(functions()).join("\n");
    let grants = Grant::ALL.into_iter().map(only).chain([Grants::default(), everything()]);
    for grants in grants {
        let (report, notes) = run_script(&script(grants.clone()), &source).await;
        assert!(report.result.is_ok(), "{:?}", report.result);
        let is_granted = |function: Function| function.grant().is_none_or(|need| need.is_in(&grants));
        let lines: Vec<_> = notes.lines().into_iter().filter(|line| *line != "a line").collect();
        assert_eq!(lines.len(), Function::ALL.len() - 1);
        for (function, line) in functions().zip(lines) {
            let refused = line == refusal(function);
            assert_eq!(refused, !is_granted(function), "{function:?} with {grants:?}: {line}");
        }
        let is_write = |function: Function| function.interface() == "writes" || function == Function::Scale;
        let writes = functions().filter(|function| is_write(*function) && is_granted(*function));
        assert_eq!(report.staged.writes.len(), writes.count(), "{grants:?}");
        assert_eq!(report.staged.events.len(), usize::from(is_granted(Function::Emit)));
        let live = [Function::GetLive, Function::GetObject].into_iter().filter(|function| is_granted(*function));
        assert_eq!(notes.live as usize, live.count(), "{grants:?}");
    }
}

#[tokio::test]
async fn a_commit_without_grants_sends_nothing() {
    let all = called(Function::ALL.into_iter()).join("\n");
    let (report, notes) = run_script(&script(Grants::default()), &all).await;
    assert!(report.result.is_ok() && notes.committed.is_empty(), "{notes:?}");
    assert!(notes.lines().contains(&"Ok(0)"));
}

#[tokio::test]
async fn the_world_of_runners_is_refused_to_plugins() {
    let contract = include_str!("../../../../wit/podium.wit");
    let plugin = "world plugin {\n";
    let with = |line: &str| contract.replace(plugin, &format!("{plugin}  {line}\n"));
    let importing = Module {
        imports: "(import \"podium:reconcile/program@0.1.0\" \"code\" (func (param i32)))",
        contract: &with("import program;"),
        ..Module::default()
    };
    let exporting = Module {
        fields: "(func (export \"podium:reconcile/preparation@0.1.0#prepare\") (param i32 i32) (result i32)
            (i32.const 1024))",
        contract: &with("export preparation;"),
        ..Module::default()
    };
    let engine = engine();
    for known in [false, true] {
        // The second time its code is there already.
        let _runner = known.then(|| runner(&engine));
        for wasm in [wasm().to_vec(), importing.component().unwrap(), exporting.component().unwrap()] {
            for class in [LimitClass::Native, LimitClass::Interpreter] {
                let mut spec = script(everything());
                spec.limits.class = class;
                spec.language = None;
                let refused = [engine.compile(&spec, &wasm).map(drop), check(&spec, &wasm).map(drop)];
                for error in refused.map(|result| result.unwrap_err().to_string()) {
                    assert!(error.contains("which only the runners of the platform have"), "{error}");
                }
            }
        }
    }
    let plugin = guests::component("json").unwrap();
    let error = engine.runner(Path::new("test-1.wasm"), &plugin).unwrap_err().to_string();
    assert!(error.starts_with("test-1.wasm: does not have the world script"), "{error}");
}

#[tokio::test]
async fn a_hostile_preparation_is_contained_and_its_message_is_one_line() {
    let engine = measuring_engine();
    for (source, message) in [
        ("loop", "of processor time"),
        ("panic", "unreachable"),
        ("grow", "bytes of memory, may have 33554432"),
        ("large", "has 3145728 bytes prepared; at most 2097152"),
        ("huge", "hostcalls"),
        ("mistake", "script.wasm: line 3, column 14: SyntaxError: unexpected token"),
        ("lie", "script.wasm: line 4294967295, column 4294967295: x"),
    ] {
        let error = prepare(&engine, source).await.unwrap_err();
        assert!(error.contains(message), "{source}: {error}");
        assert!(error.len() < 2_000 && !error.contains(char::is_control), "{source}: {} bytes", error.len());
    }
    let error = engine.prepare(&script(Grants::default()), &runner(&engine), b"a\xff", CODE_BYTES).await.unwrap_err();
    assert!(error.to_string().starts_with("script.wasm: is not UTF-8"), "{error}");
    assert!(prepare(&engine, &"# a comment\n".repeat((512 << 10) / 12)).await.is_ok(), "512 KiB");
}

#[tokio::test]
async fn a_preparation_can_call_everything_and_reaches_nothing() {
    let all = called(Function::ALL.into_iter()).join("\n");
    let (report, notes) = run_script(&script(everything()), &format!("calls\n{all}")).await;
    let mut expected = vec!["0 bytes of code"];
    expected.extend(Function::ALL.into_iter().map(|function| match function {
        Function::Log => "written",
        Function::StatePut | Function::StateRemove => "Err(PutError::Other(CallError::NotGranted))",
        _ => "Err(CallError::NotGranted)",
    }));
    assert_eq!(notes.lines(), expected);
    assert!(report.staged.writes.is_empty() && notes.live == 0);
}

#[tokio::test]
async fn no_instance_is_of_two_scripts_of_a_runner() {
    let engine = engine();
    let runner = runner(&engine);
    let mut spec = script(everything());
    spec.limits.reuse = 100;
    let one = engine.prepare(&spec, &runner, b"runs\nanswer one", CODE_BYTES).await.unwrap();
    let other = engine.prepare(&spec, &runner, b"runs\nanswer other", CODE_BYTES).await.unwrap();
    for (plugin, expected) in [(&one, ["1", "one"]), (&other, ["1", "other"]), (&one, ["2", "one"])] {
        assert_eq!(run_in(plugin, request(), FakeWorld::default()).await.1.lines(), expected);
    }
    // By default each run has a fresh one.
    let fresh = engine.prepare(&script(everything()), &runner, b"runs", CODE_BYTES).await.unwrap();
    for _ in 0..2 {
        assert_eq!(run_in(&fresh, request(), FakeWorld::default()).await.1.lines(), ["1"]);
    }
}

#[tokio::test]
async fn prepared_bytes_count_for_the_tenant_and_the_runner_does_not() {
    let engine = engine();
    let runner = runner(&engine);
    let named = |name: &str| PluginSpec { id: spec(name).id, ..script(everything()) };
    let source = "# a script\n".repeat(10);
    let prepare = async |name: &str| {
        let prepared = engine.prepare(&named(name), &runner, source.as_bytes(), 300).await;
        prepared.map_err(|error| error.to_string())
    };
    let first = prepare("a").await.unwrap();
    let _second = prepare("b").await.unwrap();
    let error = prepare("c").await.unwrap_err();
    assert!(error.contains("the plugins of namespace shop would have"), "{error}");
    assert!(prepare("b").await.is_ok(), "another version of a plugin takes the place of the one before");
    drop(first);
    assert!(prepare("c").await.is_ok());
}

#[tokio::test]
async fn a_run_pays_for_the_bytes_of_its_script() {
    const BYTES: usize = 16 << 10;
    const CALLS: u64 = 1_000;
    let mut spec = script(everything());
    spec.limits.cpu = Duration::from_secs(1);
    let fuel = async |source: &str| {
        let (report, _) = run_script(&spec, source).await;
        assert!(report.result.is_ok(), "{:?}", report.result);
        report.usage.fuel
    };
    let more = fuel(&format!("code\n{}", "#".repeat(BYTES))).await - fuel("code").await;
    // Nearly nothing of it is the guest's: the host writes the bytes.
    assert!(more > 4 * BYTES as u64 * CALLS, "{more}");
}
