//! A attack and the end that it must have.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use podium_engine::ports::{FailureKind, Outcome, RunReport, Staged};
use podium_tests::{guests, sandbox::*};
use podium_vocabulary::{PluginSpec, text};
use tokio::sync::Mutex;

/// The limit of processor time. In a debug build a host call takes ten times as long as in a release build, so a run
/// that is looked at after each call may exceed a limit of 20 ms by half.
pub(super) const LIMIT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 20 });

/// One attack at a time, because the memory of the host is the whole process's.
pub(super) static ALONE: Mutex<()> = Mutex::const_new(());

/// One row of the table.
#[derive(Clone, Copy)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    pub(super) wasm: Wasm,
    /// Changes the configuration, which grants everything and has the default limits.
    pub(super) terms: fn(&mut PluginSpec),
    /// Changes the environment of the run.
    pub(super) world: fn(&mut FakeWorld),
    pub(super) end: End,
    /// The end in a whole host, if it differs from `end`.
    pub(super) host_end: Option<End>,
    /// The guest sends requests before it fails: by `commit`, or by live reads.
    pub(super) sends: bool,
    /// Checks the answers and records beyond the end.
    pub(super) records: fn(&RunReport<Staged>, &Notes) -> Result<()>,
}

/// The component of an attack.
#[derive(Clone, Copy)]
pub(super) enum Wasm {
    /// The guest `hostile`, which performs the attack that its configuration names.
    Guest,
    Made(fn() -> Result<Vec<u8>>),
    Bomb(fn() -> Vec<u8>),
}

/// The end that an attack must have.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    /// Refused at load, with this text.
    Refused(&'static str),
    /// The run fails with this kind, and with this text in its message.
    Fails(FailureKind, &'static str),
    /// The run succeeds with this number of staged writes and Events.
    Succeeds(Outcome, usize),
}

impl Attack {
    pub(super) const fn guest(name: &'static str, end: End) -> Self {
        Self::new(name, Wasm::Guest, end)
    }

    /// A attack of the guest that ends with a report of the host's answers.
    pub(super) const fn answered(name: &'static str, answers: &'static str) -> Self {
        Self::guest(name, End::Fails(FailureKind::Terminal, answers))
    }

    pub(super) const fn made(name: &'static str, wasm: fn() -> Result<Vec<u8>>, end: End) -> Self {
        Self::new(name, Wasm::Made(wasm), end)
    }

    const fn new(name: &'static str, wasm: Wasm, end: End) -> Self {
        Self { name, wasm, terms: |_| {}, world: |_| {}, end, host_end: None, sends: false, records: |_, _| Ok(()) }
    }

    pub(super) const fn with_terms(self, terms: fn(&mut PluginSpec)) -> Self {
        Self { terms, ..self }
    }

    pub(super) fn component(&self) -> Result<Arc<[u8]>> {
        match self.wasm {
            Wasm::Guest => guests::component("hostile"),
            Wasm::Bomb(make) => Ok(make().into()),
            Wasm::Made(make) => Ok(make().context("the component is not made")?.into()),
        }
    }

    pub(super) fn spec(&self) -> PluginSpec {
        let mut spec = spec("hostile");
        spec.grants = everything();
        // Without objects a call may pass 256 KiB; attacks with objects grant them again.
        if !matches!(self.wasm, Wasm::Guest) {
            spec.grants.write.objects.clear();
        }
        spec.limits.cpu = LIMIT;
        spec.config = serde_json::to_string(self.name).unwrap().into();
        (self.terms)(&mut spec);
        spec
    }

    /// Compares the end of a run with the table.
    pub(super) fn judge(&self, report: &RunReport<Staged>) -> Result<()> {
        let staged = report.staged.writes.len() + report.staged.events.len();
        match (&report.result, self.end) {
            (Ok(outcome), End::Succeeds(expected, writes)) => {
                ensure!(*outcome == expected && staged == writes, "ended with {outcome:?} and {staged} staged");
            }
            (Err(failure), End::Fails(kind, text)) => {
                let is_expected = failure.kind == kind && failure.message.contains(text);
                // A report of answers has no others.
                let is_exact = kind != FailureKind::Terminal || text.is_empty() || own(&failure.message) == text;
                ensure!(is_expected && is_exact, "failed with {:?}: {}", failure.kind, cut(&failure.message));
                ensure!(staged == 0, "{staged} writes of a failed run");
            }
            (result, end) => anyhow::bail!("ended with {result:?}, expected {end:?}"),
        }
        Ok(())
    }
}

/// Returns a failure's own text, without the reason of the latest refused call that the host adds.
fn own(message: &str) -> &str {
    message.split_once("; ").map_or(message, |(own, _)| own)
}

pub(super) fn cut(message: &str) -> &str {
    text::cut(message, 300)
}

/// Fails for a text that could forge a line, or is longer than a record may be.
pub(super) fn is_one_line(text: &str, bytes: usize) -> Result<()> {
    ensure!(text == text::escape(text), "not escaped: {:?}", cut(text));
    ensure!(text.len() <= bytes, "{} bytes, at most {bytes}", text.len());
    Ok(())
}
