//! Components that take seconds and gigabytes of a validator or a compiler, made here by code.

use std::{fs, process::Command};

use super::{super::inspect::inspect_all, *};
use crate::InspectError;

const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";
const MODULE: &[u8] = b"\0asm\x01\0\0\0";

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn section(id: u8, count: usize, entries: &[u8]) -> Vec<u8> {
    let count = leb(count);
    [&[id], &*leb(count.len() + entries.len()), &count, entries].concat()
}

/// A component of sections.
fn component(sections: &[Vec<u8>]) -> Vec<u8> {
    [COMPONENT, &sections.concat()].concat()
}

/// Section of a component that holds a module or a component.
fn holding(id: u8, inner: &[u8]) -> Vec<u8> {
    [&[id], &*leb(inner.len()), inner].concat()
}

/// A component around a module of these sections.
fn around(sections: &[Vec<u8>]) -> Vec<u8> {
    component(&[holding(1, &[MODULE, &sections.concat()].concat())])
}

/// A function without parameters and with locals.
fn body(locals: usize, code: &[u8]) -> Vec<u8> {
    let locals = if locals == 0 { vec![0] } else { [&[1], &*leb(locals), &[0x7f]].concat() };
    [&*leb(locals.len() + code.len() + 1), &locals, code, &[0x0b]].concat()
}

/// A component around a module with these functions.
fn functions(count: usize, bodies: &[u8]) -> Vec<u8> {
    let types = section(1, 1, &[0x60, 0, 0]);
    around(&[types, section(3, count, &vec![0; count]), section(10, count, bodies)])
}

fn function(locals: usize, code: &[u8]) -> Vec<u8> {
    functions(1, &body(locals, code))
}

/// Loops one after another, each of which reads one local and sets another.
fn loops(count: usize, locals: usize) -> Vec<u8> {
    let one = |at: usize| [&[0x03, 0x40, 0x20], &*leb(at % locals), &[0x21], &leb((at + 1) % locals), &[0x0b]].concat();
    function(locals, &(0..count).flat_map(one).collect::<Vec<_>>())
}

fn nested_loops(count: usize) -> Vec<u8> {
    function(0, &[[0x03, 0x40].repeat(count), [0x0b].repeat(count)].concat())
}

/// Nested components, of which each adds only its beginning to the bytes.
fn nest(depth: usize) -> Vec<u8> {
    let mut lengths = vec![COMPONENT.len()];
    for _ in 1..depth {
        let inner = lengths[lengths.len() - 1];
        lengths.push(COMPONENT.len() + 1 + leb(inner).len() + inner);
    }
    let mut bytes = Vec::new();
    for inner in lengths.iter().rev().skip(1) {
        bytes.extend([COMPONENT, &[4], &leb(*inner)].concat());
    }
    [&*bytes, COMPONENT].concat()
}

/// Nested types of instances.
fn nested_types(depth: usize) -> Vec<u8> {
    component(&[section(7, 1, &[[0x42, 1, 1].repeat(depth), vec![0x42, 0]].concat())])
}

/// Each component instantiates the one before it twice.
fn doubling(components: usize) -> Vec<u8> {
    let leaf = component(&[holding(1, MODULE), section(2, 1, &[0, 0, 0])]);
    let mut sections = vec![holding(4, &leaf)];
    for before in 0..components {
        // An outer alias to the one before it, which is instantiated twice.
        let alias = section(6, 1, &[&[0x04, 0x02, 1][..], &leb(before)].concat());
        let twice = section(5, 2, &[0, 0, 0, 0, 0, 0]);
        sections.push(holding(4, &component(&[alias, twice])));
    }
    sections.push(section(5, 1, &[&[0][..], &leb(components), &[0]].concat()));
    component(&sections)
}

type Bomb = (&'static str, Box<dyn Fn() -> Vec<u8>>, &'static str);

