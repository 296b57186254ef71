//! All that code logs while a test runs, with the fields of the spans around each line.

use std::{
    collections::HashMap,
    fmt::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use podium_engine::fixtures::log_to;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

#[derive(Debug, Clone, Default)]
pub(super) struct Lines(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    next: AtomicU64,
    spans: Mutex<HashMap<u64, String>>,
    entered: Mutex<Vec<u64>>,
    lines: Mutex<Vec<String>>,
}

/// Returns the result of a function, and all lines that this thread has logged in it, at every level.
pub(super) fn logged<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    let lines = Lines::default();
    let logged = log_to(lines.clone());
    let result = work();
    drop(logged);
    (result, lines.take())
}

impl Lines {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lines.lock().unwrap())
    }
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String does not fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("podium")
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().target().to_owned();
        span.record(&mut Fields(&mut text));
        let id = self.0.next.fetch_add(1, Ordering::Relaxed) + 1;
        self.0.spans.lock().unwrap().insert(id, text);
        Id::from_u64(id)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = format!("{} {}", event.metadata().level(), event.metadata().target());
        event.record(&mut Fields(&mut text));
        let spans = self.0.spans.lock().unwrap();
        for id in &*self.0.entered.lock().unwrap() {
            let _ = write!(text, " in {}", spans.get(id).map_or("", String::as_str));
        }
        self.0.lines.lock().unwrap().push(text);
    }
    fn enter(&self, id: &Id) {
        self.0.entered.lock().unwrap().push(id.into_u64());
    }
    fn exit(&self, id: &Id) {
        let mut entered = self.0.entered.lock().unwrap();
        if let Some(at) = entered.iter().rposition(|entered| *entered == id.into_u64()) {
            entered.remove(at);
        }
    }
}
