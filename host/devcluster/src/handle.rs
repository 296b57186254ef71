//! What each verb does with a request that is allowed. No IO: a request and the state in, an answer out.

use crate::core::Core;
use crate::delete::{self, Deleted, Options};
use crate::failure::{Cause, Failure};
use crate::managed::Author;
use crate::meta::{self, Object};
use crate::patch::{apply, json, merge, strategic};
use crate::pods;
use crate::present::{Presenter, Shape};
use crate::rbac;
use crate::read;
use crate::request::{Request, Verb};
use crate::review;
use crate::rules;
use crate::state::State;
use crate::store::Key;
use crate::write::{self, Write};
use serde_json::{Value, json};

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// An answer that is not a watch.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A code and JSON text.
    Json(u16, String),
    Text(String),
}

/// Everything but watches.
pub(crate) fn handle(core: &Core, request: &Request, shape: Shape) -> Result<Answer, Failure> {
    rbac::authorize(&core.state.lock(), request, request.target.verb)?;
    let target = &request.target;
    check_manager(request)?;
    let show = |code: u16, object: &Object| {
        let mut presenter = Presenter::new(target.kind.clone(), shape, request.query.get("includeObject"));
        Answer::Json(code, presenter.one(object, core.clock.now_millis()))
    };
    let key = Key::new(target.namespace.as_deref().unwrap_or_default(), &target.name);
    match target.verb {
        Verb::Get if target.subresource == "log" => {
            read::get(&core.state.lock(), &target.kind, &key)?;
            Ok(Answer::Text(String::new()))
        }
        Verb::Get => Ok(show(200, &read::get(&core.state.lock(), &target.kind, &key)?)),
        Verb::List | Verb::Watch => {
            // Without a revision a list is of the newest state, whichever replica is asked.
            let page = match core.faults.lagging().filter(|_| !request.query.get("resourceVersion").is_empty()) {
                Some(replica) => read::list(&replica, request)?,
                None => read::list(&core.state.lock().store, request)?,
            };
            let presenter = Presenter::new(target.kind.clone(), shape, request.query.get("includeObject"));
            Ok(Answer::Json(200, presenter.list(&page, core.clock.now_millis())))
        }
        Verb::Create if target.kind.review => {
            let body = request.object()?;
            Ok(Answer::Json(201, review::answer(&core.state.lock(), request, body).to_string()))
        }
        Verb::Create => core.write(|state| match target.subresource.as_str() {
            "eviction" => pods::evict(state, core, request, &key).map(|status| Answer::Json(201, status.to_string())),
            "binding" => pods::bind(state, core, request, &key).map(|status| Answer::Json(201, status.to_string())),
            _ => create(state, core, request).map(|object| show(201, &object)),
        }),
        Verb::Update => core.write(|state| replace(state, core, request, &key)).map(|object| show(200, &object)),
        Verb::Patch => core.write(|state| patch(state, core, request, &key)).map(|(code, object)| show(code, &object)),
        Verb::Delete => {
            let options = delete_options(request)?;
            let deleted = core.write(|state| delete::delete(state, &core.clock, &target.kind, &key, &options))?;
            Ok(Answer::Json(200, deleted.answer(&target.kind)))
        }
        Verb::DeleteCollection => delete_collection(core, request, shape),
    }
}

/// The circumstances of this request's write.
pub(crate) fn write_of(core: &Core, request: &Request, apply: bool) -> Write {
    let target = &request.target;
    Write {
        kind: target.kind.clone(),
        author: Author {
            manager: request.field_manager(),
            apply,
            subresource: target.subresource.clone(),
            api_version: target.kind.api_version(),
            time: core.clock.now(),
        },
        dry_run: request.query.dry_run(),
    }
}

