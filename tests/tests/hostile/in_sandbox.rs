//! Attacks in the sandbox, on the real engine with its clocks. Each attack is performed in a sandbox of one slot, whose
//! next run looks at the memory that the attack had, and again in a sandbox of two slots beside a good neighbour.

use std::{fs, io::Write, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_engine::ports::{Outcome, Reconcile, Request, RunReport, Staged, Subject};
use podium_runtime::{Engine, EngineOptions, Plugin};
use podium_tests::{
    modules::{Module, NEIGHBOUR},
    sandbox::*,
};
use podium_vocabulary::{KeyPattern, PluginId, PluginSpec, text};

use super::{
    attack::{ALONE, Attack, End, LIMIT, cut, is_one_line},
    components, guests, modules,
};

/// The memory that the host may need for a run besides the limit of the plugin's memory. Small enough to see a copy of
/// an argument of some megabytes.
const BESIDES: u64 = 16 << 20;
/// Bytes of a message that the table shows.
const SHOWN_BYTES: usize = 70;
/// The runs of the neighbour beside each attack.
const NEIGHBOURS: usize = 3;

#[test]
fn each_crime_of_the_guest_is_contained_in_the_sandbox() {
    run_all(&guests::attacks());
}

#[test]
fn each_crime_of_a_module_is_contained_in_the_sandbox() {
    run_all(&modules::attacks());
}

#[test]
fn each_hostile_component_is_contained_in_the_sandbox() {
    run_all(&components::attacks());
}

/// Runs all attacks, prints a table of their costs, and fails with all that were not contained.
fn run_all(attacks: &[Attack]) {
    let _alone = ALONE.blocking_lock();
    let rig = SandboxRig::new().unwrap();
    let mut escaped = Vec::new();
    let mut table = format!("{:<48} {:>9} {:>9} {:>8}  end\n", "attack", "cpu", "limit", "memory");
    for attack in attacks {
        match rig.contains(attack) {
            Ok(row) => table += &row,
            Err(error) => escaped.push(format!("{}: {error:#}", attack.name)),
        }
    }
    // The test harness hides what a passing test prints.
    std::io::stderr().write_all(table.as_bytes()).unwrap();
    assert!(escaped.is_empty(), "{} of {} attacks:\n{}", escaped.len(), attacks.len(), escaped.join("\n"));
}

struct SandboxRig {
    runtime: tokio::runtime::Runtime,
    /// With one slot, so that the next run has the memory of the last one.
    single: Arc<Engine>,
    witness: Plugin,
    shared: Arc<Engine>,
    neighbour: Plugin,
    /// The fuel of a run of the neighbour without an attack beside it.
    fuel: u64,
}

impl SandboxRig {
    fn new() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let engine = |concurrent_runs| Engine::new(EngineOptions { concurrent_runs, ..EngineOptions::default() });
        let (single, shared) = (engine(1)?, engine(2)?);
        let witness = single.compile(&witness_spec(), &witness("").component()?)?;
        let neighbour = shared.compile(&neighbour_spec(), &NEIGHBOUR.component()?)?;
        let mut rig = Self { runtime, single, witness, shared, neighbour, fuel: 0 };
        rig.fuel = rig.runtime.block_on(run_neighbour(&rig.neighbour))?;
        ensure!(rig.fuel > 0, "the neighbour did nothing");
        Ok(rig)
    }

    /// Returns a row of the table.
    fn contains(&self, attack: &Attack) -> Result<String> {
        let (spec, wasm) = (attack.spec(), attack.component()?);
        if let End::Refused(text) = attack.end {
            let before = reset_peak()?;
            let error = match self.single.compile(&spec, &wasm) {
                Ok(_) => anyhow::bail!("loaded"),
                Err(error) => error.to_string(),
            };
            let grown = memory("VmHWM")?.saturating_sub(before);
            ensure!(error.contains(text), "refused with {}", cut(&error));
            is_one_line(&error, 8 << 10)?;
            ensure!(grown <= 64 << 20, "{grown} bytes to refuse it");
            self.runtime.block_on(run_neighbour(&self.neighbour)).context("the neighbour")?;
            let reason = text::cut(error.split_once(": ").map_or("", |(_, reason)| reason), SHOWN_BYTES);
            let name = attack.name;
            return Ok(format!("{name:<48} {:>9} {:>9} {:>5} KiB  refused: {reason}\n", "-", "-", grown >> 10));
        }
        let plugin = self.single.compile(&spec, &wasm)?;
        let before = reset_peak()?;
        let began = thread_time();
        let (report, notes) = self.runtime.block_on(run_in(&plugin, request(), world(attack)));
        let spent = thread_time() - began;
        let grown = memory("VmHWM")?.saturating_sub(before);
        let limit = spec.limits.cpu;
        attack.judge(&report)?;
        (attack.records)(&report, &notes)?;
        if let Err(failure) = &report.result {
            is_one_line(&failure.message, 8 << 10)?;
        }
        for (_, message, fields) in &notes.log {
            let texts = fields.iter().flat_map(|(key, value)| [key, value]);
            texts.chain([message]).try_for_each(|text| is_one_line(text, 100 << 10))?;
        }
        ensure!(spent <= limit * 3 / 2, "{spent:?} of processor time, with a limit of {limit:?}");
        let cost = report.usage.cpu;
        ensure!(cost <= spent && spent - cost <= LIMIT / 4, "{cost:?} counted of {spent:?}");
        let bound = spec.limits.memory_bytes as u64 + BESIDES;
        ensure!(grown <= bound, "{grown} bytes of memory, at most {bound}");

        let seen = self.runtime.block_on(run_in(&self.witness, request(), FakeWorld::default())).0.result;
        ensure!(seen == Ok(Outcome::Settled), "the next run found the memory of this one: {seen:?}");
        self.beside(attack, &spec, &wasm).context("beside a neighbour")?;
        let end = match report.result {
            Ok(outcome) => format!("{outcome:?}"),
            Err(failure) => format!("{}: {}", failure.kind.name(), text::cut(&failure.message, SHOWN_BYTES)),
        };
        Ok(format!("{:<48} {spent:>9.1?} {limit:>9.1?} {:>5} KiB  {end}\n", attack.name, grown >> 10))
    }

    /// The attack again, and at the same time a neighbour that must not notice it.
    fn beside(&self, attack: &Attack, spec: &PluginSpec, wasm: &[u8]) -> Result<()> {
        let plugin = self.shared.compile(spec, wasm)?;
        let neighbours = async {
            for _ in 0..NEIGHBOURS {
                let fuel = run_neighbour(&self.neighbour).await?;
                ensure!(fuel == self.fuel, "{fuel} of fuel, and {} without the attack", self.fuel);
            }
            Ok(())
        };
        let (attacker, neighbours) =
            self.runtime.block_on(async { tokio::join!(run_in(&plugin, request(), world(attack)), neighbours) });
        neighbours?;
        attack.judge(&attacker.0)
    }
}

