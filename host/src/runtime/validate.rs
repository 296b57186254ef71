//! Refusals at load: components of another world, and components that import more than the configuration grants.

use std::path::PathBuf;

use podium_pods::model::{LimitClass, PluginSpec, text};

use super::{
    function::{Function, INTERFACES, Need},
    inspect::{Import, InspectError, Inspection, inspect_all},
    limits, wasi,
};

const PACKAGE: &str = "podium:reconcile/";
const VERSION: &str = "@0.1.0";

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
        /// What it exports instead.
        exports: Vec<String>,
    },
    /// Imports that no plugin can have.
    #[error(
        "imports {}, which no world of podium:reconcile@0.1.0 has; a plugin can import {}",
        text::names(imports),
        offered.join(", ")
    )]
    Unknown {
        /// The unknown imports.
        imports: Vec<String>,
        /// All that a plugin can import.
        offered: Vec<String>,
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
    #[error("the compiler's process did not end within {} min, and used less than its processor time", waited.as_secs() / 60)]
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
    /// The compiled code is too large.
    #[error("compiled, it is larger than the {} MiB of its class", limit >> 20)]
    CodeTooLarge {
        /// The most bytes of code that the class permits.
        limit: usize,
    },
    /// The types of its imports or exports are not the contract's.
    #[error("does not fit the contract: {0}")]
    Link(String),
}

impl LoadProblem {
    /// A component of so many bytes is more than its class may have.
    #[must_use]
    pub fn too_large(bytes: u64, class: LimitClass) -> Self {
        Self::TooLarge { bytes, limit: max_component_bytes(class), class: class.name() }
    }

    /// Returns true when compiling the same component again may succeed. One that took too much processor time would
    /// take it again, and every other plugin would wait for it again.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::NoProcess(_) | Self::Killed | Self::Stalled { .. })
    }
}

/// The most bytes that a component of a class may have.
#[must_use]
pub const fn max_component_bytes(class: LimitClass) -> usize {
    limits::of_class(class).component_bytes
}

fn class_hint(class: &str) -> &'static str {
    if class == LimitClass::Native.name() { " (limits.class: interpreter allows 32 MiB)" } else { "" }
}

/// Which of the two worlds a component is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum World {
    Native,
    Json,
}

/// Checks a component against its configuration as [`Engine::compile`](super::Engine::compile) does first, and compiles
/// nothing: size, WebAssembly features, world, and imports against grants. Returns what the component imports.
///
/// # Errors
/// When the host would refuse the component for one of these.
pub fn check(spec: &PluginSpec, wasm: &[u8]) -> Result<Vec<Import>, LoadError> {
    let class = spec.limits.class;
    let inspected = check_size(class, wasm).and_then(|()| Inspected::of(class, wasm));
    let checked = inspected.and_then(|inspected| inspected.check_grants(spec).map(|()| inspected.imports));
    checked.map_err(|problem| LoadError { file: spec.source.clone(), problem: Box::new(problem) })
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
    pub(super) world: World,
    /// In the order of the component.
    pub(super) imports: Vec<Import>,
}

impl Inspected {
    /// Inspects a component within the caps of its class.
    pub(super) fn of(class: LimitClass, wasm: &[u8]) -> Result<Self, LoadProblem> {
        let inspection = inspect_all(wasm, class)?;
        let world = world_of(&inspection)?;
        check_known(&inspection)?;
        Ok(Self { world, imports: inspection.imports })
    }

    /// Fails for imports beyond the grants of a plugin.
    pub(super) fn check_grants(&self, spec: &PluginSpec) -> Result<(), LoadProblem> {
        check_grants(spec, self.world, &self.imports)
    }
}

fn world_of(inspection: &Inspection) -> Result<World, LoadProblem> {
    let exports = |name: &str| inspection.exports.iter().any(|export| *export == format!("{PACKAGE}{name}{VERSION}"));
    if exports("reconciler") {
        Ok(World::Native)
    } else if exports("reconciler-json") {
        Ok(World::Json)
    } else {
        Err(LoadProblem::NoWorld { exports: inspection.exports.clone() })
    }
}

/// The contract's interface that an import names, without package and version.
fn own_interface(import: &Import) -> Option<&str> {
    let interface = import.interface.strip_prefix(PACKAGE)?.strip_suffix(VERSION)?;
    INTERFACES.contains(&interface).then_some(interface)
}

