//! The state of one run: its plugin, the rest of its budget, and its staged writes. This is the data of wasmtime's
//! store, and is dropped with the sandbox.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use podium_engine::ports::{LogLevel, Meter, Staged, World};
use podium_vocabulary::{Function, Grants, Limits, PluginId, PluginSpec, Refused, Scope};
use podium_wire::{SectionSet, refusal};
use wasmtime::component::ResourceTable;

use super::{
    hostcalls::SENDING,
    limits::{self, Limiter},
    meter::{Bill, Size, Spent, price},
    object,
    profile::Profiler,
    text::{cut, escape},
    wall::Wall,
    wasi::{Clock, Output, Random},
};

/// The configuration that a plugin's runs have in common.
#[derive(Debug)]
pub(super) struct PluginContext {
    pub(super) id: PluginId,
    /// See [`Profiler::number`].
    pub(super) number: u64,
    pub(super) scope: Scope,
    pub(super) grants: Grants,
    pub(super) limits: Limits,
    pub(super) sections: SectionSet,
    pub(super) config: Arc<str>,
    /// The prepared bytes of a script; empty for a component.
    pub(super) program: Arc<[u8]>,
    /// The most bytes that a call may pass.
    pub(super) call_bytes: usize,
    pub(super) profiler: Arc<Profiler>,
}

impl PluginContext {
    pub(super) fn new(spec: &PluginSpec, program: Arc<[u8]>) -> Self {
        Self {
            id: spec.id.clone(),
            number: Profiler::number(&spec.id),
            scope: spec.scope(),
            sections: spec.grants.sections(),
            grants: spec.grants.clone(),
            limits: spec.limits,
            config: spec.config.clone(),
            program,
            call_bytes: limits::call_bytes(!spec.grants.write.objects.is_empty()),
            profiler: Arc::default(),
        }
    }
}

pub(super) struct Run {
    pub(super) context: Arc<PluginContext>,
    pub(super) world: Box<dyn World>,
    pub(super) budget: RunBudget,
    pub(super) staged: Staged,
    pub(super) limiter: Limiter,
    pub(super) bill: Bill,
    /// The objects to apply among `staged`, as the guest passed them.
    pub(super) objects: Size,
    /// The price of the writes and Events that are sent after the run.
    pub(super) sending: u64,
    /// Bytes that the next host call may copy.
    pub(super) allowance: usize,
    pub(super) spent: Arc<Spent>,
    pub(super) wall: Arc<Wall>,
    pub(super) table: ResourceTable,
    /// An empty table that WASI's calls use instead of `table` once the run has made too many calls, so that they trap.
    pub(super) empty_table: Option<ResourceTable>,
    /// `None` until a WASI guest asks for a stream to print to.
    pub(super) output: Option<Arc<Mutex<Output>>>,
    pub(super) clock: Clock,
    pub(super) random: Random,
    /// The ticks until the guest went on after the host's latest work for it.
    pub(super) ticks: u64,
    /// Why the latest refused call was refused, for the message of a failure.
    pub(super) refusal: Option<String>,
}

/// Live reads of one run: each is a request to the API server.
const LIVE_READS: u32 = 10;
/// Handles of a WASI guest: streams and pollables.
const RESOURCES: usize = 64;
/// Pods that one run's searches may look at, matching or not: several times over all of a large cluster.
const EXAMINED_PODS: usize = 200_000;
/// Text in all that a run stages, sent or not.
const STAGED_BYTES: usize = 2 << 20;
/// The cost of a line of the log besides its text.
pub(super) const LINE_BYTES: usize = 128;
/// The most fields of one line of the log.
const LOG_FIELDS: usize = 32;
/// The bytes of a guest's last errors that are kept, to explain a trap.
const LAST_WORDS_BYTES: usize = 512;

/// Amounts that the run has used, and the rests of its budgets.
#[derive(Debug)]
pub(super) struct RunBudget {
    pub(super) host_calls: u32,
    /// Writes and Events together.
    pub(super) writes: u32,
    staged_bytes_left: usize,
    object_values_left: usize,
    pub(super) live_reads_left: u32,
    examined_left: usize,
    /// The number of the next write.
    pub(super) next_write: u32,
    log_bytes_left: usize,
    log_bytes_dropped: usize,
    /// The newest errors of its log, at most [`LAST_WORDS_BYTES`].
    last_words: VecDeque<String>,
}

