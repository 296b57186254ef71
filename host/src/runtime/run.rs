//! The state of one run: who runs, what the run may still use, what it has staged. It is the store's data, and dies
//! with the sandbox.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use podium_engine::ports::{LogLevel, Meter, Staged, World};
use podium_pods::model::{Grants, Limits, PluginId, Refused, Scope};
use podium_wire::SectionSet;
use wasmtime::component::ResourceTable;

use super::{
    limits::Limiter,
    meter::{Bill, Spent},
    object,
    text::{cut, escape},
    wall::Wall,
    wasi::{Clock, Output, Random},
};

/// What a plugin's runs have in common.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) id: PluginId,
    pub(super) scope: Scope,
    pub(super) grants: Grants,
    pub(super) limits: Limits,
    pub(super) sections: SectionSet,
    pub(super) config: String,
}

pub(super) struct Run {
    pub(super) terms: Arc<Terms>,
    pub(super) world: Box<dyn World>,
    pub(super) ledger: Ledger,
    pub(super) staged: Staged,
    pub(super) limiter: Limiter,
    pub(super) bill: Bill,
    /// Bytes that the next host call may copy.
    pub(super) allowance: usize,
    pub(super) spent: Arc<Spent>,
    pub(super) wall: Arc<Wall>,
    pub(super) table: ResourceTable,
    /// What WASI finds in place of `table` once the run has made too many calls: nothing, so that it traps.
    pub(super) shut: Option<ResourceTable>,
    pub(super) output: Arc<Mutex<Output>>,
    pub(super) clock: Clock,
    pub(super) random: Random,
}

/// Live reads of one run: each is a request to the API server.
const LIVE_READS: u32 = 10;
/// Handles of a WASI guest: streams and pollables.
const RESOURCES: usize = 64;
/// Pods that one run's searches may look at, matching or not: several times over all of a large cluster.
const EXAMINED_PODS: usize = 200_000;
/// Text in all that a run stages, sent or not.
const STAGED_BYTES: usize = 2 << 20;
/// What a line of the log costs besides its text.
pub(super) const LINE_BYTES: usize = 128;
/// Fields of one line of the log.
const LOG_FIELDS: usize = 32;
/// The bytes of a guest's last errors that are kept, to explain a trap.
const LAST_WORDS_BYTES: usize = 512;

/// What the run has used.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) host_calls: u32,
    /// Of writes and Events together.
    pub(super) writes: u32,
    staged_bytes_left: usize,
    object_values_left: usize,
    pub(super) live_reads_left: u32,
    examined_left: usize,
    /// Of the next write.
    pub(super) next_write: u32,
    log_bytes_left: usize,
    log_bytes_dropped: usize,
    /// The newest errors of its log, at most [`LAST_WORDS_BYTES`].
    last_words: VecDeque<String>,
}

