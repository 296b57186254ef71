//! Attacks below the level of a compiler: loops where the host calls the guest, bulk operations, the rules of the
//! component model, encodings of texts, handles.

use std::time::Duration;

use anyhow::Result;
use podium_engine::ports::{
    FailureKind::{Cpu, Memory, Trap},
    Outcome,
};
use podium_tests::modules::{ATTACKS, End as AttackEnd, Module, StringEncoding};

use super::attack::{
    Attack,
    End::{Fails, Refused, Succeeds},
};

const LOG: &str = r#"(import "podium:reconcile/log@0.1.0" "write" (func $log (param i32 i32 i32 i32 i32)))"#;
const GET: &str = r#"(import "podium:reconcile/pods@0.1.0" "get" (func $get (param i32 i32 i32 i32 i32)))"#;
const COUNT: &str = r#"(import "podium:reconcile/pods@0.1.0" "count"
    (func $count (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;
const CALL: &str = "(call $get (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048))";
/// WASI's standard output, as far as handles need it.
const STREAMS: &[&str] = &[
    "package wasi:io@0.2.0; interface streams { resource output-stream; }",
    "package wasi:cli@0.2.0; interface stdout {
        use wasi:io/streams@0.2.0.{output-stream};
        get-stdout: func() -> output-stream;
    }",
    "package hostile:guest; world plugin {
        include podium:reconcile/plugin@0.1.0;
        import wasi:cli/stdout@0.2.0;
        import wasi:io/streams@0.2.0;
    }",
];
const HANDLES: &str = r#"(import "wasi:cli/stdout@0.2.0" "get-stdout" (func $stdout (result i32)))
    (import "wasi:io/streams@0.2.0" "[resource-drop]output-stream" (func $drop (param i32)))"#;

/// An interface of the guest's own, with a resource that the guest makes and drops.
const OWN_RESOURCE: &[&str] = &["package hostile:guest; world plugin {
        include podium:reconcile/plugin@0.1.0;
        export mine: interface { resource thing; make: func() -> thing; }
    }"];
const OWN_HANDLES: &str = r#"(import "[export]mine" "[resource-new]thing" (func $new (param i32) (result i32)))
    (import "[export]mine" "[resource-drop]thing" (func $drop (param i32)))"#;

/// Instructions of `reconcile`, without imports.
macro_rules! reconcile {
    ($text:expr) => {
        || Module { reconcile: $text, ..Module::DEFAULT }.component()
    };
    ($imports:expr, $text:expr) => {
        || Module { imports: $imports, reconcile: $text, ..Module::DEFAULT }.component()
    };
}