impl Run {
    pub(super) fn new(
        context: Arc<PluginContext>,
        world: Box<dyn World>,
        meter: Option<Arc<dyn Meter>>,
        now_millis: u64,
        seed: u64,
    ) -> Self {
        let limits = context.limits;
        let mut table = ResourceTable::new();
        table.set_max_capacity(RESOURCES);
        Self {
            world,
            budget: RunBudget {
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
            objects: Size::default(),
            limiter: Limiter::new(limits.memory_bytes, limits.class),
            bill: Bill::default(),
            sending: 0,
            allowance: 0,
            spent: Arc::new(Spent::new(meter, limits.cpu)),
            wall: Arc::new(Wall::new(limits.wall)),
            table,
            empty_table: None,
            output: None,
            clock: Clock::new(now_millis),
            random: Random::new(seed),
            ticks: 0,
            refusal: None,
            context,
        }
    }

    /// Begins another run of an instance: all limits are full again, except that the memory, the tables and the handles
    /// that the instance holds count as the run's own.
    pub(super) fn restart(&mut self, world: Box<dyn World>, meter: Option<Arc<dyn Meter>>, now_millis: u64, seed: u64) {
        let fresh = Self::new(Arc::clone(&self.context), world, meter, now_millis, seed);
        let earlier = std::mem::replace(self, fresh);
        self.limiter = earlier.limiter;
        self.table = earlier.table;
        self.clock.continue_after(&earlier.clock);
        // Streams that the guest holds write there.
        self.output = earlier.output;
        if let Some(output) = &self.output {
            output.lock().reset(self.context.limits.log_bytes);
        }
    }

    /// Returns which budget refused a call.
    pub(super) fn used_up(&self, function: Function) -> String {
        let budget = &self.budget;
        let limits = &self.context.limits;
        match function {
            _ if budget.host_calls > limits.host_calls => refusal::used_up("hostCalls", limits.host_calls),
            Function::GetLive | Function::GetObject if budget.live_reads_left == 0 => {
                format!("a run has {LIVE_READS} live reads")
            }
            Function::Find | Function::Count if budget.examined_left == 0 => {
                format!("the searches of a run look at {EXAMINED_PODS} Pods; narrow them")
            }
            Function::Commit if self.wall.sent() >= SENDING => {
                format!("a run has {} s for sending writes", SENDING.as_secs())
            }
            Function::Commit | Function::GetObject => refusal::used_up("cpuMillis", limits.cpu.as_millis()),
            _ if function.is_read() => refusal::used_up("cpuMillis", limits.cpu.as_millis()),
            _ if budget.writes >= limits.writes => refusal::used_up("writes", limits.writes),
            _ => format!("a run may stage {} MiB of text and {} values of objects", STAGED_BYTES >> 20, object::VALUES),
        }
    }

    /// Writes one line of the plugin's log, cut to the rest of the budget.
    pub(super) fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let Some(mut left) = self.budget.log_bytes_left.checked_sub(LINE_BYTES) else {
            self.budget.log_bytes_left = 0;
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
        let used = self.budget.log_bytes_left - left;
        if used < asked {
            // A line that was cut ends the log: with further lines the log would look complete.
            left = 0;
        }
        self.budget.log_bytes_dropped = self.budget.log_bytes_dropped.saturating_add(asked - used);
        self.budget.log_bytes_left = left;
        self.bill.add(price::LOGGED_LINE.saturating_add(Size { bytes: used, values: 0 }.rendered()));
        if level == LogLevel::Error {
            self.budget.remember(&message);
        }
        self.world.log(level, &message, &fields);
    }

    /// Counts a dropped log line.
    pub(super) fn drop_line(&mut self, message: &str, fields: &[(String, String)]) {
        let dropped = self.budget.log_bytes_dropped.saturating_add(line_bytes(message, fields));
        self.budget.log_bytes_dropped = dropped;
    }

    /// Logs the lines that a WASI guest has printed since the last host call.
    pub(super) fn drain_output(&mut self) {
        let Some(output) = self.output.clone() else { return };
        loop {
            let Some((level, line)) = output.lock().next_line() else { return };
            if level == LogLevel::Warn {
                self.budget.remember(&line);
            }
            self.log(level, &line, &[]);
        }
    }

    /// Charges the run for the output of a WASI guest in this host call.
    pub(super) fn charge_output(&mut self) {
        if let Some(output) = &self.output {
            let printed = output.lock().take_printed();
            self.bill.add(printed.copied());
        }
    }

    /// Returns true if [`Self::close_log`] may have something to write.
    pub(super) fn has_open_log(&self) -> bool {
        self.output.is_some() || self.budget.log_bytes_dropped > 0
    }

    /// Ends the log: writes unfinished lines, and how much was dropped.
    pub(super) fn close_log(&mut self) {
        let printed_too_much = self.output.as_ref().map_or(0, |output| output.lock().finish());
        self.drain_output();
        let dropped = self.budget.log_bytes_dropped.saturating_add(printed_too_much);
        if dropped > 0 {
            let fields = [("dropped_bytes".to_owned(), dropped.to_string())];
            self.world.log(LogLevel::Warn, "the run's log budget was used up", &fields);
        }
    }
}

/// Returns the bytes that a line costs of the log's budget.
fn line_bytes(message: &str, fields: &[(String, String)]) -> usize {
    fields.iter().fold(LINE_BYTES + message.len(), |sum, (key, value)| sum + key.len() + value.len())
}

/// Subtracts an amount from the rest of a budget, or nothing if the rest is smaller.
fn take(left: &mut usize, asked: usize) -> Result<(), Refused> {
    *left = left.checked_sub(asked).ok_or(Refused::OverBudget)?;
    Ok(())
}

impl RunBudget {
    /// Counts one of `limit` writes, and the bytes of its text.
    pub(super) fn take_write(&mut self, bytes: usize, limit: u32) -> Result<(), Refused> {
        if self.writes >= limit {
            return Err(Refused::OverBudget);
        }
        take(&mut self.staged_bytes_left, bytes)?;
        self.writes += 1;
        Ok(())
    }

    /// Counts the values of an object.
    pub(super) fn take_values(&mut self, values: usize) -> Result<(), Refused> {
        take(&mut self.object_values_left, values)
    }

    /// Returns the rest of the budget of the log.
    pub(super) fn log_bytes_left(&self) -> usize {
        self.log_bytes_left
    }

    /// Checks that a search may begin. Its cost is known only when it ends, so the last search may exceed the budget.
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
