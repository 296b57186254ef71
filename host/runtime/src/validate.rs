//! Refusals at load: components of another world, and components that import more than the configuration grants.

use std::path::PathBuf;

use podium_vocabulary::{Function, INTERFACES, LimitClass, PACKAGE, PluginSpec, VERSION, text};

use super::{
    inspect::{Import, InspectError, Inspection, inspect_all},
    limits,
    offer::{Offer, WorldKind},
    signature, wasi,
};

/// A plugin that was not loaded; the text names its file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {}", text::path(file), text::line(&problem.to_string()))]
pub struct LoadError {
    /// The component's file.
    pub file: PathBuf,
    /// The reason.
    pub problem: Box<LoadProblem>,
}

/// Why a component is not loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LoadProblem {
    /// Larger than the limit of its class.
    #[error("the component has {bytes} bytes, class {class} may have {limit}{}", class_hint(class))]
    TooLarge {
        /// The component's size.
        bytes: u64,
        /// The most bytes that the class permits.
        limit: usize,
        /// The class of limits.
        class: &'static str,
    },
    /// It is no component, or one that the sandbox does not take.
    #[error(transparent)]
    Inspect(#[from] InspectError),
    /// It exports neither world's function.
    #[error(
        "exports neither podium:reconcile/reconciler@0.1.0 (world plugin) nor podium:reconcile/reconciler-json@0.1.0 \
         (world plugin-json); it exports {}",
        text::names(exports)
    )]
    NoWorld {
        /// The names of its exports.
        exports: Vec<String>,
    },
    /// It is a plugin for another version of the contract.
    #[error(
        "was built with {} SDK: it exports {}, and this host has podium:reconcile@{}; {}",
        if *newer { "a newer" } else { "an older" },
        text::line(export),
        VERSION.trim_start_matches('@'),
        if *newer { "upgrade the host, or build it with its SDK" } else { "build it with the SDK of this host" }
    )]
    OtherContract {
        /// The export.
        export: String,
        /// Its version is newer than the host's.
        newer: bool,
    },
    /// Imports that no plugin of the component's world can have.
    #[error(
        "imports {}, which the world {world} of podium:reconcile@0.1.0 does not have; {}a plugin can import {}",
        text::names(imports),
        next_step(imports),
        offered.join(", ")
    )]
    Unknown {
        /// The unknown imports.
        imports: Vec<String>,
        /// The component's world.
        world: &'static str,
        /// All that a plugin of the world can import.
        offered: Vec<String>,
    },
    /// A plugin's component is a runner.
    #[error(
        "has an interface of the world script of podium:reconcile@0.1.0, which only the runners of the platform have; \
         to deploy a script, use spec.source.script"
    )]
    Runner,
    /// A runner is not one.
    #[error("does not have the world script of podium:reconcile@0.1.0; take the file of the host's release")]
    NoRunner,
    /// The runner refused the script.
    #[error("{}{}", place(*line, *column), text::bounded(message, SCRIPT_ERROR_BYTES))]
    Script {
        /// As the runner wrote it.
        message: String,
        /// From 1; 0 if it is not known.
        line: u32,
        /// From 1; 0 if it is not known.
        column: u32,
    },
    /// The runner failed at the script.
    #[error("cannot be prepared: {message}")]
    Unprepared {
        /// The failure, and the limit that was exceeded.
        message: String,
        /// It may succeed later.
        passing: bool,
    },
    /// Imports that this plugin is not granted.
    #[error("imports more than it is granted: {}; granted are {}", imports.join(", "), granted.join(", "))]
    ExceedsGrants {
        /// The imports that are not granted.
        imports: Vec<String>,
        /// The imports that the grants permit.
        granted: Vec<String>,
    },
    /// Its limits exceed those of the host, or are below the component's needs before its first instruction.
    #[error("{0}")]
    Limits(String),
    /// The compiler refused it.
    #[error("cannot be compiled: {0}")]
    Compile(String),
    /// The compiler's process was not started, or could not be locked in.
    #[error("the compiler's process cannot be started: {0}")]
    NoProcess(String),
    /// The compiler's process was killed from outside.
    #[error("the compiler's process was killed, as the kernel does when memory is short")]
    Killed,
    /// The compiler's process used little processor time for a very long time.
    #[error(
        "the compiler's process did not end within {} min, and used less than its processor time",
        waited.as_secs() / 60
    )]
    Stalled {
        /// How long the host waited.
        waited: std::time::Duration,
    },
    /// Compilation took too long.
    #[error("compilation took more than the {} s of processor time of its class", limit.as_secs())]
    TooSlow {
        /// Processor time that the class permits.
        limit: std::time::Duration,
    },
    /// Compilation took too much memory.
    #[error("compilation took more than the {} MiB of memory of its class", limit >> 20)]
    TooMuchMemory {
        /// Bytes of address space that the class permits.
        limit: u64,
    },
    /// The limit of the host's container leaves too little memory.
    #[error(
        "the memory limit of the host's container leaves {} MiB for the compiler, which is too little for this \
         component; class {} may take up to {} MiB: raise the limit, or lower --run-memory-mib",
        left >> 20,
        class.name(),
        super::compile::memory_bytes(*class) >> 20
    )]
    TooLittleMemory {
        /// Bytes that the compiler could have.
        left: u64,
        /// The class of limits.
        class: LimitClass,
    },
    /// The compiled code is too large.
    #[error("compiled, it is larger than the {} MiB of its class", limit >> 20)]
    CodeTooLarge {
        /// The most bytes of code that the class permits.
        limit: usize,
    },
    /// The compiler refused the same component before.
    #[error("{problem}; it was not compiled again, and is in {} s at the earliest", wait.as_secs().max(1))]
    RefusedBefore {
        /// Why it was refused.
        problem: Box<LoadProblem>,
        /// The time in which it is not compiled again.
        wait: std::time::Duration,
    },
    /// The plugins of its tenant have too much compiled code.
    #[error(
        "compiled, it is {} KiB, and the plugins of {tenant} would have {} KiB of compiled code together; \
         compiledCodeMiB of the platform's policy permits {} MiB",
        bytes >> 10,
        sum >> 10,
        limit >> 20
    )]
    TenantCode {
        /// The tenant.
        tenant: String,
        /// The bytes of this component's code.
        bytes: u64,
        /// The bytes of all code of the tenant, this component's included.
        sum: u64,
        /// The most bytes of the tenant.
        limit: u64,
    },
    /// The types of its imports are not the contract's, or the function that it must export is missing or of another
    /// type.
    #[error("does not fit the contract: {0}")]
    Link(String),
}

