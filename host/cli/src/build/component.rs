//! A core module made a component, and what a component imports and exports. No cargo, no files.

use anyhow::{Context, bail};
use serde::Serialize;
use wit_component::{ComponentEncoder, DecodedWasm};
use wit_parser::{Resolve, WorldItem, WorldKey};

/// One imported interface with the functions that are used of it: wit-component leaves the others out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Import {
    /// With package and version, such as `podium:reconcile/writes@0.1.0`.
    pub interface: String,
    pub functions: Vec<String>,
}

/// A component's outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) imports: Vec<Import>,
    pub(super) exports: Vec<String>,
}

/// The component of a core module; a component stays as it is. Validated either way.
pub(super) fn encode(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    if wasmparser::Parser::is_component(bytes) {
        wasmparser::Validator::new().validate_all(bytes).context("the linker's component is invalid")?;
        return Ok(bytes.to_vec());
    }
    ComponentEncoder::default().validate(true).module(bytes)?.encode()
}

/// Reads imports by function, and exports.
pub(super) fn interface(component: &[u8]) -> anyhow::Result<Interface> {
    let DecodedWasm::Component(resolve, world) = wit_component::decode(component)? else {
        bail!("this is a WIT package, not a component");
    };
    let world = &resolve.worlds[world];
    let mut imports: Vec<Import> = Vec::new();
    for (key, item) in &world.imports {
        let import = match item {
            WorldItem::Interface { id, .. } => Import {
                interface: name(&resolve, key),
                functions: resolve.interfaces[*id].functions.keys().cloned().collect(),
            },
            // A function outside any interface: the contract has none, so it stands under its own name.
            WorldItem::Function(function) => {
                Import { interface: name(&resolve, key), functions: vec![function.name.clone()] }
            }
            WorldItem::Type { .. } => continue,
        };
        if !import.functions.is_empty() {
            imports.push(import);
        }
    }
    imports.sort_by(|left, right| left.interface.cmp(&right.interface));
    let exports = world.exports.keys().map(|key| name(&resolve, key)).collect();
    Ok(Interface { imports, exports })
}

fn name(resolve: &Resolve, key: &WorldKey) -> String {
    match key {
        WorldKey::Name(name) => name.clone(),
        WorldKey::Interface(id) => resolve.id_of(*id).unwrap_or_else(|| "(unnamed interface)".to_owned()),
    }
}
