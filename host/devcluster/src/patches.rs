//! PATCH: the validation of the four kinds of patch and of their results, in the order of the API server. `patch`
//! applies a patch to an object.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::{
    core::Core,
    failure::Failure,
    handle,
    kinds::Kind,
    meta::{self, Object},
    patch::{apply, json, merge, strategic},
    rbac,
    request::{Request, Verb},
    rules, scale,
    state::State,
    store::Key,
    types::{self, Decoded, Struct},
    validation::FieldValidation,
    write, yaml,
};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

pub(crate) fn patch(
    state: &mut State,
    core: &Core,
    request: &Request,
    key: &Key,
    warnings: &mut Vec<String>,
) -> Result<(u16, Object), Failure> {
    let kind = request.target.kind.clone();
    let content_type = request.content_type();
    if content_type == APPLY {
        return server_side_apply(state, core, request, key, warnings);
    }
    let offered: &[&str] = if kind.custom { &[JSON, MERGE, APPLY] } else { &[JSON, MERGE, STRATEGIC, APPLY] };
    if !offered.contains(&content_type) {
        return Err(Failure::unsupported_media(offered));
    }
    let body: Value = serde_json::from_slice(&request.body)
        .map_err(|e| Failure::bad_request(format!("error decoding patch: {e}")))?;
    if content_type != JSON && !body.is_object() {
        return Err(Failure::bad_request("error decoding patch: it is no object"));
    }
    let mut errors = Vec::new();
    let validation = FieldValidation::from_query(&request.query);
    if validation != FieldValidation::Ignore {
        errors = patch_errors(request)?;
    }
    let write = handle::write_of(core, request, false);
    let is_scale = request.target.subresource == "scale";
    let shape = Struct::of_subresource(&kind, &request.target.subresource);
    let stored = write::update(state, &write, key, |old| {
        let mut new = if is_scale { scale::shown(old) } else { old.clone() };
        match content_type {
            JSON => json::apply(&mut new, &body).map_err(|json::Inapplicable| Failure::unprocessable())?,
            MERGE => merge::merge(&mut new, &body),
            _ => strategic::merge(&mut new, &body, write::schema(&kind))
                .map_err(|malformed| Failure::bad_request(malformed.to_string()))?,
        }
        let strategic = content_type == STRATEGIC;
        if strategic {
            integral(&mut new);
        }
        let unpatchable = |why: &str| {
            let shown = if strategic { strategic::as_go(&body) } else { new.to_string() };
            Failure::unpatchable(&shown, why)
        };
        let Decoded { object, mut strict, wrong, .. } = decode_value(shape, &new)?;
        if let Some(wrong) = wrong {
            return Err(unpatchable(&if strategic { wrong.in_merge() } else { wrong.in_json() }));
        }
        if strategic {
            strict.sort();
        }
        errors.extend(handle::strict_errors(request, strict, &object));
        validation.settle(errors, warnings).map_err(|why| unpatchable(&why))?;
        if is_scale {
            return scale::scaled(old, &object);
        }
        write::check_kind(&kind, &object)?;
        write::check_name(&key.name, &object)?;
        Ok(object)
    })?;
    Ok((200, rules::to_view(&kind, &stored)))
}

/// Returns the errors of a strict decoder in the patch itself.
fn patch_errors(request: &Request) -> Result<Vec<String>, Failure> {
    let of_operations = request.content_type() == JSON;
    let input = &mut serde_json::Deserializer::from_slice(&request.body);
    let found = if of_operations { types::decode_operations(input) } else { types::decode_any(input) };
    let Decoded { strict, wrong, .. } =
        found.map_err(|e| Failure::bad_request(format!("error decoding patch: {e}")))?;
    if let Some(wrong) = wrong {
        return Err(Failure::bad_request(format!("error decoding patch: {}", wrong.in_json())));
    }
    let prefix = if of_operations { "json patch " } else { "" };
    Ok(strict.into_iter().map(|error| format!("{prefix}{error}")).collect())
}

/// Converts floats without a fraction to integers, as the conversion after a strategic merge does for integer fields.
fn integral(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|n| number.is_f64() && n.fract() == 0.0 && n.abs() < 9e15);
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(integral),
        Value::Object(map) => map.values_mut().for_each(integral),
        _ => {}
    }
}