#[expect(clippy::too_many_lines, reason = "a table: one entry for each attack")]
pub(super) fn attacks() -> Vec<Attack> {
    let trap = |name, text, wasm| Attack::made(name, wasm, Fails(Trap, text));
    let attacks = ATTACKS.iter().map(|attack| {
        let end = match attack.end {
            AttackEnd::Refused(text) => Refused(text),
            AttackEnd::Cut(kind, text) => Fails(kind, text),
            AttackEnd::Succeeds => Succeeds(Outcome::RequeueAfter(Duration::ZERO), 0),
        };
        Attack::made(attack.name, attack.component, end)
    });
    let second: fn(&mut podium_vocabulary::PluginSpec) = |spec| spec.limits.cpu = Duration::from_secs(1);
    let more = [
        trap("recurse-through-a-table", "call stack exhausted", recurse_through_a_table),
        trap("recurse-with-a-host-call-in-each-frame", "call stack exhausted", recurse_with_calls).with_terms(|spec| {
            spec.limits.cpu = Duration::from_secs(1);
            spec.limits.host_calls = 1_000_000;
        }),
        Attack::made("use-all-memory", use_all_memory, Succeeds(Outcome::Settled, 0)).with_terms(second),
        Attack::made("grow-memory-in-realloc", grow_in_realloc, Fails(Memory, "bytes of memory, may have 33554432")),
        Attack::made("use-all-elements-of-tables", use_all_elements, Succeeds(Outcome::Settled, 0)),
        trap("call-the-host-from-start", "uninitialized element", || {
            let fields = format!("(func $start {CALL}) (start $start)");
            Module { imports: GET, fields: &fields, ..Module::DEFAULT }.component()
        }),
        trap("call-the-host-from-post-return", "cannot leave component instance", || {
            Module { imports: GET, post_return: CALL, ..Module::DEFAULT }.component()
        }),
        trap("allocate-beyond-memory", "realloc return: beyond end of memory", || {
            Module { realloc: "(return (i32.const -8))", ..Module::DEFAULT }.component()
        }),
        trap(
            "return-an-unknown-result",
            "invalid expected discriminant",
            reconcile!("(i32.store (i32.const 1024) (i32.const 7))"),
        ),
        trap(
            "return-an-unknown-outcome",
            "unexpected discriminant: 7",
            reconcile!("(i32.store (i32.const 1032) (i32.const 7))"),
        ),
        trap(
            "return-an-address-beyond-memory",
            "pointer out of bounds of memory",
            reconcile!("(return (i32.const -8))"),
        ),
        trap(
            "return-an-address-that-is-not-aligned",
            "return pointer not aligned",
            reconcile!("(return (i32.const 1025))"),
        ),
        trap(
            "fail-with-a-text-of-4-gb",
            "string pointer/length out of bounds of memory",
            reconcile!(
                "(i32.store (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1036) (i32.const 65536))
            (i32.store (i32.const 1040) (i32.const -1))"
            ),
        ),
        trap("fail-with-a-text-of-20-mb", "passed more than 262144 bytes", || {
            let reconcile = "(i32.store (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1036) (i32.const 65536))
                (i32.store (i32.const 1040) (i32.const 20000000))";
            Module { pages: 450, reconcile, ..Module::DEFAULT }.component()
        }),
        trap(
            "pass-a-text-beyond-memory",
            "string pointer/length out of bounds of memory",
            reconcile!(LOG, "(call $log (i32.const 1) (i32.const 131064) (i32.const 64) (i32.const 0) (i32.const 0))"),
        ),
        trap(
            "pass-a-list-beyond-memory",
            "list pointer/length out of bounds of memory",
            reconcile!(
                LOG,
                "(call $log (i32.const 1) (i32.const 65536) (i32.const 1) (i32.const 131064) (i32.const 4))"
            ),
        ),
        trap(
            "pass-a-list-that-is-not-aligned",
            "list pointer is not aligned",
            reconcile!(LOG, "(call $log (i32.const 1) (i32.const 65536) (i32.const 1) (i32.const 8193) (i32.const 1))"),
        ),
        trap(
            "pass-an-unknown-level",
            "unexpected discriminant: 9",
            reconcile!(LOG, "(call $log (i32.const 9) (i32.const 65536) (i32.const 1) (i32.const 0) (i32.const 0))"),
        ),
        trap(
            "pass-an-unknown-option",
            "invalid option discriminant",
            reconcile!(
                COUNT,
                "(call $count (i32.const 7) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                (i32.const 8192) (i32.const 0) (i32.const 2048))"
            ),
        ),
        trap(
            "take-an-answer-that-is-not-aligned",
            "pointer not aligned",
            reconcile!(GET, "(call $get (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2049))"),
        ),
        trap(
            "take-an-answer-beyond-memory",
            "pointer out of bounds",
            reconcile!(GET, "(call $get (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const -16))"),
        ),
        trap("pass-invalid-utf-8", "utf-8", || texts(r"\c3\28\f0\90", 4, StringEncoding::UTF8)),
        trap("pass-lone-surrogates", "unpaired surrogate found: d800", || {
            texts(r"\00\d8\00\d8", 2, StringEncoding::UTF16)
        }),
        trap("pass-2-gb-of-tagged-utf-16", "string pointer/length out of bounds of memory", || {
            texts("a", 0xffff_ffff, StringEncoding::CompactUTF16)
        }),
        Attack::made(
            "pass-latin-1-that-grows",
            || texts(&r"\ff".repeat(1_000), 1_000, StringEncoding::CompactUTF16),
            Succeeds(Outcome::Settled, 0),
        ),
        trap("execute-unreachable", "unreachable", reconcile!("unreachable")),
        trap(
            "divide-by-zero",
            "divide by zero",
            reconcile!("(i32.store (i32.const 1032) (i32.div_u (i32.const 1) (i32.const 0)))"),
        ),
        trap("read-beyond-memory", "out of bounds memory access", reconcile!("(drop (i32.load (i32.const -4)))")),
        trap("call-an-empty-element", "uninitialized element", || {
            let (fields, reconcile) = ("(table 4 funcref)", "(call_indirect (i32.const 2))");
            Module { fields, reconcile, ..Module::DEFAULT }.component()
        }),
        trap("leak-handles", "resource table has no free keys", || {
            handles("(loop $again (drop (call $stdout)) (br $again))")
        }),
        trap("drop-a-forged-handle", "unknown handle index 77", || handles("(call $drop (i32.const 77))")),
        trap("leak-handles-of-an-own-resource", "store handle limit exceeded", || {
            own_handles("", "(loop $again (drop (call $new (i32.const 1))) (br $again))")
        }),
        trap("drop-a-forged-handle-of-an-own-resource", "unknown handle index 77", || {
            own_handles("", "(call $drop (i32.const 77))")
        }),
        Attack::made(
            "loop-in-a-destructor",
            || own_handles("(loop $again (br $again))", "(call $drop (call $new (i32.const 1)))"),
            Fails(Cpu, ""),
        ),
        trap("recurse-through-destructors", "call stack exhausted", || {
            own_handles("(call $drop (call $new (i32.const 1)))", "(call $drop (call $new (i32.const 1)))")
        }),
        Attack::made(
            "call-the-host-from-a-destructor",
            || own_handles(CALL, "(call $drop (call $new (i32.const 1)))"),
            Succeeds(Outcome::Settled, 0),
        ),
        trap("drop-a-handle-twice", "unknown handle index", || {
            handles("(local.set $at (call $stdout)) (call $drop (local.get $at)) (call $drop (local.get $at))")
        }),
    ];
    attacks.chain(more).collect()
}

