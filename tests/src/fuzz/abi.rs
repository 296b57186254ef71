//! Host calls below their types: the bytes choose functions and the core values that are passed to them, such as
//! pointers, lengths, discriminants and handles, and what the guest's allocator returns. Besides the contract, the
//! guest imports functions of WASI, for their handles.
//!
//! The guest is generated from the WIT, so a new function of the contract is fuzzed without a change here.

#![expect(clippy::unwrap_used, reason = "a panic is a finding")]

use std::fmt::Write;

use anyhow::{Context, Result};
use podium_runtime::Plugin;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::{
    LiftLowerAbi, ManglingAndAbi, Resolve, ResourceIntrinsic, TypeDefKind, WasmImport, WorldId, WorldItem,
    abi::{AbiVariant, WasmType},
};

use super::run::Rig;

thread_local! {
    static GUEST: (Rig, Plugin) = {
        let rig = Rig::new();
        let plugin = rig.engine.compile(&rig.spec(), &component().unwrap()).unwrap();
        (rig, plugin)
    };
}

pub fn run(input: &[u8]) {
    let input = &input[..input.len().min(32 << 10)];
    GUEST.with(|(rig, plugin)| drop(rig.run(plugin, input)));
}

/// A function that the guest imports.
struct Import {
    module: String,
    name: String,
    params: Vec<&'static str>,
    result: Option<&'static str>,
}

fn world() -> Result<(Resolve, WorldId)> {
    let mut resolve = Resolve::default();
    resolve.push_source("podium.wit", include_str!("../../../wit/podium.wit"))?;
    // The packages of WASI in the file come before the world that imports them.
    let package = resolve.push_source("abi.wit", &format!("package podium:abi;\n{}", include_str!("abi.wit")))?;
    let world = resolve.select_world(&[package], Some("podium:fuzz/abi"))?;
    Ok((resolve, world))
}

fn core(of: WasmType) -> &'static str {
    match of {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    }
}

/// Returns all functions of the world's imports, and what drops their handles, in the order of the world.
fn imports(resolve: &Resolve, world: WorldId) -> Vec<Import> {
    let mangling = ManglingAndAbi::Legacy(LiftLowerAbi::Sync);
    let mut imports = Vec::new();
    for (key, item) in &resolve.worlds[world].imports {
        let WorldItem::Interface { id, .. } = item else { continue };
        let interface = &resolve.interfaces[*id];
        for func in interface.functions.values() {
            let signature = resolve.wasm_signature(AbiVariant::GuestImport, func);
            let (module, name) = resolve.wasm_import_name(mangling, WasmImport::Func { interface: Some(key), func });
            let params = signature.params.into_iter().map(core).collect();
            imports.push(Import { module, name, params, result: signature.results.first().copied().map(core) });
        }
        for resource in interface.types.values().copied() {
            if matches!(resolve.types[resource].kind, TypeDefKind::Resource) {
                let intrinsic = ResourceIntrinsic::ImportedDrop;
                let import = WasmImport::ResourceIntrinsic { interface: Some(key), resource, intrinsic };
                let (module, name) = resolve.wasm_import_name(mangling, import);
                imports.push(Import { module, name, params: vec!["i32"], result: None });
            }
        }
    }
    imports
}

/// Where the guest has its own data.
const KEY: u32 = 2_000;
const RESULT: u32 = 1_024;
/// Texts that arguments can point to.
const TEXTS: &str = "shop cart-3 app cart guests.example/a u3 Running podium v1 ConfigMap \
                     {\\22apiVersion\\22:\\22v1\\22,\\22kind\\22:\\22ConfigMap\\22,\
                     \\22metadata\\22:{\\22name\\22:\\22a\\22}}";

/// Reads values of the program. A value below 192 is itself; others are addresses within the program or near the end of
/// the memory, negative numbers, or the four bytes that follow.
const VALUES: &str = "(func $byte (result i32)
    (if (i32.ge_u (global.get $at) (global.get $end)) (then (return (i32.const 0))))
    (global.set $at (i32.add (global.get $at) (i32.const 1)))
    (i32.load8_u (i32.sub (global.get $at) (i32.const 1))))
