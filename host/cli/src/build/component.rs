//! Encodes a core module as a component, and lists its imports. Uses neither cargo nor files.

use anyhow::Context;
use serde::Serialize;
use wit_component::ComponentEncoder;

/// One imported interface with the functions of it that the component uses: wit-component leaves the others out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Import {
    /// The interface with package and version, such as `podium:reconcile/writes@0.1.0`.
    pub interface: String,
    pub functions: Vec<String>,
}

/// Returns the imports that the host's own check reads, by the names of their interfaces. Interfaces without
/// functions are left out.
pub(crate) fn shown(imports: Vec<podium_runtime::Import>) -> Vec<Import> {
    let used = imports.into_iter().filter(|import| !import.functions.is_empty());
    let mut shown: Vec<_> =
        used.map(|podium_runtime::Import { interface, functions }| Import { interface, functions }).collect();
    shown.sort_by(|left, right| left.interface.cmp(&right.interface));
    shown
}

/// Returns the component of a core module. A component is returned unchanged. Both are validated.
pub(super) fn encode(bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    if wasmparser::Parser::is_component(bytes) {
        wasmparser::Validator::new().validate_all(bytes).context("the linker's component is invalid")?;
        return Ok(bytes.to_vec());
    }
    ComponentEncoder::default().validate(true).module(bytes)?.encode()
}
