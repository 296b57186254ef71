//! Bounds on a component's structure, checked in one pass over its bytes before anything else looks at them.
//!
//! The validator and the compiler take time and memory that grow faster than a component's size: with the depth of
//! nesting, with the size of one function, with its locals times its blocks. A component within these bounds costs them
//! little more than its size. The pass itself is linear in the bytes, does not recurse, and allocates at most in
//! proportion to the depth of nesting. The validator checks the meaning of a component; this pass does not.
//!
//! Compositions of components are refused. wit-component puts components into a component too, for the types of
//! exported interfaces: these have no core modules and no canonical functions, and are no arguments.

mod body;
mod types;

use podium_vocabulary::LimitClass;
use wasmparser::{
    BinaryReaderError, ComponentExternalKind, ComponentInstance, ComponentTypeRef, ElementItems, Encoding,
    OperatorsReaderAllocations, Parser, Payload,
};

/// The limits of what a component may consist of. Each number is far above what compilers write and far below what
/// costs gigabytes.
///
/// Measured on the components of this repository, on 2 to 6 MB of Rust (`wasm-tools`, the splicer of componentize-js),
/// on componentize-py 0.25 (CPython, 18 MB) and on componentize-js 0.19 (SpiderMonkey, 10 to 12 MB): "Rust", "Python"
/// and "JS" below.
#[derive(Debug)]
pub(super) struct Caps {
    /// The depth of modules and components in components, and of types in types. Measured: 1, and 1 more for each
    /// composition.
    depth: usize,
    /// Number of core modules. Rust 4, Python 38.
    modules: u64,
    /// Number of components, the outermost included. Rust 2, Python 3.
    components: u64,
    /// Number of instances, each counted as often as the component around it is instantiated. Python 83: a few hundred
    /// bytes could otherwise stand for 2^30 instances.
    instances: u64,
    /// Bytes of all sections but code, data and custom ones: types, imports, exports, names. Rust 40 KiB, Python 312
    /// KiB.
    structure_bytes: u64,
    /// Types, imports, exports, aliases, globals, tables and instances, those inside of types included.
    /// Rust 1,300, Python 13,400.
    definitions: u64,
    /// Bytes of the name of an import or export. Rust 70, Python 162.
    name_bytes: u64,
    /// Parameters of a core function type. Rust 23, Python 18.
    parameters: u64,
    /// Results of a core function type. Measured: 1.
    results: u64,
    /// Number of functions. Rust 8,700, Python 13,500, JS 19,900.
    functions: u64,
    /// Bytes of one function. Rust 182 KiB, JS 168 KiB, Python 417 KiB.
    function_bytes: u64,
    /// Locals of one function besides its parameters. Rust 128, JS 483, Python 271.
    locals: u64,
    /// Depth of nested blocks in one function. Rust 803, JS 497, Python 781.
    nesting: u64,
    /// Locals times blocks of one function: the number of values that may meet where blocks do. Rust 296,000, JS
    /// 194,000.
    locals_by_blocks: u64,
    /// The same, in all functions together. Rust 972,000, JS 2,867,000, Python 1,415,000.
    all_locals_by_blocks: u64,
    /// Blocks of one function that have parameters or several results. Measured: none.
    typed_blocks: u64,
    /// Targets of one `br_table`. Rust 627, Python 3,202.
    table_targets: u64,
    /// Targets of all `br_table`s. Rust 30,500, JS 48,100, Python 43,700.
    all_table_targets: u64,
    /// Number of data and element segments. Rust 980, Python 1,900, JS 6,700.
    segments: u64,
    /// Elements in the segments. Rust 4,000, JS 7,700, Python 5,800.
    elements: u64,
}

const NATIVE: Caps = Caps {
    depth: 16,
    modules: 32,
    components: 64,
    instances: 1_000,
    structure_bytes: 256 << 10,
    definitions: 20_000,
    name_bytes: 512,
    parameters: 32,
    results: 4,
    functions: 20_000,
    function_bytes: 256 << 10,
    locals: 1_000,
    nesting: 2_000,
    locals_by_blocks: 1_000_000,
    all_locals_by_blocks: 4_000_000,
    typed_blocks: 64,
    table_targets: 4_096,
    all_table_targets: 65_536,
    segments: 5_000,
    elements: 20_000,
};

const INTERPRETER: Caps = Caps {
    modules: 128,
    instances: 4_000,
    structure_bytes: 1 << 20,
    definitions: 60_000,
    name_bytes: 1_024,
    functions: 40_000,
    function_bytes: 768 << 10,
    all_locals_by_blocks: 8_000_000,
    table_targets: 8_192,
    all_table_targets: 131_072,
    segments: 20_000,
    elements: 50_000,
    ..NATIVE
};

