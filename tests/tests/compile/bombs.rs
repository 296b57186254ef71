//! Components that are within the bounds on structure and take too long, and bytes that are no component.

use std::{fs, path::Path};

use podium_host::runtime::{LoadProblem, Program};
use podium_pods::model::LimitClass;
use podium_tests::{bombs, guests, plugins, process::podium_binary, sandbox};

use super::{engine, program};

#[test]
fn a_component_within_the_bounds_on_structure_that_takes_too_long_is_refused_for_its_processor_time() {
    let wasm = bombs::slowed(&guests::component("good").unwrap(), 1_000);
    let error = engine(program(), None).compile(&sandbox::spec("good"), &wasm).unwrap_err();
    assert!(matches!(*error.problem, LoadProblem::TooSlow { .. }), "{error}");
}

#[test]
fn an_interpreter_of_18_mb_is_compiled_within_the_limits_of_its_class_and_not_within_those_of_native_code() {
    let Some(component) = plugins::python().unwrap() else { return };
    let wasm = fs::read(component).unwrap();
    let code = program().compile(LimitClass::Interpreter, &wasm, Path::new("python.wasm")).unwrap();
    assert!(code.code().len() > wasm.len(), "{code:?}");
    // It is read up to the size of the class, and the bytes that were read are no component.
    let problem = program().compile(LimitClass::Native, &wasm, Path::new("python.wasm")).unwrap_err();
    assert!(matches!(problem, LoadProblem::Compile(_)), "{problem}");
}

#[test]
fn podium_compiles_as_the_host_does() {
    let wasm = guests::component("good").unwrap();
    let podium = Program { path: podium_binary().unwrap(), name: "podium".into(), ..program() };
    let compile = |program: Program| program.compile(LimitClass::Native, &wasm, Path::new("good.wasm")).unwrap();
    assert_eq!(compile(podium).code(), compile(program()).code());
}

#[test]
fn what_the_compiler_refuses_is_reported_in_its_words() {
    for wasm in [&b""[..], b"\0asm\x0d\0\x01\0\x01\xff"] {
        let problem = program().compile(LimitClass::Native, wasm, Path::new("a.wasm")).unwrap_err();
        let LoadProblem::Compile(message) = problem else { panic!("{problem}") };
        assert!(!message.is_empty() && !message.contains("panicked"), "{message}");
    }
}

#[test]
fn the_compiler_does_not_run_for_whoever_is_not_its_parent() {
    let mut command = std::process::Command::new(&program().path);
    let output = command.args(["compile", "--class", "native", "--parent", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(output.stdout, b"");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("process 1 is not the parent"), "{message}");
}
