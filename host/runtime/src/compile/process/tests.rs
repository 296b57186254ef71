//! The host's errors for a compiler's process that misbehaves. A shell script takes the place of the process.

use std::fs;

use super::*;

/// A program that runs a script. The arguments of the compilation follow as `$1` and so on.
fn shell(script: &str) -> Program {
    let arguments = ["-c", script, "sh"].map(Into::into).into();
    Program { path: "/bin/sh".into(), name: "sh".into(), arguments, room: Room::default() }
}

fn compile(script: &str, wasm: &[u8]) -> Result<Artifact, LoadProblem> {
    shell(script).compile(LimitClass::Native, wasm, Path::new("a.wasm"))
}

#[test]
fn the_output_of_a_successful_process_is_the_code() {
    assert_eq!(compile("cat", b"abc").unwrap().code(), b"abc");
    let arguments = compile("printf %s \"$*\"", b"").unwrap();
    assert_eq!(arguments.code(), format!("--class native --parent {}", process::id()).as_bytes());
    assert_eq!(
        compile("env | grep -v -e PWD -e _= -e SHLVL; exit 0", b"").unwrap().code(),
        b"",
        "an empty environment"
    );
    // More than pipes hold, both ways at once and with as much on stderr.
    let wasm = vec![7; 2 << 20];
    assert_eq!(
        compile("head -c 3000000 /dev/zero >&2; cat; head -c 3000000 /dev/zero >&2", &wasm).unwrap().code(),
        wasm
    );
}

#[test]
fn where_memory_is_short_the_process_has_what_is_left() {
    let script = "printf '%s ' \"$*\"; printf %s $MALLOC_ARENA_MAX";
    let short = Program { room: Room::within(|| Some(80 << 20)), ..shell(script) };
    let arguments = short.compile(LimitClass::Native, b"", Path::new("a.wasm")).unwrap();
    let expected = format!("--class native --parent {} --memory-bytes {} 1", process::id(), 64 << 20);
    assert_eq!(String::from_utf8_lossy(arguments.code()), expected);
    let failing = Program { room: short.room.clone(), ..shell("exit 5") };
    let problem = failing.compile(LimitClass::Native, b"", Path::new("a.wasm")).unwrap_err();
    assert!(matches!(problem, LoadProblem::TooLittleMemory { left, .. } if left == 64 << 20), "{problem}");
    assert!(problem.is_passing());
}

#[test]
fn a_process_that_reads_nothing_is_not_waited_for() {
    assert_eq!(compile("exit 0", &vec![7; 2 << 20]).unwrap().code(), b"");
    // It closes its end and does something else.
    assert_eq!(compile("exec <&-; printf done", &vec![7; 2 << 20]).unwrap().code(), b"done");
}

#[test]
fn each_end_has_its_problem_and_only_passing_ones_are_retried() {
    for (script, expected, passing) in [
        ("kill -XCPU $$", "compilation took more than the 10 s of processor time of its class", false),
        (
            "echo memory allocation of 17 bytes failed >&2; kill -ABRT $$",
            "compilation took more than the 1024 MiB of memory of its class",
            false,
        ),
        ("exit 5", "compilation took more than the 1024 MiB of memory of its class", false),
        ("kill -KILL $$", "the compiler's process was killed, as the kernel does when memory is short", true),
        ("echo no such opcode >&2; exit 3", "cannot be compiled: no such opcode", false),
        ("echo no seccomp >&2; exit 4", "the compiler's process cannot be started: no seccomp", true),
        ("kill -SEGV $$", "cannot be compiled: the compiler's process ended with signal: 11 (SIGSEGV)", false),
        (
            "echo panicked >&2; exit 101",
            "cannot be compiled: the compiler's process ended with exit status: 101: panicked",
            false,
        ),
    ] {
        let problem = compile(&format!("ulimit -c 0; {script}"), b"").unwrap_err();
        assert_eq!((problem.to_string().as_str(), problem.is_passing()), (expected, passing), "{script}");
    }
    let missing = Program { path: "/nowhere/podium-host".into(), ..shell("") };
    let problem = missing.compile(LimitClass::Native, b"", Path::new("a.wasm")).unwrap_err();
    assert!(matches!(problem, LoadProblem::NoProcess(_)) && problem.is_passing(), "{problem}");
}

#[test]
fn the_output_of_a_process_is_bounded() {
    let endless = compile("cat /dev/zero", b"").unwrap_err();
    assert!(
        matches!(endless, LoadProblem::CodeTooLarge { limit } if limit == code_bytes(LimitClass::Native)),
        "{endless}"
    );
    let Err(LoadProblem::Compile(message)) = compile("head -c 9000000 /dev/zero | tr '\\0' x >&2; exit 3", b"") else {
        panic!("refused for another reason");
    };
    assert_eq!(message.len(), MAX_STDERR);
}

#[test]
fn a_compilation_that_is_given_up_leaves_no_process() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    // It would run for a minute, with its pipes open.
    let script =
        format!("echo $$ > {}; head -c {} /dev/zero; exec sleep 60", pid.display(), code_bytes(LimitClass::Native) + 1);
    assert!(matches!(compile(&script, b""), Err(LoadProblem::CodeTooLarge { .. })));
    let pid = fs::read_to_string(pid).unwrap();
    assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid} is still there");
}

#[test]
fn a_process_that_is_stopped_is_given_up_and_ended() {
    let directory = tempfile::tempdir().unwrap();
    let pid = directory.path().join("pid");
    for pipes in ["", "exec >&- 2>&-; "] {
        let program = shell(&format!("echo $$ > {}; {pipes}kill -STOP $$", pid.display()));
        let most = Duration::from_secs(1);
        let problem = program.compile_within(most, LimitClass::Native, b"", Path::new("a.wasm")).unwrap_err();
        assert!(matches!(problem, LoadProblem::Stalled { .. }) && problem.is_passing(), "{problem}");
        let pid = fs::read_to_string(&pid).unwrap();
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid} is still there");
    }
}
