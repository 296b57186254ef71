//! The life of a plugin: one automaton over one map, which is the only place that decides which version of a plugin
//! runs. Pure: it never waits, and has neither a lock nor a clock.
//!
//! [`Life::step`] takes an event and returns effects, in the order in which the caller applies them. Permissions end in
//! the step that decides it: [`Effect::Restrict`] and [`Effect::Remove`] come first, and the caller applies them before
//! it starts anything else. Effects that take time come back as events with the [`Ticket`] of their attempt; one with
//! another ticket than the present one changes nothing.
//!
//! ARCHITECTURE.md has the diagram of the states.

#![warn(missing_docs)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

mod automaton;
mod event;
mod plugin;
mod record;
mod slots;

pub use automaton::Life;
pub use event::{Effect, Event, Object, Parts, Place, Report, Source, Ticket, Want};
pub use plugin::{Plugin, Shown, Version};
pub use record::{Ran, Record, Recorded, Refused, Tried};
pub use slots::{Bounds, Taker, Work, taker};

#[cfg(test)]
mod tests;
