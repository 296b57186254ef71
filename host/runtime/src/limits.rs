//! Limits of a run on processor time and memory, in the engine's units.

use std::time::Duration;

use podium_vocabulary::LimitClass;
use wasmtime::ResourceLimiter;

/// Fuel for a millisecond of processor time. One unit is one WebAssembly instruction, or one byte of a bulk copy; the
/// host's work for the run has [prices](super::meter::price).
///
/// Rough: measured on a 2-core x86-64 cloud machine, a tight loop of arithmetic burns 8 to 16 million units in a
/// millisecond, code that allocates, compares and misses the cache 1 to 2 million, and a loop of nothing but its branch
/// 0.6 to 0.9 million, because each branch checks fuel and epoch. So fuel is exact in instructions, but as the only
/// limit it would cut a run after a third to eight times of its limit. Outside simulations [`most_time`] cuts where
/// fuel is slow.
pub(super) const FUEL_PER_MILLISECOND: u64 = 5_000_000;

/// Fuel for this much time on the processor; at least one millisecond's.
pub(super) fn fuel(cpu: Duration) -> u64 {
    let microseconds = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
    microseconds.saturating_mul(FUEL_PER_MILLISECOND / 1_000).max(FUEL_PER_MILLISECOND)
}

/// Returns the time that corresponds to an amount of fuel.
pub(super) fn time(fuel: u64) -> Duration {
    Duration::from_micros(fuel / (FUEL_PER_MILLISECOND / 1_000))
}

/// The measured processor time with which a run is cut: its limit and a quarter, because the same code takes longer
/// where neighbours fill caches and share a core, and a millisecond for cold pages and the time between two ticks.
pub(super) fn most_time(cpu: Duration) -> Duration {
    cpu.saturating_add(cpu / 4).saturating_add(Duration::from_millis(1))
}

/// The most bytes that the host copies for one call of a guest: texts byte by byte, and the elements of lists by their
/// size in the host. Labels, annotations, Events and values of the plugin's state are all smaller.
const CALL_BYTES: usize = 256 << 10;
/// The bytes of the other arguments of a call with a large object.
const MARGIN_BYTES: usize = 64 << 10;

/// The most bytes that one call may pass, for a plugin that may apply objects or may not. wasmtime does not know which
/// function will be called when it begins to copy, so the allowance for objects holds for all calls of such a plugin.
/// Every copied byte is paid for in any case.
pub(super) fn call_bytes(objects: bool) -> usize {
    if objects { OBJECT_BYTES + MARGIN_BYTES } else { CALL_BYTES }
}

/// Below what etcd takes (1.5 MiB), as JSON.
pub(super) const OBJECT_BYTES: usize = 1 << 20;

/// Limits on the components of one class of plugins.
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

/// The most core instances in a component of the largest class, for the pooling allocator.
pub(super) const MAX_INSTANCES: u32 = 64;
/// The most elements in one table, for the pooling allocator.
pub(super) const MAX_TABLE_ELEMENTS: usize = 50_000;

/// Why the engine cut a run. Travels through wasmtime as the error's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum CutReason {
    #[error("asked for {asked} bytes of memory, may have {limit}")]
    Memory { asked: usize, limit: usize },
    #[error("asked for {asked} table elements, may have {limit}")]
    Tables { asked: usize, limit: usize },
    #[error("used {spent:?} of processor time, and is cut at {limit:?}")]
    Time { spent: Duration, limit: Duration },
    #[error("made more than {limit} host calls")]
    Calls { limit: u32 },
    #[error("made more than {limit} host calls, and continued as often after they were refused")]
    Refusals { limit: u32 },
    #[error("passed more than {limit} bytes to the host at once")]
    Arguments { limit: usize },
    #[error("called wasi:cli/exit with status {0}")]
    Exit(u8),
    #[error("asked for {0} random bytes at once")]
    Random(u64),
}

/// Sums over all memories and tables of a run: a component may have several, and each would keep its own limit.
/// Growth beyond a limit traps, because guests answer a failed growth with an abort whose message is less clear.
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

    /// The linear memory of the run.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory.used
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let limit = self.memory.limit;
        self.memory.grow(current, desired).map_err(|asked| CutReason::Memory { asked, limit })?;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        Err(error)
    }

    fn table_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let limit = self.tables.limit;
        self.tables.grow(current, desired).map_err(|asked| CutReason::Tables { asked, limit })?;
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
        assert!(limiter.memory_growing(0, 41, None).is_err(), "two memories share the limit");
        assert!(limiter.memory_growing(60, 100, None).is_ok());
        assert!(limiter.memory_growing(usize::MAX, usize::MAX, None).is_err());
    }

    #[test]
    fn fuel_and_time_follow_the_limit_and_never_vanish() {
        assert_eq!(fuel(Duration::from_millis(20)), 100_000_000);
        assert_eq!(fuel(Duration::ZERO), FUEL_PER_MILLISECOND);
        assert_eq!(fuel(Duration::MAX), u64::MAX);
        assert_eq!(time(fuel(Duration::from_millis(20))), Duration::from_millis(20));
        assert_eq!(most_time(Duration::from_millis(20)), Duration::from_millis(26));
        assert_eq!(most_time(Duration::MAX), Duration::MAX);
    }
}