impl LoadProblem {
    /// A component of this size is larger than its class permits.
    #[must_use]
    pub fn too_large(bytes: u64, class: LimitClass) -> Self {
        Self::TooLarge { bytes, limit: max_component_bytes(class), class: class.name() }
    }

    /// Returns true when compiling the same component again may succeed. One that took too much processor time would
    /// take it again, and every other plugin would wait for it again.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Unprepared { passing: true, .. }
                | Self::NoProcess(_)
                | Self::Killed
                | Self::Stalled { .. }
                | Self::TooLittleMemory { .. }
        )
    }
}

/// The most bytes that a component of a class may have.
#[must_use]
pub const fn max_component_bytes(class: LimitClass) -> usize {
    limits::of_class(class).component_bytes
}

/// The most bytes of the message of a script's mistake.
const SCRIPT_ERROR_BYTES: usize = 1 << 10;

fn place(line: u32, column: u32) -> String {
    match (line, column) {
        (0, _) => String::new(),
        (line, 0) => format!("line {line}: "),
        (line, column) => format!("line {line}, column {column}: "),
    }
}

fn class_hint(class: &str) -> &'static str {
    if class == LimitClass::Native.name() { " (limits.class: interpreter allows 32 MiB)" } else { "" }
}

/// Returns the next step for imports of the contract that this host does not know in any world, and for those of WASI
/// that no plugin has.
fn next_step(imports: &[String]) -> &'static str {
    let is_known = |import: &str| INTERFACES.iter().any(|own| import.strip_suffix(VERSION) == Some(own));
    let is_newer = |import: &String| import.strip_prefix(PACKAGE).is_some_and(|import| !is_known(import));
    if imports.iter().any(is_newer) {
        "it was built with a newer SDK and needs a newer host: upgrade the host, or build it with the SDK of this \
         host; "
    } else if imports.iter().any(|import| import.starts_with("wasi:")) {
        "leave WASI out by componentize-py's --stub-wasi, by --disable all of jco componentize or by TinyGo's \
         -target=wasm-unknown, or write the plugin as a script (docs/scripts.md); "
    } else {
        ""
    }
}

