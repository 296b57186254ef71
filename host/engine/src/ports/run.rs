//! One run of a plugin: its request and its report.

use std::{any::Any, sync::Arc, time::Duration};

use podium_pods::pod::CachedPod;
use podium_vocabulary::{PodKey, WriteReport};

/// The `tracing` target of the span of a run. It only has spans, so that a log filter can keep them independently of
/// log lines.
pub const RUN_TARGET: &str = "podium::run";
/// The `tracing` target of a plugin's own log lines.
pub const PLUGIN_TARGET: &str = "podium::plugin";

/// The subject of a run, and all its other inputs that are not read through its [`World`](super::World).
#[derive(Debug, Clone)]
pub struct Request {
    /// The Pod; its uid distinguishes it from later Pods of the name.
    pub key: PodKey,
    /// The Pod's state, or its deletion.
    pub subject: Subject,
    /// Epoch milliseconds.
    pub now_millis: u64,
    /// 1 for a first attempt, and one more for each failure in a row.
    pub attempt: u32,
    /// The results of the writes that the previous run staged, if it did not settle.
    pub unsettled: Vec<WriteReport>,
    /// The objects of the plugin's inputs, as a JSON mapping; `None` for a plugin without inputs.
    pub inputs: Option<Arc<str>>,
    /// The seed of a WASI guest's random numbers, derived from the host's seed and the run's number.
    pub seed: u64,
}

/// The state of the Pod at the start of a run.
#[derive(Debug, Clone)]
pub enum Subject {
    /// The Pod in the run's snapshot.
    Present(Arc<CachedPod>),
    /// The last known state, if there is one.
    Deleted(Option<Arc<CachedPod>>),
}

/// The outcome of a run that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until the next change.
    Settled,
    /// The plugin should run again after this time, or at the next change.
    RequeueAfter(Duration),
    /// Like [`Self::Settled`], and plugins that are ordered after this one may skip this revision. Runs of different
    /// plugins are not ordered yet.
    Stop,
}

/// Why a run failed; the text is for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Whether and how the run is retried.
    pub kind: FailureKind,
    /// One line, escaped and bounded.
    pub message: String,
}

/// The kind of a failure. All kinds except `Terminal` and `Revoked` are retried with back-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// The plugin asked for a retry.
    Retry,
    /// The plugin reported that a retry on the same data will not help.
    Terminal,
    /// The guest trapped: unreachable, out of bounds, a panic.
    Trap,
    /// The run exceeded its limit of processor time.
    Cpu,
    /// The run exceeded its limit of wall time.
    Deadline,
    /// The run exceeded its limit of memory, tables or instances.
    Memory,
    /// The version may not run any more: its configuration was removed or permits less, the policy forbids it, or the
    /// host lost the Lease.
    Revoked,
    /// An error in the host.
    Host,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 8] =
        [Self::Retry, Self::Terminal, Self::Trap, Self::Cpu, Self::Deadline, Self::Memory, Self::Revoked, Self::Host];

    /// Returns the value of the metrics' label `reason`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Terminal => "terminal",
            Self::Trap => "trap",
            Self::Cpu => "cpu",
            Self::Deadline => "deadline",
            Self::Memory => "memory",
            Self::Revoked => "revoked",
            Self::Host => "host",
        }
    }

    /// Returns true for failures that controller-runtime would count as a panic: the plugin's code did not return.
    #[must_use]
    pub const fn is_panic(self) -> bool {
        matches!(self, Self::Trap | Self::Cpu | Self::Deadline | Self::Memory)
    }
}

/// The end of a run, as the engine saw it. The caller sends the staged writes only if `result` is `Ok`.
#[derive(Debug)]
#[must_use]
pub struct RunReport<Staged> {
    /// The plugin's answer, or the reason why there is none.
    pub result: Result<Outcome, Failure>,
    /// The writes and Events that were staged and not sent by a commit.
    pub staged: Staged,
    /// The run's consumption, also of a run that failed.
    pub usage: Usage,
}

/// The resources that a run used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Instructions of the guest and the fixed prices of the host's work for it, in units of wasmtime's fuel. The same
    /// run always uses the same fuel, except a run that is cut by time at a tick: its last instructions are missing,
    /// because compiled code counts them in a register until the next call.
    pub fuel: u64,
    /// The cost of the run: processor time of guest and host, without waiting. Measured, except in a simulation, where
    /// it is the time that the fuel stands for.
    pub cpu: Duration,
    /// Calls of the host's functions.
    pub host_calls: u32,
    /// Linear memory of the guest at its end, which is the most that it had.
    pub memory_bytes: usize,
    /// Writes and Events that were staged, sent or not.
    pub writes: u32,
    /// Bytes of log lines, with the fixed amount for each line.
    pub log_bytes: usize,
    /// Time from start to end, including waits.
    pub wall: Duration,
}

/// Returns the message of a caught panic.
#[must_use]
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
