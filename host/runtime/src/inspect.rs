//! The imports and exports of a component, read from its bytes. The component is validated against the WebAssembly
//! features that the sandbox accepts, and is not compiled. This is cheap, and safe on hostile bytes.

use podium_vocabulary::{LimitClass, PACKAGE, VERSION, text};
use wasmparser::{
    Parser, Payload, Validator, WasmFeatures,
    component_types::{ComponentAnyTypeId, ComponentEntityType},
    types::Types,
};

use super::{
    caps::{self, CapError, Caps},
    offer::WorldKind,
    signature,
};

/// The features that rustc, componentize-py and componentize-js need. Not among them: gc, exceptions, threads,
/// memory64, multi-memory, relaxed SIMD, tail calls, typed function references, component-model async.
pub(super) const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::LIME1)
    .union(WasmFeatures::COMPONENT_MODEL)
    .difference(WasmFeatures::GC_TYPES);

/// An interface that a component imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// With package and version, such as `podium:reconcile/pods@0.1.0`; a plain name for an import that is not an
    /// interface.
    pub interface: String,
    /// In the order of the component; empty when it imports nothing but types.
    pub functions: Vec<String>,
}

/// Why bytes are not a component that the sandbox could take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// A module has to be wrapped first.
    #[error(
        "this is a core WebAssembly module, not a component; `podium build` or `wasm-tools component new` makes a \
         component of it"
    )]
    CoreModule,
    /// It does not begin as WebAssembly does.
    #[error("not a WebAssembly component")]
    NotWebAssembly,
    /// More of something than a component of its class may have.
    #[error("more than {limit} {what}, the bound of limits.class {class}")]
    Over {
        /// In plural, such as "core instances".
        what: &'static str,
        /// The most that the class permits.
        limit: u64,
        /// The class of limits.
        class: &'static str,
    },
    /// It is composed of components in a way that the sandbox refuses.
    #[error(
        "it has {0}; a plugin is one component, as `podium build`, componentize-py and componentize-js make it, and no \
         composition, as componentize-qjs makes it without an option against it: write the plugin as a script \
         (docs/scripts.md)"
    )]
    Composed(&'static str),
    /// Malformed, or uses a feature that the sandbox refuses.
    #[error("not a component that the sandbox accepts: {0}{next}", next = next_step(_0))]
    Invalid(String),
}

/// Parts of the validator's messages about proposals that [`FEATURES`] lacks, each with the option of the tools that
/// avoids it. The first one that a message has is its own.
const STEPS: [(&str, &str); 7] = [
    ("tail calls support", "build it without the target feature tail-call (clang: -mno-tail-call)"),
    ("component model async", "build it without async functions and WASI 0.3 (componentize-qjs: --sync)"),
    ("exceptions", "build it without the exceptions of WebAssembly (clang: without -fwasm-exceptions)"),
    ("function references", "build it without typed references to functions"),
    ("multiple memories", "build it with one memory"),
    ("enabled", "build it without this proposal"),
    (" feature", "build it without this proposal"),
];

/// Returns the next step for a component that the validator refused because of a proposal, and nothing if it is
/// malformed.
fn next_step(reason: &str) -> String {
    let step = STEPS.iter().find(|(part, _)| reason.contains(part));
    step.map_or_else(String::new, |(_, step)| format!("; {step}, or write the plugin as a script (docs/scripts.md)"))
}

/// The imports and exports of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The imports in the order of the component.
    pub imports: Vec<Import>,
    /// Names of the exported interfaces and functions.
    pub exports: Vec<String>,
}

/// Reads the imports and exports of a component.
///
/// # Errors
/// Returns an error if it is no component, has more of something than any class allows, or uses a feature that the
/// sandbox refuses.
pub fn inspect(wasm: &[u8]) -> Result<Interface, InspectError> {
    let Inspection { imports, exports, .. } = inspect_all(wasm, LimitClass::Interpreter)?;
    Ok(Interface { imports, exports })
}

