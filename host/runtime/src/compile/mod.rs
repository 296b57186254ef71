//! Compilation: from a component's bytes to code that is shared by all plugins of the same bytes and class.
//!
//! The compiler runs in its own process ([`Program`]), because its memory and time cannot be bounded in this one.
//! Compiled code can be stored on disk ([`Cache`]). Without a program, components are compiled in this process, without
//! any bound: for simulations, benches and tests.
//!
//! Components are not checked here; `validate` does that before.

mod cache;
mod child;
mod jail;
mod ledger;
mod process;
mod refusals;
mod room;
mod shared;

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Range,
    path::Path,
    sync::Arc,
};

pub use cache::Cache;
use cache::Owner;
pub use child::compile_stdin;
pub(super) use ledger::{Charge, Ledger};
use podium_vocabulary::{LimitClass, PluginId, Tenant, text};
pub use process::Program;
use refusals::Refusals;
use ring::digest;
pub use room::Room;
use shared::Shared;
use tokio::time::Instant;
use wasmtime::component::Component;

use super::{LoadProblem, caps::Caps, limits, validate::Inspected};

/// Where components are compiled.
#[derive(Debug, Clone, Default)]
pub enum Compilation {
    /// In this process, without limits of processor time and memory. For simulations, benches and tests: a hostile
    /// component takes this process with it.
    #[default]
    InProcess,
    /// In a process for each component, limited in processor time, memory and system calls.
    Jailed {
        /// The program that compiles.
        program: Program,
        /// Stores code for the next start. `None`: each start compiles.
        cache: Option<Arc<Cache>>,
    },
}

/// The address space of the compiler's process, its program and threads included, in bytes.
///
/// A componentize-py component of 18 MB takes 590 MiB on 2 threads, 250 MiB of it before the first byte.
pub(super) const fn memory_bytes(class: LimitClass) -> u64 {
    match class {
        LimitClass::Native => 1 << 30,
        LimitClass::Interpreter => 2 << 30,
    }
}

/// The most bytes of code of a component, as the compiler's process writes it. While the code is loaded, this process
/// has it in memory twice.
const fn code_bytes(class: LimitClass) -> usize {
    match class {
        LimitClass::Native => 48 << 20,
        LimitClass::Interpreter => MAX_CODE_BYTES,
    }
}

/// Twice what 32 MiB become at the rate of componentize-py, whose 18 MB become 40 MB.
const MAX_CODE_BYTES: usize = 128 << 20;

/// A SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sha256([u8; 32]);

impl Sha256 {
    fn hash(bytes: &[u8]) -> Self {
        Self::from(digest::digest(&digest::SHA256, bytes))
    }

    /// Returns the digest of everything but the component that decides whether code may be run: the version of
    /// wasmtime, its settings, the processor's features, and the limits of the class within which it was checked and
    /// compiled.
    fn of_engine(engine: &wasmtime::Engine, class: LimitClass) -> Self {
        struct Sha(digest::Context);
        impl Hasher for Sha {
            fn write(&mut self, bytes: &[u8]) {
                self.0.update(bytes);
            }
            /// Not called.
            fn finish(&self) -> u64 {
                0
            }
        }
        let mut sha = Sha(digest::Context::new(&digest::SHA256));
        engine.precompile_compatibility_hash().hash(&mut sha);
        std::env::consts::ARCH.hash(&mut sha);
        let limits = (limits::of_class(class), Caps::of_class(class), memory_bytes(class), code_bytes(class));
        (class.name(), format!("{limits:?}")).hash(&mut sha);
        Self::from(sha.0.finish())
    }
}

impl From<digest::Digest> for Sha256 {
    fn from(digest: digest::Digest) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// Serialized code that this host's compiler has made. Only [`Program::compile`] constructs it, and [`Cache`] after
/// authentication.
pub struct Artifact {
    bytes: Vec<u8>,
    code: Range<usize>,
}

impl Artifact {
    fn compiled(code: Vec<u8>) -> Self {
        Self { code: 0..code.len(), bytes: code }
    }

    fn authentic(bytes: Vec<u8>, code: Range<usize>) -> Self {
        Self { bytes, code }
    }

    /// The serialized component.
    #[must_use]
    pub fn code(&self) -> &[u8] {
        &self.bytes[self.code.clone()]
    }

    #[expect(unsafe_code, reason = "wasmtime cannot check code that was compiled elsewhere")]
    fn component(&self, engine: &wasmtime::Engine) -> wasmtime::Result<Component> {
        // SAFETY: the bytes must be what a wasmtime compiler has serialized, unchanged. They are in this process's own
        // memory, which no other code can write, and an `Artifact` is made in two places only. `Program::compile` makes
        // it of what this same program wrote to a pipe that only the two processes hold, and that it ended by
        // success. `Cache::read` makes it of bytes whose MAC it has verified in this same memory, with a key that only
        // this host's user can read; the MAC covers the digest of the component and of the engine. wasmtime itself
        // refuses code of another version, of other settings or of processor features that are not there.
        unsafe { Component::deserialize(engine, self.code()) }
    }
}

impl fmt::Debug for Artifact {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Artifact").field("code_bytes", &self.code.len()).finish()
    }
}