impl Caps {
    pub(super) const fn of_class(class: LimitClass) -> &'static Self {
        match class {
            LimitClass::Native => &NATIVE,
            LimitClass::Interpreter => &INTERPRETER,
        }
    }
}

/// Why a component did not pass.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum CapError {
    #[error("more than {limit} {what}")]
    Over { what: &'static str, limit: u64 },
    /// It is composed of components in a way whose cost cannot be derived from its bytes.
    #[error("{0}")]
    Composed(&'static str),
    /// The bytes are malformed.
    #[error("{0}")]
    Malformed(String),
}

impl From<BinaryReaderError> for CapError {
    fn from(error: BinaryReaderError) -> Self {
        Self::Malformed(error.to_string())
    }
}

/// Instances of a component that is passed to another one cannot be counted where they are made.
const GIVEN: CapError = CapError::Composed("a component as an import, an export or an argument of another one");
/// Between functions of different components the compiler writes adapters as long as their types, once for each
/// instance.
const ADAPTERS: CapError =
    CapError::Composed("functions of a component inside of another one, between which there would be adapters");

/// Returns an error if a figure exceeds its limit.
fn at_most(what: &'static str, found: u64, limit: u64) -> Result<(), CapError> {
    if found > limit { Err(CapError::Over { what, limit }) } else { Ok(()) }
}

/// Adds to a sum, and fails when it is over its limit then.
fn add(sum: &mut u64, more: u64, what: &'static str, limit: u64) -> Result<(), CapError> {
    *sum = sum.saturating_add(more);
    at_most(what, *sum, limit)
}

/// Checks a component, in time linear in its bytes and with little memory.
///
/// # Errors
/// Returns an error if the component exceeds one of `caps`, or its sections cannot be separated.
pub(super) fn check(wasm: &[u8], caps: &Caps) -> Result<(), CapError> {
    let mut pass = Pass { caps, wasm, sums: Sums { components: 1, ..Sums::default() }, around: Vec::new() };
    let mut level = Level::default();
    let mut allocations = OperatorsReaderAllocations::default();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload?;
        pass.section(&payload, &level)?;
        match payload {
            Payload::Version { encoding, .. } => level.is_module = encoding == Encoding::Module,
            Payload::ModuleSection { .. } => {
                add(&mut pass.sums.modules, 1, "core modules", caps.modules)?;
                pass.enter(&mut level)?;
            }
            Payload::ComponentSection { .. } => {
                add(&mut pass.sums.components, 1, "components", caps.components)?;
                pass.enter(&mut level)?;
            }
            Payload::End(_) => pass.leave(&mut level)?,
            Payload::CodeSectionEntry(function) => allocations = pass.body(&function, allocations)?,
            payload => pass.entries(payload, &mut level)?,
        }
    }
    Ok(())
}

/// A module or component that is being read.
#[derive(Default)]
struct Level {
    is_module: bool,
    /// Instances that one instantiation of it makes.
    instances: u64,
    /// The most that one instantiation of a component makes that is complete and can be named here.
    largest: u64,
}

#[derive(Default)]
struct Sums {
    modules: u64,
    components: u64,
    structure_bytes: u64,
    definitions: u64,
    functions: u64,
    locals_by_blocks: u64,
    table_targets: u64,
    segments: u64,
    elements: u64,
}

struct Pass<'a> {
    caps: &'a Caps,
    wasm: &'a [u8],
    sums: Sums,
    /// The levels around the module or component that is being read; never more than the permitted depth.
    around: Vec<Level>,
}