#[derive(Debug)]
pub(super) struct Inspection {
    pub(super) imports: Vec<Import>,
    /// Names of its exports.
    pub(super) exports: Vec<String>,
    /// Imports that hold a resource type.
    pub(super) resources: Vec<String>,
    /// Imports that contain an instance, a component or a module, as no interface of a world does.
    pub(super) nested: Vec<String>,
    /// The worlds whose reconciler it exports, each with the type of its `reconcile`, if that is a function.
    pub(super) reconcilers: Vec<(WorldKind, Option<String>)>,
}

pub(super) fn inspect_all(wasm: &[u8], class: LimitClass) -> Result<Inspection, InspectError> {
    if Parser::is_core_wasm(wasm) {
        return Err(InspectError::CoreModule);
    }
    if !Parser::is_component(wasm) {
        return Err(InspectError::NotWebAssembly);
    }
    // Before the validator, which recurses where components and types nest, and whose memory grows with the depth.
    caps::check(wasm, Caps::of_class(class)).map_err(|error| match error {
        CapError::Over { what, limit } => InspectError::Over { what, limit, class: class.name() },
        CapError::Composed(what) => InspectError::Composed(what),
        CapError::Malformed(error) => InspectError::Invalid(text::line(&error)),
    })?;
    let invalid = |error: wasmparser::BinaryReaderError| InspectError::Invalid(text::line(&error.to_string()));
    let types = Validator::new_with_features(FEATURES).validate_all(wasm).map_err(invalid)?;
    let (imports, exports, resources, nested, reconcilers) = <_>::default();
    let mut inspection = Inspection { imports, exports, resources, nested, reconcilers };
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(invalid)? {
            // Modules and components inside have imports and exports of their own.
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let name = import.map_err(invalid)?.name.name;
                    inspection.import(&types, name);
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    let name = export.map_err(invalid)?.name.name;
                    inspection.export(&types, name);
                }
            }
            _ => {}
        }
    }
    Ok(inspection)
}

impl Inspection {
    fn import(&mut self, types: &Types, name: &str) {
        let mut functions = Vec::new();
        match types.component_item_for_import(name).map(|item| item.ty) {
            Some(ComponentEntityType::Instance(instance)) => {
                for (function, item) in &types[instance].exports {
                    match item.ty {
                        ComponentEntityType::Func(_) => functions.push(function.clone()),
                        other => self.no_function(other, name),
                    }
                }
            }
            Some(other @ ComponentEntityType::Type { .. }) => self.no_function(other, name),
            None => {}
            // Imported outside any interface; its name is all there is to say.
            Some(_) => functions.push(name.to_owned()),
        }
        self.imports.push(Import { interface: name.to_owned(), functions });
    }

    fn export(&mut self, types: &Types, name: &str) {
        let reconciler = |world: &WorldKind| name == format!("{PACKAGE}{}{VERSION}", world.reconciler());
        if let Some(world) = [WorldKind::Native, WorldKind::Json].into_iter().find(reconciler) {
            self.reconcilers.push((world, signature::of_export(types, name, "reconcile")));
        }
        self.exports.push(name.to_owned());
    }

