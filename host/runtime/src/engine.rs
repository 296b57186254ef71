//! One type owns the compiler, the pool of sandboxes and the thread that ticks the epoch.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use podium_engine::ports::Meter;
use podium_vocabulary::{Limits, PluginSpec};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::{
    LoadError, Plugin,
    compile::{Compilation, Compiler, DEFAULT_TENANT_CODE_BYTES},
    limits,
    linking::Linkers,
    meter::SystemMeter,
    plugin,
    profile::{MOST_FRAMES, Profiler},
    sandboxes::Sandboxes,
    ticker::{Ticker, Ticking},
};

/// The settings of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Runs at the same time; further ones wait for a sandbox. A free sandbox costs address space and little else.
    pub concurrent_runs: u32,
    /// The most memory that any plugin may have, in bytes. Address space is reserved for it.
    pub memory_bytes: usize,
    /// How often a running guest yields to other tasks of its thread, and is cut if it has used more processor time
    /// than it may. `None` starts no thread and reads no clock: guests then never yield, and only fuel cuts them. A
    /// simulation needs this, because the epoch is real time.
    pub tick: Option<Duration>,
    /// The most linear memory of all instances together that are kept for further runs of their plugins, in bytes. It
    /// is in addition to the memory of runs.
    pub idle_bytes: usize,
    /// Where components are compiled. The default is this process, without limits.
    pub compilation: Compilation,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            concurrent_runs: 32,
            memory_bytes: Limits::MOST_MEMORY_BYTES,
            tick: Some(Duration::from_millis(1)),
            idle_bytes: 64 << 20,
            compilation: Compilation::default(),
        }
    }
}

/// The engine cannot be built: the options are out of range, or address space or a thread is not available.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the WebAssembly engine: {0}")]
pub struct EngineError(pub(super) String);

/// Compiles components. Plugins made by it share its pool and its tick, and keep them alive.
#[derive(Debug)]
pub struct Engine {
    pub(super) core: Arc<Core>,
}

impl Engine {
    /// # Errors
    /// See [`EngineError`].
    pub fn new(options: EngineOptions) -> Result<Arc<Self>, EngineError> {
        Self::with_meter(options, Arc::new(SystemMeter))
    }

    /// As [`Engine::new`], with other clocks. Without a tick they are not read.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub fn with_meter(options: EngineOptions, meter: Arc<dyn Meter>) -> Result<Arc<Self>, EngineError> {
        let failed = |error: wasmtime::Error| EngineError(format!("{error:#}"));
        let engine = wasmtime::Engine::new(&config(&options)).map_err(failed)?;
        let linkers = Linkers::new(&engine).map_err(failed)?;
        let profiler = Arc::<Profiler>::default();
        let start = |tick| Ticker::start(engine.clone(), tick, profiler.clone());
        let ticker = options.tick.map(start).transpose()?;
        let meter = options.tick.map(|_| meter);
        let sandboxes = Sandboxes::new(options.concurrent_runs, options.idle_bytes);
        let compiler = Compiler::new(engine.clone(), options.compilation.clone());
        let core = Core { engine, linkers, sandboxes, compiler, ticker, profiler, meter, options };
        Ok(Arc::new(Self { core: Arc::new(core) }))
    }

    /// Returns why no run is started, or `None` if all is well. A process that was stopped or throttled is well.
    #[must_use]
    pub fn stalled(&self) -> Option<String> {
        self.core.ticker.as_ref().and_then(Ticker::stalled)
    }

    /// Checks, compiles and links a component. Takes seconds of processor time on all cores for a large one: call it
    /// where blocking is allowed.
    ///
    /// Plugins of the same bytes and class share their code, which is compiled once, even when they are loaded at
    /// the same time. The caps of the class on structure are checked before anything else: on size, nesting, functions,
    /// locals and blocks. See [`Compilation`] for the limits of the compiler itself.
    ///
    /// # Errors
    /// Returns an error if the file is no component, asks for more than its grants or limits, or cannot be compiled.
    pub fn compile(&self, spec: &PluginSpec, wasm: &[u8]) -> Result<Plugin, LoadError> {
        self.compile_within(spec, wasm, DEFAULT_TENANT_CODE_BYTES)
    }

    /// As [`Engine::compile`], for a tenant whose plugins may have `code_bytes` bytes of compiled code together.
    ///
    /// # Errors
    /// As [`Engine::compile`].
    pub fn compile_within(&self, spec: &PluginSpec, wasm: &[u8], code_bytes: u64) -> Result<Plugin, LoadError> {
        plugin::compile(&self.core, spec, wasm, code_bytes)
            .map_err(|problem| LoadError { file: spec.source.path().into_owned(), problem: Box::new(problem) })
    }
}

