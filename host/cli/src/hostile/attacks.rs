//! The attacks, each with the end that it must have.

use anyhow::Result;
use podium_engine::ports::FailureKind;

use super::module::{Module, StringEncoding};

/// A hostile component and its end.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// A name in kebab case.
    pub name: &'static str,
    /// The limit or the check that contains it, for people.
    pub contained_by: &'static str,
    /// Makes the component.
    pub component: fn() -> Result<Vec<u8>>,
    /// How it ends.
    pub end: End,
}

/// How an attack ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The component is refused at load, with this text in the reason.
    Refused(&'static str),
    /// Every run fails with this kind, and with this text in the message.
    Cut(FailureKind, &'static str),
    /// The runs succeed. They only must not delay others.
    Succeeds,
}

/// A loop of one instruction.
pub const SPIN: &str = "(loop $spin (br $spin))";
const LOG: &str = r#"(import "podium:reconcile/log@0.1.0" "write" (func $log (param i32 i32 i32 i32 i32)))"#;
const GET: &str = r#"(import "podium:reconcile/pods@0.1.0" "get" (func $get (param i32 i32 i32 i32 i32)))"#;
/// Fills memory from an address on with `count` texts: pointers to byte 65,536, and a length.
const TEXTS: &str = "(func $texts (param $at i32) (param $count i32) (param $length i32)
    (loop $next
        (i32.store (local.get $at) (i32.const 65536))
        (i32.store offset=4 (local.get $at) (local.get $length))
        (local.set $at (i32.add (local.get $at) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br_if $next (local.get $count))))";
/// Calls `pods.get` with the name of a Pod that does not exist.
const GET_NONE: &str = "(loop $again
    (call $get (i32.const 65536) (i32.const 1) (i32.const 65536) (i32.const 1) (i32.const 2048))
    (br $again))";

/// A plugin that sets the label `neighbour.podium.dev/seen=yes` on its Pod, and asks for nothing else.
pub const NEIGHBOUR: Module<'_> = Module {
    imports: r#"(import "podium:reconcile/writes@0.1.0" "set-label"
        (func $set (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#,
    fields: r#"(data (i32.const 65536) "neighbour.podium.dev/seenyes")"#,
    reconcile: "(if (i32.eqz (local.get 6)) (then
        (call $set (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
            (i32.const 65536) (i32.const 25) (i32.const 65561) (i32.const 3) (i32.const 2048))
        (if (i32.load8_u (i32.const 2048)) (then unreachable))))",
    ..Module::DEFAULT
};

const fn cut(
    name: &'static str,
    contained_by: &'static str,
    component: fn() -> Result<Vec<u8>>,
    kind: FailureKind,
    text: &'static str,
) -> Attack {
    Attack { name, contained_by, component, end: End::Cut(kind, text) }
}

const CPU: &str = "limit of processor time";
const CONTRACT: &str = "component model's checks";

/// The attacks of `podium demo --hostile`.
pub const ATTACKS: [Attack; 22] = [
    cut(
        "loop-in-reconcile",
        CPU,
        || Module { reconcile: SPIN, ..Module::DEFAULT }.component(),
        FailureKind::Cpu,
        "processor time",
    ),
    cut(
        "loop-in-start",
        CPU,
        || Module { fields: "(func $start (loop $spin (br $spin))) (start $start)", ..Module::DEFAULT }.component(),
        FailureKind::Cpu,
        "processor time",
    ),
    cut(
        "loop-in-initialize",
        CPU,
        || {
            let fields = r#"(func (export "_initialize") (loop $spin (br $spin)))"#;
            Module { fields, ..Module::DEFAULT }.component()
        },
        FailureKind::Cpu,
        "processor time",
    ),
    cut(
        "loop-in-realloc",
        CPU,
        || Module { realloc: SPIN, ..Module::DEFAULT }.component(),
        FailureKind::Cpu,
        "processor time",
    ),
    cut(
        "loop-in-post-return",
        CPU,
        || Module { post_return: SPIN, ..Module::DEFAULT }.component(),
        FailureKind::Cpu,
        "processor time",
    ),
    cut("fill-memory-again-and-again", CPU, fill_memory, FailureKind::Cpu, "processor time"),
    cut("fill-tables-again-and-again", CPU, fill_tables, FailureKind::Cpu, "processor time"),
    cut("grow-memory", "limit of memory", grow_memory, FailureKind::Memory, "bytes of memory, may have 33554432"),
    cut("grow-a-table", "limit of table elements", grow_table, FailureKind::Memory, "table elements, may have 20000"),
    cut("recurse", "limit of the stack", recurse, FailureKind::Trap, "call stack exhausted"),
    cut("flood-of-host-calls", "limit of host calls", flood, FailureKind::Trap, "made more than 1000 host calls"),
    cut(
        "copy-200-kb-in-each-call",
        "price of copied bytes",
        || log_texts(200_000, 0, StringEncoding::UTF8),
        FailureKind::Cpu,
        "processor time",
    ),
    cut(
        "copy-utf-16-in-each-call",
        "price of copied bytes",
        || log_texts(100_000, 0, StringEncoding::UTF16),
        FailureKind::Cpu,
        "processor time",
    ),
    cut(
        "copy-5000-fields-in-each-call",
        "price of copied values",
        || log_texts(1, 5_000, StringEncoding::UTF8),
        FailureKind::Cpu,
        "processor time",
    ),
    cut(
        "pass-4-mb-at-once",
        "limit of bytes of a call",
        || log_texts(4_000_000, 0, StringEncoding::UTF8),
        FailureKind::Trap,
        "passed more than 262144 bytes",
    ),
    cut(
        "pass-80000-fields-at-once",
        "limit of bytes of a call",
        || log_texts(1, 80_000, StringEncoding::UTF8),
        FailureKind::Trap,
        "passed more than 262144 bytes",
    ),
    cut(
        "call-the-host-from-realloc",
        CONTRACT,
        call_from_realloc,
        FailureKind::Trap,
        "cannot leave component instance",
    ),
    cut("return-a-pointer-beyond-memory", CONTRACT, return_beyond, FailureKind::Trap, "out of bounds"),
    cut("fail-with-invalid-utf-8", CONTRACT, invalid_text, FailureKind::Trap, "utf-8"),
    Attack {
        name: "nest-10000-components",
        contained_by: "bounds on structure",
        component: || Ok(nested(10_000)),
        end: End::Refused("more than 16 components inside of components"),
    },
    Attack {
        name: "burn-most-of-the-limit-and-requeue",
        contained_by: "fair queue",
        component: burn,
        end: End::Succeeds,
    },
    Attack {
        name: "requeue-at-once-for-ever",
        contained_by: "shortest delay of a requeue",
        component: || {
            let reconcile = "(i32.store (i32.const 1032) (i32.const 1))";
            Module { reconcile, ..Module::DEFAULT }.component()
        },
        end: End::Succeeds,
    },
];