impl Run {
    pub(super) fn new(
        terms: Arc<Terms>,
        world: Box<dyn World>,
        meter: Option<Arc<dyn Meter>>,
        now_millis: u64,
        seed: u64,
    ) -> Self {
        let limits = terms.limits;
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES);
        Self {
            world,
            ledger: Ledger {
                host_calls: 0,
                writes: 0,
                staged_bytes_left: STAGED_BYTES,
                object_values_left: object::VALUES,
                live_reads_left: LIVE_READS,
                examined_left: EXAMINED_PODS,
                next_write: 0,
                log_bytes_left: limits.log_bytes,
                log_bytes_dropped: 0,
                last_words: VecDeque::new(),
            },
            staged: Staged::default(),
            limiter: Limiter::new(limits.memory_bytes, limits.class),
            bill: Bill::default(),
            allowance: 0,
            spent: Arc::new(Spent::new(meter, limits.cpu)),
            wall: Arc::new(Wall::new(limits.wall)),
            table,
            shut: None,
            output: Arc::new(Mutex::new(Output::new(limits.log_bytes))),
            clock: Clock::new(now_millis),
            random: Random::new(seed),
            terms,
        }
    }

    /// Writes one line of the plugin's log, cut to the rest of the budget.
    pub(super) fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let Some(mut left) = self.ledger.log_bytes_left.checked_sub(LINE_BYTES) else {
            self.ledger.log_bytes_left = 0;
            self.drop_line(message, fields);
            return;
        };
        let asked = line_bytes(message, fields);
        let mut take = |text: &str| {
            let taken = cut(text, left);
            left -= taken.len();
            escape(taken)
        };
        let message = take(message);
        let fields: Vec<_> = fields.iter().take(LOG_FIELDS).map(|(key, value)| (take(key), take(value))).collect();
        let used = self.ledger.log_bytes_left - left;
        if used < asked {
            // A cut line ends the log: what follows would only look complete.
            left = 0;
        }
        self.ledger.log_bytes_dropped = self.ledger.log_bytes_dropped.saturating_add(asked - used);
        self.ledger.log_bytes_left = left;
        if level == LogLevel::Error {
            self.ledger.remember(&message);
        }
        self.world.log(level, &message, &fields);
    }

    /// Counts a line that does not reach the log.
    pub(super) fn drop_line(&mut self, message: &str, fields: &[(String, String)]) {
        let dropped = self.ledger.log_bytes_dropped.saturating_add(line_bytes(message, fields));
        self.ledger.log_bytes_dropped = dropped;
    }

    /// What a WASI guest printed since the last host call goes the way of its log.
    pub(super) fn drain_output(&mut self) {
        loop {
            let Some((level, line)) = self.output.lock().next_line() else { return };
            if level == LogLevel::Warn {
                self.ledger.remember(&line);
            }
            self.log(level, &line, &[]);
        }
    }

    /// The end of the log: unfinished lines, and how much was dropped.
    pub(super) fn close_log(&mut self) {
        let printed_too_much = self.output.lock().finish();
        self.drain_output();
        let dropped = self.ledger.log_bytes_dropped.saturating_add(printed_too_much);
        if dropped > 0 {
            let fields = [("dropped_bytes".to_owned(), dropped.to_string())];
            self.world.log(LogLevel::Warn, "the run's log budget was used up", &fields);
        }
    }
}

/// What a line takes from the budget of the log.
fn line_bytes(message: &str, fields: &[(String, String)]) -> usize {
    fields.iter().fold(LINE_BYTES + message.len(), |sum, (key, value)| sum + key.len() + value.len())
}

/// Takes an amount from the rest of a budget: all or nothing.
fn take(left: &mut usize, asked: usize) -> Result<(), Refused> {
    *left = left.checked_sub(asked).ok_or(Refused::OverBudget)?;
    Ok(())
}

impl Ledger {
    /// Takes one of `limit` writes, and its text's bytes.
    pub(super) fn take_write(&mut self, bytes: usize, limit: u32) -> Result<(), Refused> {
        if self.writes >= limit {
            return Err(Refused::OverBudget);
        }
        take(&mut self.staged_bytes_left, bytes)?;
        self.writes += 1;
        Ok(())
    }

    /// Takes an object's values.
    pub(super) fn take_values(&mut self, values: usize) -> Result<(), Refused> {
        take(&mut self.object_values_left, values)
    }

    /// Whether a search may begin. What it costs is known in full when it ends, so the last one may go beyond.
    pub(super) fn may_search(&self) -> Result<(), Refused> {
        if self.examined_left == 0 { Err(Refused::OverBudget) } else { Ok(()) }
    }

    pub(super) fn searched(&mut self, examined: usize) {
        self.examined_left = self.examined_left.saturating_sub(examined);
    }

    fn remember(&mut self, line: &str) {
        self.last_words.push_back(cut(line, LAST_WORDS_BYTES).to_owned());
        while self.last_words.iter().map(String::len).sum::<usize>() > LAST_WORDS_BYTES {
            self.last_words.pop_front();
        }
    }

    /// The newest errors of the log, oldest first.
    pub(super) fn last_words(&self) -> Option<String> {
        let words: Vec<_> = self.last_words.iter().map(String::as_str).collect();
        (!words.is_empty()).then(|| words.join(" | "))
    }
}
