//! Whether the API server still has the history that was told. It may have been set back, as when etcd is restored from
//! a snapshot: a watch from a revision that the server has not reached is not refused, it only tells nothing, and what
//! it would have to tell meanwhile is lost.

use std::time::Duration;

/// For the first watch after a lost connection, which is how a server looks that was stopped for a restore. It is the
/// shortest at whose end an API server was seen to send a bookmark.
const CHECK: Duration = Duration::from_secs(3);
/// So many watches in a row that end without a word are looked into: in a cluster that lives each brings a bookmark,
/// and in one where nothing at all happens this costs a request in half a minute.
const QUIET: u32 = 4;

#[derive(Debug, Default)]
pub(super) struct Doubt {
    /// How many watches in a row ended without a word.
    quiet: u32,
    suspected: bool,
    /// The connection did not hold, and nothing was told since: others of that time may be dead too.
    unconnected: bool,
}

impl Doubt {
    /// The connection was lost; what answers next may be another server.
    pub(super) fn cut(&mut self) {
        self.quiet = QUIET;
        self.unconnected = true;
    }

    /// A watch did not end though its time was up.
    pub(super) fn overdue(&mut self) {
        self.unconnected = true;
    }

    /// A watch ended in order and had told nothing. True: that is to be looked into.
    pub(super) fn silence(&mut self) -> bool {
        self.quiet = self.quiet.saturating_add(1);
        self.quiet >= QUIET
    }

    /// The server was found to be before what was told.
    pub(super) fn suspect(&mut self) {
        self.suspected = true;
    }

    /// The server was found to have what was told.
    pub(super) fn dispel(&mut self) {
        *self = Self::default();
    }

    /// The server is asked for its revision until it has caught up or is taken as it is: a watch would be silent.
    pub(super) fn suspects(&self) -> bool {
        self.suspected
    }

    /// The next watch is not to trust a connection that stood before.
    pub(super) fn is_of_connections(&self) -> bool {
        self.unconnected
    }

    pub(super) fn watch_timeout(&self, usual: Duration) -> Duration {
        if self.quiet >= QUIET { usual.min(CHECK) } else { usual }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_watch_that_was_cut_or_did_not_end_no_old_connection_is_trusted_until_something_is_told() {
        for lose in [Doubt::cut, Doubt::overdue] {
            let mut doubt = Doubt::default();
            doubt.silence();
            assert!(!doubt.is_of_connections());
            lose(&mut doubt);
            assert!(doubt.is_of_connections());
            doubt.dispel();
            assert!(!doubt.is_of_connections());
        }
    }
}
