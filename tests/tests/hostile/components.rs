//! Components that the host must refuse to load: other worlds and imports, other features of WebAssembly, structures
//! that are expensive to parse, and sizes beyond the limits.

use anyhow::Result;
use podium_engine::ports::FailureKind::Memory;
use podium_tests::{
    bombs::BOMBS,
    modules::{Module, NEIGHBOUR},
};
use wasm_encoder::{
    Component, ComponentExportKind, ComponentExportSection, ComponentImportSection, ComponentInstanceSection,
    ComponentSection, ComponentTypeRef, ComponentTypeSection, ComponentValType, InstanceSection, InstanceType,
    ModuleArg, PrimitiveValType, RawSection,
};

use super::attack::{
    Attack,
    End::{Fails, Refused},
    Wasm,
};

const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";
/// The id of a core module's section.
const MODULE: u8 = 1;

#[expect(clippy::too_many_lines, reason = "a table: one entry for each attack")]
pub(super) fn attacks() -> Vec<Attack> {
    let refused = |name, text, wasm| Attack::made(name, wasm, Refused(text));
    let attacks = vec![
        // Imports.
        refused("import-an-unknown-function", "which the world plugin of podium:reconcile@0.1.0 does not have", || {
            importing("evil:net@1.0.0", "sockets", "send: func(byte: u32);", "send", "(param i32)")
        }),
        refused("import-the-file-system", "imports wasi:filesystem/preopens@0.2.0", || {
            importing("wasi:filesystem@0.2.0", "preopens", "get: func(at: u32);", "get", "(param i32)")
        }),
        refused("import-sockets", "imports wasi:sockets/network@0.2.0", || {
            importing("wasi:sockets@0.2.0", "network", "dial: func(at: u32);", "dial", "(param i32)")
        }),
        refused("import-http", "imports wasi:http/outgoing-handler@0.2.0", || {
            importing("wasi:http@0.2.0", "outgoing-handler", "handle: func(at: u32);", "handle", "(param i32)")
        }),
        refused("import-another-version-of-the-contract", "imports podium:reconcile/pods@0.2.0", || {
            importing("podium:reconcile@0.2.0", "pods", "get: func(at: u32);", "get", "(param i32)")
        }),
        refused("import-more-of-an-interface", "podium:reconcile/log@0.1.0.erase", || {
            contract("  write: func(level: level,", "  erase: func();\n  write: func(level: level,", Some("erase"))
        }),
        refused("import-a-function-of-another-type", "does not fit the contract", || {
            let from = "  count: func(query: pod-query) -> result<u64, call-error>;";
            contract(from, "  count: func() -> result<u64>;", Some("count"))
        }),
        refused("import-wasi-that-is-not-linked", "does not fit the contract", || {
            importing("wasi:cli@0.2.0", "environment", "set-variable: func(at: u32);", "set-variable", "(param i32)")
        }),
        refused("import-more-than-is-granted", "imports more than it is granted", || NEIGHBOUR.component())
            .with_terms(|spec| spec.grants.write = podium_vocabulary::WriteGrants::default()),
        refused("import-a-forged-name", "FORGED", || Ok(forged_import())),
        // Exports.
        refused("export-nothing", "exports neither", || Ok(HEADER.to_vec())),
        refused("export-a-function-of-another-type", ".reconcile is func(record { key: ", || {
            let from = "  reconcile: func(request: request) -> result<outcome, failure>;";
            contract(from, "  reconcile: func(request: request) -> result<failure, outcome>;", None)
        }),
        refused("export-a-type-of-exponential-length", "does not fit the contract", exponential_export),
        refused("export-100000-names", "bytes of definitions", || Ok(exports(100_000, 0))),
        refused("export-names-of-90-kb", "bytes of a name", || Ok(exports(2, 90_000))),
        refused("export-many-long-names", "more than 262144 bytes of definitions", || Ok(exports(2_000, 400))),
        // Bytes.
        refused("be-empty", "not a WebAssembly component", || Ok(Vec::new())),
        refused("be-text", "not a WebAssembly component", || Ok(b"apiVersion: v1".to_vec())),
        refused("be-a-core-module", "this is a core WebAssembly module", || Ok(wat::parse_str("(module)")?)),
        refused("be-truncated", "unexpected end-of-file", || {
            let mut bytes = NEIGHBOUR.component()?;
            bytes.truncate(bytes.len() / 2);
            Ok(bytes)
        }),
        refused("be-of-another-version", "not a WebAssembly component", || Ok(b"\0asm\x0e\0\x01\0".to_vec())),
        refused("end-in-a-section-of-4-gb", "module section is too large", || {
            Ok([HEADER, &[1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0]].concat())
        }),
        refused("be-larger-than-the-class", "class native may have", || Ok(vec![0; (8 << 20) + 1])),
        // Features.
        refused("use-memory64", "memory64", || feature("(memory i64 1)")),
        refused("use-threads", "threads", || feature("(memory 1 1 shared)")),
        refused("use-several-memories", "multiple memories", || feature("(memory 1) (memory 1)")),
        refused("use-tail-calls", "tail calls", || feature("(func $f return_call $f)")),
        refused("use-exceptions", "exceptions", || feature("(tag)")),
        refused("use-garbage-collection", "gc", || feature("(type (struct (field i32)))")),
        refused("use-relaxed-simd", "relaxed SIMD", || {
            feature("(func (param v128) (result v128) (i32x4.relaxed_trunc_f32x4_s (local.get 0)))")
        }),
        // Sizes.
        refused("declare-more-memory-than-its-limit", "limits.memoryMiB permits", || {
            Module { pages: 600, ..Module::DEFAULT }.component()
        }),
        refused("declare-a-table-of-100000-elements", "does not fit in pooling allocator", || {
            Module { fields: "(table 100000 funcref)", ..Module::DEFAULT }.component()
        }),
        Attack::made(
            "declare-a-table-of-30000-elements",
            || Module { fields: "(table 30000 funcref)", ..Module::DEFAULT }.component(),
            Fails(Memory, "table elements, may have 20000"),
        ),
        refused("declare-100-tables", "does not fit in pooling allocator", || {
            Module { fields: &"(table 1 funcref) ".repeat(100), ..Module::DEFAULT }.component()
        }),
        refused("have-five-memories", "transitively contains 5 Wasm linear memories", || {
            instances("(module (memory 1))", 4)
        }),
        refused("have-900-instances", "transitively contains 903 core module", || instances("(module)", 900)),
        refused("have-2000-instances", "more than 1000 instances", || instances("(module)", 2_000)),
        Attack::made("have-20-instances", || instances("(module)", 20), Fails(Memory, "resource limit exceeded")),
        refused("nest-5000-lists", "type nesting is too deep", || Ok(lists(5_000))),
        refused("nest-types-in-types", "types nested in types", || Ok(instance_types(200))),
    ];
    let bomb = |&(name, bomb): &(&'static str, fn() -> Vec<u8>)| Attack {
        wasm: Wasm::Bomb(bomb),
        ..Attack::made(name, || Ok(Vec::new()), Refused("more than"))
    };
    attacks.into_iter().chain(BOMBS.iter().map(bomb)).collect()
}