(func $i32 (result i32) (local $tag i32)
    (local.set $tag (call $byte))
    (if (i32.lt_u (local.get $tag) (i32.const 192)) (then (return (local.get $tag))))
    (if (i32.lt_u (local.get $tag) (i32.const 208)) (then
        (return (i32.add (global.get $program) (call $byte)))))
    (if (i32.lt_u (local.get $tag) (i32.const 216)) (then
        (return (i32.sub (i32.shl (memory.size) (i32.const 16)) (call $byte)))))
    (if (i32.lt_u (local.get $tag) (i32.const 224)) (then (return (i32.sub (i32.const 0) (call $byte)))))
    (if (i32.lt_u (local.get $tag) (i32.const 232)) (then (return (i32.shl (call $byte) (i32.const 12)))))
    (i32.or (i32.or (call $byte) (i32.shl (call $byte) (i32.const 8)))
        (i32.or (i32.shl (call $byte) (i32.const 16)) (i32.shl (call $byte) (i32.const 24)))))
(func $i64 (result i64)
    (i64.or (i64.extend_i32_u (call $i32)) (i64.shl (i64.extend_i32_u (call $i32)) (i64.const 32))))
(func $f32 (result f32) (f32.reinterpret_i32 (call $i32)))
(func $f64 (result f64) (f64.reinterpret_i64 (call $i64)))";

/// The instructions of programs that are no calls. Their numbers follow those of the functions.
const OTHERS: [&str; 7] = [
    // The allocator returns this address from now on.
    "(global.set $forced (call $i32))",
    "(i32.store (call $i32) (call $i32))",
    "(drop (memory.grow (i32.and (call $byte) (i32.const 7))))",
    // The result of the run is there.
    "(return (call $i32))",
    // The allocator, or what runs after the result was read, calls the host.
    "(global.set $reenter (i32.const 1))",
    "(global.set $late (i32.const 1))",
    "(global.set $forced (i32.const 0))",
];

