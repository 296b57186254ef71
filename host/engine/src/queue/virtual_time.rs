//! Virtual time: the cost that an account was charged. The account with the least is next.
//!
//! The unit is a nanosecond of cost. Accounts that wait share the processor equally, because each is charged what its
//! runs cost. An account that had nothing to run cannot save up more than [`CREDIT`].

use std::time::Duration;

/// The most that an account may be behind the others after a rest: as many runs as this pays for start before those of
/// accounts that did not rest.
pub(super) const CREDIT: Duration = Duration::from_millis(50);

/// The order of accounts: virtual time, then a unique number, by which accounts with the same time take turns.
pub(super) type Key = (u64, u64);

/// The virtual time of one tenant or lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Account {
    time: u64,
    turn: u64,
}

impl Account {
    pub(super) const fn key(self) -> Key {
        (self.time, self.turn)
    }

    /// Charges a cost in advance. `turn` is greater than that of every other account.
    pub(super) fn charge(&mut self, nanos: u64, turn: u64) {
        self.time = self.time.saturating_add(nanos);
        self.turn = turn;
    }

    /// Replaces a cost that was charged in advance by the cost that was used.
    pub(super) fn correct(&mut self, charged: u64, used: u64) {
        self.time = self.time.saturating_sub(charged).saturating_add(used);
    }
}

/// The least virtual time of the accounts that wait. It only grows.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Present(u64);

impl Present {
    /// Returns a new account. It has no credit.
    pub(super) const fn open(self, turn: u64) -> Account {
        Account { time: self.0, turn }
    }

    pub(super) fn advance(&mut self, (time, _): Key) {
        self.0 = self.0.max(time);
    }

    /// Limits the credit of an account that begins to wait.
    pub(super) fn cap_credit(self, account: &mut Account) {
        account.time = account.time.max(self.0.saturating_sub(nanos(CREDIT)));
    }

    /// Returns by how much the account has taken more than the one whose turn it is; zero if it has taken less.
    pub(super) const fn debt(self, account: Account) -> Duration {
        Duration::from_nanos(account.time.saturating_sub(self.0))
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