fn bombs() -> Vec<Bomb> {
    let table = || [vec![0x41, 0, 0x0e], leb(65_000), vec![0; 65_001]].concat();
    let bomb = |name, make: Box<dyn Fn() -> Vec<u8>>, refused| (name, make, refused);
    vec![
        bomb(
            "110 br_tables of 65,000 targets",
            Box::new(move || functions(110, &body(0, &table()).repeat(110))),
            "targets of a br_table",
        ),
        bomb(
            "one function of 7.5 MB in a straight line",
            Box::new(|| function(0, &[0x41, 0, 0x1a].repeat(2_500_000))),
            "bytes of a function",
        ),
        bomb("40,000 loops with 2,000 locals", Box::new(|| loops(40_000, 2_000)), "bytes of a function"),
        bomb("100,000 loops with 49,000 locals", Box::new(|| loops(100_000, 49_000)), "bytes of a function"),
        bomb("100 loops with 49,000 locals", Box::new(|| loops(100, 49_000)), "locals of a function"),
        bomb("5,000 loops with 900 locals", Box::new(|| loops(5_000, 900)), "locals times blocks of a function"),
        bomb(
            "100 functions of 300 loops with 900 locals",
            Box::new(|| {
                let one: Vec<u8> = [0x03, 0x40, 0x0b].repeat(300);
                functions(100, &body(900, &one).repeat(100))
            }),
            "locals times blocks of all functions",
        ),
        bomb("20,000 nested loops", Box::new(|| nested_loops(20_000)), "blocks inside of blocks"),
        bomb(
            "990,000 empty functions",
            Box::new(|| functions(990_000, &body(0, &[]).repeat(990_000))),
            "bytes of definitions of modules",
        ),
        bomb("25,000 empty functions", Box::new(|| functions(25_000, &body(0, &[]).repeat(25_000))), "functions"),
        bomb(
            "600,000 operators with many live values",
            Box::new(|| function(0, &[[0x41, 0].repeat(300_000), [0x1a].repeat(300_000)].concat())),
            "bytes of a function",
        ),
        bomb("2,000 nested components", Box::new(|| nest(2_000)), "components inside of components"),
        bomb("10,000 nested components", Box::new(|| nest(10_000)), "components inside of components"),
        bomb("40,000 nested components", Box::new(|| nest(40_000)), "components inside of components"),
        bomb("80,000 types in each other", Box::new(|| nested_types(80_000)), "types nested in types"),
        bomb("2^40 instances", Box::new(|| doubling(40)), "instances"),
        bomb(
            "a function type of 1,000 parameters",
            Box::new(|| around(&[section(1, 1, &[&[0x60][..], &leb(1_000), &[0x7f; 1_000], &[0]].concat())])),
            "parameters of a function",
        ),
        bomb(
            "100 blocks with types",
            Box::new(|| function(0, &[0x02, 0x00, 0x0b].repeat(100))),
            "blocks with parameters in a function",
        ),
        bomb(
            "an export with a name of 90 KB",
            Box::new(|| {
                let name = [leb(90_000), vec![b'x'; 90_000], vec![0, 0]].concat();
                around(&[section(7, 1, &name)])
            }),
            "bytes of a name",
        ),
    ]
}

fn refusal(wasm: &[u8], class: LimitClass) -> Option<&'static str> {
    match inspect_all(wasm, class) {
        Err(InspectError::Over { what, .. }) => Some(what),
        Err(InspectError::Composed(what)) => Some(what),
        Err(InspectError::Invalid(error)) => unreachable!("{error}"),
        _ => None,
    }
}

#[test]
fn compilation_bombs_are_refused_with_the_exceeded_limit() {
    for (name, make, refused) in bombs() {
        assert_eq!(refusal(&make(), LimitClass::Native), Some(refused), "{name}");
    }
}

#[test]
fn an_interpreter_may_have_more_and_not_without_bound() {
    let long = |bytes: usize| function(0, &[0x41, 0, 0x1a].repeat(bytes / 3));
    assert_eq!(refusal(&long(700 << 10), LimitClass::Interpreter), None);
    assert_eq!(refusal(&long(800 << 10), LimitClass::Interpreter), Some("bytes of a function"));
    for deep in [nest(2_000), nested_types(10_000), doubling(40), nested_loops(20_000)] {
        assert!(refusal(&deep, LimitClass::Interpreter).is_some());
    }
}

