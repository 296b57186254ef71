//! Executes an authorised request, by verb. No IO: it maps a request and the state to a response.

use serde_json::{Value, json};

use crate::{
    core::Core,
    delete::{self, Deleted, Options},
    failure::{Cause, Failure},
    managed::Author,
    meta::{self, Object},
    patches, pods,
    present::{Presenter, Shape},
    rbac, read,
    request::{Request, Target, Verb},
    review, rules, scale,
    state::State,
    store::Key,
    types::{Decoded, Struct},
    validation::{self, FieldValidation},
    write::{self, Write},
};

/// A response that is not a stream of a watch.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A status code and JSON text.
    Json(u16, String),
    NoContent,
}

/// Handles all requests except watches.
///
/// The warnings are added to the response, also to an error.
pub(crate) fn handle(
    core: &Core,
    request: &Request,
    shape: Shape,
    warnings: &mut Vec<String>,
) -> Result<Answer, Failure> {
    rbac::authorize(&core.state.lock(), request, request.target.verb)?;
    let target = &request.target;
    check_manager(request)?;
    let show = |code: u16, object: &Object| {
        if target.subresource == "scale" {
            return Answer::Json(code, scale::shown(object).to_string());
        }
        let mut presenter = Presenter::new(target.kind.clone(), shape, request.query.get("includeObject"));
        Answer::Json(code, presenter.one(object, core.clock.now_millis()))
    };
    let key = Key::new(target.namespace.as_deref().unwrap_or_default(), &target.name);
    match target.verb {
        Verb::Get if target.subresource == "log" => {
            let pod = read::get(&core.state.lock(), &target.kind, &key)?;
            pods::logs(&pod, request.query.get("container")).map(|()| Answer::NoContent)
        }
        Verb::Get => Ok(show(200, &read::get(&core.state.lock(), &target.kind, &key)?)),
        Verb::List | Verb::Watch => {
            // A list without a revision reads the newest state, whichever replica is asked.
            let page = match core.faults.lagging().filter(|_| !request.query.get("resourceVersion").is_empty()) {
                Some(replica) => read::list(&replica, request)?,
                None => read::list(&core.state.lock().store, request)?,
            };
            let presenter = Presenter::new(target.kind.clone(), shape, request.query.get("includeObject"));
            Ok(Answer::Json(200, presenter.list(&page, core.clock.now_millis())?))
        }
        Verb::Create if target.kind.review => {
            let body = body(request, warnings)?;
            Ok(Answer::Json(201, review::answer(&core.state.lock(), request, body).to_string()))
        }
        Verb::Create => {
            let body = body(request, warnings)?;
            let done = |status: Value| Answer::Json(201, status.to_string());
            core.write(|state| match target.subresource.as_str() {
                "eviction" => pods::evict(state, core, request, &key, &body).map(done),
                "binding" => pods::bind(state, core, request, &key, &body).map(done),
                _ => create(state, core, request, body).map(|object| show(201, &object)),
            })
        }
        Verb::Update => {
            let body = body(request, warnings)?;
            core.write(|state| replace(state, core, request, &key, body)).map(|object| show(200, &object))
        }
        Verb::Patch => {
            let (code, object) = core.write(|state| patches::patch(state, core, request, &key, warnings))?;
            Ok(show(code, &object))
        }
        Verb::Delete => {
            let options = delete_options(request)?;
            let deleted = core.write(|state| delete::delete(state, &core.clock, &target.kind, &key, &options))?;
            Ok(Answer::Json(200, deleted.answer(&target.kind)))
        }
        Verb::DeleteCollection => delete_collection(core, request, shape),
    }
}

/// Returns the context of this request's write.
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
    let validation = request.query.get("fieldValidation");
    if !validation::VALUES.contains(&validation) {
        causes.push(Cause::unsupported("fieldValidation", &validation.into(), &validation::VALUES));
    }
    if manager.len() > 128 {
        causes.push(Cause::too_long("fieldManager", 128));
    } else if manager.chars().any(char::is_control) {
        causes.push(Cause::invalid("fieldManager", &manager.into(), "should only contain printable characters"));
    }
    if request.content_type() == patches::APPLY {
        if manager.is_empty() {
            causes.push(Cause::required("fieldManager", "is required for apply patch"));
        }
    } else if request.query.flag("force") {
        causes.push(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_of("meta.k8s.io", options, "", &causes)) }
}

/// Returns the body, decoded as the type of its kind or subresource.
fn body(request: &Request, warnings: &mut Vec<String>) -> Result<Value, Failure> {
    let Target { kind, subresource, .. } = &request.target;
    let shape = Struct::of_subresource(kind, subresource);
    let Decoded { object, strict, wrong, .. } = request.decode(shape)?;
    let own = subresource.is_empty() || subresource == "status";
    if own && !kind.review {
        write::check_kind(kind, &object)?;
    }
    let (name, version) = if kind.custom { (&*kind.kind, &*kind.version) } else { (shape.short_name(), "v1") };
    let undecodable = |why: &str| Failure::undecodable(name, version, why);
    if let Some(wrong) = wrong {
        return Err(undecodable(&wrong.in_json()));
    }
    let errors = strict_errors(request, strict, &object);
    FieldValidation::from_query(&request.query).settle(errors, warnings).map_err(|why| undecodable(&why))?;
    Ok(object)
}

/// Returns the errors of a strict decoder: `found`, and fields that the schema of a custom resource does not have.
pub(crate) fn strict_errors(request: &Request, mut found: Vec<String>, object: &Value) -> Vec<String> {
    let unknown = rules::unknown_fields(&request.target.kind, object);
    found.extend(unknown.iter().map(|field| format!("unknown field \"{field}\"")));
    found
}

fn create(state: &mut State, core: &Core, request: &Request, mut object: Value) -> Result<Object, Failure> {
    let target = &request.target;
    meta::remove(&mut object, &["metadata", "managedFields"]);
    let write = write_of(core, request, false);
    let created = write::create(state, &core.clock, &write, target.namespace.as_deref(), object)?;
    Ok(rules::to_view(&target.kind, &created))
}

fn replace(state: &mut State, core: &Core, request: &Request, key: &Key, body: Value) -> Result<Object, Failure> {
    let kind = &request.target.kind;
    write::check_name(&key.name, &body)?;
    let write = write_of(core, request, false);
    let stored = write::update(state, &write, key, |old| match request.target.subresource.as_str() {
        "scale" => scale::scaled(old, &body),
        _ => write::replace(kind, old, body),
    })?;
    Ok(rules::to_view(kind, &stored))
}

/// Returns the options of a deletion. Options in a body replace those of the query.
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
            let deleted = delete::delete(state, &core.clock, kind, &Key::from_object(object), &options)?;
            let (Deleted::Gone(last) | Deleted::Waiting(last)) = deleted;
            *object = rules::to_view(kind, &last);
        }
        Ok(page)
    })?;
    let presenter = Presenter::new(kind.clone(), shape, request.query.get("includeObject"));
    Ok(Answer::Json(200, presenter.list(&page, core.clock.now_millis())?))
}