fn text(imports: &[Import]) -> Result<String> {
    let mut declared = String::new();
    let mut calls = String::new();
    for (at, Import { module, name, params, result }) in imports.iter().enumerate() {
        let of = |kind: &str, types: &[&str]| match types {
            [] => String::new(),
            _ => format!("({kind} {})", types.join(" ")),
        };
        let (param, result_type) = (of("param", params), of("result", result.as_slice()));
        writeln!(declared, r#"(import "{module}" "{name}" (func $call{at} {param} {result_type}))"#)?;
        let arguments: Vec<_> = params.iter().map(|param| format!("(call ${param})")).collect();
        let call = format!("(call $call{at} {})", arguments.join(" "));
        let call = if result.is_some() { format!("(drop {call})") } else { call };
        writeln!(calls, "(if (i32.eq (local.get $op) (i32.const {at})) (then {call} (br $next)))")?;
    }
    for (at, other) in (imports.len()..).zip(OTHERS) {
        writeln!(calls, "(if (i32.eq (local.get $op) (i32.const {at})) (then {other} (br $next)))")?;
    }
    let index = |module: &str, name: &str| {
        let found = imports.iter().position(|import| import.module.starts_with(module) && import.name == name);
        found.with_context(|| format!("{module} {name} is not imported"))
    };
    let (state_get, log) = (index("podium:reconcile/state", "get")?, index("podium:reconcile/log", "write")?);
    let log = format!("(call $call{log} (i32.const 0) (i32.const 0) (i32.const 4) (i32.const 0) (i32.const 0))");
    let operations = imports.len() + OTHERS.len();
    Ok(format!(
        r#"(module
          {declared}
          (memory (export "memory") 40)
          (global $heap (mut i32) (i32.const 4096))
          (global $program (mut i32) (i32.const 0))
          (global $at (mut i32) (i32.const 0))
          (global $end (mut i32) (i32.const 0))
          (global $forced (mut i32) (i32.const 0))
          (global $reenter (mut i32) (i32.const 0))
          (global $late (mut i32) (i32.const 0))
          (data (i32.const 0) "{TEXTS}")
          (data (i32.const {KEY}) "program")
          {VALUES}
          (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
            (if (global.get $reenter) (then {log}))
            (if (global.get $forced) (then (return (global.get $forced))))
            (global.set $heap (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
            (global.get $heap)
            (global.set $heap (i32.add (global.get $heap) (local.get 3))))
          (func (export "podium:reconcile/reconciler@0.1.0#reconcile")
            (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64 i32 i32 i32 i32 i32) (result i32)
            (local $op i32)
            (call $call{state_get} (i32.const {KEY}) (i32.const 7) (i32.const {RESULT}))
            (global.set $program (i32.load offset=16 (i32.const {RESULT})))
            (global.set $at (global.get $program))
            (global.set $end (i32.add (global.get $at) (i32.load offset=20 (i32.const {RESULT}))))
            (memory.fill (i32.const {RESULT}) (i32.const 0) (i32.const 64))
            (block $done (loop $next
              (br_if $done (i32.ge_u (global.get $at) (global.get $end)))
              (local.set $op (i32.rem_u (call $byte) (i32.const {operations})))
              {calls}))
            (i32.const {RESULT}))
          (func (export "cabi_post_podium:reconcile/reconciler@0.1.0#reconcile") (param i32)
            (if (global.get $late) (then {log}))))"#
    ))
}

/// Returns the guest.
///
/// # Errors
/// Returns an error if the WIT cannot be read, or if the guest does not fit it.
pub fn component() -> Result<Vec<u8>> {
    let (resolve, world) = world()?;
    let mut module = wat::parse_str(text(&imports(&resolve, world))?)?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    ComponentEncoder::default().module(&module)?.validate(true).encode()
}

/// Returns a program for each function, with small arguments, and some for other instructions.
///
/// # Errors
/// See [`component`].
pub(super) fn seeds() -> Result<Vec<Vec<u8>>> {
    let (resolve, world) = world()?;
    let imports = imports(&resolve, world);
    let mut seeds = Vec::new();
    for (at, import) in imports.iter().enumerate() {
        let function = u8::try_from(at)?;
        // Two values for each parameter, in case it is an i64: pointers to texts and lengths by turns.
        let arguments = import.params.iter().enumerate().flat_map(|(at, _)| [if at % 2 == 0 { 0 } else { 4 }, 0]);
        seeds.push([function].into_iter().chain(arguments).collect());
        seeds.push([vec![function], vec![0; import.params.len() * 2], vec![function], vec![8; 16]].concat());
    }
    let first = u8::try_from(imports.len())?;
    let count = u8::try_from(OTHERS.len())?;
    seeds.extend((first..first + count).map(|other| vec![other, 16, 4, 0, 0, 0, 0]));
    Ok(seeds)
}

#[cfg(test)]
mod tests {
    use podium_engine::ports::Outcome;

    use super::*;

    #[test]
    fn the_guest_passes_the_values_of_its_program_to_the_functions() {
        let (resolve, world) = world().unwrap();
        let imports = imports(&resolve, world);
        let index = |module: &str, name: &str| {
            let found = imports.iter().position(|import| import.module.contains(module) && import.name == name);
            u8::try_from(found.unwrap()).unwrap()
        };
        let log = index("podium:reconcile/log", "write");
        let stdout = index("wasi:cli/stdout", "get-stdout");
        let write = index("wasi:io/streams", "[method]output-stream.blocking-write-and-flush");
        let drop_stream = index("wasi:io/streams", "[resource-drop]output-stream");
        let reset = u8::try_from(imports.len() + OTHERS.len() - 1).unwrap();
        GUEST.with(|(rig, plugin)| {
            let run = |program: &[u8]| {
                let (report, lines) = rig.run(plugin, program);
                (report.result.map_err(|failure| failure.message), lines)
            };
            assert_eq!(run(&[log, 1, 0, 4, 0, 0]), (Ok(Outcome::Settled), vec!["shop".to_owned()]));
            // The first handle is 1.
            let printed = [&[stdout, write, 1, 5, 4, 224 + 7, 0, log, 1, 0, 4, 0, 0][..]].concat();
            let (result, lines) = run(&printed);
            assert!(result.is_ok(), "{result:?}");
            assert!(lines.concat().contains("cart"), "{lines:?}");
            for forged in [vec![drop_stream, 1], vec![drop_stream, 0], vec![stdout, drop_stream, 1, drop_stream, 1]] {
                let (result, _) = run(&forged);
                assert!(result.unwrap_err().contains("handle"), "{forged:?}");
            }
            let (result, _) = run(&[log, 1, 239, 255, 255, 255, 255, 4, 0, 0]);
            assert!(result.is_err(), "a text outside of the memory");
            assert_eq!(run(&[reset]).0, Ok(Outcome::Settled));
        });
        assert!(imports.len() > 40, "{} functions", imports.len());
    }
}