fn check_manager(request: &Request) -> Result<(), Failure> {
    let options = match request.target.verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        _ => return Ok(()),
    };
    let manager = request.query.get("fieldManager");
    let mut causes = Vec::new();
    let dry_run = request.query.get("dryRun");
    if !matches!(dry_run, "" | "All") {
        causes.push(Cause::unsupported("dryRun", &json!([dry_run]), &["All"]));
    }
    if manager.len() > 128 {
        causes.push(Cause::too_long("fieldManager", 128));
    } else if manager.chars().any(char::is_control) {
        causes.push(Cause::invalid("fieldManager", &manager.into(), "should only contain printable characters"));
    }
    if request.content_type() == APPLY_PATCH {
        if manager.is_empty() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
    } else if request.query.flag("force") {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_of("meta.k8s.io", options, "", &causes)) }
}

/// Why the object is refused for fields that its kind does not have, where the client asked for that.
fn unknown_fields(request: &Request, object: &Value) -> Option<String> {
    if request.query.get("fieldValidation") != "Strict" {
        return None;
    }
    let unknown = rules::unknown_fields(&request.target.kind, object);
    let told: Vec<String> = unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
    (!told.is_empty()).then(|| format!("strict decoding error: {}", told.join(", ")))
}

fn check_fields(request: &Request, object: &Value) -> Result<(), Failure> {
    unknown_fields(request, object).map_or(Ok(()), |why| Err(Failure::undecodable(&request.target.kind, &why)))
}

fn create(state: &mut State, core: &Core, request: &Request) -> Result<Object, Failure> {
    let target = &request.target;
    let mut object = request.object()?;
    write::check_body(&target.kind, "", &object)?;
    check_fields(request, &object)?;
    meta::remove(&mut object, &["metadata", "managedFields"]);
    let write = write_of(core, request, false);
    let created = write::create(state, &core.clock, &write, target.namespace.as_deref(), object)?;
    Ok(rules::to_view(&target.kind, &created))
}

fn replace(state: &mut State, core: &Core, request: &Request, key: &Key) -> Result<Object, Failure> {
    let kind = &request.target.kind;
    let body = request.object()?;
    write::check_body(kind, &key.name, &body)?;
    check_fields(request, &body)?;
    let write = write_of(core, request, false);
    let stored = write::update(state, &write, key, |old| write::replace(kind, old, body))?;
    Ok(rules::to_view(kind, &stored))
}