fn decode_value(shape: &Struct, object: &Value) -> Result<Decoded, Failure> {
    types::decode(shape, object).map_err(|error| Failure::bad_request(error.to_string()))
}

/// Returns the result of an apply, converted to its type.
fn converted(kind: &Kind, config: &Value, merged: &Value) -> Result<Value, Failure> {
    let Decoded { object, wrong, .. } = decode_value(Struct::for_kind(kind), merged)?;
    wrong.map_or(Ok(object), |wrong| Err(Failure::unconvertible(kind, config, &wrong.in_merge())))
}

/// Returns the body of an apply patch, and its duplicate keys. JSON is YAML, and most clients send JSON.
fn applied(request: &Request) -> Result<(Value, Vec<String>), Failure> {
    let text = std::str::from_utf8(&request.body)
        .map_err(|_| Failure::bad_request("error decoding YAML: yaml: invalid UTF-8"))?;
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return Ok((request.object()?, Vec::new()));
    }
    let undecodable =
        |why: &str| Failure::bad_request(format!("error decoding YAML: error converting YAML to JSON: {why}"));
    let text = yaml::reread(text).map_err(undecodable)?;
    let read = types::decode_any(&mut serde_json::Deserializer::from_str(&text));
    let Decoded { object, duplicates, .. } = read.map_err(|error| undecodable(&error.to_string()))?;
    Ok((object, duplicates))
}

fn server_side_apply(
    state: &mut State,
    core: &Core,
    request: &Request,
    key: &Key,
    warnings: &mut Vec<String>,
) -> Result<(u16, Object), Failure> {
    let target = &request.target;
    let kind = &*target.kind;
    let (mut config, duplicates) = applied(request)?;
    if !config.is_object() || meta::text(&config, &["kind"]).is_empty() {
        return Err(Failure::bad_request("the body of an apply patch must be an object with its kind"));
    }
    write::check_kind(kind, &config)?;
    write::check_name(&key.name, &config)?;
    if !meta::list(&config, &["metadata", "managedFields"]).is_empty() {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    let schema = write::schema(kind);
    let mut wrong = types::mismatches(Struct::for_kind(kind), &config, schema);
    let unknown = rules::unknown_fields(kind, &config);
    wrong.extend(unknown.iter().map(|field| format!(".{field}: field not declared in schema")));
    if !wrong.is_empty() {
        return Err(Failure::untyped(kind, &config, &wrong));
    }
    write::applicable(kind, &target.subresource, &mut config);
    let write = handle::write_of(core, request, true);
    let force = request.query.flag("force");
    if !duplicates.is_empty() {
        let why = yaml::duplicates(&duplicates);
        match FieldValidation::from_query(&request.query) {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => warnings.extend(why),
            FieldValidation::Strict => {
                let message = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  ";
                return Err(Failure::bad_request(format!("{message}{}", why.join("\n  "))));
            }
        }
    }
    if state.store.get(&kind.resource(), key).is_some() {
        let stored = write::update(state, &write, key, |old| {
            let merged = apply::apply(old, &config, schema, &write.author, force)
                .map_err(|conflicts| Failure::apply_conflict(&conflicts))?;
            converted(kind, &config, &merged)
        })?;
        return Ok((200, rules::to_view(kind, &stored)));
    }
    if !target.subresource.is_empty() {
        return Err(Failure::not_found(kind, &key.name));
    }
    // Creating an object by apply also needs the right to create.
    rbac::authorize(state, request, Verb::Create)?;
    let uid = meta::uid(&config);
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Failure::conflict(kind, &key.name, &why));
    }
    let mut object = apply::apply(&json!({}), &config, schema, &write.author, force)
        .map_err(|conflicts| Failure::apply_conflict(&conflicts))?;
    meta::set(&mut object, &["metadata", "name"], key.name.clone());
    let object = converted(kind, &config, &object)?;
    let created = write::create(state, &core.clock, &write, target.namespace.as_deref(), object)?;
    Ok((201, rules::to_view(kind, &created)))
}
