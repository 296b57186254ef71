//! JSON patch, RFC 6902.

use serde_json::Value;

/// The patch could not be applied. The server's response has no details.
#[derive(Debug, PartialEq)]
pub(crate) struct Inapplicable;

pub(crate) fn apply(target: &mut Value, patch: &Value) -> Result<(), Inapplicable> {
    for operation in patch.as_array().ok_or(Inapplicable)? {
        step(target, operation)?;
    }
    Ok(())
}

fn step(target: &mut Value, operation: &Value) -> Result<(), Inapplicable> {
    let field = |name: &str| operation.get(name).and_then(Value::as_str).ok_or(Inapplicable);
    let value = || operation.get("value").cloned().ok_or(Inapplicable);
    let path = field("path")?;
    match field("op")? {
        "add" => add(target, path, value()?),
        "remove" => remove(target, path).map(drop),
        "replace" => {
            *target.pointer_mut(path).ok_or(Inapplicable)? = value()?;
            Ok(())
        }
        "test" => {
            // A test for null succeeds if there is no value, as in the server's library.
            let found = target.pointer(path).cloned().unwrap_or(Value::Null);
            if found == value()? { Ok(()) } else { Err(Inapplicable) }
        }
        "move" => {
            let moved = remove(target, field("from")?)?;
            add(target, path, moved)
        }
        "copy" => {
            let copied = target.pointer(field("from")?).cloned().ok_or(Inapplicable)?;
            add(target, path, copied)
        }
        _ => Err(Inapplicable),
    }
}

fn parent<'a>(target: &'a mut Value, path: &str) -> Result<(&'a mut Value, String), Inapplicable> {
    let (parent, last) = path.rsplit_once('/').ok_or(Inapplicable)?;
    let last = last.replace("~1", "/").replace("~0", "~");
    Ok((target.pointer_mut(parent).ok_or(Inapplicable)?, last))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), Inapplicable> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    match parent(target, path)? {
        (Value::Object(map), key) => {
            map.insert(key, value);
            Ok(())
        }
        (Value::Array(items), key) => {
            let index = if key == "-" { items.len() } else { key.parse().map_err(|_| Inapplicable)? };
            if index > items.len() {
                return Err(Inapplicable);
            }
            items.insert(index, value);
            Ok(())
        }
        _ => Err(Inapplicable),
    }
}

fn remove(target: &mut Value, path: &str) -> Result<Value, Inapplicable> {
    match parent(target, path)? {
        (Value::Object(map), key) => map.remove(&key).ok_or(Inapplicable),
        (Value::Array(items), key) => {
            let index: usize = key.parse().map_err(|_| Inapplicable)?;
            if index < items.len() { Ok(items.remove(index)) } else { Err(Inapplicable) }
        }
        _ => Err(Inapplicable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_operation_does_what_the_standard_says() {
        let mut object = json!({"l": [1, 3], "m": {"a/b": 1}});
        let patch = json!([
            {"op": "add", "path": "/l/1", "value": 2},
            {"op": "add", "path": "/l/-", "value": 4},
            {"op": "replace", "path": "/m/a~1b", "value": 5},
            {"op": "copy", "from": "/m/a~1b", "path": "/m/c"},
            {"op": "move", "from": "/m/c", "path": "/d"},
            {"op": "remove", "path": "/l/0"},
            {"op": "test", "path": "/d", "value": 5},
        ]);
        apply(&mut object, &patch).unwrap();
        assert_eq!(object, json!({"l": [2, 3, 4], "m": {"a/b": 5}, "d": 5}));
    }

    #[test]
    fn a_failed_test_and_a_missing_path_are_refused() {
        let mut object = json!({"a": 1, "l": []});
        for operation in [
            json!({"op": "test", "path": "/a", "value": 2}),
            json!({"op": "remove", "path": "/b"}),
            json!({"op": "replace", "path": "/b", "value": 1}),
            json!({"op": "add", "path": "/l/7", "value": 1}),
            json!({"op": "add", "path": "/a/b", "value": 1}),
        ] {
            assert_eq!(apply(&mut object, &json!([operation])), Err(Inapplicable), "{operation}");
        }
    }
}
