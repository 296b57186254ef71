//! A sandbox is used by one run after another, of any tenant. Each run finds memories, tables and globals as its
//! component defines them, whatever the run before it left there.
//!
//! PODIUM_SWAPS makes it more; `just test-residue`.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{env, sync::Arc};

use podium_engine::ports::{FailureKind, Outcome, Request};
use podium_runtime::{Engine, EngineOptions, Plugin};
use podium_tests::{modules::Module, programs::Choices, sandbox::*};

/// Runs that leave marks, each followed by a run that looks for them.
const SWAPS: u64 = 10_000;
/// Elements of the table.
const ELEMENTS: u32 = 500;

/// The bits of a request's time, by which the component decides: it grows its memory and its table, marks its memory,
/// its table and its global, and traps where it finds anything that its component does not define.
const GROW: u64 = 1;
const MEMORY: u64 = 2;
const TABLE: u64 = 4;
const GLOBAL: u64 = 8;
const LOOK: u64 = 16;

/// Returns the component. `data` defines the eight bytes at 12,288.
///
/// Bytes 1,024 to 8,191 are for the request and the result.
fn component(pages: u32, data: bool) -> Vec<u8> {
    let defined: i64 = if data { 0x6d75_6964_6f70_2121 } else { 0 };
    let segment = if data { r#"(data (i32.const 12288) "!!podium")"# } else { "" };
    let end = pages * 65_536;
    let fields = format!(
        "(table $table {ELEMENTS} funcref)
        (global $global (mut i64) (i64.const 7))
        (func $mark)
        (elem declare func $mark)
        {segment}
        (func $asked (param i64 i64) (result i32)
            (i64.ne (i64.and (local.get 0) (local.get 1)) (i64.const 0)))
        (func $zeros (param $at i32) (param $end i32)
            (loop $next
                (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then unreachable))
                (local.set $at (i32.add (local.get $at) (i32.const 8)))
                (br_if $next (i32.lt_u (local.get $at) (local.get $end)))))
        (func $nulls (param $at i32)
            (loop $next
                (if (i32.eqz (ref.is_null (table.get $table (local.get $at)))) (then unreachable))
                (local.set $at (i32.add (local.get $at) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $at) (table.size $table)))))
        (func $grow
            (if (i32.ne (memory.grow (i32.const 2)) (i32.const {pages})) (then unreachable))
            (if (i32.ne (table.grow $table (ref.null func) (i32.const 100)) (i32.const {ELEMENTS}))
                (then unreachable)))"
    );
    let reconcile = format!(
        "(if (call $asked (local.get 10) (i64.const {GROW})) (then (call $grow)))
        (if (call $asked (local.get 10) (i64.const {MEMORY}))
            (then
                (memory.fill (i32.const 0) (i32.const 0xa5) (i32.const 1024))
                (memory.fill (i32.const 8192) (i32.const 0xa5)
                    (i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const 8192)))))
        (if (call $asked (local.get 10) (i64.const {TABLE}))
            (then (table.fill $table (i32.const 0) (ref.func $mark) (table.size $table))))
        (if (call $asked (local.get 10) (i64.const {GLOBAL})) (then (global.set $global (i64.const -1))))
        (if (call $asked (local.get 10) (i64.const {LOOK}))
            (then
                (if (i32.ne (memory.size) (i32.const {pages})) (then unreachable))
                (if (i32.ne (table.size $table) (i32.const {ELEMENTS})) (then unreachable))
                (if (i64.ne (global.get $global) (i64.const 7)) (then unreachable))
                (call $zeros (i32.const 0) (i32.const 1024))
                (call $zeros (i32.const 8192) (i32.const 12288))
                (if (i64.ne (i64.load (i32.const 12288)) (i64.const {defined})) (then unreachable))
                (call $zeros (i32.const 12296) (i32.const {end}))
                (call $nulls (i32.const 0))
                (call $grow)
                (call $zeros (i32.const {end}) (i32.const {}))
                (call $nulls (i32.const {ELEMENTS}))))",
        end + 131_072,
    );
    Module { pages, fields: &fields, reconcile: &reconcile, ..Module::default() }.component().unwrap()
}

/// Plugins of two tenants: beyond and within the memory of a sandbox that stays mapped, with and without data.
fn plugins(engine: &Engine) -> Vec<Plugin> {
    let of = |(index, (pages, data)): (usize, (u32, bool))| {
        let mut spec = spec("module");
        spec.id.namespace = Some(["shop", "bank"][index % 2].into());
        engine.compile(&spec, &component(pages, data)).unwrap()
    };
    [(4, true), (1, false), (3, false), (1, true)].into_iter().enumerate().map(of).collect()
}

#[tokio::test(start_paused = true)]
async fn no_run_finds_marks_of_another_in_its_sandbox() {
    let swaps: u64 = env::var("PODIUM_SWAPS").map_or(SWAPS, |swaps| swaps.parse().unwrap());
    let options = EngineOptions { concurrent_runs: 1, tick: None, ..EngineOptions::default() };
    let engine: Arc<Engine> = Engine::new(options).unwrap();
    let plugins = plugins(&engine);
    let mut choices = Choices::new(1);
    for swap in 0..swaps {
        for now_millis in [GROW | MEMORY | TABLE | GLOBAL, LOOK] {
            let request = Request { now_millis, ..request() };
            let (report, _) = run_in(choices.one(&plugins), request, FakeWorld::default()).await;
            assert_eq!(report.result, Ok(Outcome::Settled), "swap {swap}");
        }
    }
    // A mark would be found.
    for plugin in &plugins {
        for mark in [GROW, MEMORY, TABLE, GLOBAL] {
            let request = Request { now_millis: mark | LOOK, ..request() };
            failed(run_in(plugin, request, FakeWorld::default()).await.0, FailureKind::Trap);
        }
    }
}