/// The state that an engine and its plugins share.
pub(super) struct Core {
    pub(super) engine: wasmtime::Engine,
    pub(super) linkers: Linkers,
    pub(super) sandboxes: Sandboxes,
    pub(super) compiler: Compiler,
    pub(super) ticker: Option<Ticker>,
    pub(super) profiler: Arc<Profiler>,
    /// None in a simulation.
    pub(super) meter: Option<Arc<dyn Meter>>,
    pub(super) options: EngineOptions,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Core").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Core {
    /// Keeps the epoch ticking while it lives. Waits while there are no ticks.
    pub(super) async fn ticking(&self) -> Option<Ticking<'_>> {
        match &self.ticker {
            Some(ticker) => Some(ticker.ticking().await),
            None => None,
        }
    }
}

fn config(options: &EngineOptions) -> Config {
    let runs = options.concurrent_runs;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(runs)
        .total_core_instances(runs.saturating_mul(limits::MAX_INSTANCES))
        .max_core_instances_per_component(limits::MAX_INSTANCES)
        // An interpreter's component has a memory or two, and a table in each of a few dozen linked libraries at most.
        .max_memories_per_component(4)
        .total_memories(runs.saturating_mul(4))
        .max_tables_per_component(limits::MAX_INSTANCES)
        .total_tables(runs.saturating_mul(limits::MAX_INSTANCES))
        .table_elements(limits::MAX_TABLE_ELEMENTS)
        .total_stacks(runs)
        .max_memory_size(options.memory_bytes)
        // The memory that a small guest touches stays mapped between runs and is wiped by writing; the rest is returned
        // to the system, so that a free sandbox has at most 320 KiB, and only as many sandboxes as were ever used at
        // once have any.
        .pagemap_scan(Enabled::Auto)
        .linear_memory_keep_resident(kept_memory_bytes())
        .table_keep_resident(16 << 10)
        .async_stack_keep_resident(48 << 10)
        .max_unused_warm_slots(runs);

    let mut config = compiler_config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config.wasm_backtrace_max_frames(NonZeroUsize::new(MOST_FRAMES));
    config
}

/// The memory of an instance that stays mapped after its run.
///
/// Where the kernel reports which pages were touched (Linux 6.7), these are kept: a guest in Rust touches its stack and
/// its data at 1 MiB, and each page that is returned costs a fault in the next run. Elsewhere the lowest pages are
/// kept and overwritten, touched or not.
fn kept_memory_bytes() -> usize {
    if PoolingAllocationConfig::is_pagemap_scan_available() { 256 << 10 } else { 64 << 10 }
}

/// Returns the configuration without the pool: everything that decides which code is compiled. The host and the
/// compiler's process both use it.
pub(super) fn compiler_config() -> Config {
    let mut config = Config::new();
    config
        .wasm_component_model(true)
        .concurrency_support(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        .wasm_tail_call(false)
        .wasm_relaxed_simd(false)
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        // The same bits on every machine, so that a run can be repeated elsewhere.
        .cranelift_nan_canonicalization(true)
        // The runner of JavaScript reports a recursion within this.
        .max_wasm_stack(1 << 20)
        .async_stack_size(2 << 20)
        // A stack is reused by another tenant's run.
        .async_stack_zeroing(true);
    config
}
