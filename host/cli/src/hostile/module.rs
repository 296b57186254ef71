//! Guests written in the text form of WebAssembly, as components of the world `plugin`: for what no compiler writes.

use anyhow::Context;
pub use wit_component::StringEncoding;
use wit_component::{ComponentEncoder, embed_component_metadata};
use wit_parser::Resolve;

/// A module that exports what the world `plugin` needs.
#[derive(Debug, Clone, Copy)]
pub struct Module<'a> {
    /// The pages of memory, of 64 KiB each. The first contains the request; its bytes 1,024 to 2,047 are zero until the
    /// guest writes there.
    pub pages: u32,
    /// Imports. In the module they precede everything else.
    pub imports: &'a str,
    /// Further fields of the module.
    pub fields: &'a str,
    /// Instructions before the allocation of memory for arguments.
    pub realloc: &'a str,
    /// Instructions of `reconcile`, which then returns the value at byte 1,024: zeros are `settled`.
    pub reconcile: &'a str,
    /// Instructions after the host has read the result.
    pub post_return: &'a str,
    /// How the module's texts are encoded.
    pub encoding: StringEncoding,
    /// Further packages in WIT, for imports beyond the contract. The last package has a world `plugin`, which replaces
    /// that of the contract.
    pub packages: &'a [&'a str],
    /// The contract's text.
    pub contract: &'a str,
}

impl Default for Module<'_> {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Module<'_> {
    /// A module that returns `settled` and does nothing else.
    pub const DEFAULT: Self = Self {
        pages: 2,
        imports: "",
        fields: "",
        realloc: "",
        reconcile: "",
        post_return: "",
        encoding: StringEncoding::UTF8,
        packages: &[],
        contract: include_str!("podium.wit"),
    };

    /// Assembles the module and wraps it into a component.
    ///
    /// # Errors
    /// Returns an error if the text is no module, or the module does not fit the world.
    pub fn component(&self) -> anyhow::Result<Vec<u8>> {
        let Self { pages, imports, fields, realloc, reconcile, post_return, encoding, packages, contract } = *self;
        let text = format!(
            r#"(module
              {imports}
              (memory (export "memory") {pages})
              (global $heap (mut i32) (i32.const 4096))
              {fields}
              (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                {realloc}
                (global.set $heap (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                (global.get $heap)
                (global.set $heap (i32.add (global.get $heap) (local.get 3))))
              (func (export "podium:reconcile/reconciler@0.1.0#reconcile")
                (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32) (result i32)
                (local $at i32) (local $end i32)
                {reconcile}
                (i32.const 1024))
              (func (export "cabi_post_podium:reconcile/reconciler@0.1.0#reconcile") (param i32)
                {post_return}))"#
        );
        let mut module = wat::parse_str(&text).with_context(|| text.clone())?;
        let mut resolve = Resolve::default();
        let mut package = resolve.push_source("podium.wit", contract)?;
        for wit in packages {
            package = resolve.push_source("more.wit", wit)?;
        }
        let world = resolve.select_world(&[package], Some("plugin"))?;
        embed_component_metadata(&mut module, &resolve, world, encoding)?;
        ComponentEncoder::default().module(&module)?.validate(true).encode()
    }
}
