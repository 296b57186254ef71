//! The host calls outside a component: they reach the [`Fake`] of the [`super::Host`] that runs a plugin on this thread.

use std::{cell::RefCell, rc::Rc};

use serde_json::Value;

use super::{
    LogLine, Write,
    configuration::Pattern,
    fake::{Fake, pod_name},
    valid,
};
use crate::{
    Condition, Event, ObjectRef, PodKey, Refused, WriteReport,
    host::Page,
    log::Level,
    pods::Query,
    state::{Entry, PutError},
};

thread_local! {
    static CURRENT: RefCell<Option<Rc<RefCell<Fake>>>> = const { RefCell::new(None) };
}

/// Makes a fake the one that host calls on this thread reach, until it is dropped; also when a test panics.
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

fn with<T>(call: impl FnOnce(&mut Fake) -> Result<T, Refused>) -> Result<T, Refused> {
    let current = CURRENT.with_borrow(Clone::clone);
    let none = || Refused::Unavailable("no testing::Host runs a plugin on this thread".to_owned());
    call(&mut current.ok_or_else(none)?.borrow_mut())
}

pub(crate) fn get(namespace: &str, name: &str) -> Result<Option<Vec<u8>>, Refused> {
    with(|fake| Ok(fake.readable(namespace, name)))
}

pub(crate) fn get_live(namespace: &str, name: &str) -> Result<Option<Vec<u8>>, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| grants.read.pods.as_ref().is_some_and(|pods| pods.live))?;
        Ok(fake.readable(namespace, name))
    })
}

pub(crate) fn find(query: &Query, limit: u32, after: Option<&str>) -> Result<Page, Refused> {
    with(|fake| Ok(fake.page(query, limit, after)))
}

pub(crate) fn count(query: &Query) -> Result<u64, Refused> {
    with(|fake| Ok(fake.matching(query).count() as u64))
}

pub(crate) fn set_label(target: &PodKey, key: &str, value: &str) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| Pattern::any(&grants.write.labels, key))?;
        valid::key(key)?;
        valid::label_value(value)?;
        fake.stage(Some(target), Write::set_label(&pod_name(target), key, value))
    })
}

pub(crate) fn remove_label(target: &PodKey, key: &str) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| Pattern::any(&grants.write.labels, key))?;
        fake.stage(Some(target), Write::remove_label(&pod_name(target), key))
    })
}

pub(crate) fn set_annotation(target: &PodKey, key: &str, value: &str) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| Pattern::any(&grants.write.annotations, key))?;
        valid::key(key)?;
        fake.stage(Some(target), Write::set_annotation(&pod_name(target), key, value))
    })
}

pub(crate) fn remove_annotation(target: &PodKey, key: &str) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| Pattern::any(&grants.write.annotations, key))?;
        fake.stage(Some(target), Write::remove_annotation(&pod_name(target), key))
    })
}

pub(crate) fn add_finalizer(target: &PodKey, name: &str) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| Pattern::any(&grants.write.finalizers, name))?;
        valid::key(name)?;
        if fake.is_terminating(target) {
            return Err(Refused::Invalid("a Pod that is being deleted takes no new finalizer".to_owned()));
        }
        fake.stage(Some(target), Write::add_finalizer(&pod_name(target), name))
    })
}

pub(crate) fn remove_finalizer(target: &PodKey, name: &str) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| Pattern::any(&grants.write.finalizers, name))?;
        fake.stage(Some(target), Write::remove_finalizer(&pod_name(target), name))
    })
}

pub(crate) fn set_condition(target: &PodKey, condition: &Condition) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| Pattern::any(&grants.write.conditions, &condition.condition_type))?;
        valid::key(&condition.condition_type)?;
        fake.stage(Some(target), Write::set_condition(&pod_name(target), condition))
    })
}

pub(crate) fn remove_condition(target: &PodKey, condition_type: &str) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| Pattern::any(&grants.write.conditions, condition_type))?;
        fake.stage(Some(target), Write::remove_condition(&pod_name(target), condition_type))
    })
}

pub(crate) fn delete_pod(target: &PodKey, grace_seconds: Option<u32>) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| grants.write.delete)?;
        fake.stage(Some(target), Write::Delete { pod: pod_name(target), grace_seconds })
    })
}

pub(crate) fn evict_pod(target: &PodKey) -> Result<u32, Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| grants.write.evict)?;
        fake.stage(Some(target), Write::evict(&pod_name(target)))
    })
}

pub(crate) fn apply_object(object: &Value, owner: Option<&PodKey>) -> Result<u32, Refused> {
    with(|fake| {
        let named = object_ref(object)?;
        fake.object_granted(&named)?;
        fake.stage(owner, Write::ApplyObject { object: object.clone(), owner: owner.map(pod_name) })
    })
}

pub(crate) fn delete_object(object: &ObjectRef, uid: Option<&str>) -> Result<u32, Refused> {
    with(|fake| {
        fake.object_granted(object)?;
        fake.stage(None, Write::DeleteObject { object: object.clone(), uid: uid.map(str::to_owned) })
    })
}

/// What a complete object names.
pub(super) fn object_ref(object: &Value) -> Result<ObjectRef, Refused> {
    let text = |value: &Value, field: &str| {
        value.as_str().map(str::to_owned).ok_or_else(|| Refused::Invalid(format!("the object has no {field}")))
    };
    Ok(ObjectRef {
        api_version: text(&object["apiVersion"], "apiVersion")?,
        kind: text(&object["kind"], "kind")?,
        namespace: object["metadata"]["namespace"].as_str().map(str::to_owned),
        name: text(&object["metadata"]["name"], "metadata.name")?,
    })
}

pub(crate) fn commit() -> Result<Vec<WriteReport>, Refused> {
    with(|fake| Ok(fake.send()))
}

pub(crate) fn emit(target: &PodKey, event: &Event) -> Result<(), Refused> {
    with(|fake| {
        fake.configuration.granted(|grants| grants.write.events)?;
        fake.in_scope(&target.namespace)?;
        valid::word("reason", &event.reason)?;
        valid::word("action", &event.action)?;
        valid::note(&event.note)?;
        fake.stage_event(target, event);
        Ok(())
    })
}

pub(crate) fn state_get(key: &str) -> Result<Option<Entry<Vec<u8>>>, Refused> {
    with(|fake| Ok(fake.state.get(key).cloned()))
}

pub(crate) fn state_put(key: &str, value: &[u8], expected: Option<u64>) -> Result<u64, PutError> {
    with(|fake| Ok(fake.state_put(key, value, expected))).map_err(PutError::Refused)?
}

pub(crate) fn state_remove(key: &str, expected: Option<u64>) -> Result<(), PutError> {
    with(|fake| Ok(fake.state_remove(key, expected))).map_err(PutError::Refused)?
}

pub(crate) fn log(level: Level, message: &str, fields: &[(String, String)]) {
    let line = LogLine { level, message: message.to_owned(), fields: fields.to_vec() };
    // Outside a run there is nobody to read it.
    let _ = with(|fake| {
        fake.logs.push(line);
        Ok(())
    });
}
