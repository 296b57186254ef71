//! The inputs and effects of [`Ownership`](crate::Ownership).

use std::time::Duration;

use crate::{Mark, Record, Unusable};

/// Something that happened.
#[derive(Debug, Clone)]
pub enum Input {
    /// The time of [`Ownership::due`](crate::Ownership::due) has come.
    Tick,
    /// A part of the host moved. Each part does so at least once a second.
    Beat(Part),
    /// How fit this replica is to act from now on; [`Fitness::Unfit`] at first.
    Fitness(Fitness),
    /// The mark that the next renewal publishes. Ignored while this replica does not act.
    Mark(Mark),
    /// The answer to the request with this number.
    Answer {
        /// The number of [`Effect::Send`].
        request: u64,
        /// The answer.
        answer: Answer,
    },
    /// All deliveries have ended, with the last mark if there is one.
    Drained(Option<Mark>),
    /// The process was asked to exit.
    Stop,
}

/// A part of the host without which a replica must not act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The loop that owns the cache's writer.
    Ingest,
    /// The queue of keys and its workers, by a key of the host's own that a worker settles every second.
    Dispatch,
    /// The life of plugins.
    Life,
    /// The ticker that interrupts guests.
    Epoch,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 4] = [Self::Ingest, Self::Dispatch, Self::Life, Self::Epoch];
}

/// How fit a replica is to act. A replica whose fitness becomes worse than when it took the Lease hands it over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fitness {
    /// A free Lease is taken at once.
    Fit,
    /// A Lease is taken when it was free for one duration, so after all that are fit. For a replica that does not know
    /// deletions since the last mark, whose watch is stale or whose disk rejects the journal.
    Late,
    /// Nothing is taken.
    #[default]
    Unfit,
}

/// The answer to a request for the Lease.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The resource version and the content; `None` if there is no Lease.
    Read(Option<(String, Result<Record, Unusable>)>),
    /// The resource version of the Lease that was created or updated.
    Written(String),
    /// The Lease was not written: it has another resource version, exists already, or does not exist any more.
    Conflict,
    /// Any other answer, or none. A write may have been executed, or may be executed later.
    Failed,
}

/// Something for the caller to do. Effects are in the order in which they are applied.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send a request for the Lease, on a connection of its own, and end it after `within`.
    Send {
        /// The number for [`Input::Answer`].
        request: u64,
        /// The request.
        call: Call,
        /// The time-out.
        within: Duration,
    },
    /// Act, for the tenants of the Lease.
    Own {
        /// The term, for the User-Agent of writes.
        term: u32,
        /// As for [`Effect::Until`].
        until: Duration,
        /// The mark of the holder before: deletions that it covers were delivered.
        mark: Option<Mark>,
    },
    /// From this time on no write is sent, on the clock of [`Ownership::step`](crate::Ownership::step).
    Until(Duration),
    /// Start no run, and end those under way. Requests that were sent may have their answers until [`Effect::Close`],
    /// or until [`Input::Drained`] says that nothing is waited for.
    Drain(Why),
    /// Send no write, and then report the last mark by [`Input::Drained`]. A write under way ends by its time-out at
    /// the latest.
    Close(Why),
    /// The Lease can be neither held nor taken. Sent when that begins and when the reason changes.
    Blocked(Unusable),
    /// This replica holds nothing any more after [`Input::Stop`].
    Stopped,
}

/// A request for the Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Read it.
    Read,
    /// Create it.
    Create(Record),
    /// Replace it.
    Update {
        /// The resource version that is replaced.
        revision: String,
        /// The content.
        record: Record,
    },
}

/// Why a replica ceases to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The process was asked to exit.
    Stop,
    /// A part of the host has not moved for 10 s.
    Stuck(Part),
    /// Its [`Fitness`] became worse.
    Unfit,
    /// Another replica wants the shard, and has fewer.
    Given,
    /// No renewal succeeded in time.
    Deadline,
    /// The Lease is not this replica's any more.
    Taken,
}
