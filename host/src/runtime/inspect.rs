//! What a component asks for and offers, read from its bytes: checked against the WebAssembly features that the sandbox
//! accepts, compiled not at all. Cheap, and safe on hostile bytes.

use wasmparser::{
    Parser, Payload, Validator, WasmFeatures,
    component_types::{ComponentEntityType, ComponentInstanceTypeId},
    types::Types,
};

/// What rustc, componentize-py and componentize-js need, and no more: no gc, exceptions, threads, memory64,
/// multi-memory, relaxed SIMD, tail calls, typed function references, component-model async.
pub(super) const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::LIME1)
    .union(WasmFeatures::COMPONENT_MODEL)
    .difference(WasmFeatures::GC_TYPES);

/// An interface that a component imports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    /// With package and version, such as `podium:reconcile/pods@0.1.0`; a lone name for what is no interface.
    pub interface: String,
    /// In the order of the component; empty when it imports nothing but types.
    pub functions: Vec<String>,
}

/// Why bytes are not a component that the sandbox could take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// A module has to be wrapped first.
    #[error("this is a core WebAssembly module, not a component; `podium build` makes a component of it")]
    CoreModule,
    #[error("not a WebAssembly component")]
    NotWebAssembly,
    /// Malformed, or uses a feature that the sandbox refuses.
    #[error("not a component that the sandbox accepts: {0}")]
    Invalid(String),
}

/// The interfaces that a component imports, in its order.
///
/// # Errors
/// When it is no component, or uses a feature that the sandbox refuses.
pub fn inspect(wasm: &[u8]) -> Result<Vec<Import>, InspectError> {
    Ok(inspect_all(wasm)?.imports)
}

#[derive(Debug)]
pub(super) struct Inspection {
    pub(super) imports: Vec<Import>,
    /// Names of what it exports.
    pub(super) exports: Vec<String>,
}

pub(super) fn inspect_all(wasm: &[u8]) -> Result<Inspection, InspectError> {
    if Parser::is_core_wasm(wasm) {
        return Err(InspectError::CoreModule);
    }
    if !Parser::is_component(wasm) {
        return Err(InspectError::NotWebAssembly);
    }
    let invalid = |error: wasmparser::BinaryReaderError| InspectError::Invalid(error.to_string());
    let types = Validator::new_with_features(FEATURES).validate_all(wasm).map_err(invalid)?;
    let mut inspection = Inspection { imports: Vec::new(), exports: Vec::new() };
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload.map_err(invalid)? {
            // Modules and components inside have imports and exports of their own.
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    let name = import.map_err(invalid)?.name.name;
                    inspection.imports.push(import_of(&types, name));
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    inspection.exports.push(export.map_err(invalid)?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(inspection)
}

fn import_of(types: &Types, name: &str) -> Import {
    let functions = match types.component_item_for_import(name).map(|item| item.ty) {
        Some(ComponentEntityType::Instance(instance)) => functions_of(types, instance),
        Some(ComponentEntityType::Type { .. }) | None => Vec::new(),
        // Imported outside any interface; its name is all there is to say.
        Some(_) => vec![name.to_owned()],
    };
    Import { interface: name.to_owned(), functions }
}

fn functions_of(types: &Types, instance: ComponentInstanceTypeId) -> Vec<String> {
    let is_function = |ty: &ComponentEntityType| matches!(ty, ComponentEntityType::Func(_));
    let exports = types[instance].exports.iter();
    exports.filter(|(_, item)| is_function(&item.ty)).map(|(name, _)| name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_module_and_garbage_are_told_apart() {
        assert_eq!(inspect(b"\0asm\x01\0\0\0"), Err(InspectError::CoreModule));
        assert_eq!(inspect(b"#!/bin/sh"), Err(InspectError::NotWebAssembly));
        assert_eq!(inspect(b""), Err(InspectError::NotWebAssembly));
        assert_eq!(inspect(b"\0asm\x0d\0\x01\0"), Ok(Vec::new()));
        assert!(matches!(inspect(b"\0asm\x0d\0\x01\0\x07\xff"), Err(InspectError::Invalid(_))));
    }
}
