//! The representations of objects: whole, only metadata, or as a table for people.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    failure::Failure,
    kinds::Kind,
    meta::{self, Object},
    read::Page,
    table,
};

/// The representation that the Accept header requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Whole,
    /// The metadata of an object.
    Metadata,
    /// The metadata of the objects of a list.
    MetadataList,
    Table,
}

impl Shape {
    /// Returns the first served representation; whole objects if the header is empty.
    ///
    /// # Errors
    /// Returns an error if only other representations are accepted, such as protobuf.
    pub(crate) fn requested(accept: &str) -> Result<Self, Failure> {
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
                Some("PartialObjectMetadata") => return Ok(Self::Metadata),
                Some("PartialObjectMetadataList") => return Ok(Self::MetadataList),
                Some(_) => {}
            }
        }
        Err(Failure::not_acceptable())
    }
}

/// The object of a table's row, in addition to its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rows {
    Nothing,
    Metadata,
    Whole,
}

/// Renders objects of one kind in one representation.
#[derive(Debug)]
pub(crate) struct Presenter {
    kind: Arc<Kind>,
    shape: Shape,
    rows: Rows,
    /// A watch sends a table's columns once.
    columns_sent: bool,
    /// Whether a watch marks the end of its initial events.
    pub(crate) mark_end: bool,
}

impl Presenter {
    pub(crate) fn new(kind: Arc<Kind>, shape: Shape, include_object: &str) -> Self {
        let rows = match include_object {
            "None" => Rows::Nothing,
            "Object" => Rows::Whole,
            _ => Rows::Metadata,
        };
        Self { kind, shape, rows, columns_sent: false, mark_end: false }
    }

    /// Renders one object; as a table of one row if tables are requested.
    pub(crate) fn one(&mut self, object: &Object, now_millis: i64) -> String {
        match self.shape {
            Shape::Whole => object.to_string(),
            Shape::Metadata | Shape::MetadataList => partial(object),
            Shape::Table => {
                let metadata = json!({"resourceVersion": meta::revision(object)});
                let columns = !std::mem::replace(&mut self.columns_sent, true);
                self.table(&metadata, std::slice::from_ref(object), columns, now_millis)
            }
        }
    }

    /// # Errors
    /// Returns an error if the metadata of an object is asked for.
    pub(crate) fn list(&self, page: &Page, now_millis: i64) -> Result<String, Failure> {
        let metadata = page.metadata();
        Ok(match self.shape {
            Shape::Table => self.table(&metadata, &page.items, true, now_millis),
            Shape::Whole => {
                let items = join(page.items.iter().map(|object| self.item(object)));
                let kind = &self.kind.kind;
                let version = self.kind.api_version();
                format!(
                    "{{\"kind\":\"{kind}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\
                    \"items\":[{items}]}}"
                )
            }
            Shape::Metadata => return Err(Failure::no_list()),
            Shape::MetadataList => {
                let items = join(page.items.iter().map(|object| partial(object)));
                format!(
                    "{{\"kind\":\"PartialObjectMetadataList\",\"apiVersion\":\"meta.k8s.io/v1\",\
                    \"metadata\":{metadata},\"items\":[{items}]}}"
                )
            }
        })
    }

    /// Renders a bookmark; `object` only has kind and metadata.
    pub(crate) fn bookmark(&self, object: &Value) -> String {
        match self.shape {
            Shape::Whole => object.to_string(),
            Shape::Metadata | Shape::MetadataList => partial(object),
            Shape::Table => {
                let metadata = json!({"resourceVersion": meta::revision(object)});
                table_of(&metadata, "", &format!("{{\"cells\":[],\"object\":{}}}", partial(object)))
            }
        }
    }

    /// Renders an item of a list. Items of a built-in kind do not repeat kind and version; those of a custom resource
    /// do.
    fn item(&self, object: &Object) -> String {
        let Some(fields) = object.as_object().filter(|_| !self.kind.custom) else { return object.to_string() };
        let said = fields.iter().filter(|(name, _)| *name != "kind" && *name != "apiVersion");
        format!("{{{}}}", join(said.map(|(name, value)| format!("{}:{value}", json!(name)))))
    }

    fn table(&self, metadata: &Value, objects: &[Object], columns: bool, now_millis: i64) -> String {
        let printer = table::printer(&self.kind);
        let rows = objects.iter().map(|object| {
            let shown = match self.rows {
                Rows::Nothing => "null".to_owned(),
                Rows::Metadata => partial(object),
                Rows::Whole => object.to_string(),
            };
            format!("{{\"cells\":{},\"object\":{shown}}}", Value::Array(printer.cells(object, now_millis)))
        });
        let columns = if columns { join(printer.columns().iter().map(Value::to_string)) } else { String::new() };
        table_of(metadata, &columns, &join(rows))
    }
}

// Text is concatenated instead of values, because a list of thousands would be copied for every client.

fn join(parts: impl Iterator<Item = String>) -> String {
    let mut joined = String::new();
    for part in parts {
        if !joined.is_empty() {
            joined.push(',');
        }
        joined.push_str(&part);
    }
    joined
}

fn table_of(metadata: &Value, columns: &str, rows: &str) -> String {
    format!(
        "{{\"kind\":\"Table\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata},\
        \"columnDefinitions\":[{columns}],\"rows\":[{rows}]}}"
    )
}

fn partial(object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"meta.k8s.io/v1\",\"metadata\":{metadata}}}")
}