/// A plugin that imports one more function, and calls it, because wit-component leaves unused functions out.
fn importing(package: &str, interface: &str, wit: &str, function: &str, types: &str) -> Result<Vec<u8>> {
    let (name, version) = package.split_once('@').unwrap();
    let first = format!("package {package}; interface {interface} {{ {wit} }}");
    let second = format!(
        "package hostile:guest; world plugin {{
            include podium:reconcile/plugin@0.1.0;
            import {name}/{interface}@{version};
        }}"
    );
    let imports = format!(r#"(import "{name}/{interface}@{version}" "{function}" (func $more {types}))"#);
    let packages = [first.as_str(), second.as_str()];
    let reconcile = "(call $more (i32.const 0))";
    Module { imports: &imports, packages: &packages, reconcile, ..Module::DEFAULT }.component()
}

/// A plugin of a contract with another text, that imports a function of it.
fn contract(from: &str, to: &str, import: Option<&str>) -> Result<Vec<u8>> {
    let text = Module::DEFAULT.contract.replace(from, to);
    assert_ne!(text, Module::DEFAULT.contract, "the contract has no {from}");
    let imports = match import {
        Some("erase") => r#"(import "podium:reconcile/log@0.1.0" "erase" (func $more))"#,
        Some(_) => {
            r#"(import "podium:reconcile/pods@0.1.0" "count" (func $count (param i32)))
            (func $more (call $count (i32.const 2048)))"#
        }
        None => "(func $more)",
    };
    Module { contract: &text, imports, reconcile: "(call $more)", ..Module::DEFAULT }.component()
}

