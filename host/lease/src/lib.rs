//! Which replica acts: by a Lease, or one for each shard, that its holder renews and that the other replicas read.
//!
//! [`Ownership::step`] takes an event and the time, and returns effects, in the order in which the caller applies them.
//! It neither waits nor reads a clock; requests are effects, and their answers are events. [`Lease`] is the form of the
//! object.
//!
//! **No two replicas act at one instant** as long as clocks run within 1 % of true time and no clock steps forward by
//! more than three thirty-seconds of the Lease's duration unnoticed. A holder stops seven eighths of the duration after
//! it sent its last successful renewal; another replica takes the Lease when it has seen it unchanged for the whole
//! duration, on its own clock. Neither compares clocks of two machines. After a restore of the API server to an earlier
//! state this holds for replicas that read the Lease until the restore, and for others that begin one duration later.

#![warn(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and an environment of their own"
    )
)]

mod event;
mod form;
mod mark;
mod ownership;
mod sharing;

pub use event::{Answer, Call, Effect, Fitness, Input, Part, Why};
pub use form::{Lease, Place, Record, Unusable};
pub use mark::Mark;
pub use ownership::{Ownership, State};
pub use sharing::{Mode, Sharing};

#[cfg(test)]
mod tests;
