//! The host's functions as functions of JavaScript, for `podium.js`. A refusal is thrown as `[code, text]`.

use std::cell::Cell;

use rquickjs::{Ctx, FromJs, Function, IntoJs, Object, Result, Value, convert::List};

use crate::bindings::podium::reconcile::{
    events,
    log::{self, Level},
    objects, pods_json as pods, state,
    types::{
        CallError, ConditionStatus, EventType, LabelOperator, LabelRequirement, ObjectOwner, ObjectRef, PodKey,
        PodQuery, WriteReport, WriteResult,
    },
    writes,
};
use crate::engine::shallow;

thread_local! {
    /// Whether a run is under way. Code at a module's top level and code that continues after the run's end calls
    /// nothing.
    pub(crate) static OPEN: Cell<bool> = const { Cell::new(false) };
}

/// Returns an object with all functions.
pub(crate) fn all<'js>(ctx: &Ctx<'js>) -> Result<Object<'js>> {
    let host = Object::new(ctx.clone())?;
    macro_rules! functions {
        ($($name:literal = |$($argument:ident: $type:ty),*| $call:expr;)*) => {
            $(host.set($name, Function::new(ctx.clone(), |ctx: Ctx<'_>, $($argument: $type),*| {
                answer(&ctx, || $call)
            })?)?;)*
        };
    }
    functions! {
        "podsGet" = |namespace: String, name: String| pods::get(&namespace, &name);
        "podsGetLive" = |namespace: String, name: String| pods::get_live(&namespace, &name);
        "podsFind" = |query: Query, limit: u32, after: Option<String>| {
            pods::find(&query.0, limit, after.as_deref()).map(|page| List((page.pods, page.next)))
        };
        "podsCount" = |query: Query| pods::count(&query.0).map(float);
        "setLabel" = |target: Target, key: String, value: String| writes::set_label(&target.0, &key, &value);
        "removeLabel" = |target: Target, key: String| writes::remove_label(&target.0, &key);
        "setAnnotation" = |target: Target, key: String, value: String| writes::set_annotation(&target.0, &key, &value);
        "removeAnnotation" = |target: Target, key: String| writes::remove_annotation(&target.0, &key);
        "addFinalizer" = |target: Target, name: String| writes::add_finalizer(&target.0, &name);
        "removeFinalizer" = |target: Target, name: String| writes::remove_finalizer(&target.0, &name);
        "setCondition" = |target: Target, kind: String, status: String, reason: String, message: String| {
            let status = match status.as_str() {
                "True" => ConditionStatus::True,
                "False" => ConditionStatus::False,
                "Unknown" => ConditionStatus::Unknown,
                _ => return Err(CallError::Invalid(r#"status is not "True", "False" or "Unknown""#.to_owned())),
            };
            writes::set_condition(&target.0, &kind, status, &reason, &message)
        };
        "removeCondition" = |target: Target, kind: String| writes::remove_condition(&target.0, &kind);
        "delete" = |target: Target, grace: Option<u32>| writes::delete_pod(&target.0, grace);
        "evict" = |target: Target| writes::evict_pod(&target.0);
        "applyObject" = |object: String, pod: Option<Target>, workload: Option<Target>| {
            let workload = workload.map(|target| ObjectOwner::Workload(target.0));
            let owner = workload.or(pod.map(|target| ObjectOwner::Pod(target.0)));
            writes::apply_object(&object, owner.as_ref())
        };
        "deleteObject" = |api_version: String, kind: String, namespace: Option<String>, name: String,
            uid: Option<String>| {
            writes::delete_object(&ObjectRef { api_version, kind, namespace, name }, uid.as_deref())
        };
        "objectsGet" = |api_version: String, kind: String, namespace: Option<String>, name: String| {
            objects::get(&ObjectRef { api_version, kind, namespace, name })
        };
        "scale" = |api_version: String, kind: String, namespace: Option<String>, name: String, replicas: u32| {
            objects::scale(&ObjectRef { api_version, kind, namespace, name }, replicas)
        };
        "commit" = | | writes::commit().map(|reports| reports.into_iter().map(Report).collect::<Vec<_>>());
        "emit" = |target: Target, warning: bool, reason: String, action: String, note: String| {
            let kind = if warning { EventType::Warning } else { EventType::Normal };
            events::emit(&target.0, kind, &reason, &action, &note)
        };
        "stateGet" = |key: String| state::get(&key).map(|entry| {
            entry.map(|entry| List((String::from_utf8(entry.value).ok(), float(entry.version))))
        });
        "statePut" = |key: String, value: String, expected: Option<f64>| {
            swapped(state::put(&key, value.as_bytes(), expected.map(integer)).map(drop))
        };
        "stateRemove" = |key: String, expected: Option<f64>| swapped(state::remove(&key, expected.map(integer)));
    }
    host.set("shallow", Function::new(ctx.clone(), shallow)?)?;
    host.set("log", Function::new(ctx.clone(), write_log)?)?;
    Ok(host)
}

/// Answers a call, or throws the reason of its refusal.
fn answer<T>(ctx: &Ctx<'_>, call: impl FnOnce() -> std::result::Result<T, CallError>) -> Result<T> {
    let late = "no run is under way: call the host from reconcile, and await every promise there".to_owned();
    let refused = match OPEN.get().then(call) {
        Some(Ok(value)) => return Ok(value),
        Some(Err(refused)) => refused,
        None => CallError::Invalid(late),
    };
    let [code, text] = match refused {
        CallError::NotGranted => ["not-granted", "not granted"].map(str::to_owned),
        CallError::OverBudget => ["over-budget", "the run's budget is used up"].map(str::to_owned),
        CallError::Invalid(text) => ["invalid".to_owned(), format!("invalid: {text}")],
        CallError::Unavailable(text) => ["unavailable".to_owned(), format!("unavailable: {text}")],
    };
    Err(ctx.throw(vec![code, text].into_js(ctx)?))
}

fn write_log(level: String, message: String, fields: Vec<List<(String, String)>>) {
    let level = match level.as_str() {
        "debug" => Level::Debug,
        "warn" => Level::Warn,
        "error" => Level::Error,
        _ => Level::Info,
    };
    log::write(level, &message, &fields.into_iter().map(|List(field)| field).collect::<Vec<_>>());
}

/// Returns whether the expected version was there.
fn swapped(result: std::result::Result<(), state::PutError>) -> std::result::Result<bool, CallError> {
    match result {
        Ok(()) => Ok(true),
        Err(state::PutError::Conflict(_)) => Ok(false),
        Err(state::PutError::Other(refused)) => Err(refused),
    }
}

/// Counts and versions are below 2^53.
fn float(number: u64) -> f64 {
    number as f64
}

fn integer(number: f64) -> u64 {
    number as u64
}

/// A key that `podium.js` made.
struct Target(PodKey);

impl<'js> FromJs<'js> for Target {
    fn from_js(_: &Ctx<'js>, value: Value<'js>) -> Result<Self> {
        let List((namespace, name, uid)) = value.get()?;
        Ok(Self(PodKey { namespace, name, uid }))
    }
}

/// A query whose labels are `[key, operator, values]`.
struct Query(PodQuery);

impl<'js> FromJs<'js> for Query {
    fn from_js(_: &Ctx<'js>, value: Value<'js>) -> Result<Self> {
        let query: Object<'js> = value.get()?;
        let labels: Vec<List<(String, String, Vec<String>)>> = query.get("labels")?;
        let labels = labels.into_iter().map(|List((key, operator, values))| {
            let operator = match operator.as_str() {
                "exists" => LabelOperator::Exists,
                "does-not-exist" => LabelOperator::DoesNotExist,
                "not-in" => LabelOperator::NotIn,
                _ => LabelOperator::In,
            };
            LabelRequirement { key, operator, values }
        });
        Ok(Self(PodQuery {
            namespace: query.get("namespace")?,
            node: query.get("node")?,
            owner_uid: query.get("ownerUid")?,
            phase: query.get("phase")?,
            labels: labels.collect(),
        }))
    }
}

/// A report as an object of JavaScript.
pub(crate) struct Report(pub(crate) WriteReport);

impl<'js> IntoJs<'js> for Report {
    fn into_js(self, ctx: &Ctx<'js>) -> Result<Value<'js>> {
        let WriteReport { id, description, result } = self.0;
        let settled = matches!(result, WriteResult::Applied | WriteResult::Unchanged | WriteResult::Gone);
        let (result, message) = match result {
            WriteResult::Applied => ("applied", None),
            WriteResult::Unchanged => ("unchanged", None),
            WriteResult::Conflict => ("conflict", None),
            WriteResult::OwnedByOther(text) => ("ownedByOther", Some(text)),
            WriteResult::Blocked(text) => ("blocked", Some(text)),
            WriteResult::Gone => ("gone", None),
            WriteResult::Forbidden(text) => ("forbidden", Some(text)),
            WriteResult::Invalid(text) => ("invalid", Some(text)),
            WriteResult::NotSent => ("notSent", None),
            WriteResult::Unknown => ("unknown", None),
        };
        let report = Object::new(ctx.clone())?;
        report.set("id", id)?;
        report.set("description", description)?;
        report.set("result", result)?;
        report.set("message", message)?;
        report.set("settled", settled)?;
        Ok(report.into_value())
    }
}