fn patch(state: &mut State, core: &Core, request: &Request, key: &Key) -> Result<(u16, Object), Failure> {
    let kind = request.target.kind.clone();
    let content_type = request.content_type();
    if content_type == APPLY_PATCH {
        return server_side_apply(state, core, request, key);
    }
    let offered: &[&str] = if kind.custom {
        &[JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
    } else {
        &[JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH]
    };
    if !offered.contains(&content_type) {
        return Err(Failure::unsupported_media(offered));
    }
    let body: Value = serde_json::from_slice(&request.body)
        .map_err(|e| Failure::bad_request(format!("error decoding patch: {e}")))?;
    if content_type != JSON_PATCH && !body.is_object() {
        return Err(Failure::bad_request("error decoding patch: it is no object"));
    }
    let write = write_of(core, request, false);
    let stored = write::update(state, &write, key, |old| {
        let mut new = old.clone();
        match content_type {
            JSON_PATCH => json::apply(&mut new, &body).map_err(|json::Inapplicable| Failure::unprocessable())?,
            MERGE_PATCH => merge::merge(&mut new, &body),
            _ => strategic::merge(&mut new, &body, write::schema(&kind))
                .map_err(|malformed| Failure::bad_request(malformed.to_string()))?,
        }
        if let Some(what) = rules::metadata::undecodable(&new) {
            return Err(match content_type {
                STRATEGIC_PATCH => Failure::unpatchable(&strategic::as_go(&body), &what.in_merge()),
                _ => Failure::unpatchable(&new.to_string(), &what.in_json()),
            });
        }
        if let Some(why) = unknown_fields(request, &new) {
            return Err(Failure::unpatchable(&new.to_string(), &why));
        }
        write::check_body(&kind, &key.name, &new)?;
        Ok(new)
    })?;
    Ok((200, rules::to_view(&kind, &stored)))
}

fn server_side_apply(state: &mut State, core: &Core, request: &Request, key: &Key) -> Result<(u16, Object), Failure> {
    let target = &request.target;
    let kind = &*target.kind;
    // JSON is YAML, and most clients send JSON.
    let mut config: Value = match serde_json::from_slice(&request.body) {
        Ok(value) => value,
        Err(_) => request.object()?,
    };
    if !config.is_object() || meta::text(&config, &["kind"]).is_empty() {
        return Err(Failure::bad_request("the body of an apply patch must be an object with its kind"));
    }
    write::check_body(kind, &key.name, &config)?;
    write::decodable(kind, &config)?;
    let unknown: Vec<String> =
        rules::unknown_fields(kind, &config).iter().map(|f| format!(".{f}: field not declared in schema")).collect();
    if !unknown.is_empty() {
        return Err(Failure::untyped(kind, &config, &unknown));
    }
    if !meta::list(&config, &["metadata", "managedFields"]).is_empty() {
        return Err(Failure::bad_request("metadata.managedFields must be nil"));
    }
    write::applicable(kind, &target.subresource, &mut config);
    let write = write_of(core, request, true);
    let schema = write::schema(kind);
    let force = request.query.flag("force");
    if state.store.get(&kind.resource(), key).is_some() {
        let stored = write::update(state, &write, key, |old| {
            apply::apply(old, &config, schema, &write.author, force)
                .map_err(|conflicts| Failure::apply_conflict(&conflicts))
        })?;
        return Ok((200, rules::to_view(kind, &stored)));
    }
    if !target.subresource.is_empty() {
        return Err(Failure::not_found(kind, &key.name));
    }
    // Creating by apply needs the right to create as well.
    rbac::authorize(state, request, Verb::Create)?;
    let uid = meta::uid(&config);
    if !uid.is_empty() {
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Failure::conflict(kind, &key.name, &why));
    }
    let mut object = apply::apply(&json!({}), &config, schema, &write.author, force)
        .map_err(|conflicts| Failure::apply_conflict(&conflicts))?;
    meta::set(&mut object, &["metadata", "name"], key.name.clone());
    let created = write::create(state, &core.clock, &write, target.namespace.as_deref(), object)?;
    Ok((201, rules::to_view(kind, &created)))
}

/// Options in a body make those of the query count for nothing.
fn delete_options(request: &Request) -> Result<Options, Failure> {
    if !request.body.is_empty() {
        return Options::read(&request.object()?);
    }
    let query = &request.query;
    let mut options = json!({"gracePeriodSeconds": query.number("gracePeriodSeconds")?});
    for (field, value) in [("propagationPolicy", query.get("propagationPolicy")), ("dryRun", query.get("dryRun"))] {
        if !value.is_empty() {
            options[field] = if field == "dryRun" { json!([value]) } else { json!(value) };
        }
    }
    Options::read(&options)
}

fn delete_collection(core: &Core, request: &Request, shape: Shape) -> Result<Answer, Failure> {
    let kind = &request.target.kind;
    let options = delete_options(request)?;
    let page = core.write(|state| {
        let mut page = read::list(&state.store, request)?;
        for object in &mut page.items {
            let deleted = delete::delete(state, &core.clock, kind, &Key::of(object), &options)?;
            let (Deleted::Gone(last) | Deleted::Waiting(last)) = deleted;
            *object = rules::to_view(kind, &last);
        }
        Ok(page)
    })?;
    let presenter = Presenter::new(kind.clone(), shape, request.query.get("includeObject"));
    Ok(Answer::Json(200, presenter.list(&page, core.clock.now_millis())))
}