/// Checks a component against its configuration as [`Engine::compile`](super::Engine::compile) does first, and compiles
/// nothing: size, WebAssembly features, world, and imports against grants. Returns the component's imports.
///
/// # Errors
/// Returns an error if the host would refuse the component for one of these.
pub fn check(spec: &PluginSpec, wasm: &[u8]) -> Result<Vec<Import>, LoadError> {
    let class = spec.limits.class;
    let inspected = check_size(class, wasm).and_then(|()| Inspected::new(class, wasm));
    let checked = inspected.and_then(|inspected| inspected.check_grants(spec).map(|()| inspected.imports));
    checked.map_err(|problem| LoadError { file: spec.source.path().into_owned(), problem: Box::new(problem) })
}

/// Fails for a component that is larger than its class permits.
pub(super) fn check_size(class: LimitClass, wasm: &[u8]) -> Result<(), LoadProblem> {
    if wasm.len() > max_component_bytes(class) {
        return Err(LoadProblem::too_large(wasm.len() as u64, class));
    }
    Ok(())
}

/// The result of inspecting a component for a class. It does not depend on a plugin's grants.
#[derive(Debug)]
pub(super) struct Inspected {
    pub(super) world: WorldKind,
    /// The imports in the order of the component.
    pub(super) imports: Vec<Import>,
}

impl Inspected {
    /// Inspects a component within the caps of its class.
    pub(super) fn new(class: LimitClass, wasm: &[u8]) -> Result<Self, LoadProblem> {
        let inspection = inspect_all(wasm, class)?;
        let (world, reconcile) = world_of(&inspection)?;
        check_known(world, &inspection)?;
        check_reconcile(world, reconcile)?;
        Ok(Self { world, imports: inspection.imports })
    }

    /// Fails for imports beyond the grants of a plugin, and for the world that no plugin may have.
    pub(super) fn check_grants(&self, spec: &PluginSpec) -> Result<(), LoadProblem> {
        if self.world == WorldKind::Script {
            return Err(LoadProblem::Runner);
        }
        check_grants(self.offer(spec), &self.imports)
    }

    /// Returns the functions that a plugin of this component may import.
    pub(super) fn offer(&self, spec: &PluginSpec) -> Offer {
        Offer::new(self.world, spec.limits.class, &spec.grants)
    }
}

/// The interfaces that only a runner imports and exports.
const OF_RUNNERS: [&str; 2] = ["podium:reconcile/program@0.1.0", "podium:reconcile/preparation@0.1.0"];

/// Returns the component's world, and the type of the `reconcile` that it exports. A component with an interface of
/// runners is one, and a component of the other two worlds is of the native one.
fn world_of(inspection: &Inspection) -> Result<(WorldKind, Option<&str>), LoadProblem> {
    let reconciler = |world: WorldKind| inspection.reconcilers.iter().find(|(own, _)| *own == world);
    let imports = inspection.imports.iter().map(|import| &*import.interface);
    if imports.chain(inspection.exports.iter().map(String::as_str)).any(|name| OF_RUNNERS.contains(&name)) {
        let (_, reconcile) = reconciler(WorldKind::Json).ok_or(LoadProblem::Runner)?;
        return Ok((WorldKind::Script, reconcile.as_deref()));
    }
    let (world, reconcile) = reconciler(WorldKind::Native)
        .or_else(|| reconciler(WorldKind::Json))
        .ok_or_else(|| no_world(&inspection.exports))?;
    Ok((*world, reconcile.as_deref()))
}

