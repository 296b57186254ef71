//! Components that take seconds and gigabytes to compile, most of them beyond the bounds on structure; and functions
//! that add to ordinary components, so that these have other bytes or take longer to compile.

use std::iter::repeat_n;

use wasm_encoder::{
    CodeSection, Component, ComponentSection, CustomSection, Encode, Function, FunctionSection, Instruction, Module,
    ModuleSection, TypeSection, ValType,
};

/// A name and what makes the component.
pub type Bomb = (&'static str, fn() -> Vec<u8>);

/// Components beyond the bounds of a component's structure.
pub const BOMBS: &[Bomb] = &[
    ("10,000 nested components", || nest(10_000)),
    ("40,000 nested components", || nest(40_000)),
    ("110 br_tables of 65,000 targets", tables),
    ("a straight line of 7.5 MB", || {
        functions([(0, [0x20, 0, 0x41, 3, 0x6c, 0x41, 5, 0x73, 0x21, 0].repeat(750_000))])
    }),
    ("40,000 loops with 2,000 locals", || loops(40_000, 2_000)),
    ("100,000 loops with 49,000 locals", || loops(100_000, 49_000)),
    ("20,000 nested loops", nested_loops),
    ("300,000 live values", live_values),
    ("990,000 empty functions", || functions(repeat_n((0, Vec::new()), 990_000))),
];

/// Returns a component with one module, whose functions are of type `(i32) -> i32`; each pair has the number of the
/// other locals of a function and its code.
fn functions(functions: impl IntoIterator<Item = (u32, Vec<u8>)>) -> Vec<u8> {
    let mut component = Component::new();
    component.section(&ModuleSection(&module(functions)));
    component.finish()
}

fn module(functions: impl IntoIterator<Item = (u32, Vec<u8>)>) -> Module {
    let (mut types, mut declared, mut code) = (TypeSection::new(), FunctionSection::new(), CodeSection::new());
    types.ty().function([ValType::I32], [ValType::I32]);
    for (locals, bytes) in functions {
        let mut function = Function::new([(locals, ValType::I32)]);
        function.raw(bytes);
        // The result depends on the code, so that the compiler cannot leave the code out.
        function.instruction(&Instruction::LocalGet(0)).instruction(&Instruction::End);
        declared.function(0);
        code.function(&function);
    }
    let mut module = Module::new();
    module.section(&types).section(&declared).section(&code);
    module
}

fn tables() -> Vec<u8> {
    // Sixteen blocks to branch to, by the parameter.
    let mut one = [[2, 0x40].repeat(16), vec![0x20, 0, 0x0e]].concat();
    65_000_u32.encode(&mut one);
    one.extend((0..=65_000_u32).map(|target| (target % 16) as u8));
    one.extend([0x0b; 16]);
    functions([(0, one.repeat(110))])
}

/// Loops one after another, each of which reads locals and sets one.
fn loops(count: u32, locals: u32) -> Vec<u8> {
    let mut code = Vec::new();
    for at in 0..count {
        code.extend([3, 0x40, 0x20]);
        (at % locals).encode(&mut code);
        code.push(0x21);
        ((at + 1) % locals).encode(&mut code);
        code.push(0x20);
        (at * 7 % locals).encode(&mut code);
        code.extend([0x0d, 0, 0x0b]);
    }
    functions([(locals, code)])
}

fn nested_loops() -> Vec<u8> {
    let start = [3, 0x40, 0x20, 0, 0x20, 1, 0x6a, 0x22, 1, 0x21, 0];
    let end = [0x20, 0, 0x0d, 0, 0x0b];
    functions([(4, [start.repeat(20_000), end.repeat(20_000)].concat())])
}

fn live_values() -> Vec<u8> {
    let start = [0x20, 0, 0x41, 3, 0x6c, 0x22, 0];
    functions([(0, [start.repeat(300_000), [0x6a].repeat(299_999), vec![0x21, 0]].concat())])
}

fn nest(depth: u32) -> Vec<u8> {
    let mut bytes = Component::new().finish();
    let header = bytes.len();
    // From the inside out; only the lengths differ.
    let mut reversed: Vec<Vec<u8>> = Vec::new();
    let mut length = header;
    for _ in 1..depth {
        let mut start = bytes[..header].to_vec();
        start.push(4);
        length.encode(&mut start);
        length += start.len();
        reversed.push(start);
    }
    let outer: Vec<u8> = reversed.into_iter().rev().flatten().collect();
    bytes.splice(0..0, outer);
    bytes
}

/// Appends a custom section: the same component with other bytes.
#[must_use]
pub fn marked(component: &[u8], mark: &str) -> Vec<u8> {
    let mut bytes = component.to_vec();
    let section = CustomSection { name: "mark".into(), data: mark.as_bytes().into() };
    section.append_to_component(&mut bytes);
    bytes
}

/// A component with an unused module more. It is within the bounds of every class; each of its functions takes 10 ms or
/// more to compile, and 7.5 KB.
#[must_use]
pub fn slowed(component: &[u8], functions: usize) -> Vec<u8> {
    // Values that depend on each other, carried around loops, so that the compiler cannot leave any out.
    let sum = [0x20, 0, 0x20, 1, 0x6a, 0x22, 2, 0x20, 3, 0x73, 0x21, 0];
    let product = [0x20, 2, 0x20, 0, 0x6c, 0x22, 3, 0x20, 1, 0x71, 0x21, 1];
    let code = [&[0x03, 0x40][..], &sum, &product, &[0x20, 0, 0x0d, 0, 0x0b]].concat().repeat(240);
    let mut bytes = component.to_vec();
    let module = module(repeat_n((4, code), functions));
    ModuleSection(&module).append_to_component(&mut bytes);
    bytes
}