fn is_wasi(import: &Import) -> bool {
    let Some((name, version)) = import.interface.split_once('@') else { return false };
    version.starts_with("0.2.") && wasi::INTERFACES.contains(&name)
}

fn check_known(inspection: &Inspection) -> Result<(), LoadProblem> {
    let Inspection { imports, resources, nested, .. } = inspection;
    let is_known = |name: &String| imports.iter().any(|import| import.interface == *name && is_wasi(import));
    let mut unknown: Vec<_> = nested.iter().chain(resources.iter().filter(|name| !is_known(name))).cloned().collect();
    // What imports nothing but plain types can do nothing.
    for import in imports.iter().filter(|import| !import.functions.is_empty()) {
        match own_interface(import) {
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
    let own = INTERFACES.iter().map(|interface| format!("{PACKAGE}{interface}{VERSION}"));
    let offered = own.chain(wasi::INTERFACES.iter().map(|interface| format!("{interface}@0.2"))).collect();
    Err(LoadProblem::Unknown { imports: unknown, offered })
}

/// Function by function for a native guest, whose imports are exactly what it uses. An interpreter imports all of its
/// world, so what counts there is the interface, and single functions are refused at the call.
fn check_grants(spec: &PluginSpec, world: World, imports: &[Import]) -> Result<(), LoadProblem> {
    let by_function = world == World::Native && spec.limits.class == LimitClass::Native;
    let mut excess = Vec::new();
    for import in imports.iter().filter(|import| !import.functions.is_empty()) {
        let Some(interface) = own_interface(import) else { continue };
        let used = import.functions.iter().filter_map(|name| Function::by_name(interface, name));
        if by_function {
            let lacking = used.filter(|function| !function.need().is_met(&spec.grants));
            excess.extend(lacking.map(|function| {
                format!("{PACKAGE}{interface}.{} (needs grants.{})", function.name(), function.need().field())
            }));
        } else if !interface_granted(spec, interface) {
            excess.push(format!("{PACKAGE}{interface} (needs one of {})", needs_of(interface)));
        }
    }
    if excess.is_empty() {
        return Ok(());
    }
    Err(LoadProblem::ExceedsGrants { imports: excess, granted: granted_list(spec, world, by_function) })
}

/// An interface is granted when one of its functions that needs a grant is, or when none needs one.
fn interface_granted(spec: &PluginSpec, interface: &str) -> bool {
    let mut needs = Function::of(interface).map(Function::need).filter(|need| *need != Need::Nothing).peekable();
    needs.peek().is_none() || needs.any(|need| need.is_met(&spec.grants))
}

fn needs_of(interface: &str) -> String {
    let mut fields: Vec<_> = Function::of(interface).map(|function| function.need().field()).collect();
    fields.retain(|field| !field.is_empty());
    fields.dedup();
    fields.iter().map(|field| format!("grants.{field}")).collect::<Vec<_>>().join(", ")
}

fn granted_list(spec: &PluginSpec, world: World, by_function: bool) -> Vec<String> {
    let other = match world {
        World::Native => "pods-json",
        World::Json => "pods",
    };
    let interfaces = INTERFACES.into_iter().filter(|interface| *interface != other);
    if !by_function {
        let granted = interfaces.filter(|interface| interface_granted(spec, interface));
        return granted.map(|interface| format!("{PACKAGE}{interface}")).collect();
    }
    let functions = interfaces.flat_map(|interface| Function::of(interface).map(move |function| (interface, function)));
    let granted = functions.filter(|(_, function)| function.need().is_met(&spec.grants));
    granted.map(|(interface, function)| format!("{PACKAGE}{interface}.{}", function.name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_one_line_and_bounded_whatever_a_components_names_and_its_files_are() {
        let names = || vec!["x\n2026-11-22 ERROR forged\u{1b}[2J".repeat(3_000); 88];
        for problem in [
            LoadProblem::NoWorld { exports: names() },
            LoadProblem::Unknown { imports: names(), offered: Vec::new() },
            LoadProblem::Compile(names().concat()),
        ] {
            let file = PathBuf::from("a\nb.wasm".repeat(1_000));
            let message = LoadError { file, problem: Box::new(problem) }.to_string();
            assert!(message.len() < 5_000 && !message.contains(char::is_control), "{} bytes", message.len());
        }
    }
}