#[test]
fn a_component_within_the_caps_passes() {
    let line = [0x41, 0, 0x1a].repeat(300);
    for wasm in [
        functions(700, &body(0, &line).repeat(700)),
        nest(16),
        nested_types(14),
        doubling(5),
        nested_loops(1_500),
        loops(1_000, 900),
    ] {
        assert_eq!(refusal(&wasm, LimitClass::Native), None);
    }
}

/// Figures of this process in KiB.
fn memory(figure: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "measures its own process, and is run in one by the test below"]
fn each_bomb_is_refused_within_64_mib() {
    for (name, make, _) in bombs() {
        let wasm = make();
        // Sets the peak to the present use.
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = memory("VmRSS");
        let began = tokio::time::Instant::now();
        assert!(refusal(&wasm, LimitClass::Native).is_some());
        let millis = began.elapsed().as_millis();
        let grown = memory("VmHWM").saturating_sub(before);
        println!("{name}: {} KiB, refused after {millis} ms with {grown} KiB", wasm.len() >> 10);
        assert!(grown < 64 << 10, "{name} took {grown} KiB");
    }
}

#[test]
fn refusing_a_compilation_bomb_takes_less_than_64_mib() {
    let alone = "caps::tests::each_bomb_is_refused_within_64_mib";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", alone, "--ignored", "--nocapture", "--test-threads", "1"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

/// A component that instantiates an imported component `count` times. It precedes its argument: each level passes its
/// result to the next one.
fn importing(count: usize, levels: usize) -> Vec<u8> {
    let taking = component(&[
        section(7, 1, &[0x41, 0]),
        section(10, 1, &[0x00, 1, b'x', 0x04, 0]),
        section(5, count, &[0, 0, 0].repeat(count)),
    ]);
    let leaf = component(&[holding(1, MODULE), section(2, count, &[0, 0, 0].repeat(count))]);
    let mut sections = vec![holding(4, &taking), holding(4, &leaf)];
    for level in 1..=levels {
        let aliases = section(6, 2, &[&[0x04, 0x02, 1, 0, 0x04, 0x02, 1][..], &leb(level)].concat());
        sections.push(holding(4, &component(&[aliases, section(5, 1, &[0x00, 0, 1, 1, b'x', 0x04, 1])])));
    }
    sections.push(section(5, 1, &[&[0][..], &leb(levels + 1), &[0]].concat()));
    component(&sections)
}

#[test]
fn a_component_as_an_argument_of_another_is_refused() {
    // 160^3 instances took 0.9 GB to compile, 250^3 took 3.3 GB.
    for levels in 1..5 {
        let refused = refusal(&importing(900, levels), LimitClass::Interpreter);
        assert!(refused.is_some_and(|what| what.starts_with("a component as an import")), "{levels}: {refused:?}");
    }
    // Also within types of instances, in which a component could be carried.
    for declared in [[0x04, 0, 1, b'x', 0x04, 0], [0x03, 0, 1, b'x', 0x04, 0]] {
        let nested = [&[0x41, 2, 1, 0x41, 0][..], &declared].concat();
        let refused = refusal(&component(&[section(7, 1, &nested)]), LimitClass::Native);
        assert!(refused.is_some_and(|what| what.starts_with("a component as an import")), "{declared:?}: {refused:?}");
    }
}

/// Components that each call a function of one other: the compiler makes an adapter for each, as long as the type.
fn adapters(callers: usize, types: usize, fields: usize) -> Vec<u8> {
    let name = |of: &str| [&leb(of.len()), of.as_bytes()].concat();
    // Tuples of different lengths, and one of all of them.
    let tuple = |values: &[u8], count: usize| [&[0x6f], &*leb(count), values].concat();
    let mut defined: Vec<u8> = (0..types).flat_map(|at| tuple(&vec![0x7d; fields - at], fields - at)).collect();
    // The index of a type is a signed number where a value's type may stand.
    let index = |at: usize| if at < 64 { leb(at) } else { vec![(at & 0x7f) as u8 | 0x80, (at >> 7) as u8] };
    let all: Vec<u8> = (0..types).flat_map(index).collect();
    defined.extend(tuple(&all, types));
    defined.extend([&[0x40, 1][..], &name("x"), &index(types), &[1, 0]].concat());
    let types_of = section(7, types + 2, &defined);
    let functype = leb(types + 1);
    // memory, realloc, and a function that takes an address
    let module = |imports: &[u8], functions: &[u8], code: &[u8], exports: &[u8]| {
        let kinds = [&[0x60, 4, 0x7f, 0x7f, 0x7f, 0x7f, 1, 0x7f][..], &[0x60, 1, 0x7f, 0]].concat();
        [MODULE, &section(1, 2, &kinds), imports, functions, &section(5, 1, &[0, 1]), exports, code].concat()
    };
    let functions = section(3, 2, &[0, 1]);
    let code = section(10, 2, &[body(0, &[0x41, 0]), body(0, &[])].concat());
    let export = |of: &str, kind: u8, at: u8| [&*name(of), &[kind, at]].concat();
    let exports = section(7, 3, &[export("m", 2, 0), export("r", 0, 0), export("f", 0, 1)].concat());
    let memory = module(&[], &functions, &code, &exports);
    let import = section(2, 1, &[&*name("e"), &name("f"), &[0, 1]].concat());
    let user = [MODULE, &section(1, 2, &[&[0x60, 0, 0][..], &[0x60, 1, 0x7f, 0]].concat()), &import].concat();
    let alias = |sort: u8, instance: u8, of: &str| [&[0, sort, 1, instance][..], &name(of)].concat();
    let caller = component(&[
        types_of.clone(),
        section(10, 1, &[&[0][..], &name("f"), &[1], &functype].concat()),
        holding(1, &memory),
        section(2, 1, &[0, 0, 0]),
        section(6, 2, &[alias(2, 0, "m"), alias(0, 0, "r")].concat()),
        section(8, 1, &[1, 0, 0, 1, 3, 0]),
        section(2, 1, &[&[1, 1][..], &name("f"), &[0, 1]].concat()),
        holding(1, &user),
        section(2, 1, &[&[0, 1, 1][..], &name("e"), &[0x12, 1]].concat()),
    ]);
    // Its own component: calls from a component into the one around it always trap, and need no adapter.
    let called = component(&[
        types_of,
        holding(1, &memory),
        section(2, 1, &[0, 0, 0]),
        section(6, 3, &[alias(2, 0, "m"), alias(0, 0, "r"), alias(0, 0, "f")].concat()),
        section(8, 1, &[&[0, 0, 1, 2, 3, 0, 4, 0][..], &functype].concat()),
        section(11, 1, &[&[0][..], &name("f"), &[1, 0, 0]].concat()),
    ]);
    component(&[
        holding(4, &called),
        holding(4, &caller),
        section(5, 1, &[0, 0, 0]),
        section(6, 1, &[&[1, 0, 0][..], &name("f")].concat()),
        section(5, callers, &[&[0, 1, 1][..], &name("f"), &[1, 0]].concat().repeat(callers)),
    ])
}

#[test]
fn a_function_of_an_inner_component_is_refused_for_its_adapters() {
    // 100 callers of such a type, 190 KB together, took 56 s, 1.3 GB of memory and 213 MB of machine code.
    for callers in [1, 230] {
        let refused = refusal(&adapters(callers, 100, 990), LimitClass::Interpreter);
        assert!(refused.is_some_and(|what| what.contains("adapters")), "{refused:?}");
    }
    let message = inspect_all(&adapters(1, 100, 990), LimitClass::Interpreter).unwrap_err().to_string();
    assert!(message.contains("componentize-qjs") && message.ends_with("as a script (docs/scripts.md)"), "{message}");
}