fn fill_memory() -> Result<Vec<u8>> {
    let reconcile = "(loop $again
        (memory.fill (i32.const 8192) (i32.const 165) (i32.const 29360128))
        (br $again))";
    Module { pages: 450, reconcile, ..Module::DEFAULT }.component()
}

fn fill_tables() -> Result<Vec<u8>> {
    let reconcile = "(loop $again
        (table.fill $table (i32.const 0) (ref.null func) (i32.const 19000))
        (br $again))";
    Module { fields: "(table $table 19000 funcref)", reconcile, ..Module::DEFAULT }.component()
}

fn grow_memory() -> Result<Vec<u8>> {
    let reconcile = "(loop $again (drop (memory.grow (i32.const 16))) (br $again))";
    Module { reconcile, ..Module::DEFAULT }.component()
}

fn grow_table() -> Result<Vec<u8>> {
    let reconcile = "(loop $again (drop (table.grow $table (ref.null func) (i32.const 1000))) (br $again))";
    Module { fields: "(table $table 0 funcref)", reconcile, ..Module::DEFAULT }.component()
}

fn recurse() -> Result<Vec<u8>> {
    let fields = "(func $deeper (param i32) (result i32)
        (i32.add (call $deeper (i32.add (local.get 0) (i32.const 1))) (local.get 0)))";
    Module { fields, reconcile: "(drop (call $deeper (i32.const 0)))", ..Module::DEFAULT }.component()
}

fn flood() -> Result<Vec<u8>> {
    let fields = r#"(data (i32.const 65536) "a")"#;
    Module { imports: GET, fields, reconcile: GET_NONE, ..Module::DEFAULT }.component()
}

/// Logs a text of `units` units, with `fields` fields, in an endless loop.
fn log_texts(units: u32, fields: u32, encoding: StringEncoding) -> Result<Vec<u8>> {
    let fill = match fields {
        0 => String::new(),
        fields => format!("(call $texts (i32.const 131072) (i32.const {}) (i32.const 1))", 2 * fields),
    };
    let reconcile = format!(
        "{fill} (loop $again
            (call $log (i32.const 1) (i32.const 65536) (i32.const {units}) (i32.const 131072) (i32.const {fields}))
            (br $again))"
    );
    Module { pages: 450, imports: LOG, fields: TEXTS, reconcile: &reconcile, encoding, ..Module::DEFAULT }.component()
}

fn call_from_realloc() -> Result<Vec<u8>> {
    let realloc = "(call $get (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 2048))";
    Module { imports: GET, realloc, ..Module::DEFAULT }.component()
}

/// The text of the failure begins at the last byte of memory and has two.
fn return_beyond() -> Result<Vec<u8>> {
    Module { reconcile: &failure(131_071, 2), ..Module::DEFAULT }.component()
}

fn invalid_text() -> Result<Vec<u8>> {
    let fields = r#"(data (i32.const 65536) "\ff\fe")"#;
    Module { fields, reconcile: &failure(65_536, 2), ..Module::DEFAULT }.component()
}

/// Instructions for the result `terminal` with a text.
fn failure(address: u32, length: u32) -> String {
    format!(
        "(i32.store (i32.const 1024) (i32.const 1))
        (i32.store (i32.const 1032) (i32.const 1))
        (i32.store (i32.const 1036) (i32.const {address}))
        (i32.store (i32.const 1040) (i32.const {length}))"
    )
}

/// Runs for some milliseconds of the 20 that it may use, succeeds, and asks for the next run at once.
fn burn() -> Result<Vec<u8>> {
    let reconcile = "(local.set $end (i32.const 8000000))
        (loop $turn
            (local.set $end (i32.sub (local.get $end) (i32.const 1)))
            (br_if $turn (local.get $end)))
        (i32.store (i32.const 1032) (i32.const 1))";
    Module { reconcile, ..Module::DEFAULT }.component()
}

/// Components in each other, from the inside out; only the lengths differ.
fn nested(depth: usize) -> Vec<u8> {
    const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";
    let mut reversed: Vec<Vec<u8>> = vec![HEADER.to_vec()];
    let mut length = HEADER.len();
    for _ in 1..depth {
        let mut start = HEADER.to_vec();
        start.push(4);
        let mut rest = length;
        while rest >= 0x80 {
            start.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        start.push(rest as u8);
        length += start.len();
        reversed.push(start);
    }
    reversed.into_iter().rev().flatten().collect()
}