/// Returns why a component that exports no reconciler of this contract is refused.
fn no_world(exports: &[String]) -> LoadProblem {
    let version = |text: &str| text.split('.').map(|part| part.parse().unwrap_or(0)).collect::<Vec<u32>>();
    let other = exports.iter().find_map(|export| {
        let (interface, of) = export.strip_prefix(PACKAGE)?.split_once('@')?;
        let is_reconciler = [WorldKind::Native, WorldKind::Json].iter().any(|world| world.reconciler() == interface);
        is_reconciler.then(|| (export, version(of) > version(VERSION.trim_start_matches('@'))))
    });
    match other {
        Some((export, newer)) => LoadProblem::OtherContract { export: export.clone(), newer },
        None => LoadProblem::NoWorld { exports: exports.to_vec() },
    }
}

/// wasmtime would compare the type when the first run begins.
fn check_reconcile(world: WorldKind, found: Option<&str>) -> Result<(), LoadProblem> {
    let expected = signature::of_reconcile(world);
    if found == Some(&*expected) {
        return Ok(());
    }
    Err(LoadProblem::Link(format!(
        "its {PACKAGE}{}{VERSION}.reconcile is {}; expected is {expected}",
        world.reconciler(),
        found.unwrap_or("no function")
    )))
}

/// The contract's interface that an import names, without package and version.
fn own_interface(import: &Import) -> Option<&'static str> {
    let interface = import.interface.strip_prefix(PACKAGE)?.strip_suffix(VERSION)?;
    INTERFACES.into_iter().find(|own| *own == interface)
}

fn is_wasi(import: &Import) -> bool {
    let Some((name, version)) = import.interface.split_once('@') else { return false };
    version.starts_with("0.2.") && wasi::INTERFACES.contains(&name)
}

