//! In which shape objects are shown: whole, as metadata alone, or as a table for people.

use crate::failure::Failure;
use crate::kinds::Kind;
use crate::meta::{self, Object};
use crate::read::Page;
use crate::table;
use serde_json::{Value, json};
use std::sync::Arc;

/// What the Accept header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Whole,
    Metadata,
    Table,
}

impl Shape {
    /// The first offer that is served; none named means whole objects.
    ///
    /// # Errors
    /// When every offer is something else, such as protobuf alone.
    pub(crate) fn of(accept: &str) -> Result<Self, Failure> {
        if accept.trim().is_empty() {
            return Ok(Self::Whole);
        }
        for offer in accept.split(',') {
            let mut parts = offer.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            if !matches!(media, "application/json" | "*/*" | "application/*") {
                continue;
            }
            match parts.find_map(|p| p.strip_prefix("as=")) {
                None => return Ok(Self::Whole),
                Some("Table") => return Ok(Self::Table),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => return Ok(Self::Metadata),
                Some(_) => {}
            }
        }
        Err(Failure::not_acceptable())
    }
}

/// Shows objects of one kind in one shape.
#[derive(Debug)]
pub(crate) struct Presenter {
    kind: Arc<Kind>,
    shape: Shape,
    whole_rows: bool,
    /// A watch sends a table's columns once.
    columns_sent: bool,
    /// Whether a watch marks the end of its initial events.
    pub(crate) mark_end: bool,
}

impl Presenter {
    pub(crate) fn new(kind: Arc<Kind>, shape: Shape, include_object: &str) -> Self {
        Self { kind, shape, whole_rows: include_object == "Object", columns_sent: false, mark_end: false }
    }

    /// One object; a table of one row where tables are asked for.
    pub(crate) fn one(&mut self, object: &Object, now_millis: i64) -> Value {
        match self.shape {
            Shape::Whole => Value::clone(object),
            Shape::Metadata => partial(object),
            Shape::Table => {
                let metadata = json!({"resourceVersion": meta::revision(object)});
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                self.table(metadata, std::slice::from_ref(object), columns, now_millis)
            }
        }
    }

    pub(crate) fn list(&self, page: &Page, now_millis: i64) -> Value {
        match self.shape {
            Shape::Table => self.table(page.metadata(), &page.items, true, now_millis),
            Shape::Whole => json!({
                "kind": format!("{}List", self.kind.kind),
                "apiVersion": self.kind.api_version(),
                "metadata": page.metadata(),
                "items": page.items.iter().map(|object| self.item(object)).collect::<Vec<_>>(),
            }),
            Shape::Metadata => json!({
                "kind": "PartialObjectMetadataList",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": page.metadata(),
                "items": page.items.iter().map(|object| partial(object)).collect::<Vec<_>>(),
            }),
        }
    }

    /// A bookmark in this shape; `object` has kind and metadata alone.
    pub(crate) fn bookmark(&self, object: Value) -> Value {
        match self.shape {
            Shape::Whole => object,
            Shape::Metadata => partial(&object),
            Shape::Table => {
                let metadata = json!({"resourceVersion": meta::revision(&object)});
                let row = json!({"cells": [], "object": partial(&object)});
                json!({
                    "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": [],
                    "rows": [row],
                })
            }
        }
    }

    /// Items of a list of a built-in kind do not repeat kind and version; those of a custom resource do.
    fn item(&self, object: &Object) -> Value {
        let mut item = Value::clone(object);
        if !self.kind.custom {
            meta::remove(&mut item, &["kind"]);
            meta::remove(&mut item, &["apiVersion"]);
        }
        item
    }

    fn table(&self, metadata: Value, objects: &[Object], columns: bool, now_millis: i64) -> Value {
        let printer = table::printer(&self.kind);
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| {
                let shown = if self.whole_rows { Value::clone(object) } else { partial(object) };
                json!({"cells": printer.cells(object, now_millis), "object": shown})
            })
            .collect();
        json!({
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "columnDefinitions": if columns { printer.columns() } else { Vec::new() },
            "rows": rows,
        })
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
