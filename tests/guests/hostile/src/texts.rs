//! Texts for logs, Events, conditions and errors that are too long, too many, or mean to forge others.

use bindings::{
    Failure, Outcome, events, log,
    types::{ConditionStatus, EventType},
    writes,
};

use crate::Attack;

/// A line's end, a forged line, ANSI, bidirectional and other controls, and the end of a JSON string.
pub const FORGED: &str =
    "a\n2026-01-01T00:00:00Z ERROR podium_host: FORGED\r\u{1b}[2J\u{202e}\u{2028}\0\u{85}\",\"level\":\"error\"";

pub const ATTACKS: &[(&str, Attack)] = &[
    ("log-forged-lines", |_, _| {
        log::write(log::Level::Info, FORGED, &[(FORGED.to_owned(), FORGED.to_owned())]);
        settled()
    }),
    ("log-fields-of-the-host", |_, _| {
        let fields = ["level", "timestamp", "target", "plugin", "message", "fields", "", "a b", "a=b", "{"];
        log::write(log::Level::Error, "mine", &fields.map(|name| (name.to_owned(), "FORGED".to_owned())));
        settled()
    }),
    ("log-many-small-lines", |_, _| {
        (0..900).for_each(|_| log::write(log::Level::Info, "x", &[]));
        settled()
    }),
    ("log-one-big-line", |_, _| {
        log::write(log::Level::Info, &"x".repeat(200 << 10), &[]);
        settled()
    }),
    ("log-many-fields", |_, _| {
        log::write(log::Level::Info, "x", &vec![("k".to_owned(), "v".to_owned()); 2_000]);
        settled()
    }),
    ("log-characters-that-grow-when-escaped", |_, _| {
        (0..100).for_each(|_| log::write(log::Level::Info, &"\u{1}".repeat(1_000), &[]));
        settled()
    }),
    ("event-forged-lines", |request, tally| {
        for text in [FORGED, "", "a b", "lower", &"X".repeat(129)] {
            tally.add(events::emit(&request.key, EventType::Warning, text, "Forge", "a note"));
            tally.add(events::emit(&request.key, EventType::Warning, "Forge", text, "a note"));
        }
        tally.add(events::emit(&request.key, EventType::Warning, "Forge", "Forge", &"x".repeat(1_025)));
        tally.add(events::emit(&request.key, EventType::Warning, "Forge", "Forge", ""));
        None
    }),
    ("event-note-with-controls", |request, _| {
        let _ = events::emit(&request.key, EventType::Warning, "Forged", "Forge", FORGED);
        settled()
    }),
    ("event-note-that-grows-when-escaped", |request, _| {
        let _ = events::emit(&request.key, EventType::Warning, "Forged", "Forge", &"\u{1}".repeat(1_024));
        settled()
    }),
    ("condition-message-with-controls", |request, _| {
        let _ = writes::set_condition(&request.key, "guests.example/a", ConditionStatus::True, "Forged", FORGED);
        settled()
    }),
    ("condition-reasons-out-of-syntax", |request, tally| {
        for reason in [FORGED, "a b", "-", "a-b", "\u{430}", &"x".repeat(1_025)] {
            let (kind, status) = ("guests.example/a", ConditionStatus::True);
            tally.add(writes::set_condition(&request.key, kind, status, reason, ""));
        }
        let huge = "x".repeat((32 << 10) + 1);
        tally.add(writes::set_condition(&request.key, "guests.example/a", ConditionStatus::True, "A", &huge));
        None
    }),
    ("fail-with-forged-lines", |_, _| Some(Err(Failure::Terminal(FORGED.to_owned())))),
    ("fail-with-a-huge-text", |_, _| Some(Err(Failure::Terminal("x".repeat(1 << 20))))),
    ("fail-with-no-text", |_, _| Some(Err(Failure::Retry(String::new())))),
    ("panic-with-a-huge-text", |_, _| panic!("{}", FORGED.repeat(1_000))),
];

fn settled() -> Option<Result<Outcome, Failure>> {
    Some(Ok(Outcome::Settled))
}