fn check_known(world: WorldKind, inspection: &Inspection) -> Result<(), LoadProblem> {
    let Inspection { imports, resources, nested, .. } = inspection;
    let is_known = |name: &String| imports.iter().any(|import| import.interface == *name && is_wasi(import));
    let mut unknown: Vec<_> = nested.iter().chain(resources.iter().filter(|name| !is_known(name))).cloned().collect();
    // Imports of plain types without functions permit nothing.
    let is_program = |import: &Import| world == WorldKind::Script && import.interface == OF_RUNNERS[0];
    for import in imports.iter().filter(|import| !import.functions.is_empty() && !is_program(import)) {
        match own_interface(import).filter(|interface| world.interfaces().any(|own| own == *interface)) {
            Some(interface) => {
                let unheard = import.functions.iter().filter(|name| Function::by_name(interface, name).is_none());
                unknown.extend(unheard.map(|name| format!("{}.{name}", import.interface)));
            }
            None if is_wasi(import) => {}
            None => unknown.push(import.interface.clone()),
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let own = world.interfaces().map(|interface| format!("{PACKAGE}{interface}{VERSION}"));
    let offered = own.chain(wasi::INTERFACES.iter().map(|interface| format!("{interface}@0.2"))).collect();
    Err(LoadProblem::Unknown { imports: unknown, world: world.name(), offered })
}

fn check_grants(offer: Offer, imports: &[Import]) -> Result<(), LoadProblem> {
    let mut excess = Vec::new();
    for import in imports.iter().filter(|import| !import.functions.is_empty()) {
        let Some(interface) = own_interface(import) else { continue };
        let used = import.functions.iter().filter_map(|name| Function::by_name(interface, name));
        if offer.by_function() {
            let lacking = used.filter(|function| !offer.contains(*function));
            let needs = lacking.filter_map(|function| Some((function.name(), function.grant()?.field())));
            excess.extend(needs.map(|(name, field)| format!("{PACKAGE}{interface}.{name} (needs grants.{field})")));
        } else if offer.in_interface(interface).next().is_none() {
            excess.push(format!("{PACKAGE}{interface} (needs one of {})", needs_of(interface)));
        }
    }
    if excess.is_empty() {
        return Ok(());
    }
    Err(LoadProblem::ExceedsGrants { imports: excess, granted: granted_list(offer) })
}

fn needs_of(interface: &str) -> String {
    let mut needs: Vec<_> = Function::in_interface(interface).filter_map(Function::grant).collect();
    needs.dedup();
    needs.iter().map(|need| format!("grants.{}", need.field())).collect::<Vec<_>>().join(", ")
}

fn granted_list(offer: Offer) -> Vec<String> {
    if !offer.by_function() {
        let granted = offer.world.interfaces().filter(|interface| offer.in_interface(interface).next().is_some());
        return granted.map(|interface| format!("{PACKAGE}{interface}")).collect();
    }
    let functions = offer
        .world
        .interfaces()
        .flat_map(|interface| offer.in_interface(interface).map(move |function| (interface, function)));
    functions.map(|(interface, function)| format!("{PACKAGE}{interface}.{}", function.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_of_another_contract_is_named_as_built_with_another_sdk() {
        for (export, begin, step) in [
            ("podium:reconcile/reconciler@0.2.0", "was built with a newer SDK", "upgrade the host"),
            ("podium:reconcile/reconciler-json@0.10.0", "was built with a newer SDK", "upgrade the host"),
            ("podium:reconcile/reconciler@1.0.0-rc.1", "was built with a newer SDK", "upgrade the host"),
            ("podium:reconcile/reconciler@0.0.9", "was built with an older SDK", "build it with the SDK of this host"),
            ("podium:other/reconciler@0.2.0", "exports neither", "it exports podium:other"),
            ("podium:reconcile/other@0.2.0", "exports neither", "it exports podium:reconcile/other"),
        ] {
            let message = no_world(&["wasi:cli/run@0.2.0".to_owned(), export.to_owned()]).to_string();
            assert!(message.starts_with(begin) && message.contains(export), "{message}");
            assert!(message.contains(step) || begin == "exports neither", "{message}");
            assert_eq!(
                message.contains("this host has podium:reconcile@0.1.0"),
                begin != "exports neither",
                "{message}"
            );
        }
    }

    #[test]
    fn an_import_that_no_world_has_is_refused_with_the_next_step() {
        for (import, step) in [
            ("podium:reconcile/inputs@0.1.0", "needs a newer host: upgrade the host"),
            ("podium:reconcile/writes@0.1.0.patch-object", "needs a newer host: upgrade the host"),
            ("podium:reconcile/pods@0.2.0", "needs a newer host: upgrade the host"),
            ("podium:reconcile/pods-json@0.1.0", "does not have; a plugin can import"),
            ("wasi:sockets/tcp@0.2.0", "componentize-py's --stub-wasi"),
            ("wasi:cli/run@0.3.0", "or write the plugin as a script (docs/scripts.md); a plugin can import"),
        ] {
            let imports = vec!["other:http/types@0.2.0".to_owned(), import.to_owned()];
            let message = LoadProblem::Unknown { imports, world: "plugin", offered: Vec::new() }.to_string();
            assert!(message.contains(step), "{message}");
            assert_eq!(message.contains("script"), import.starts_with("wasi:"), "{message}");
        }
    }

    #[test]
    fn every_refusal_is_one_bounded_line() {
        let names = || vec!["x\n2026-11-22 ERROR forged\u{1b}[2J".repeat(3_000); 88];
        for problem in [
            LoadProblem::NoWorld { exports: names() },
            LoadProblem::Unknown { imports: names(), world: "plugin", offered: Vec::new() },
            LoadProblem::Compile(names().concat()),
        ] {
            let file = PathBuf::from("a\nb.wasm".repeat(1_000));
            let message = LoadError { file, problem: Box::new(problem) }.to_string();
            assert!(message.len() < 5_000 && !message.contains(char::is_control), "{} bytes", message.len());
        }
    }
}
