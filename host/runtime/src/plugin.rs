//! From a component's bytes to something that can be run: compiled once, linked once.

use std::sync::Arc;

use futures::future::BoxFuture;
use podium_engine::ports::{self, Failure, Reconcile, Request, RunReport, Staged};
use podium_vocabulary::{PACKAGE, PluginSpec, VERSION};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre};

use super::{
    compile::{Charge, Compiled, Compiler, Requester},
    engine::Core,
    inspect::Import,
    offer::Offer,
    run::{PluginContext, Run},
    sandboxes::Load,
    validate::{Inspected, LoadProblem, check_size},
};

/// A plugin that can be run, any number of times and at the same time.
pub struct Plugin {
    pub(super) core: Arc<Core>,
    pub(super) context: Arc<PluginContext>,
    pub(super) linked: Linked,
    /// The instances that are kept for this plugin.
    pub(super) load: Load,
    /// Shared with the plugins of the same component.
    pub(super) compiled: Arc<Compiled>,
    /// Counts the code, or a script's prepared bytes, as the tenant's.
    pub(super) _charge: Option<Charge>,
}

/// A component with the functions that its world offers it.
#[derive(Clone)]
pub(super) struct Linked {
    pub(super) instance: InstancePre<Run>,
    pub(super) reconcile: ComponentExportIndex,
}

impl Linked {
    pub(super) fn new(core: &Core, compiled: &Compiled, offer: Offer) -> Result<Self, LoadProblem> {
        let failed = |error: wasmtime::Error| LoadProblem::Link(format!("{error:#}"));
        let linker = core.linkers.get(offer).map_err(failed)?;
        let instance = linker.instantiate_pre(&compiled.component).map_err(failed)?;
        let reconcile = export(&compiled.component, offer.world.reconciler(), "reconcile");
        let reconcile = reconcile.ok_or_else(|| LoadProblem::Link("it exports no reconcile".to_owned()))?;
        Ok(Self { instance, reconcile })
    }
}

/// Returns a function that a component exports in an interface of the contract.
pub(super) fn export(component: &Component, interface: &str, function: &str) -> Option<ComponentExportIndex> {
    let interface = component.get_export_index(None, &*format!("{PACKAGE}{interface}{VERSION}"))?;
    component.get_export_index(Some(&interface), function)
}

impl Drop for Plugin {
    fn drop(&mut self) {
        self.core.sandboxes.forget(self.load);
    }
}

impl Plugin {
    /// Returns the functions that the component imports, such as `podium:reconcile/writes@0.1.0.label`, in its order.
    #[must_use]
    pub fn imports(&self) -> Vec<String> {
        let of = |import: &Import| -> Vec<String> {
            import.functions.iter().map(|function| format!("{}.{function}", import.interface)).collect()
        };
        self.compiled.inspected.imports.iter().flat_map(of).collect()
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Plugin")
            .field("id", &self.context.id)
            .field("imports", &self.compiled.inspected.imports)
            .finish()
    }
}

impl Reconcile for Plugin {
    fn reconcile(&self, request: Request, world: Box<dyn ports::World>) -> BoxFuture<'_, RunReport<Staged>> {
        Box::pin(self.run(request, world))
    }

    fn instantiate(&self, world: Box<dyn ports::World>) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(self.instantiate_once(world))
    }
}

pub(super) fn compile(
    core: &Arc<Core>,
    spec: &PluginSpec,
    wasm: &[u8],
    code_bytes: u64,
) -> Result<Plugin, LoadProblem> {
    check_memory(core, spec)?;
    let file = spec.source.path();
    let tenant = spec.tenant();
    let requester = Requester { tenant: Some(&tenant), code_bytes, file: &file };
    let (compiled, charge) = component(core, spec, wasm, requester)?;
    check_initial_memory(spec, &compiled.component)?;
    let linked = Linked::new(core, &compiled, compiled.inspected.offer(spec))?;
    let context = PluginContext { profiler: core.profiler.clone(), ..PluginContext::new(spec, Arc::default()) };
    let load = core.sandboxes.load();
    Ok(Plugin { core: Arc::clone(core), load, context: Arc::new(context), linked, compiled, _charge: Some(charge) })
}

/// Returns the compiled component. A component that another plugin uses is not inspected and compiled again. Every
/// plugin's grants are compared, before anything is compiled.
fn component(
    core: &Core,
    spec: &PluginSpec,
    wasm: &[u8],
    requester: Requester<'_>,
) -> Result<(Arc<Compiled>, Charge), LoadProblem> {
    let class = spec.limits.class;
    check_size(class, wasm)?;
    let key = Compiler::key(class, wasm);
    let compiled = match core.compiler.get(key) {
        Some(compiled) => {
            compiled.inspected.check_grants(spec)?;
            compiled
        }
        None => {
            let inspected = Arc::new(Inspected::new(class, wasm)?);
            inspected.check_grants(spec)?;
            core.compiler.compile(key, class, wasm, &inspected, requester)?
        }
    };
    let charge = core.compiler.charge(&spec.id, key, compiled.code_bytes(), requester.code_bytes)?;
    Ok((compiled, charge))
}

const WASM_PAGE_BYTES: u64 = 64 << 10;

pub(super) fn check_memory(core: &Core, spec: &PluginSpec) -> Result<(), LoadProblem> {
    if spec.limits.memory_bytes > core.options.memory_bytes {
        let asked = spec.limits.memory_bytes >> 20;
        let most = core.options.memory_bytes >> 20;
        return Err(LoadProblem::Limits(format!("limits.memoryMiB is {asked}; this host permits at most {most}")));
    }
    Ok(())
}

/// Otherwise each run would fail before its first instruction.
pub(super) fn check_initial_memory(spec: &PluginSpec, component: &Component) -> Result<(), LoadProblem> {
    let pages = component.resources_required().and_then(|resources| resources.max_initial_memory_size);
    match pages.map(|pages| pages.saturating_mul(WASM_PAGE_BYTES)) {
        Some(needed) if needed > spec.limits.memory_bytes as u64 => Err(LoadProblem::Limits(format!(
            "needs {} KiB of memory to start; limits.memoryMiB permits {} KiB",
            needed >> 10,
            spec.limits.memory_bytes >> 10
        ))),
        _ => Ok(()),
    }
}
