//! What a run may use of processor and memory, in the engine's units.

use std::time::Duration;

use podium_pods::model::LimitClass;
use wasmtime::ResourceLimiter;

/// Fuel for a millisecond of processor time. One unit is one WebAssembly instruction, or one byte of a bulk copy.
///
/// Rough: measured on a 2-core x86-64 cloud machine, a tight loop burns 8 million units in a millisecond; code that
/// allocates, compares and misses the cache burns 1 to 2 million. So the limit is exact in instructions (the same run
/// always ends at the same one), and cuts between two thirds and five times the time it names; the epoch stands behind.
const FUEL_PER_MILLISECOND: u64 = 5_000_000;

/// How much more time than its limit of processor time a run may spend before the epoch ends it: cache misses, host
/// calls and a busy machine make fuel slow, and must not fail a run that fuel would let through.
const BACKSTOP: u32 = 10;

/// Fuel for this much time on the processor; at least one millisecond's.
pub(super) fn fuel(cpu: Duration) -> u64 {
    let microseconds = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
    microseconds.saturating_mul(FUEL_PER_MILLISECOND / 1_000).max(FUEL_PER_MILLISECOND)
}

/// Ticks of the epoch, each at most `tick` of running, after which a run is cut.
pub(super) fn backstop_ticks(cpu: Duration, tick: Duration) -> u32 {
    ticks(cpu.saturating_mul(BACKSTOP), tick).max(BACKSTOP)
}

/// Whole ticks in a time.
pub(super) fn ticks(time: Duration, tick: Duration) -> u32 {
    u32::try_from(time.as_micros() / tick.as_micros().max(1)).unwrap_or(u32::MAX)
}

/// What a class of plugins may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClassLimits {
    pub(super) component_bytes: usize,
    pub(super) compile: Duration,
    pub(super) instances: usize,
    /// Elements of all tables together; entries of function tables, for the most part.
    pub(super) table_elements: usize,
}

/// A componentize-py guest is 18 MB, has about 40 core instances and takes 10 s to compile.
pub(super) const fn of_class(class: LimitClass) -> ClassLimits {
    match class {
        LimitClass::Native => ClassLimits {
            component_bytes: 8 << 20,
            compile: Duration::from_secs(10),
            instances: 16,
            table_elements: 20_000,
        },
        LimitClass::Interpreter => ClassLimits {
            component_bytes: 32 << 20,
            compile: Duration::from_secs(60),
            instances: MAX_INSTANCES as usize,
            table_elements: 200_000,
        },
    }
}

/// The largest class's, for the pool.
pub(super) const MAX_INSTANCES: u32 = 64;
/// Of one table, for the pool.
pub(super) const MAX_TABLE_ELEMENTS: usize = 50_000;

/// Why the engine cut a run. Travels through wasmtime as the error's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Cut {
    #[error("asked for {asked} bytes of memory, may have {limit}")]
    Memory { asked: usize, limit: usize },
    #[error("asked for {asked} table elements, may have {limit}")]
    Tables { asked: usize, limit: usize },
    #[error("ran for {ticks} ticks of the epoch, the limit of processor time {BACKSTOP} times over")]
    Backstop { ticks: u32 },
    #[error("made more than {limit} host calls")]
    Calls { limit: u32 },
    #[error("called wasi:cli/exit with status {0}")]
    Exit(u8),
    #[error("asked for {0} random bytes at once")]
    Random(u64),
}

/// Sums over all memories and tables of a run: a component may have several, and each would keep a limit of its own.
/// Growing beyond traps, because guests answer a failed growth with an abort that says less.
#[derive(Debug)]
pub(super) struct Limiter {
    memory: Sum,
    tables: Sum,
    instances: usize,
}

#[derive(Debug)]
struct Sum {
    used: usize,
    limit: usize,
}

impl Sum {
    /// The sum after growing, when it is beyond the limit.
    fn grow(&mut self, current: usize, desired: usize) -> Result<(), usize> {
        let asked = self.used.saturating_sub(current).saturating_add(desired);
        if asked > self.limit {
            return Err(asked);
        }
        self.used = asked;
        Ok(())
    }
}

impl Limiter {
    pub(super) fn new(memory_bytes: usize, class: LimitClass) -> Self {
        let class = of_class(class);
        Self {
            memory: Sum { used: 0, limit: memory_bytes },
            tables: Sum { used: 0, limit: class.table_elements },
            instances: class.instances,
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let limit = self.memory.limit;
        self.memory.grow(current, desired).map_err(|asked| Cut::Memory { asked, limit })?;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let limit = self.tables.limit;
        self.tables.grow(current, desired).map_err(|asked| Cut::Tables { asked, limit })?;
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn instances(&self) -> usize {
        self.instances
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_share_one_limit() {
        let mut limiter = Limiter::new(100, LimitClass::Native);
        assert!(limiter.memory_growing(0, 60, None).is_ok());
        assert!(limiter.memory_growing(0, 41, None).is_err(), "a second memory takes from the same sum");
        assert!(limiter.memory_growing(60, 100, None).is_ok());
        assert!(limiter.memory_growing(usize::MAX, usize::MAX, None).is_err());
    }

    #[test]
    fn fuel_and_backstop_follow_the_limit_and_never_vanish() {
        assert_eq!(fuel(Duration::from_millis(20)), 100_000_000);
        assert_eq!(fuel(Duration::ZERO), FUEL_PER_MILLISECOND);
        assert_eq!(fuel(Duration::MAX), u64::MAX);
        assert_eq!(backstop_ticks(Duration::from_millis(20), Duration::from_millis(1)), 200);
        assert_eq!(backstop_ticks(Duration::ZERO, Duration::from_millis(1)), 10);
    }
}
