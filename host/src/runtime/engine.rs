//! One type owns the compiler, the pool of sandboxes and the thread that ticks the epoch.

use std::{sync::Arc, time::Duration};

use podium_engine::ports::Meter;
use podium_pods::model::{Limits, PluginSpec};
use tokio::sync::Semaphore;
use wasmtime::{Config, InstanceAllocationStrategy, PoolingAllocationConfig, component::Linker};

use super::{
    LoadError, Plugin,
    compile::{Compilation, Compiler},
    limits, linking,
    meter::SystemMeter,
    plugin,
    run::Run,
    ticker::{Ticker, Ticking},
};

/// What the engine is built for.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Runs at the same time; further ones wait for a sandbox. A free sandbox costs address space and little else.
    pub concurrent_runs: u32,
    /// The most memory that any plugin may be given, in bytes. Address space is set aside for it.
    pub memory_bytes: usize,
    /// How often a running guest lets other tasks of its thread run, and is cut if it has used more processor time than
    /// it may. None starts no thread and reads no clock: guests then never yield and are cut by fuel alone, as a
    /// simulation wants it, because the epoch is real time.
    pub tick: Option<Duration>,
    /// Where components are compiled. The default is this process, without limits.
    pub compilation: Compilation,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            concurrent_runs: 32,
            memory_bytes: Limits::MOST_MEMORY_BYTES,
            tick: Some(Duration::from_millis(1)),
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
    core: Arc<Core>,
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
        let linker = linking::linker(&engine).map_err(failed)?;
        let ticker = options.tick.map(|tick| Ticker::start(engine.clone(), tick)).transpose()?;
        let meter = options.tick.map(|_| meter);
        let slots = Semaphore::new(options.concurrent_runs as usize);
        let compiler = Compiler::new(engine.clone(), options.compilation.clone());
        Ok(Arc::new(Self { core: Arc::new(Core { engine, linker, slots, compiler, ticker, meter, options }) }))
    }

    /// Returns why no run is started, or `None` if all is well. An operator's signal: nothing but a restart of the host
    /// helps if it persists.
    #[must_use]
    pub fn stalled(&self) -> Option<String> {
        self.core.ticker.as_ref().and_then(Ticker::stalled)
    }

    /// Checks, compiles and links a component. Takes seconds of processor time on all cores for a large one: call it
    /// where blocking is allowed.
    ///
    /// Plugins of the same bytes and class share their code, which is compiled once, also when they are loaded at
    /// the same time. The caps of the class on structure are checked before anything else: on size, nesting, functions,
    /// locals and blocks. See [`Compilation`] for the limits of the compiler itself.
    ///
    /// # Errors
    /// When the file is no component, asks for more than its grants or limits, or cannot be compiled.
    pub fn compile(&self, spec: &PluginSpec, wasm: &[u8]) -> Result<Plugin, LoadError> {
        plugin::compile(&self.core, spec, wasm)
            .map_err(|problem| LoadError { file: spec.source.clone(), problem: Box::new(problem) })
    }
}

/// What an engine and its plugins share.
pub(super) struct Core {
    pub(super) engine: wasmtime::Engine,
    pub(super) linker: Linker<Run>,
    /// One permit for each sandbox of the pool, so that a run waits for one instead of failing.
    pub(super) slots: Semaphore,
    pub(super) compiler: Compiler,
    ticker: Option<Ticker>,
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
        // What a small guest touches stays mapped between runs and is wiped by writing; the rest is given back to the
        // system, so that a freed sandbox holds 128 KiB at most, and only as many as were ever used at once.
        .linear_memory_keep_resident(64 << 10)
        .table_keep_resident(16 << 10)
        .async_stack_keep_resident(48 << 10)
        .max_unused_warm_slots(runs);

    let mut config = code_config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Returns the configuration without the pool: everything that decides which code is compiled. The host and the
/// compiler's process both use it.
pub(super) fn code_config() -> Config {
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
        .max_wasm_stack(512 << 10)
        .async_stack_size(2 << 20)
        // A stack is reused by another tenant's run.
        .async_stack_zeroing(true);
    config
}