fn recurse_through_a_table() -> Result<Vec<u8>> {
    let fields = "(table $table 1 funcref) (elem (i32.const 0) $deeper)
        (func $deeper (result i32) (i32.add (call_indirect (result i32) (i32.const 0)) (i32.const 1)))";
    Module { fields, reconcile: "(drop (call $deeper))", ..Module::DEFAULT }.component()
}

/// Each frame is large, so that the stack ends soon.
fn recurse_with_calls() -> Result<Vec<u8>> {
    let locals = "(local i64) ".repeat(200);
    let sets: String = (1..=200).map(|at| format!("(local.set {at} (i64.extend_i32_u (local.get 0)))")).collect();
    let sums: String = (1..=200).map(|at| format!("(local.get {at}) i64.xor ")).collect();
    let fields = format!(
        "(func $deeper (param i32) (result i64) {locals} {sets}
            {CALL}
            (call $deeper (i32.add (local.get 0) (i32.const 1))) {sums})"
    );
    let reconcile = "(drop (call $deeper (i32.const 0)))";
    Module { imports: GET, fields: &fields, reconcile, ..Module::DEFAULT }.component()
}

fn use_all_memory() -> Result<Vec<u8>> {
    let reconcile = "(if (i32.eq (memory.grow (i32.const 510)) (i32.const -1)) (then unreachable))
        (memory.fill (i32.const 65536) (i32.const 165) (i32.const 33488896))";
    Module { reconcile, ..Module::DEFAULT }.component()
}

fn use_all_elements() -> Result<Vec<u8>> {
    let fields = "(table $table 19000 funcref)";
    let reconcile = "(table.fill $table (i32.const 0) (ref.null func) (i32.const 19000))";
    Module { fields, reconcile, ..Module::DEFAULT }.component()
}

/// Each answer of the host makes the guest allocate, and each allocation grows memory.
fn grow_in_realloc() -> Result<Vec<u8>> {
    let reconcile = "(loop $again
        (call $get (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 2048))
        (br $again))";
    Module { imports: GET, realloc: "(drop (memory.grow (i32.const 16)))", reconcile, ..Module::DEFAULT }.component()
}

/// Logs a text of `units` units.
fn texts(data: &str, units: u32, encoding: StringEncoding) -> Result<Vec<u8>> {
    let fields = format!(r#"(data (i32.const 65536) "{data}")"#);
    let units = units.cast_signed();
    let reconcile =
        format!("(call $log (i32.const 1) (i32.const 65536) (i32.const {units}) (i32.const 0) (i32.const 0))");
    Module { imports: LOG, fields: &fields, reconcile: &reconcile, encoding, ..Module::DEFAULT }.component()
}

/// `reconcile` with a resource of the guest's own, which has this destructor.
fn own_handles(destructor: &str, reconcile: &str) -> Result<Vec<u8>> {
    let imports = format!("{GET} {OWN_HANDLES}");
    let fields = format!(
        r#"(func (export "mine#[dtor]thing") (param i32) {destructor})
           (func (export "mine#make") (result i32) (call $new (i32.const 1)))"#
    );
    Module { imports: &imports, fields: &fields, packages: OWN_RESOURCE, reconcile, ..Module::DEFAULT }.component()
}

fn handles(reconcile: &str) -> Result<Vec<u8>> {
    Module { imports: HANDLES, packages: STREAMS, reconcile, ..Module::DEFAULT }.component()
}
