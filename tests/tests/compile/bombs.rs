//! Components that are within the bounds on structure and take too long, and bytes that are no component.

use std::path::Path;

use podium_host::runtime::LoadProblem;
use podium_pods::model::LimitClass;
use podium_tests::{bombs, guests, sandbox};

use super::{engine, program};

#[test]
fn a_component_within_the_bounds_on_structure_that_takes_too_long_is_refused_for_its_processor_time() {
    let wasm = bombs::slowed(&guests::component("good").unwrap(), 1_000);
    let error = engine(program(), None).compile(&sandbox::spec("good"), &wasm).unwrap_err();
    assert!(matches!(*error.problem, LoadProblem::TooSlow { .. }), "{error}");
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