impl Pass<'_> {
    fn enter(&mut self, level: &mut Level) -> Result<(), CapError> {
        at_most("components inside of components", self.around.len() as u64 + 1, self.caps.depth as u64)?;
        // An inner component can refer to the outer one's complete items, by an outer alias.
        let inner = Level { largest: level.largest, ..Level::default() };
        self.around.push(std::mem::replace(level, inner));
        Ok(())
    }

    fn leave(&mut self, level: &mut Level) -> Result<(), CapError> {
        at_most("instances", level.instances, self.caps.instances)?;
        if let Some(outer) = self.around.pop() {
            let inner = std::mem::replace(level, outer);
            level.largest = level.largest.max(inner.largest).max(inner.instances);
        }
        Ok(())
    }

    fn section(&mut self, payload: &Payload<'_>, level: &Level) -> Result<(), CapError> {
        let counted = !matches!(
            payload,
            Payload::CodeSectionStart { .. }
                | Payload::DataSection(_)
                | Payload::CustomSection(_)
                | Payload::ModuleSection { .. }
                | Payload::ComponentSection { .. }
        );
        match payload.as_section() {
            Some((_, range)) if counted => {
                let what = if level.is_module { "bytes of definitions of modules" } else { "bytes of definitions" };
                add(&mut self.sums.structure_bytes, range.len() as u64, what, self.caps.structure_bytes)
            }
            _ => Ok(()),
        }
    }

    fn define(&mut self, count: u32) -> Result<(), CapError> {
        add(&mut self.sums.definitions, count.into(), "definitions", self.caps.definitions)
    }

    fn name(&self, name: &str) -> Result<(), CapError> {
        at_most("bytes of a name", name.len() as u64, self.caps.name_bytes)
    }

    /// The number of entries is looked at before the entries are.
    #[expect(clippy::too_many_lines, reason = "one short arm for each kind of section")]
    fn entries(&mut self, payload: Payload<'_>, level: &mut Level) -> Result<(), CapError> {
        let caps = self.caps;
        match payload {
            Payload::TypeSection(section) => {
                self.define(section.count())?;
                for group in section {
                    self.core_types(&group?)?;
                }
            }
            Payload::ImportSection(section) => {
                self.define(section.count())?;
                for import in section.into_imports() {
                    let import = import?;
                    self.name(import.module)?;
                    self.name(import.name)?;
                }
            }
            Payload::ExportSection(section) => {
                self.define(section.count())?;
                for export in section {
                    self.name(export?.name)?;
                }
            }
            Payload::FunctionSection(section) => {
                add(&mut self.sums.functions, section.count().into(), "functions", caps.functions)?;
            }
            Payload::TableSection(section) => self.define(section.count())?,
            Payload::MemorySection(section) => self.define(section.count())?,
            Payload::TagSection(section) => self.define(section.count())?,
            Payload::GlobalSection(section) => self.define(section.count())?,
            Payload::DataSection(section) => {
                add(&mut self.sums.segments, section.count().into(), "segments", caps.segments)?;
            }
            Payload::ElementSection(section) => {
                add(&mut self.sums.segments, section.count().into(), "segments", caps.segments)?;
                for segment in section {
                    let count = match segment?.items {
                        ElementItems::Functions(items) => items.count(),
                        ElementItems::Expressions(_, items) => items.count(),
                    };
                    add(&mut self.sums.elements, count.into(), "elements", caps.elements)?;
                }
            }
            Payload::CoreTypeSection(section) => self.component_core_types(section)?,
            Payload::ComponentTypeSection(section) => self.component_types(section.range())?,
            Payload::ComponentImportSection(section) => {
                self.define(section.count())?;
                for import in section {
                    let import = import?;
                    self.name(import.name.name)?;
                    refuse_component(import.ty)?;
                }
            }
            Payload::ComponentExportSection(section) => {
                self.define(section.count())?;
                for export in section {
                    let export = export?;
                    self.name(export.name.name)?;
                    refuse_component_kind(export.kind)?;
                }
            }
            Payload::ComponentAliasSection(section) => self.define(section.count())?,
            Payload::ComponentCanonicalSection(section) => {
                self.define(section.count())?;
                if section.count() > 0 && !self.around.is_empty() {
                    return Err(ADAPTERS);
                }
            }
            Payload::InstanceSection(section) => {
                self.define(section.count())?;
                add(&mut level.instances, section.count().into(), "instances", caps.instances)?;
            }
            Payload::ComponentInstanceSection(section) => {
                self.define(section.count())?;
                for instance in section {
                    let inside = match instance? {
                        ComponentInstance::Instantiate { args, .. } => {
                            args.iter().try_for_each(|argument| refuse_component_kind(argument.kind))?;
                            level.largest
                        }
                        ComponentInstance::FromExports(exports) => {
                            exports.iter().try_for_each(|export| refuse_component_kind(export.kind))?;
                            0
                        }
                    };
                    add(&mut level.instances, inside.saturating_add(1), "instances", caps.instances)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Fails for an import or export of a component in a component or a type.
fn refuse_component(declared: ComponentTypeRef) -> Result<(), CapError> {
    if matches!(declared, ComponentTypeRef::Component(_)) { Err(GIVEN) } else { Ok(()) }
}

/// Fails for a component that is exported or passed as an argument.
fn refuse_component_kind(kind: ComponentExternalKind) -> Result<(), CapError> {
    if kind == ComponentExternalKind::Component { Err(GIVEN) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
