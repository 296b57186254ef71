//! Compilation in the jailed process of the built program: hostile components, code that plugins share, and the cache
//! on disk.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bombs;
mod cache;
mod container;
mod figures;
mod host;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use podium_runtime::{Cache, Compilation, Engine, EngineOptions, Program, Room};
use podium_tests::process::host_binary;
use tempfile::TempDir;

/// The compiler's process of the built host.
fn program() -> Program {
    let path = host_binary().unwrap().to_owned();
    Program { path, name: "podium-host".into(), arguments: vec!["compile".into()], room: Room::default() }
}

fn engine(program: Program, cache: Option<Cache>) -> Arc<Engine> {
    let compilation = Compilation::Jailed { program, cache: cache.map(Arc::new) };
    Engine::new(EngineOptions { concurrent_runs: 2, compilation, ..EngineOptions::default() }).unwrap()
}

/// A state directory, and a compiler that counts how often it is started.
struct Place {
    state: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { state: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.state.path()
    }

    fn started(&self) -> PathBuf {
        self.path().join("started")
    }

    fn program(&self) -> Program {
        let (started, host) = (self.started(), host_binary().unwrap());
        let script = format!("echo x >>'{}'; exec '{}' compile \"$@\"", started.display(), host.display());
        Program {
            path: "/bin/sh".into(),
            name: "sh".into(),
            arguments: ["-c", &script, "sh"].map(Into::into).into(),
            ..program()
        }
    }

    /// A compiler that refuses everything.
    fn failing_program(&self) -> Program {
        let script = format!("echo x >>'{}'; cat >/dev/null; echo no >&2; exit 3", self.started().display());
        Program {
            path: "/bin/sh".into(),
            name: "sh".into(),
            arguments: ["-c", &script, "sh"].map(Into::into).into(),
            ..program()
        }
    }

    fn cache(&self) -> Cache {
        let random = |key: &mut [u8]| {
            key.fill(42);
            Ok(())
        };
        Cache::open(self.path(), random, 0).unwrap()
    }

    /// The engine of a host that starts: it shares no memory with earlier ones.
    fn engine(&self) -> Arc<Engine> {
        engine(self.program(), Some(self.cache()))
    }

    /// Returns the number of components that were compiled since the last call.
    fn take_compilations(&self) -> usize {
        let lines = fs::read_to_string(self.started()).unwrap_or_default().lines().count();
        let _ = fs::remove_file(self.started());
        lines
    }

    /// The files of the cache.
    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path().join("compiled")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}
