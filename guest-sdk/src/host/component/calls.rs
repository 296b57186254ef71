//! The imports, in terms of the SDK's types.

use serde_json::Value;

use super::bindings::podium::reconcile::{events, log, objects, pods, state, types, writes};
use crate::{
    CallError, Condition, Event, EventType, ObjectOwner, ObjectRef, PodKey, WriteReport,
    host::Page,
    log::Level,
    pods::Query,
    state::{Entry, PutError},
};

pub(crate) fn get(namespace: &str, name: &str) -> Result<Option<Vec<u8>>, CallError> {
    Ok(pods::get(namespace, name)?)
}

pub(crate) fn get_live(namespace: &str, name: &str) -> Result<Option<Vec<u8>>, CallError> {
    Ok(pods::get_live(namespace, name)?)
}

pub(crate) fn find(query: &Query, limit: u32, after: Option<&str>) -> Result<Page, CallError> {
    let page = pods::find(&query.into(), limit, after)?;
    Ok(Page { pods: page.pods, next: page.next })
}

pub(crate) fn count(query: &Query) -> Result<u64, CallError> {
    Ok(pods::count(&query.into())?)
}

pub(crate) fn set_label(target: &PodKey, key: &str, value: &str) -> Result<u32, CallError> {
    Ok(writes::set_label(&target.into(), key, value)?)
}

pub(crate) fn remove_label(target: &PodKey, key: &str) -> Result<u32, CallError> {
    Ok(writes::remove_label(&target.into(), key)?)
}

pub(crate) fn set_annotation(target: &PodKey, key: &str, value: &str) -> Result<u32, CallError> {
    Ok(writes::set_annotation(&target.into(), key, value)?)
}

pub(crate) fn remove_annotation(target: &PodKey, key: &str) -> Result<u32, CallError> {
    Ok(writes::remove_annotation(&target.into(), key)?)
}

pub(crate) fn add_finalizer(target: &PodKey, name: &str) -> Result<u32, CallError> {
    Ok(writes::add_finalizer(&target.into(), name)?)
}

pub(crate) fn remove_finalizer(target: &PodKey, name: &str) -> Result<u32, CallError> {
    Ok(writes::remove_finalizer(&target.into(), name)?)
}

pub(crate) fn set_condition(target: &PodKey, condition: &Condition) -> Result<u32, CallError> {
    Ok(writes::set_condition(
        &target.into(),
        &condition.condition_type,
        condition.status.into(),
        condition.reason.as_deref().unwrap_or_default(),
        condition.message.as_deref().unwrap_or_default(),
    )?)
}

pub(crate) fn remove_condition(target: &PodKey, condition_type: &str) -> Result<u32, CallError> {
    Ok(writes::remove_condition(&target.into(), condition_type)?)
}

pub(crate) fn delete_pod(target: &PodKey, grace_period_seconds: Option<u32>) -> Result<u32, CallError> {
    Ok(writes::delete_pod(&target.into(), grace_period_seconds)?)
}

pub(crate) fn evict_pod(target: &PodKey) -> Result<u32, CallError> {
    Ok(writes::evict_pod(&target.into())?)
}

pub(crate) fn apply_object(object: &Value, owner: Option<ObjectOwner<'_>>) -> Result<u32, CallError> {
    Ok(writes::apply_object(&object.to_string(), owner.map(Into::into).as_ref())?)
}

pub(crate) fn delete_object(object: &ObjectRef, uid: Option<&str>) -> Result<u32, CallError> {
    Ok(writes::delete_object(&object.into(), uid)?)
}

pub(crate) fn commit() -> Result<Vec<WriteReport>, CallError> {
    Ok(writes::commit()?.into_iter().map(Into::into).collect())
}

pub(crate) fn get_object(object: &ObjectRef) -> Result<Option<String>, CallError> {
    Ok(objects::get(&object.into())?)
}

pub(crate) fn scale(object: &ObjectRef, replicas: u32) -> Result<u32, CallError> {
    Ok(objects::scale(&object.into(), replicas)?)
}

pub(crate) fn emit(target: &PodKey, event: &Event) -> Result<(), CallError> {
    let event_type = match event.event_type {
        EventType::Normal => types::EventType::Normal,
        EventType::Warning => types::EventType::Warning,
    };
    Ok(events::emit(&target.into(), event_type, &event.reason, &event.action, &event.note)?)
}

pub(crate) fn state_get(key: &str) -> Result<Option<Entry<Vec<u8>>>, CallError> {
    Ok(state::get(key)?.map(Into::into))
}

pub(crate) fn state_put(key: &str, value: &[u8], expected: Option<u64>) -> Result<u64, PutError> {
    Ok(state::put(key, value, expected)?)
}

pub(crate) fn state_remove(key: &str, expected: Option<u64>) -> Result<(), PutError> {
    Ok(state::remove(key, expected)?)
}

pub(crate) fn log(level: Level, message: &str, fields: &[(String, String)]) {
    let level = match level {
        Level::Debug => log::Level::Debug,
        Level::Info => log::Level::Info,
        Level::Warn => log::Level::Warn,
        Level::Error => log::Level::Error,
    };
    log::write(level, message, fields);
}
