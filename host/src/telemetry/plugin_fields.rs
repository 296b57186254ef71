//! A plugin's log fields as fields of the line. Their names are known only when the line is logged, so they arrive as
//! one
//! `tracing` field: [`NAME`], a JSON object of texts.

use std::fmt::{self, Write};

use podium_engine::ports::PLUGIN_TARGET;
use podium_vocabulary::text;
use serde_json::{Map, Value};
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Json, Writer},
    },
    registry::LookupSpan,
};

/// The field that holds the object.
const NAME: &str = "plugin_fields";

/// Fields as text: `name=value`, separated by spaces; the message without its name.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextFields;

impl<'writer> FormatFields<'writer> for TextFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = Text { writer, first: true, result: Ok(()) };
        fields.record(&mut text);
        text.result
    }
}

struct Text<'writer> {
    writer: Writer<'writer>,
    first: bool,
    result: fmt::Result,
}

impl Text<'_> {
    fn write(&mut self, text: fmt::Arguments<'_>) {
        let space = if std::mem::take(&mut self.first) { "" } else { " " };
        // Also for a terminal, to which lines go without the buffer. Colours are not in the fields.
        let written = self.result.and_then(|()| self.writer.write_str(space));
        self.result = written.and_then(|()| text::Escaped(&mut self.writer).write_fmt(text));
    }
}

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.write(format_args!("{value:?}")),
            NAME => {
                let object: Map<String, Value> = serde_json::from_str(&format!("{value:?}")).unwrap_or_default();
                for (name, value) in &object {
                    let value = value.as_str().unwrap_or_default();
                    self.write(format_args!("{}={}", word(name), word(value)));
                }
            }
            name => self.write(format_args!("{name}={value:?}")),
        }
    }
}

/// Quotes a text that could be read as more than one field.
fn word(text: &str) -> String {
    let plain = |character: char| !character.is_whitespace() && !matches!(character, '=' | '"' | '\\');
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { format!("{text:?}") }
}

/// A line of JSON in which the fields of a plugin are the object `fields`: beside the host's own, a field called
/// `level` would take the place of the level.
pub(super) struct JsonLine(pub(super) Format<Json>);

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if event.metadata().target() != PLUGIN_TARGET {
            return self.0.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        let mut object: Map<String, Value> = serde_json::from_str(&line).map_err(|_| fmt::Error)?;
        if let Some(Value::String(fields)) = object.remove(NAME) {
            // As a map: `serde_json` reads the text of a value with one field of a certain name as JSON once more, and
            // the field's name is a plugin's.
            let fields: Map<String, Value> = serde_json::from_str(&fields).unwrap_or_default();
            object.insert("fields".to_owned(), fields.into());
        }
        writeln!(writer, "{}", Value::Object(object))
    }
}
