//! WASI for guests built for wasm32-wasip2: output is written to the plugin's log, clocks show the request's time,
//! random numbers come from the run's seed, the environment is empty, standard input is at its end, and exit is a trap.
//!
//! Filesystem, sockets and HTTP are not linked; load refuses such imports by name. Every result depends only on the
//! request, so that a WASI guest's run can be repeated too. The methods of streams and pollables are wasmtime-wasi's,
//! over the run's table.

mod output;

use std::sync::Arc;

use parking_lot::Mutex;
use wasmtime::component::{HasData, HasSelf, Linker, Resource, ResourceTable};
use wasmtime_wasi::{
    async_trait,
    p2::{
        DynInputStream, DynOutputStream, DynPollable, Pollable,
        bindings::{
            cli::{
                environment, exit, stderr, stdin, stdout, terminal_input, terminal_output, terminal_stderr,
                terminal_stdin, terminal_stdout,
            },
            clocks::{monotonic_clock, wall_clock},
            io::{error, poll, streams},
            random::{insecure, insecure_seed, random},
        },
        pipe::ClosedInputStream,
        subscribe,
    },
};

pub(super) use output::Output;
use output::{Channel, Printer};

use super::{
    limits::CutReason,
    meter::{Size, price},
    run::Run,
};

/// The linked interfaces, without versions: every 0.2 version is linked.
pub(super) const INTERFACES: [&str; 18] = [
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:random/random",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
];

struct HasTable;

impl HasData for HasTable {
    type Data<'a> = &'a mut ResourceTable;
}

pub(super) fn add_to_linker(linker: &mut Linker<Run>) -> wasmtime::Result<()> {
    type HasRun = HasSelf<Run>;
    error::add_to_linker::<Run, HasTable>(linker, Run::handles)?;
    poll::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    streams::add_to_linker::<Run, HasTable>(linker, Run::handles)?;
    environment::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    exit::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    stdin::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    stdout::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    stderr::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    terminal_input::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    terminal_output::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    terminal_stdin::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    terminal_stdout::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    terminal_stderr::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    monotonic_clock::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    wall_clock::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    random::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    insecure::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    insecure_seed::add_to_linker::<Run, HasRun>(linker, |run| run)?;
    Ok(())
}

impl Run {
    /// WASI has no word for a refusal: beyond the budget a call ends the run.
    fn enter(&mut self) -> wasmtime::Result<()> {
        let limit = self.context.limits.host_calls;
        self.account_call().map_err(|_| CutReason::Calls { limit }.into())
    }

    /// The handles, for one call of a function that is not ours and cannot be stopped otherwise: beyond the budget it
    /// finds none, and traps.
    fn handles(&mut self) -> &mut ResourceTable {
        match self.account_call() {
            Ok(()) => &mut self.table,
            Err(_) => self.empty_table.get_or_insert_default(),
        }
    }

    fn printer(&mut self, channel: Channel) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.enter()?;
        let limit = self.context.limits.log_bytes;
        let output = self.output.get_or_insert_with(|| Arc::new(Mutex::new(Output::new(limit))));
        let printer: DynOutputStream = Box::new(Printer { output: Arc::clone(output), channel });
        Ok(self.table.push(printer)?)
    }
}

impl poll::Host for Run {
    async fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        self.bill.add(price::POLLED.saturating_mul(pollables.len() as u64));
        poll::Host::poll(self.handles(), pollables).await
    }
}
impl poll::HostPollable for Run {
    async fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        poll::HostPollable::block(self.handles(), pollable).await
    }
    async fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        poll::HostPollable::ready(self.handles(), pollable).await
    }
    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        poll::HostPollable::drop(self.handles(), pollable)
    }
}

impl environment::Host for Run {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        self.enter()?;
        Ok(Vec::new())
    }
    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        self.enter()?;
        Ok(Vec::new())
    }
    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        self.enter()?;
        Ok(None)
    }
}

impl exit::Host for Run {
    fn exit(&mut self, status: Result<(), ()>) -> wasmtime::Result<()> {
        Err(CutReason::Exit(u8::from(status.is_err())).into())
    }
    fn exit_with_code(&mut self, status: u8) -> wasmtime::Result<()> {
        Err(CutReason::Exit(status).into())
    }
}

impl stdin::Host for Run {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<DynInputStream>> {
        self.enter()?;
        let empty: DynInputStream = Box::new(ClosedInputStream);
        Ok(self.table.push(empty)?)
    }
}

impl stdout::Host for Run {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.printer(Channel::Stdout)
    }
}

impl stderr::Host for Run {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        self.printer(Channel::Stderr)
    }
}

