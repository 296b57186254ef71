//! managedFields: who owns which field of an object, kept at every write.

use serde_json::{Value, json};

use crate::{
    fields::{self, FieldSet},
    meta,
    patch::lists::Schema,
};

/// The author of a write: one entry of managedFields.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) manager: String,
    pub(crate) apply: bool,
    /// The subresource; empty for the main resource.
    pub(crate) subresource: String,
    pub(crate) api_version: String,
    /// RFC 3339.
    pub(crate) time: String,
}

/// The fields that one manager owns.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) author: Author,
    pub(crate) fields: FieldSet,
}

impl Author {
    pub(crate) fn operation(&self) -> &'static str {
        if self.apply { "Apply" } else { "Update" }
    }

    fn is(&self, other: &Self) -> bool {
        self.manager == other.manager && self.apply == other.apply && self.subresource == other.subresource
    }

    /// Formats the entry as in conflict messages.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("\"{}\"", self.manager);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource \"{}\"", self.subresource));
        }
        if !self.apply {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

pub(crate) fn entries(object: &Value) -> Vec<Entry> {
    meta::list(object, &["metadata", "managedFields"])
        .iter()
        .map(|entry| Entry {
            author: Author {
                manager: meta::text(entry, &["manager"]).into(),
                apply: meta::text(entry, &["operation"]) == "Apply",
                subresource: meta::text(entry, &["subresource"]).into(),
                api_version: meta::text(entry, &["apiVersion"]).into(),
                time: meta::text(entry, &["time"]).into(),
            },
            fields: FieldSet::from_v1(&entry["fieldsV1"]),
        })
        .collect()
}

pub(crate) fn store(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    // Appliers first, then by time, as the API server orders them.
    entries.sort_by(|a, b| {
        (b.author.apply, &a.author.time, &a.author.manager).cmp(&(a.author.apply, &b.author.time, &b.author.manager))
    });
    if entries.is_empty() {
        meta::remove(object, &["metadata", "managedFields"]);
        return;
    }
    let list: Vec<Value> = entries
        .into_iter()
        .map(|entry| {
            let mut value = json!({
                "manager": entry.author.manager,
                "operation": entry.author.operation(),
                "apiVersion": entry.author.api_version,
                "time": entry.author.time,
                "fieldsType": "FieldsV1",
                "fieldsV1": entry.fields.to_v1(),
            });
            if !entry.author.subresource.is_empty() {
                value["subresource"] = json!(entry.author.subresource);
            }
            value
        })
        .collect();
    meta::set(object, &["metadata", "managedFields"], list);
}

/// Updates managedFields after a create or an update: the author becomes the only manager of the changed fields.
pub(crate) fn record(old: Option<&Value>, new: &mut Value, schema: Schema<'_>, author: &Author) {
    let before = old.map(|old| fields::leaves(old, schema)).unwrap_or_default();
    let after = fields::leaves(new, schema);
    let changed: Vec<_> = after.iter().filter(|(p, v)| before.get(*p) != Some(v)).map(|(p, _)| p.clone()).collect();
    let removed: Vec<_> = before.keys().filter(|p| !after.contains_key(*p)).cloned().collect();
    let given = meta::at(new, &["metadata", "managedFields"]).is_some();
    if !given && let Some(old) = old {
        meta::copy(old, new, &["metadata", "managedFields"]);
    }
    if changed.is_empty() && removed.is_empty() {
        return;
    }
    let mut entries = entries(new);
    for entry in &mut entries {
        let own = entry.author.is(author);
        for path in &removed {
            entry.fields.0.remove(path);
        }
        if !own {
            for path in &changed {
                entry.fields.0.remove(path);
            }
        }
    }
    match entries.iter_mut().find(|entry| entry.author.is(author)) {
        Some(entry) => {
            entry.fields.0.extend(changed);
            entry.author = author.clone();
        }
        None => {
            let fields = FieldSet(changed.into_iter().collect());
            entries.push(Entry { author: author.clone(), fields });
        }
    }
    store(new, entries);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn author(manager: &str, time: &str) -> Author {
        Author {
            manager: manager.into(),
            apply: false,
            subresource: String::new(),
            api_version: "v1".into(),
            time: time.into(),
        }
    }

    #[test]
    fn a_changed_field_moves_to_its_author_and_an_equal_one_does_not() {
        let schema = Schema::BuiltIn("Pod");
        let mut first = json!({"metadata": {"labels": {"a": "1", "b": "1"}}});
        record(None, &mut first, schema, &author("one", "t1"));
        let mut second = first.clone();
        second["metadata"]["labels"]["a"] = json!("2");
        record(Some(&first), &mut second, schema, &author("two", "t2"));
        let owned: Vec<_> = entries(&second).into_iter().map(|e| (e.author.manager, e.fields.to_v1())).collect();
        assert_eq!(
            owned,
            [
                ("one".into(), json!({"f:metadata": {"f:labels": {"f:b": {}}}})),
                ("two".into(), json!({"f:metadata": {"f:labels": {"f:a": {}}}})),
            ]
        );
        let mut third = second.clone();
        record(Some(&second), &mut third, schema, &author("three", "t3"));
        assert_eq!(third, second);
    }
}
