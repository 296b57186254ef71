//! Components that are within the bounds on structure and take too long, and bytes that are no component.

use std::{fs, path::Path};

use podium_runtime::{LoadProblem, Program};
use podium_tests::{bombs, guests, plugins, process::podium_binary, sandbox};
use podium_vocabulary::LimitClass;

use super::{Place, engine, program};

#[test]
fn a_small_component_that_compiles_too_long_is_refused() {
    let wasm = bombs::slowed(&guests::component("good").unwrap(), 1_000);
    let error = engine(program(), None).compile(&sandbox::spec("good"), &wasm).unwrap_err();
    assert!(matches!(*error.problem, LoadProblem::TooSlow { .. }), "{error}");
}

#[test]
fn a_refused_component_is_not_compiled_again_at_each_attempt() {
    // Within the bounds on structure, and refused by the compiler.
    let (place, good) = (Place::new(), guests::component("good").unwrap());
    let engine = engine(place.failing_program(), None);
    let refused = |wasm: &[u8]| engine.compile(&sandbox::spec("good"), wasm).unwrap_err();
    assert!(matches!(*refused(&good).problem, LoadProblem::Compile(_)));
    for _ in 0..3 {
        assert!(matches!(*refused(&good).problem, LoadProblem::RefusedBefore { .. }));
    }
    assert_eq!(place.take_compilations(), 1);
    refused(&bombs::marked(&good, "other"));
    assert_eq!(place.take_compilations(), 1, "another component");
}

#[test]
fn an_interpreter_of_18_mb_compiles_only_in_its_own_class() {
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
fn refusals_of_the_compiler_are_reported_in_its_words() {
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

/// A host may have inherited descriptors that stay open when it starts another program.
#[cfg(target_os = "linux")]
#[test]
fn the_compiler_has_no_descriptor_of_the_host_when_it_reads() {
    use std::{
        collections::BTreeSet,
        io::{Read, Write},
        process::Stdio,
    };

    let inherited = rustix::io::dup(std::io::stderr()).unwrap();
    let mut command = std::process::Command::new(&program().path);
    command.args(["compile", "--class", "native", "--parent", &std::process::id().to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(inherited);
    // More than the pipe holds: all of it is written when the compiler reads.
    child.stdin.as_mut().unwrap().write_all(&[0; 1 << 20]).unwrap();
    let open = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let open: BTreeSet<String> = open.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(open, ["0", "1", "2"].map(str::to_owned).into());
    drop(child.stdin.take());
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert_eq!((child.wait().unwrap().code(), message.is_empty()), (Some(3), false));
}
