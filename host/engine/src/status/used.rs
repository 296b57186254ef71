//! The use of each limit by a plugin's runs: by the last run, and the most by any run.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use podium_vocabulary::Limits;

use crate::ports::Usage;

/// A limit of a run in `spec.limits` of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Linear memory, in bytes.
    Memory,
    /// Processor time, in microseconds.
    Cpu,
    /// Time from start to end, in microseconds.
    Wall,
    /// Host calls.
    HostCalls,
    /// Staged writes and Events.
    Writes,
    /// Log, in bytes.
    Log,
}

impl Limit {
    /// All limits, in the order of the configuration.
    pub const ALL: [Self; 6] = [Self::Memory, Self::Cpu, Self::Wall, Self::HostCalls, Self::Writes, Self::Log];

    /// Returns the value of the metrics' label `limit`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::HostCalls => "host_calls",
            Self::Writes => "writes",
            Self::Log => "log",
        }
    }

    /// Returns the field of `spec.limits`, and how many of the limit's units one of the field's is.
    #[must_use]
    pub const fn field(self) -> (&'static str, u64) {
        match self {
            Self::Memory => ("memoryMiB", 1 << 20),
            Self::Cpu => ("cpuMillis", 1_000),
            Self::Wall => ("wallMillis", 1_000),
            Self::HostCalls => ("hostCalls", 1),
            Self::Writes => ("writes", 1),
            Self::Log => ("logKiB", 1 << 10),
        }
    }

    const fn is_time(self) -> bool {
        matches!(self, Self::Cpu | Self::Wall)
    }

    fn used(self, usage: &Usage) -> u64 {
        match self {
            Self::Memory => usage.memory_bytes as u64,
            Self::Cpu => micros(usage.cpu),
            Self::Wall => micros(usage.wall),
            Self::HostCalls => usage.host_calls.into(),
            Self::Writes => usage.writes.into(),
            Self::Log => usage.log_bytes as u64,
        }
    }

    fn limit(self, limits: &Limits) -> u64 {
        match self {
            Self::Memory => limits.memory_bytes as u64,
            Self::Cpu => micros(limits.cpu),
            Self::Wall => micros(limits.wall),
            Self::HostCalls => limits.host_calls.into(),
            Self::Writes => limits.writes.into(),
            Self::Log => limits.log_bytes as u64,
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The use of one limit, in its unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Used {
    /// The limit.
    pub of: Limit,
    /// The use by the run that ended last.
    pub last: u64,
    /// The most of any run since the host started.
    pub peak: u64,
    /// The limit's value when the last run began.
    pub limit: u64,
}

impl Used {
    /// Returns the last and the most use and the limit in base units, as metrics have them: bytes, seconds, numbers.
    #[must_use]
    pub fn in_base_units(&self) -> [f64; 3] {
        let base = |value: u64| if self.of.is_time() { value as f64 / 1e6 } else { value as f64 };
        [base(self.last), base(self.peak), base(self.limit)]
    }
}

/// Formats `cpuMillis 0.4 (3.2) of 20`.
impl fmt::Display for Used {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, unit) = self.of.field();
        let Self { of: _, last, peak, limit } = *self;
        write!(formatter, "{field} {} ({}) of {}", Amount(last, unit), Amount(peak, unit), Amount(limit, unit))
    }
}

/// An amount in a unit with one decimal place, rounded up, so that only nothing is 0.
struct Amount(u64, u64);

impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(amount, unit) = *self;
        let tenths = u128::from(amount).saturating_mul(10).div_ceil(u128::from(unit));
        match tenths % 10 {
            0 => write!(formatter, "{}", tenths / 10),
            tenth => write!(formatter, "{}.{tenth}", tenths / 10),
        }
    }
}

/// The use of all limits. Nothing is used before the first run.
#[derive(Debug, Default)]
pub(super) struct Uses([Use; Limit::ALL.len()]);

#[derive(Debug, Default)]
struct Use {
    last: AtomicU64,
    peak: AtomicU64,
    limit: AtomicU64,
}

impl Uses {
    pub(super) fn record(&self, usage: &Usage, limits: &Limits) {
        for of in Limit::ALL {
            let entry = &self.0[of as usize];
            let used = of.used(usage);
            entry.last.store(used, Relaxed);
            entry.peak.fetch_max(used, Relaxed);
            entry.limit.store(of.limit(limits), Relaxed);
        }
    }

    /// The limits that a run has used at all.
    pub(super) fn used(&self) -> Vec<Used> {
        let used = |of: Limit| {
            let Use { last, peak, limit } = &self.0[of as usize];
            Used { of, last: last.load(Relaxed), peak: peak.load(Relaxed), limit: limit.load(Relaxed) }
        };
        Limit::ALL.into_iter().map(used).filter(|used| used.peak > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu: u64, host_calls: u32) -> Usage {
        Usage { cpu: Duration::from_micros(cpu), host_calls, ..Usage::default() }
    }

    #[test]
    fn last_run_and_peak_are_shown_for_limits_that_were_used() {
        let uses = Uses::default();
        let limits = Limits::default();
        assert_eq!(uses.used(), []);
        uses.record(&usage(3_149, 12), &limits);
        uses.record(&usage(400, 2), &Limits { host_calls: 500, ..limits });
        let used = uses.used();
        let texts: Vec<_> = used.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["cpuMillis 0.4 (3.2) of 20", "hostCalls 2 (12) of 500"]);
        assert_eq!(used[0].in_base_units(), [0.000_4, 0.003_149, 0.02]);
        assert_eq!(used[1].in_base_units(), [2.0, 12.0, 500.0]);
    }

    #[test]
    fn every_limit_of_a_run_has_its_place_and_its_field() {
        let usage = Usage {
            fuel: 0,
            cpu: Duration::from_millis(2),
            wall: Duration::from_millis(3),
            host_calls: 4,
            memory_bytes: 1 << 20,
            writes: 5,
            log_bytes: 6 << 10,
        };
        let Limits {
            class: _,
            memory_bytes: _,
            cpu: _,
            wall: _,
            host_calls: _,
            writes: _,
            log_bytes: _,
            reuse: _,
            requests: _,
        } = Limits::default();
        let uses = Uses::default();
        uses.record(&usage, &Limits::default());
        let texts: Vec<_> = uses.used().iter().map(ToString::to_string).collect();
        let all = [
            "memoryMiB 1 (1) of 32",
            "cpuMillis 2 (2) of 20",
            "wallMillis 3 (3) of 2000",
            "hostCalls 4 (4) of 1000",
            "writes 5 (5) of 20",
            "logKiB 6 (6) of 16",
        ];
        assert_eq!(texts, all);
    }
}
