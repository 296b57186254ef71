//! Detects that the API server's history was rolled back, as when etcd is restored from a snapshot. A watch from a
//! revision that the server has not reached is not refused: it is silent, and the events until then are lost.

use std::time::Duration;

/// Timeout of the first watch after a lost connection; a server that was stopped for a restore looks the same. It is
/// the shortest timeout at whose end API servers were observed to send a bookmark.
const CHECK: Duration = Duration::from_secs(3);
/// After this number of consecutive watches without an event or a bookmark the server's revision is checked. In an
/// active cluster each watch has a bookmark; in an idle one the check costs a request in half a minute.
const QUIET: u32 = 4;

/// Whether the history of the API server is still the one that was observed.
#[derive(Debug, Default)]
pub struct RollbackDetector {
    /// How many consecutive watches ended without an event or a bookmark.
    quiet: u32,
    /// The server's revision was read, and it was older than the observed one.
    proven: bool,
    /// The connection was lost, and no event has arrived since: older connections may be dead too.
    unconnected: bool,
}

impl RollbackDetector {
    /// Records that the connection was lost; the next one may reach another server.
    pub fn cut(&mut self) {
        self.quiet = QUIET;
        self.unconnected = true;
    }

    /// Records that a watch did not end at its timeout.
    pub fn overdue(&mut self) {
        self.unconnected = true;
    }

    /// Counts a watch that ended regularly without an event or a bookmark. Returns true if the server's revision
    /// should be checked.
    pub fn silence(&mut self) -> bool {
        self.quiet = self.quiet.saturating_add(1);
        self.quiet >= QUIET
    }

    /// Records that a read of the server's present revision, which no cache answers, returned one before the observed
    /// one. This stays true when the new history reaches the observed revision: it is another history.
    pub fn prove(&mut self) {
        self.proven = true;
    }

    /// Returns true if the history was set back and has not been listed since.
    pub fn is_proven(&self) -> bool {
        self.proven
    }

    /// Records that the server has the observed revision.
    pub fn confirm(&mut self) {
        *self = Self::default();
    }

    /// Returns true if the next watch must not use a connection that existed before.
    pub fn needs_new_connection(&self) -> bool {
        self.unconnected
    }

    /// Returns the timeout of the next watch.
    #[must_use]
    pub fn watch_timeout(&self, usual: Duration) -> Duration {
        if self.quiet >= QUIET { usual.min(CHECK) } else { usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_lost_watch_old_connections_wait_for_an_event() {
        for lose in [RollbackDetector::cut, RollbackDetector::overdue] {
            let mut rollback = RollbackDetector::default();
            rollback.silence();
            assert!(!rollback.needs_new_connection());
            lose(&mut rollback);
            assert!(rollback.needs_new_connection());
            rollback.confirm();
            assert!(!rollback.needs_new_connection());
        }
    }
}
