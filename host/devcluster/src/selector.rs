//! Label selectors (the query form and the object form) and field selectors.

use std::fmt;

use serde_json::Value;

use crate::{kinds::Kind, meta};

#[derive(Clone, Debug, PartialEq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Absent,
}

/// A label selector: all requirements must match; an empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Labels(Vec<(String, Test)>);

impl fmt::Display for Labels {
    /// Writes the query form, sorted by key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<_> = self.0.iter().collect();
        parts.sort_by_key(|(key, _)| key);
        for (index, (key, test)) in parts.into_iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match test {
                Test::In(values) if values.len() == 1 => write!(f, "{comma}{key}={}", values.concat())?,
                Test::In(values) => write!(f, "{comma}{key} in ({})", values.join(","))?,
                Test::NotIn(values) => write!(f, "{comma}{key} notin ({})", values.join(","))?,
                Test::Exists => write!(f, "{comma}{key}")?,
                Test::Absent => write!(f, "{comma}!{key}")?,
            }
        }
        Ok(())
    }
}

impl Labels {
    /// Parses the query form: `a=b,c!=d,e in (f,g),h notin (i),j,!k`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for part in split(text) {
            let part = part.trim();
            if part.is_empty() {
                continue;
            }
            requirements.push(requirement(part)?);
        }
        Ok(Self(requirements))
    }

    /// Parses the object form: `matchLabels` and `matchExpressions`.
    pub(crate) fn of_object(selector: &Value) -> Self {
        let mut requirements = Vec::new();
        if let Some(labels) = selector.get("matchLabels").and_then(Value::as_object) {
            for (key, value) in labels {
                let value = value.as_str().unwrap_or_default().to_owned();
                requirements.push((key.clone(), Test::In(vec![value])));
            }
        }
        for expression in meta::list(selector, &["matchExpressions"]) {
            let values =
                || meta::list(expression, &["values"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
            let test = match meta::text(expression, &["operator"]) {
                "In" => Test::In(values()),
                "NotIn" => Test::NotIn(values()),
                "Exists" => Test::Exists,
                _ => Test::Absent,
            };
            requirements.push((meta::text(expression, &["key"]).to_owned(), test));
        }
        Self(requirements)
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(key, test)| {
            let value = meta::label(object, key);
            match test {
                Test::In(values) => value.is_some_and(|v| values.iter().any(|x| x == v)),
                Test::NotIn(values) => value.is_none_or(|v| values.iter().all(|x| x != v)),
                Test::Exists => value.is_some(),
                Test::Absent => value.is_none(),
            }
        })
    }
}

/// Splits at commas outside parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut depth = 0usize;
    let mut start = 0usize;
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(part: &str) -> Result<(String, Test), String> {
    let bad = || format!("unable to parse requirement: {part}");
    let key = |text: &str| -> Result<String, String> {
        let text = text.trim();
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if text.is_empty() || !text.chars().all(fits) { Err(bad()) } else { Ok(text.to_owned()) }
    };
    if let Some(open) = part.find('(') {
        let values = part[open + 1..].strip_suffix(')').ok_or_else(bad)?;
        let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
        let mut words = part[..open].split_whitespace();
        let name = key(words.next().ok_or_else(bad)?)?;
        return match words.next() {
            Some("in") => Ok((name, Test::In(values))),
            Some("notin") => Ok((name, Test::NotIn(values))),
            _ => Err(bad()),
        };
    }
    if let Some((name, value)) = part.split_once("!=") {
        return Ok((key(name)?, Test::NotIn(vec![value.trim().to_owned()])));
    }
    if let Some((name, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok((key(name)?, Test::In(vec![value.trim().to_owned()])));
    }
    match part.strip_prefix('!') {
        Some(name) => Ok((key(name)?, Test::Absent)),
        None => Ok((key(part)?, Test::Exists)),
    }
}

/// A field selector: equality only, on the fields that the API server indexes or allows for the kind.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields(Vec<(String, String, bool)>);

impl Fields {
    pub(crate) fn parse(text: &str, kind: &Kind) -> Result<Self, String> {
        let mut tests = Vec::new();
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, value, true)
            } else {
                return Err(format!("invalid selector: '{part}'; can't understand '{part}'"));
            };
            if !supported(kind, field) {
                return Err(format!("field label not supported: {field}"));
            }
            tests.push((field.to_owned(), value.to_owned(), equal));
        }
        Ok(Self(tests))
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|(field, value, equal)| (field_value(object, field) == *value) == *equal)
    }

    /// Returns the only selected name, if there is one: RBAC's resourceNames then also apply to lists.
    pub(crate) fn single_name(&self) -> Option<&str> {
        self.0.iter().find(|(field, _, equal)| field == "metadata.name" && *equal).map(|(_, value, _)| value.as_str())
    }
}

fn supported(kind: &Kind, field: &str) -> bool {
    if field == "metadata.name" || (field == "metadata.namespace" && kind.namespaced) {
        return true;
    }
    match kind.resource().as_str() {
        "pods" => matches!(
            field,
            "spec.nodeName"
                | "spec.restartPolicy"
                | "spec.schedulerName"
                | "spec.serviceAccountName"
                | "spec.hostNetwork"
                | "status.phase"
                | "status.podIP"
                | "status.nominatedNodeName"
        ),
        "nodes" => field == "spec.unschedulable",
        "namespaces" => field == "status.phase",
        "secrets" => field == "type",
        "events" => {
            field.starts_with("involvedObject.")
                || field.starts_with("regarding.")
                || matches!(field, "reason" | "reportingComponent" | "reportingController" | "source" | "type")
        }
        _ => false,
    }
}

fn field_value(object: &Value, field: &str) -> String {
    let field = match field {
        "source" => "source.component",
        "reportingController" => "reportingComponent",
        other => other,
    };
    let field = field.strip_prefix("regarding.").map_or_else(|| field.to_owned(), |f| format!("involvedObject.{f}"));
    let path: Vec<&str> = field.split('.').collect();
    match meta::at(object, &path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Bool(flag)) => flag.to_string(),
        Some(Value::Null) | None if matches!(field.as_str(), "spec.unschedulable" | "spec.hostNetwork") => {
            "false".into()
        }
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Kinds;
    use serde_json::json;

    #[test]
    fn each_operator_selects_as_kubectl_documents_it() {
        let pod = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        for (text, expected) in [
            ("", true),
            ("app=web", true),
            ("app==web,tier!=back", true),
            ("app in (api, web),tier", true),
            ("app notin (web)", false),
            ("!gone,missing!=x", true),
            ("!app", false),
        ] {
            assert_eq!(Labels::parse(text).unwrap().matches(&pod), expected, "{text}");
        }
        let text = "!gone,app=web,tier in (back,front),zone";
        assert_eq!(Labels::parse(text).unwrap().to_string(), "app=web,!gone,tier in (back,front),zone");
        assert!(Labels::parse("a b=c").is_err());
        assert!(Labels::parse("a in (b").is_err());
    }

    #[test]
    fn a_field_that_the_kind_does_not_offer_is_refused() {
        let pods = Kinds::default().find("", "v1", "pods").unwrap();
        let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}});
        assert!(Fields::parse("spec.nodeName=n1,status.phase!=Failed", &pods).unwrap().matches(&pod));
        assert!(Fields::parse("spec.hostNetwork=false", &pods).unwrap().matches(&pod));
        assert_eq!(Fields::parse("spec.image=x", &pods).unwrap_err(), "field label not supported: spec.image");
    }
}
