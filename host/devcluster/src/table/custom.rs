//! Columns of custom resources, by the JSONPath of their definition: fields, indexes and `[?(@.field=="x")]`.

use serde_json::{Value, json};

use super::{Column, age};
use crate::meta;

pub(super) fn columns(defined: &[Value]) -> Vec<Column> {
    let mut columns = vec![Column::new("Name", "string", 0)];
    for column in defined {
        let priority = column["priority"].as_i64().unwrap_or(0);
        columns.push(Column::new(meta::text(column, &["name"]), meta::text(column, &["type"]), priority));
    }
    if defined.is_empty() {
        columns.push(Column::new("Age", "date", 0));
    }
    columns
}

pub(super) fn row(defined: &[Value], object: &Value, now_millis: i64) -> Vec<Value> {
    let mut cells = vec![json!(meta::name(object))];
    for column in defined {
        let found = find(object, meta::text(column, &["jsonPath"]));
        cells.push(match (meta::text(column, &["type"]), found) {
            ("date", Some(Value::String(time))) => json!(age::since(time, now_millis)),
            ("string", Some(Value::String(text))) => json!(text),
            ("string", Some(other)) => json!(other.to_string()),
            (_, Some(other)) => other.clone(),
            (_, None) => Value::Null,
        });
    }
    if defined.is_empty() {
        cells.push(age(object, now_millis));
    }
    cells
}

fn find<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let mut place = object;
    let mut rest = path.trim_start_matches('$');
    while !rest.is_empty() {
        if let Some(filter) = rest.strip_prefix("[?(@.") {
            let (filter, after) = filter.split_once(")]")?;
            let (field, wanted) = filter.split_once("==")?;
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            place = place.as_array()?.iter().find(|item| meta::text(item, &[field.trim()]) == wanted)?;
            rest = after;
        } else if let Some(index) = rest.strip_prefix('[') {
            let (index, after) = index.split_once(']')?;
            place = match index.parse::<usize>() {
                Ok(index) => place.get(index)?,
                Err(_) => place.get(index.trim_matches(['"', '\'']))?,
            };
            rest = after;
        } else {
            let field = rest.strip_prefix('.').unwrap_or(rest);
            let end = field.find(['.', '[']).unwrap_or(field.len());
            place = place.get(&field[..end])?;
            rest = &field[end..];
        }
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_find_fields_entries_and_conditions() {
        let object =
            json!({"spec": {"l": [{"a": 1}]}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(find(&object, ".spec.l[0].a"), Some(&json!(1)));
        assert_eq!(find(&object, ".status.conditions[?(@.type==\"Ready\")].status"), Some(&json!("True")));
        assert_eq!(find(&object, ".spec.none.x"), None);
    }
}