    fn no_function(&mut self, item: ComponentEntityType, import: &str) {
        let list = match item {
            ComponentEntityType::Type { referenced: ComponentAnyTypeId::Resource(_), .. } => &mut self.resources,
            ComponentEntityType::Type { .. } => return,
            _ => &mut self.nested,
        };
        if list.last().is_none_or(|last| last != import) {
            list.push(import.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_module_and_garbage_are_distinguished() {
        assert_eq!(inspect(b"\0asm\x01\0\0\0"), Err(InspectError::CoreModule));
        assert_eq!(inspect(b"#!/bin/sh"), Err(InspectError::NotWebAssembly));
        assert_eq!(inspect(b""), Err(InspectError::NotWebAssembly));
        assert_eq!(inspect(b"\0asm\x0d\0\x01\0"), nothing());
        assert!(matches!(inspect(b"\0asm\x0d\0\x01\0\x07\xff"), Err(InspectError::Invalid(_))));
    }

    fn nothing() -> Result<Interface, InspectError> {
        Ok(Interface { imports: Vec::new(), exports: Vec::new() })
    }

    /// A component around a core module of these sections.
    fn component(sections: &[&[u8]]) -> Vec<u8> {
        let module = [b"\0asm\x01\0\0\0".as_slice(), &sections.concat()].concat();
        let length = u8::try_from(module.len()).unwrap();
        [b"\0asm\x0d\0\x01\0\x01".as_slice(), &[length], &module].concat()
    }

    /// One function without parameters, with this body.
    fn function(body: &[u8]) -> Vec<u8> {
        let length = u8::try_from(body.len() + 2).unwrap();
        let code = [&[0x0a, length + 2, 1, length, 0], body, &[0x0b]].concat();
        component(&[&[1, 4, 1, 0x60, 0, 0], &[3, 2, 1, 0], &code])
    }

    #[test]
    fn every_proposal_that_plugins_do_not_need_is_refused() {
        let vector = [[0xfd, 0x0c].as_slice(), &[0; 16]].concat();
        let swizzle = |opcode: &[u8]| function(&[&vector, &vector, opcode, &[0x1a]].concat());
        assert_eq!(inspect(&component(&[&[5, 3, 1, 0, 1]])), nothing(), "a memory");
        assert_eq!(inspect(&function(&[0x10, 0])), nothing(), "a call");
        assert_eq!(inspect(&swizzle(&[0xfd, 0x0e])), nothing(), "a vector");
        for (proposal, wasm, step) in [
            ("threads", component(&[&[5, 4, 1, 3, 1, 1]]), "without this proposal"),
            ("memory64", component(&[&[5, 3, 1, 4, 1]]), "without this proposal"),
            ("multi-memory", component(&[&[5, 5, 2, 0, 1, 0, 1]]), "with one memory"),
            ("exceptions", component(&[&[1, 4, 1, 0x60, 0, 0], &[0x0d, 3, 1, 0, 0]]), "-fwasm-exceptions"),
            ("try_table", function(&[0x1f, 0x40, 0, 0x0b]), "-fwasm-exceptions"),
            ("gc", component(&[&[1, 3, 1, 0x5f, 0]]), "without this proposal"),
            (
                "function-references",
                component(&[&[1, 9, 2, 0x60, 0, 0, 0x60, 1, 0x64, 0, 0]]),
                "without typed references to functions",
            ),
            ("tail-call", function(&[0x12, 0]), "-mno-tail-call"),
            ("relaxed-simd", swizzle(&[0xfd, 0x80, 0x02]), "without this proposal"),
            // A section of one type: a function without parameters and results, and a stream.
            ("async", b"\0asm\x0d\0\x01\0\x07\x05\x01\x43\0\x01\0".to_vec(), "componentize-qjs: --sync"),
            ("streams", b"\0asm\x0d\0\x01\0\x07\x03\x01\x66\0".to_vec(), "componentize-qjs: --sync"),
        ] {
            assert!(
                Validator::new_with_features(WasmFeatures::all()).validate_all(&wasm).is_ok(),
                "{proposal} is valid"
            );
            let Err(refused @ InspectError::Invalid(_)) = inspect(&wasm) else { unreachable!("{proposal}") };
            let refused = refused.to_string();
            assert!(refused.contains(step), "{proposal}: {refused}");
            assert!(refused.ends_with(", or write the plugin as a script (docs/scripts.md)"), "{proposal}: {refused}");
        }
        let malformed = inspect(b"\0asm\x0d\0\x01\0\x07\xff").unwrap_err().to_string();
        assert!(!malformed.contains("script"), "{malformed}");
    }
}
