//! The host calls outside a component. They reach the [`Fake`] of the [`super::Host`] that runs a plugin on this
//! thread.

use std::{cell::RefCell, rc::Rc};

use podium_vocabulary::Action;
use podium_wire::{
    split_page, syntax,
    text::{escape, for_people},
};
use serde_json::Value;

use super::{LogLine, authz, fake::Fake};
use crate::{
    CallError, Condition, Event, ObjectOwner, ObjectRef, PodKey, WriteReport,
    host::Page,
    log::Level,
    pods::Query,
    state::{Entry, PutError},
};

/// The host's limits of state.
const STATE_KEY_BYTES: usize = 256;
const STATE_VALUE_BYTES: usize = 64 << 10;

thread_local! {
    static CURRENT: RefCell<Option<Rc<RefCell<Fake>>>> = const { RefCell::new(None) };
}

/// Routes host calls of this thread to a fake until it is dropped, even when a test panics.
pub(super) struct Entered;

impl Entered {
    pub(super) fn new(fake: &Rc<RefCell<Fake>>) -> Self {
        CURRENT.set(Some(Rc::clone(fake)));
        Self
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

fn with<T>(call: impl FnOnce(&mut Fake) -> Result<T, CallError>) -> Result<T, CallError> {
    let current = CURRENT.with_borrow(Clone::clone);
    let none = || CallError::Unavailable("no testing::Host runs a plugin on this thread".to_owned());
    let current = current.ok_or_else(none)?;
    let mut fake = current.borrow_mut();
    fake.take_call()?;
    call(&mut fake)
}

pub(crate) fn get(namespace: &str, name: &str) -> Result<Option<Vec<u8>>, CallError> {
    with(|fake| {
        let record = fake.readable(namespace, name);
        fake.pods_read += usize::from(record.is_some());
        Ok(record)
    })
}

pub(crate) fn get_live(namespace: &str, name: &str) -> Result<Option<Vec<u8>>, CallError> {
    with(
        |fake| {
            if fake.configuration.reads_live() {
                Ok(fake.readable(namespace, name))
            } else {
                Err(CallError::NotGranted)
            }
        },
    )
}

pub(crate) fn find(query: &Query, limit: u32, after: Option<&str>) -> Result<Page, CallError> {
    with(|fake| {
        // Pages are smaller than the host's, so only the first one counts as a call.
        fake.taken_calls -= u32::from(after.is_some());
        fake.authorize_query(query)?;
        let page = fake.page(query, limit, after);
        fake.pods_read += split_page(&page.pods).map_or(0, |records| records.len());
        Ok(page)
    })
}

pub(crate) fn count(query: &Query) -> Result<u64, CallError> {
    with(|fake| {
        fake.authorize_query(query)?;
        Ok(fake.matching(query).count() as u64)
    })
}

pub(crate) fn set_label(target: &PodKey, key: &str, value: &str) -> Result<u32, CallError> {
    stage(Action::SetLabel { target: target.into(), key: key.to_owned(), value: value.to_owned() })
}

pub(crate) fn remove_label(target: &PodKey, key: &str) -> Result<u32, CallError> {
    stage(Action::RemoveLabel { target: target.into(), key: key.to_owned() })
}

pub(crate) fn set_annotation(target: &PodKey, key: &str, value: &str) -> Result<u32, CallError> {
    stage(Action::SetAnnotation { target: target.into(), key: key.to_owned(), value: value.to_owned() })
}

pub(crate) fn remove_annotation(target: &PodKey, key: &str) -> Result<u32, CallError> {
    stage(Action::RemoveAnnotation { target: target.into(), key: key.to_owned() })
}

pub(crate) fn add_finalizer(target: &PodKey, name: &str) -> Result<u32, CallError> {
    stage(Action::AddFinalizer { target: target.into(), name: name.to_owned() })
}

pub(crate) fn remove_finalizer(target: &PodKey, name: &str) -> Result<u32, CallError> {
    stage(Action::RemoveFinalizer { target: target.into(), name: name.to_owned() })
}

pub(crate) fn set_condition(target: &PodKey, condition: &Condition) -> Result<u32, CallError> {
    let mut condition = condition.clone();
    if let Some(message) = &mut condition.message {
        for_people(message, syntax::MAX_CONDITION_MESSAGE_BYTES);
    }
    stage(authz::set_condition(target, condition))
}

pub(crate) fn remove_condition(target: &PodKey, condition_type: &str) -> Result<u32, CallError> {
    stage(Action::RemoveCondition { target: target.into(), condition_type: condition_type.to_owned() })
}

pub(crate) fn delete_pod(target: &PodKey, grace_period_seconds: Option<u32>) -> Result<u32, CallError> {
    stage(Action::DeletePod { target: target.into(), grace_seconds: grace_period_seconds })
}

pub(crate) fn evict_pod(target: &PodKey) -> Result<u32, CallError> {
    stage(Action::EvictPod { target: target.into() })
}

fn stage(action: Action) -> Result<u32, CallError> {
    with(|fake| fake.stage(action))
}

pub(crate) fn apply_object(object: &Value, owner: Option<ObjectOwner<'_>>) -> Result<u32, CallError> {
    with(|fake| fake.stage_apply(object, owner))
}

pub(crate) fn delete_object(object: &ObjectRef, uid: Option<&str>) -> Result<u32, CallError> {
    with(|fake| fake.stage_delete_object(object, uid))
}

pub(crate) fn commit() -> Result<Vec<WriteReport>, CallError> {
    with(|fake| Ok(fake.send()))
}

pub(crate) fn get_object(object: &ObjectRef) -> Result<Option<String>, CallError> {
    with(|fake| fake.read_object(object))
}

pub(crate) fn scale(object: &ObjectRef, replicas: u32) -> Result<u32, CallError> {
    with(|fake| fake.stage_scale(object, replicas))
}

pub(crate) fn emit(target: &PodKey, event: &Event) -> Result<(), CallError> {
    let mut event = event.clone();
    for_people(&mut event.note, syntax::MAX_NOTE_BYTES);
    with(|fake| fake.stage_event(target, &event))
}

pub(crate) fn state_get(key: &str) -> Result<Option<Entry<Vec<u8>>>, CallError> {
    with(|fake| {
        state_bytes("key", key.len(), STATE_KEY_BYTES)?;
        Ok(fake.state.get(key).cloned())
    })
}

pub(crate) fn state_put(key: &str, value: &[u8], expected: Option<u64>) -> Result<u64, PutError> {
    with(|fake| {
        state_bytes("key", key.len(), STATE_KEY_BYTES)?;
        state_bytes("value", value.len(), STATE_VALUE_BYTES)?;
        Ok(fake.state_put(key, value, expected))
    })
    .map_err(PutError::Other)?
}

pub(crate) fn state_remove(key: &str, expected: Option<u64>) -> Result<(), PutError> {
    with(|fake| {
        state_bytes("key", key.len(), STATE_KEY_BYTES)?;
        Ok(fake.state_remove(key, expected))
    })
    .map_err(PutError::Other)?
}

fn state_bytes(what: &str, bytes: usize, limit: usize) -> Result<(), CallError> {
    if bytes <= limit { Ok(()) } else { Err(CallError::Invalid(format!("{what}: {bytes} bytes, at most {limit}"))) }
}

pub(crate) fn log(level: Level, message: &str, fields: &[(String, String)]) {
    let fields = fields.iter().map(|(key, value)| (escape(key), escape(value))).collect();
    let line = LogLine { level, message: escape(message), fields };
    // Logs outside a run are discarded.
    let _ = with(|fake| {
        fake.logs.push(line);
        Ok(())
    });
}