impl terminal_input::Host for Run {}
impl terminal_input::HostTerminalInput for Run {
    fn drop(&mut self, terminal: Resource<terminal_input::TerminalInput>) -> wasmtime::Result<()> {
        self.handles().delete(terminal)?;
        Ok(())
    }
}
impl terminal_output::Host for Run {}
impl terminal_output::HostTerminalOutput for Run {
    fn drop(&mut self, terminal: Resource<terminal_output::TerminalOutput>) -> wasmtime::Result<()> {
        self.handles().delete(terminal)?;
        Ok(())
    }
}
impl terminal_stdin::Host for Run {
    fn get_terminal_stdin(&mut self) -> wasmtime::Result<Option<Resource<terminal_input::TerminalInput>>> {
        self.enter()?;
        Ok(None)
    }
}
impl terminal_stdout::Host for Run {
    fn get_terminal_stdout(&mut self) -> wasmtime::Result<Option<Resource<terminal_output::TerminalOutput>>> {
        self.enter()?;
        Ok(None)
    }
}
impl terminal_stderr::Host for Run {
    fn get_terminal_stderr(&mut self) -> wasmtime::Result<Option<Resource<terminal_output::TerminalOutput>>> {
        self.enter()?;
        Ok(None)
    }
}

/// The time of the request. It stands still for the wall clock; the monotonic clock moves by a microsecond for each
/// reading, and by a sleep's length for each sleep, which is over at once: a run has nothing to wait for.
#[derive(Debug)]
pub(super) struct Clock {
    now_millis: u64,
    monotonic_nanos: u64,
}

impl Clock {
    pub(super) fn new(now_millis: u64) -> Self {
        Self { now_millis, monotonic_nanos: now_millis.saturating_mul(1_000_000) }
    }

    /// The clock of another run of an instance: its monotonic clock continues where the previous one ended.
    pub(super) fn continue_after(&mut self, earlier: &Self) {
        self.monotonic_nanos = self.monotonic_nanos.max(earlier.monotonic_nanos);
    }
}

struct AlwaysReady;

#[async_trait]
impl Pollable for AlwaysReady {
    async fn ready(&mut self) {}
}

impl wall_clock::Host for Run {
    fn now(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        self.enter()?;
        let millis = self.clock.now_millis;
        let nanoseconds = u32::try_from(millis % 1_000).unwrap_or_default() * 1_000_000;
        Ok(wall_clock::Datetime { seconds: millis / 1_000, nanoseconds })
    }
    fn resolution(&mut self) -> wasmtime::Result<wall_clock::Datetime> {
        self.enter()?;
        Ok(wall_clock::Datetime { seconds: 0, nanoseconds: 1_000_000 })
    }
}

impl monotonic_clock::Host for Run {
    fn now(&mut self) -> wasmtime::Result<u64> {
        self.enter()?;
        self.clock.monotonic_nanos = self.clock.monotonic_nanos.saturating_add(1_000);
        Ok(self.clock.monotonic_nanos)
    }
    fn resolution(&mut self) -> wasmtime::Result<u64> {
        self.enter()?;
        Ok(1_000)
    }
    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        self.enter()?;
        self.clock.monotonic_nanos = self.clock.monotonic_nanos.max(when);
        let over = self.table.push(AlwaysReady)?;
        subscribe(&mut self.table, over)
    }
    fn subscribe_duration(&mut self, duration: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let when = self.clock.monotonic_nanos.saturating_add(duration);
        self.subscribe_instant(when)
    }
}

/// SplitMix64: the same seed always yields the same numbers. Not for keys or tokens, whatever the interface's name
/// says: whoever knows the seed knows them all.
#[derive(Debug)]
pub(super) struct Random(u64);

/// At once; a guest that wants more asks again.
const RANDOM_BYTES: u64 = 64 << 10;

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        if length > RANDOM_BYTES {
            return Err(CutReason::Random(length).into());
        }
        let words = std::iter::repeat_with(|| self.next().to_le_bytes());
        Ok(words.flatten().take(usize::try_from(length)?).collect())
    }
}

impl Run {
    fn random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.enter()?;
        let bytes = self.random.bytes(length)?;
        self.bill.add(Size { bytes: bytes.len(), values: 1 }.rendered());
        Ok(bytes)
    }
}

impl random::Host for Run {
    fn get_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes(length)
    }
    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.enter()?;
        Ok(self.random.next())
    }
}

impl insecure::Host for Run {
    fn get_insecure_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.random_bytes(length)
    }
    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.enter()?;
        Ok(self.random.next())
    }
}

impl insecure_seed::Host for Run {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        self.enter()?;
        Ok((self.random.next(), self.random.next()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_makes_the_same_numbers_for_ever() {
        let mut random = Random::new(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
    }
}
