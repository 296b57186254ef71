//! Scripts: plugins that a runner of the platform executes. All scripts of a runner share its compiled code, which
//! counts as no tenant's.
//!
//! A runner is linked with its whole world, once, because all scripts share it too. A call that the plugin's grants do
//! not permit is refused before it reaches anything, as an interpreter's are: by [`Run::admit`](super::run::Run), which
//! reads the grants of the run. The prepared bytes of a script are in memory only, so they are always those that the
//! runner made of this source in this process.

use std::{path::Path, sync::Arc, time::Duration};

use podium_engine::ports::{Failure, FailureKind};
use podium_vocabulary::{Grants, LimitClass, Limits, PluginSpec, text};
use wasmtime::{
    Store,
    component::{ComponentExportIndex, ComponentType, Lift},
};

use super::{
    Engine, LoadError, Plugin,
    compile::{Compiled, Compiler, Requester},
    engine::Core,
    offer::{Offer, WorldKind},
    plugin::{Linked, check_initial_memory, check_memory, export},
    run::{PluginContext, Run},
    sandboxes::NoWorld,
    validate::{Inspected, LoadProblem, check_size},
};

/// The processor time for the preparation of a script. 512 KiB of JavaScript take about 50 ms, and the same of short
/// functions in Python more than this.
const PREPARATION: Duration = Duration::from_secs(1);
/// The time from start to end, waiting included.
const PREPARATION_WALL: Duration = Duration::from_secs(10);
/// The most bytes of a script that is prepared.
const PREPARED_BYTES: usize = 2 << 20;

/// A compiled runner.
pub struct Runner {
    compiled: Arc<Compiled>,
    linked: Linked,
    prepare: ComponentExportIndex,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Runner").finish_non_exhaustive()
    }
}

/// A mistake in a script.
#[derive(Debug, ComponentType, Lift)]
#[component(record)]
pub(super) struct ScriptError {
    message: String,
    line: u32,
    column: u32,
}

/// The answer of a runner.
pub(super) type Prepared = Result<Vec<u8>, ScriptError>;

impl Engine {
    /// Checks, compiles and links a runner. Blocks as [`Engine::compile`] does.
    ///
    /// # Errors
    /// Returns an error if it is no runner of this host's contract, or cannot be compiled.
    pub fn runner(&self, file: &Path, wasm: &[u8]) -> Result<Runner, LoadError> {
        runner(&self.core, file, wasm).map_err(|problem| failed(file, problem))
    }

    /// Has a runner prepare a script, in an instance of its own that is granted nothing, and makes a plugin of both.
    /// The prepared bytes count as compiled code of the tenant, whose plugins may have `code_bytes` together.
    ///
    /// # Errors
    /// Returns an error if the script has a mistake, or if its limits are too low or too high.
    pub async fn prepare(
        &self,
        spec: &PluginSpec,
        runner: &Runner,
        source: &[u8],
        code_bytes: u64,
    ) -> Result<Plugin, LoadError> {
        let prepared = prepare(&self.core, spec, runner, source, code_bytes).await;
        prepared.map_err(|problem| failed(&spec.source.path(), problem))
    }
}

fn failed(file: &Path, problem: LoadProblem) -> LoadError {
    LoadError { file: file.to_owned(), problem: Box::new(problem) }
}

fn runner(core: &Core, file: &Path, wasm: &[u8]) -> Result<Runner, LoadProblem> {
    const CLASS: LimitClass = LimitClass::Interpreter;
    check_size(CLASS, wasm)?;
    let inspected = Arc::new(Inspected::new(CLASS, wasm)?);
    if inspected.world != WorldKind::Script {
        return Err(LoadProblem::NoRunner);
    }
    let requester = Requester { tenant: None, code_bytes: u64::MAX, file };
    let compiled = core.compiler.compile(Compiler::key(CLASS, wasm), CLASS, wasm, &inspected, requester)?;
    let linked = Linked::new(core, &compiled, Offer::new(WorldKind::Script, CLASS, &Grants::default()))?;
    let prepare = export(&compiled.component, "preparation", "prepare");
    Ok(Runner { prepare: prepare.ok_or(LoadProblem::NoRunner)?, compiled, linked })
}

async fn prepare(
    core: &Arc<Core>,
    spec: &PluginSpec,
    runner: &Runner,
    source: &[u8],
    code_bytes: u64,
) -> Result<Plugin, LoadProblem> {
    check_memory(core, spec)?;
    check_initial_memory(spec, &runner.compiled.component)?;
    let refused = |message: &str| LoadProblem::Script { message: message.to_owned(), line: 0, column: 0 };
    let source = std::str::from_utf8(source).map_err(|error| refused(&format!("is not UTF-8: {error}")))?;
    let limits = Limits { cpu: PREPARATION, wall: PREPARATION_WALL, reuse: 1, ..spec.limits };
    let powerless = PluginSpec { grants: Grants::default(), limits, config: "".into(), ..spec.clone() };
    let context = PluginContext { call_bytes: 2 * PREPARED_BYTES, ..PluginContext::new(&powerless, Arc::default()) };
    let plugin = |context, charge| Plugin {
        core: Arc::clone(core),
        context: Arc::new(context),
        linked: runner.linked.clone(),
        load: core.sandboxes.load(),
        compiled: Arc::clone(&runner.compiled),
        _charge: charge,
    };
    let prepared = plugin(context, None).at_load(Box::new(NoWorld), Some((runner, source))).await;
    let prepared = prepared.map_err(|Failure { kind, message }| {
        let mut limit = String::new();
        if kind == FailureKind::Cpu {
            limit = format!("; a script has {} s for it", PREPARATION.as_secs());
        } else if kind == FailureKind::Memory {
            limit = format!("; spec.limits.memoryMiB is {}", spec.limits.memory_bytes >> 20);
        }
        let passing = matches!(kind, FailureKind::Host | FailureKind::Deadline);
        LoadProblem::Unprepared { message: format!("{message}{limit}"), passing }
    })?;
    let code = match prepared.unwrap_or_else(|| Ok(Vec::new())) {
        Ok(code) if code.len() <= PREPARED_BYTES => code,
        Ok(code) => return Err(refused(&format!("has {} bytes prepared; at most {PREPARED_BYTES}", code.len()))),
        Err(ScriptError { message, line, column }) => {
            return Err(LoadProblem::Script { message: text::line(&message), line, column });
        }
    };
    let charge = core.compiler.charge(&spec.id, Compiler::script_key(&spec.id), code.len() as u64, code_bytes)?;
    let context = PluginContext { profiler: core.profiler.clone(), ..PluginContext::new(spec, code.into()) };
    Ok(plugin(context, Some(charge)))
}

impl Runner {
    /// Returns whether nothing was compiled: the code was in the cache.
    #[must_use]
    pub fn was_stored(&self) -> bool {
        self.compiled.was_stored
    }

    pub(super) async fn call_prepare(&self, store: &mut Store<Run>, source: &str) -> wasmtime::Result<Prepared> {
        let instance = self.linked.instance.instantiate_async(&mut *store).await?;
        let prepare = instance.get_typed_func::<(&str,), (Prepared,)>(&mut *store, &self.prepare)?;
        Ok(prepare.call_async(store, (source,)).await?.0)
    }
}