fn world(attack: &Attack) -> FakeWorld {
    let mut world = FakeWorld::default();
    (attack.world)(&mut world);
    world
}

fn neighbour_spec() -> PluginSpec {
    let mut spec = spec("neighbour");
    spec.id = PluginId { namespace: Some("bank".into()), name: "neighbour".into() };
    spec.grants.write.labels = vec![KeyPattern("neighbour.podium.dev/*".into())];
    spec
}

/// Runs the neighbour once, checks its result and its cost, and returns its fuel.
async fn run_neighbour(plugin: &Plugin) -> Result<u64> {
    let pod = pod("bank", "vault-0");
    let request = Request { key: pod.key.clone(), subject: Subject::Present(pod), ..request() };
    let RunReport { result, staged: Staged { writes, events, .. }, usage } =
        plugin.reconcile(request, Box::new(FakeWorld::default())).await;
    ensure!(result == Ok(Outcome::Settled), "{result:?}");
    let writes: Vec<_> = writes.iter().map(|write| write.get().action.describe()).collect();
    ensure!(writes == ["set label neighbour.podium.dev/seen=yes on bank/vault-0"], "{writes:?}");
    ensure!(events.is_empty() && usage.host_calls == 1 && usage.cpu < LIMIT / 2, "{usage:?}");
    Ok(usage.fuel)
}

/// A guest that fails unless its memory is zero except for the arguments, and that then fills its memory.
fn witness(fields: &str) -> Module<'_> {
    Module {
        pages: 500,
        fields,
        reconcile: "(local.set $at (i32.const 65536))
            (loop $next
                (if (i64.ne (i64.load (local.get $at)) (i64.const 0)) (then unreachable))
                (local.set $at (i32.add (local.get $at) (i32.const 8)))
                (br_if $next (i32.lt_u (local.get $at) (i32.const 32768000))))
            (memory.fill (i32.const 65536) (i32.const 165) (i32.const 32702464))",
        ..Module::DEFAULT
    }
}

fn witness_spec() -> PluginSpec {
    let mut spec = spec("witness");
    spec.limits.cpu = Duration::from_secs(1);
    spec
}

#[test]
fn the_witness_finds_a_single_byte() {
    let _alone = ALONE.blocking_lock();
    let rig = SandboxRig::new().unwrap();
    for (fields, zeros) in [("", true), (r#"(data (i32.const 32767999) "\01")"#, false)] {
        let witness = rig.single.compile(&witness_spec(), &witness(fields).component().unwrap()).unwrap();
        for _ in 0..2 {
            let (report, _) = rig.runtime.block_on(run_in(&witness, request(), FakeWorld::default()));
            assert_eq!(report.result.is_ok(), zeros, "{:?}", report.result);
        }
    }
}

/// Returns the resident memory, from which on the peak is counted again.
fn reset_peak() -> Result<u64> {
    fs::write("/proc/self/clear_refs", "5")?;
    memory("VmRSS")
}

/// Returns a figure of this process in bytes.
fn memory(figure: &str) -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(figure)).context("no such figure")?;
    let kibibytes: u64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes << 10)
}
