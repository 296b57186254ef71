//! Compiled code in memory and on disk.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    thread,
    time::Duration,
};

use podium_engine::ports::Outcome;
use podium_tests::{bombs, guests, sandbox};
use podium_vocabulary::LimitClass;

use super::{Place, engine};

#[test]
fn equal_plugins_loaded_at_the_same_time_are_compiled_once() {
    let (place, wasm) = (Place::new(), guests::component("good").unwrap());
    let engine = engine(place.program(), None);
    let plugins: Vec<_> = thread::scope(|scope| {
        let load = || engine.compile(&sandbox::spec("good"), &wasm).unwrap();
        let loads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
        loads.into_iter().map(|load| load.join().unwrap()).collect()
    });
    assert_eq!(place.take_compilations(), 1);
    let mut other = sandbox::spec("good");
    other.limits.class = LimitClass::Interpreter;
    engine.compile(&other, &wasm).unwrap();
    assert_eq!(place.take_compilations(), 1, "a class has its own limits");
    // Plugins share the code, not the right to run it.
    let mut less = sandbox::spec("good");
    less.grants.write.labels.clear();
    let error = engine.compile(&less, &wasm).unwrap_err().to_string();
    assert!(error.contains("imports more than it is granted"), "{error}");
    drop(plugins);
    engine.compile(&sandbox::spec("good"), &wasm).unwrap();
    assert_eq!(place.take_compilations(), 1, "it had no user any more");
}

#[tokio::test]
async fn a_restart_compiles_nothing_and_its_plugins_run() {
    let (place, wasm) = (Place::new(), guests::component("good").unwrap());
    let wasm: Vec<_> = (0..5).map(|number| bombs::marked(&wasm, &number.to_string())).collect();
    for expected in [5, 0, 0] {
        let engine = place.engine();
        for wasm in &wasm {
            let plugin = engine.compile(&sandbox::spec("good"), wasm).unwrap();
            let (report, _) = sandbox::run_in(&plugin, sandbox::request(), sandbox::FakeWorld::default()).await;
            assert_eq!(report.result, Ok(Outcome::RequeueAfter(Duration::from_millis(1_500))));
        }
        assert_eq!(place.take_compilations(), expected);
    }
    assert_eq!(place.files().len(), 5);
}

#[test]
fn code_is_cached_for_its_class() {
    let (place, wasm) = (Place::new(), guests::component("good").unwrap());
    let mut interpreter = sandbox::spec("good");
    interpreter.limits.class = LimitClass::Interpreter;
    for expected in [1, 0] {
        place.engine().compile(&interpreter, &wasm).unwrap();
        assert_eq!(place.take_compilations(), expected);
        place.engine().compile(&sandbox::spec("good"), &wasm).unwrap();
        assert_eq!(place.take_compilations(), expected, "within the limits of its own class");
    }
    assert_eq!(place.files().len(), 2);
}

#[test]
fn a_changed_file_is_compiled_again_and_the_plugin_loads() {
    let (place, wasm) = (Place::new(), guests::component("good").unwrap());
    let load = || place.engine().compile(&sandbox::spec("good"), &wasm).map(drop).unwrap();
    load();
    assert_eq!(place.take_compilations(), 1);
    let file = place.files().pop().unwrap();
    let length = fs::metadata(&file).unwrap().len();
    let (header, mac) = (92, 32);
    for (part, at) in [
        ("magic", 0),
        ("version", 8),
        ("component", 12),
        ("engine", 44),
        ("length", 76),
        ("tenant", 84),
        ("start of the code", header),
        ("middle of the code", length / 2),
        ("end of the code", length - mac - 1),
        ("MAC", length - mac),
        ("end of the MAC", length - 1),
    ] {
        let byte = fs::read(&file).unwrap()[usize::try_from(at).unwrap()];
        let mut open = OpenOptions::new().write(true).open(&file).unwrap();
        open.seek(SeekFrom::Start(at)).unwrap();
        open.write_all(&[byte ^ 0x10]).unwrap();
        load();
        assert_eq!(place.take_compilations(), 1, "{part}");
        load();
        assert_eq!(place.take_compilations(), 0, "{part}: it was cached again");
    }
    for bytes in [0, 1, header, length / 2, length - 1, length + 1, 2 * length, 1 << 40] {
        OpenOptions::new().write(true).open(&file).unwrap().set_len(bytes).unwrap();
        load();
        assert_eq!(place.take_compilations(), 1, "{bytes} bytes");
    }
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    load();
    assert_eq!(place.take_compilations(), 1, "open to others");
    fs::write(place.path().join("compile.key"), [9; 32]).unwrap();
    load();
    assert_eq!(place.take_compilations(), 1, "another key");
}

#[test]
fn authentic_files_of_another_engine_are_compiled_again() {
    let (place, wasm) = (Place::new(), guests::component("good").unwrap());
    place.engine().compile(&sandbox::spec("good"), &wasm).unwrap();
    let file = place.files().pop().unwrap();
    // A file as another version of the host writes it: authentic, with another engine's digest. Only a host can write
    // such a file, so the test changes the host's expectation: it stores another component's file under this name.
    let other = bombs::marked(&wasm, "other");
    place.engine().compile(&sandbox::spec("good"), &other).unwrap();
    let moved = place.files().into_iter().find(|path| *path != file).unwrap();
    fs::rename(moved, &file).unwrap();
    place.take_compilations();
    place.engine().compile(&sandbox::spec("good"), &wasm).unwrap();
    assert_eq!(place.take_compilations(), 1);
}
