//! Memory for the compiler's processes where the host's container has a limit. In Kubernetes the kernel ends all
//! processes of a container that exceeds its limit, the host among them, so that a process may only have memory that is
//! left.

use std::{fmt, sync::Arc};

use parking_lot::{Condvar, Mutex};
use podium_vocabulary::LimitClass;

use super::{super::LoadProblem, memory_bytes};

/// Stays free for runs and for the cache, which grow meanwhile.
const RESERVE: u64 = 16 << 20;
/// A process with less compiles nothing.
const LEAST: u64 = 24 << 20;

/// Returns the bytes that the host's container has left beside the host itself; `None` without a limit.
type Unused = dyn Fn() -> Option<u64> + Send + Sync;

/// The memory that compilations share. By default it has no limit.
#[derive(Clone, Default)]
pub struct Room(Option<Arc<Limited>>);

struct Limited {
    unused: Box<Unused>,
    /// Bytes that running processes may have.
    taken: Mutex<u64>,
    returned: Condvar,
}

impl Room {
    /// Shares what the host's container has left. `unused` does not count the compiler's processes; it returns `None`
    /// where there is no limit.
    pub fn within(unused: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Limited { unused: Box::new(unused), taken: Mutex::default(), returned: Condvar::new() })))
    }

    /// Reserves the memory of one process: as much as its class may have, or else everything that is left. Blocks while
    /// other processes have the memory that is missing.
    ///
    /// # Errors
    /// Returns an error if too little is left for any component.
    pub(super) fn take(&self, class: LimitClass) -> Result<Share<'_>, LoadProblem> {
        let most = memory_bytes(class);
        let whole = Share { bytes: most, is_short: false, of: None };
        let Some(limited) = &self.0 else { return Ok(whole) };
        let mut taken = limited.taken.lock();
        let bytes = loop {
            let Some(unused) = (limited.unused)() else { return Ok(whole) };
            let left = unused.saturating_sub(RESERVE).saturating_sub(*taken);
            if left >= most {
                break most;
            }
            if *taken == 0 {
                break left;
            }
            limited.returned.wait(&mut taken);
        };
        if bytes < LEAST {
            return Err(LoadProblem::TooLittleMemory { left: bytes, class });
        }
        *taken += bytes;
        Ok(Share { bytes, is_short: bytes < most, of: Some(limited) })
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.0.as_ref().map(|limited| *limited.taken.lock());
        formatter.debug_struct("Room").field("taken", &taken).finish()
    }
}

/// The memory of one process, until it is dropped.
pub(super) struct Share<'a> {
    pub(super) bytes: u64,
    /// Less than the class may have.
    pub(super) is_short: bool,
    of: Option<&'a Limited>,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if let Some(limited) = self.of {
            *limited.taken.lock() -= self.bytes;
            limited.returned.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread, time::Duration};

    use super::*;

    const NATIVE: LimitClass = LimitClass::Native;

    fn room(bytes: u64) -> Room {
        Room::within(move || Some(bytes))
    }

    #[test]
    fn without_a_limit_a_process_has_what_its_class_may_have() {
        for room in [Room::default(), Room::within(|| None), room(64 << 30)] {
            let shares = [room.take(NATIVE).unwrap(), room.take(NATIVE).unwrap()];
            assert!(shares.iter().all(|share| share.bytes == 1 << 30 && !share.is_short));
        }
        assert_eq!(room(64 << 30).take(LimitClass::Interpreter).unwrap().bytes, 2 << 30);
    }

    #[test]
    fn a_process_has_what_is_left_and_the_next_one_waits_for_it() {
        let room = room(128 << 20);
        let first = room.take(NATIVE).unwrap();
        assert_eq!((first.bytes, first.is_short), (112 << 20, true));
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| sender.send(room.take(NATIVE).unwrap().bytes).unwrap());
            assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "it did not wait");
            drop(first);
            assert_eq!(receiver.recv().unwrap(), 112 << 20);
        });
    }

    #[test]
    fn too_little_memory_is_a_problem_that_may_pass_and_names_the_remedy() {
        for (left, shown) in [(0, 0), (39 << 20, 23)] {
            let problem = room(left).take(NATIVE).map(drop).unwrap_err();
            assert!(problem.is_passing());
            assert_eq!(
                problem.to_string(),
                format!(
                    "the memory limit of the host's container leaves {shown} MiB for the compiler, which is too little \
                     for this component; class native may take up to 1024 MiB: raise the limit, or lower \
                     --run-memory-mib"
                )
            );
        }
        assert!(room(40 << 20).take(NATIVE).is_ok());
    }
}
