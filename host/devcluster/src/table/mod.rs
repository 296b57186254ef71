//! Tables for people: the columns that kubectl prints, per kind.

mod age;
mod custom;
mod kinds;
mod pods;
mod workloads;

use serde_json::{Value, json};

use crate::{kinds::Kind, meta};

/// The columns and cells of one kind.
pub(crate) struct Printer<'a> {
    columns: Vec<Column>,
    row: Row<'a>,
}

enum Row<'a> {
    BuiltIn(fn(&Value, i64) -> Vec<Value>),
    Custom(&'a [Value]),
}

/// One column; only `-o wide` shows priority 1.
struct Column {
    name: String,
    kind: String,
    priority: i64,
}

impl Column {
    fn new(name: &str, kind: &str, priority: i64) -> Self {
        Self { name: name.into(), kind: kind.into(), priority }
    }
}

/// Parses columns: a leading `+` makes one wide, a leading `#` an integer.
fn columns(words: &[&str]) -> Vec<Column> {
    words
        .iter()
        .map(|word| {
            let (word, priority) = word.strip_prefix('+').map_or((*word, 0), |rest| (rest, 1));
            let (word, kind) = word.strip_prefix('#').map_or((word, "string"), |rest| (rest, "integer"));
            Column::new(word, kind, priority)
        })
        .collect()
}

pub(crate) fn printer(kind: &Kind) -> Printer<'_> {
    if kind.custom {
        return Printer { columns: custom::columns(&kind.columns), row: Row::Custom(&kind.columns) };
    }
    let (words, row): (&[&str], kinds::Row) = match kind.resource().as_str() {
        "pods" => (pods::COLUMNS, pods::row),
        _ if kind.runs_pods() => workloads::printer(kind),
        other => kinds::printer(other),
    };
    Printer { columns: columns(words), row: Row::BuiltIn(row) }
}

impl Printer<'_> {
    pub(crate) fn columns(&self) -> Vec<Value> {
        self.columns
            .iter()
            .map(|column| {
                let format = if column.name == "Name" { "name" } else { "" };
                json!({
                    "name": column.name, "type": column.kind, "format": format, "description": "",
                    "priority": column.priority,
                })
            })
            .collect()
    }

    pub(crate) fn cells(&self, object: &Value, now_millis: i64) -> Vec<Value> {
        match self.row {
            Row::BuiltIn(row) => row(object, now_millis),
            Row::Custom(columns) => custom::row(columns, object, now_millis),
        }
    }
}

fn age(object: &Value, now_millis: i64) -> Value {
    age::since(meta::text(object, &["metadata", "creationTimestamp"]), now_millis).into()
}