/// A compiled component, shared by the plugins of the same bytes and class.
pub(super) struct Compiled {
    pub(super) component: Component,
    pub(super) inspected: Arc<Inspected>,
    /// Whether its code is that of the cache.
    pub(super) was_stored: bool,
}

impl Compiled {
    /// Returns the bytes of its code.
    pub(super) fn code_bytes(&self) -> u64 {
        let image = self.component.image_range();
        (image.end as usize).saturating_sub(image.start as usize) as u64
    }
}

/// A component and the class that it is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    digest: Sha256,
    class: &'static str,
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}-{}", self.digest, self.class)
    }
}

/// The most bytes of compiled code that the plugins of a tenant have together, unless the policy sets another bound:
/// six components of componentize-py.
pub const DEFAULT_TENANT_CODE_BYTES: u64 = 256 << 20;

/// Whom a component is compiled for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requester<'a> {
    /// `None` for the platform, of which no tenant's code takes the place.
    pub(super) tenant: Option<&'a Tenant>,
    /// The most bytes of code of the tenant's plugins together, in memory and on disk.
    pub(super) code_bytes: u64,
    /// The component's file, for the log.
    pub(super) file: &'a Path,
}

/// Compiles components, each once while a plugin uses it.
pub(super) struct Compiler {
    engine: wasmtime::Engine,
    compilation: Compilation,
    shared: Shared<Key, Compiled, LoadProblem>,
    ledger: Arc<Ledger>,
    refusals: Refusals,
}

impl Compiler {
    pub(super) fn new(engine: wasmtime::Engine, compilation: Compilation) -> Self {
        let (shared, ledger, refusals) = <_>::default();
        Self { engine, compilation, shared, ledger, refusals }
    }

    pub(super) fn key(class: LimitClass, wasm: &[u8]) -> Key {
        Key { digest: Sha256::hash(wasm), class: class.name() }
    }

    /// Returns a component that a plugin uses already.
    pub(super) fn get(&self, key: Key) -> Option<Arc<Compiled>> {
        self.shared.get(key)
    }

    /// Returns the key of a plugin's own prepared script.
    pub(super) fn script_key(plugin: &PluginId) -> Key {
        Key { digest: Sha256::hash(plugin.to_string().as_bytes()), class: "script" }
    }

    /// Counts code as used by a plugin, for as long as the result lives.
    ///
    /// # Errors
    /// Returns an error if the tenant's plugins would have more than `limit` bytes of code.
    pub(super) fn charge(&self, plugin: &PluginId, key: Key, bytes: u64, limit: u64) -> Result<Charge, LoadProblem> {
        self.ledger.charge(plugin, key, bytes, limit)
    }

    /// Returns the code of a component that `validate` let through. Blocks while it is compiled, also by another
    /// thread.
    ///
    /// # Errors
    /// Returns an error if the compiler refuses it, or takes more than its class permits.
    pub(super) fn compile(
        &self,
        key: Key,
        class: LimitClass,
        wasm: &[u8],
        inspected: &Arc<Inspected>,
        requester: Requester<'_>,
    ) -> Result<Arc<Compiled>, LoadProblem> {
        let make = || {
            let (component, was_stored) = self.component(key, class, wasm, requester)?;
            Ok(Compiled { component, inspected: Arc::clone(inspected), was_stored })
        };
        self.shared.get_or_try_insert_with(key, make)
    }

    /// Returns the component, and whether its code was in the cache.
    fn component(
        &self,
        key: Key,
        class: LimitClass,
        wasm: &[u8],
        requester: Requester<'_>,
    ) -> Result<(Component, bool), LoadProblem> {
        let Requester { tenant, code_bytes: max_bytes, file } = requester;
        let failed = |error: wasmtime::Error| LoadProblem::Compile(format!("{error:#}"));
        let Compilation::Jailed { program, cache } = &self.compilation else {
            return Ok((Component::new(&self.engine, wasm).map_err(failed)?, false));
        };
        let engine = Sha256::of_engine(&self.engine, class);
        if let Some(cache) = cache
            && let Some(artifact) = cache.call(move |cache| cache.load(key, &engine)).flatten()
        {
            match artifact.component(&self.engine) {
                Ok(component) => {
                    tracing::debug!(file = %text::path(file), "component loaded from the cache of compiled code");
                    return Ok((component, true));
                }
                Err(error) => {
                    let error = text::line(&format!("{error:#}"));
                    let file = text::path(file);
                    tracing::warn!(%file, error, "cached code cannot be used; removed, compiling again");
                    cache.call(move |cache| cache.remove(key));
                }
            }
        }
        let started = Instant::now();
        if let Some(problem) = self.refusals.get(key, started) {
            return Err(problem);
        }
        let artifact = program.compile(class, wasm, file);
        self.refusals.record(key, &artifact, Instant::now());
        let artifact = artifact?;
        let component = artifact.component(&self.engine).map_err(failed)?;
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let wasm_bytes = wasm.len();
        let code_bytes = artifact.code().len();
        tracing::info!(file = %text::path(file), wasm_bytes, code_bytes, millis, "component compiled");
        if let Some(cache) = cache {
            let owner = tenant.map_or(Owner::PLATFORM, |tenant| Owner::new(tenant, max_bytes));
            cache.call(move |cache| cache.store(key, &engine, owner, &artifact));
        }
        Ok((component, false))
    }
}