/// A component whose `reconcile` returns a pair of pairs of pairs: 2^11 numbers, written out.
fn exponential_export() -> Result<Vec<u8>> {
    let pairs: String = (1..12).map(|at| format!("  type t{at} = tuple<t{}, t{}>;\n", at - 1, at - 1)).collect();
    let from = "  reconcile: func(request: request) -> result<outcome, failure>;";
    let to = format!("  type t0 = u8;\n{pairs}  reconcile: func(request: request) -> list<t11>;");
    contract(from, &to, None)
}

/// A component of the world `plugin` that imports a function from an instance whose name is two lines.
fn forged_import() -> Vec<u8> {
    let mut instance = InstanceType::new();
    instance.ty().function().params([] as [(&str, ComponentValType); 0]).result(None);
    instance.export("f", ComponentTypeRef::Func(0));
    let mut types = ComponentTypeSection::new();
    types.instance(&instance);
    let mut imports = ComponentImportSection::new();
    let name = "url=<x\n2026-01-01T00:00:00Z ERROR podium_host: FORGED \u{1b}[2J>";
    imports.import(name, ComponentTypeRef::Instance(0));
    let mut instances = ComponentInstanceSection::new();
    instances.export_items([] as [(&str, ComponentExportKind, u32); 0]);
    let mut exports = ComponentExportSection::new();
    exports.export("podium:reconcile/reconciler@0.1.0", ComponentExportKind::Instance, 1, None);
    let mut component = Component::new();
    component.section(&types).section(&imports).section(&instances).section(&exports);
    component.finish()
}

/// A component of one module, which uses a feature.
fn feature(fields: &str) -> Result<Vec<u8>> {
    let module = wat::parse_str(format!("(module {fields})"))?;
    let mut component = Component::new();
    component.section(&RawSection { id: MODULE, data: &module });
    Ok(component.finish())
}

/// Returns the neighbour's component with another module, instantiated `count` times.
fn instances(module: &str, count: u32) -> Result<Vec<u8>> {
    let mut bytes = NEIGHBOUR.component()?;
    let module = wat::parse_str(module)?;
    let index = modules(&bytes);
    RawSection { id: MODULE, data: &module }.append_to_component(&mut bytes);
    let mut instances = InstanceSection::new();
    for _ in 0..count {
        instances.instantiate(index, std::iter::empty::<(&str, ModuleArg)>());
    }
    instances.append_to_component(&mut bytes);
    Ok(bytes)
}

/// Counts the modules of a component.
fn modules(component: &[u8]) -> u32 {
    let (mut at, mut count) = (HEADER.len(), 0);
    while at < component.len() {
        count += u32::from(component[at] == MODULE);
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            at += 1;
            length |= usize::from(component[at] & 0x7f) << shift;
            shift += 7;
            if component[at] < 0x80 {
                break;
            }
        }
        at += 1 + length;
    }
    count
}

/// A component that exports a type by many names.
fn exports(count: usize, length: usize) -> Vec<u8> {
    let mut types = ComponentTypeSection::new();
    types.defined_type().primitive(PrimitiveValType::U8);
    let mut exports = ComponentExportSection::new();
    for at in 0..count {
        exports.export(format!("a{}{at}", "0".repeat(length)).as_str(), ComponentExportKind::Type, 0, None);
    }
    let mut component = Component::new();
    component.section(&types).section(&exports);
    component.finish()
}

/// A component with a type of lists of lists.
fn lists(depth: u32) -> Vec<u8> {
    let mut types = ComponentTypeSection::new();
    types.defined_type().primitive(PrimitiveValType::U8);
    for inner in 0..depth {
        types.defined_type().list(ComponentValType::Type(inner));
    }
    let mut exports = ComponentExportSection::new();
    exports.export("deep", ComponentExportKind::Type, depth, None);
    let mut component = Component::new();
    component.section(&types).section(&exports);
    component.finish()
}

/// Returns a component with nested types of instances.
fn instance_types(depth: u32) -> Vec<u8> {
    let mut inner = InstanceType::new();
    for _ in 0..depth {
        let mut outer = InstanceType::new();
        outer.ty().instance(&inner);
        inner = outer;
    }
    let mut types = ComponentTypeSection::new();
    types.instance(&inner);
    let mut component = Component::new();
    component.section(&types);
    component.finish()
}
