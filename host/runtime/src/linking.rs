//! The contract's functions for the linker: each passes its arguments to one function of [`Run`], and converts the
//! result to the types of its world. No decision is made here.
//!
//! A plugin is linked with the functions of its [`Offer`] and no others, so that a component that the check of imports
//! let through by mistake has nothing to call.

use std::{num::NonZeroUsize, sync::Arc};

use foldhash::fast::FixedState;
use lru::LruCache;
use parking_lot::Mutex;
use podium_engine::ports::{LogLevel, StateEntry, StateError};
use podium_vocabulary::{Action, Event, Function, PACKAGE, Refused, VERSION};
use wasmtime::{
    StoreContextMut,
    component::{Linker, LinkerInstance},
};

use super::{
    bindings::{log, state, types},
    offer::{Offer, WorldKind},
    reads::Format,
    run::Run,
    wasi,
};

/// Records: each as bytes, a page as bytes with lengths between.
pub(super) struct Records;
/// Kubernetes JSON: each as text, a page as an array.
pub(super) struct Json;

/// Linkers that are kept. Plugins of a host have few different sets of functions; of one that is not kept a new linker
/// is made, which compiles nothing.
const KEPT: NonZeroUsize = NonZeroUsize::new(32).unwrap(); // not 0: the compiler evaluates it

/// The linkers of an engine, one for each set of functions.
pub(super) struct Linkers {
    /// WASI, which every plugin may import.
    base: Linker<Run>,
    by_offer: Mutex<LruCache<Offer, Arc<Linker<Run>>, FixedState>>,
}

impl Linkers {
    pub(super) fn new(engine: &wasmtime::Engine) -> wasmtime::Result<Self> {
        let mut base = Linker::new(engine);
        wasi::add_to_linker(&mut base)?;
        Ok(Self { base, by_offer: Mutex::new(LruCache::with_hasher(KEPT, FixedState::default())) })
    }

    /// Returns the linker with these functions and no others of the contract.
    pub(super) fn get(&self, offer: Offer) -> wasmtime::Result<Arc<Linker<Run>>> {
        let mut kept = self.by_offer.lock();
        if let Some(linker) = kept.get(&offer) {
            return Ok(Arc::clone(linker));
        }
        let mut linker = self.base.clone();
        for interface in offer.world.interfaces() {
            let mut instance = linker.instance(&format!("{PACKAGE}{interface}{VERSION}"))?;
            for function in offer.in_interface(interface) {
                match interface {
                    "pods-json" => add::<Json>(&mut instance, function)?,
                    _ => add::<Records>(&mut instance, function)?,
                }
            }
        }
        if offer.world == WorldKind::Script {
            let mut program = linker.instance(&format!("{PACKAGE}program{VERSION}"))?;
            program.func_wrap("code", |mut store, ()| Ok((store.data_mut().program(),)))?;
        }
        let linker = Arc::new(linker);
        kept.put(offer, Arc::clone(&linker));
        Ok(linker)
    }
}

/// The results of a function: one.
type SingleResult<T> = wasmtime::Result<(T,)>;
type Answer<T> = Result<T, types::CallError>;
type Key = types::PodKey;

fn answer<T, E: From<Refused>>(result: Result<T, Refused>) -> SingleResult<Result<T, E>> {
    Ok((result.map_err(Into::into),))
}

fn stage(mut store: StoreContextMut<'_, Run>, action: Action) -> SingleResult<Answer<u32>> {
    answer(store.data_mut().stage(action))
}

/// Adds a function, with Pods in this form.
#[expect(clippy::too_many_lines, reason = "one short arm for each host call")]
fn add<F: Format>(instance: &mut LinkerInstance<'_, Run>, function: Function) -> wasmtime::Result<()> {
    let name = function.name();
    match function {
        Function::Get => instance.func_wrap(name, |mut store, (namespace, name): (String, String)| {
            answer::<_, types::CallError>(store.data_mut().get_pod::<F>(&namespace, &name))
        }),
        Function::Find => instance.func_wrap_async(
            name,
            |mut store, (query, limit, after): (types::PodQuery, u32, Option<String>)| {
                Box::new(async move {
                    answer::<_, types::CallError>(store.data_mut().find_pods::<F>(query, limit, after).await)
                })
            },
        ),
        Function::Count => instance.func_wrap_async(name, |mut store, (query,): (types::PodQuery,)| {
            Box::new(async move { answer::<_, types::CallError>(store.data_mut().count_pods(query).await) })
        }),
        Function::GetLive => instance.func_wrap_async(name, |mut store, (namespace, name): (String, String)| {
            Box::new(async move {
                answer::<_, types::CallError>(store.data_mut().get_live_pod::<F>(&namespace, &name).await)
            })
        }),
        Function::SetLabel => instance.func_wrap(name, |store, (target, key, value): (Key, String, String)| {
            stage(store, Action::SetLabel { target: target.into(), key, value })
        }),
        Function::RemoveLabel => instance.func_wrap(name, |store, (target, key): (Key, String)| {
            stage(store, Action::RemoveLabel { target: target.into(), key })
        }),
        Function::SetAnnotation => instance.func_wrap(name, |store, (target, key, value): (Key, String, String)| {
            stage(store, Action::SetAnnotation { target: target.into(), key, value })
        }),
        Function::RemoveAnnotation => instance.func_wrap(name, |store, (target, key): (Key, String)| {
            stage(store, Action::RemoveAnnotation { target: target.into(), key })
        }),
        Function::AddFinalizer => instance.func_wrap(name, |store, (target, name): (Key, String)| {
            stage(store, Action::AddFinalizer { target: target.into(), name })
        }),
        Function::RemoveFinalizer => instance.func_wrap(name, |store, (target, name): (Key, String)| {
            stage(store, Action::RemoveFinalizer { target: target.into(), name })
        }),
        Function::SetCondition => instance.func_wrap(
            name,
            |store,
             (target, condition_type, status, reason, message): (
                Key,
                String,
                types::ConditionStatus,
                String,
                String,
            )| {
                let target = target.into();
                let status = status.into();
                stage(store, Action::SetCondition { target, condition_type, status, reason, message })
            },
        ),
        Function::RemoveCondition => instance.func_wrap(name, |store, (target, condition_type): (Key, String)| {
            stage(store, Action::RemoveCondition { target: target.into(), condition_type })
        }),
        Function::DeletePod => instance.func_wrap(name, |store, (target, grace_seconds): (Key, Option<u32>)| {
            stage(store, Action::DeletePod { target: target.into(), grace_seconds })
        }),
        Function::EvictPod => instance
            .func_wrap(name, |store, (target,): (Key,)| stage(store, Action::EvictPod { target: target.into() })),
        Function::ApplyObject => {
            instance.func_wrap(name, |mut store, (object, owner): (String, Option<types::ObjectOwner>)| {
                answer::<_, types::CallError>(store.data_mut().stage_object(&object, owner.map(Into::into)))
            })
        }
        Function::DeleteObject => {
            instance.func_wrap(name, |mut store, (object, uid): (types::ObjectRef, Option<String>)| {
                answer::<_, types::CallError>(store.data_mut().stage_deletion(object.into(), uid))
            })
        }
        Function::Commit => instance.func_wrap_async(name, |mut store, ()| {
            Box::new(async move {
                let reports = store.data_mut().commit_staged().await;
                let reports = reports.map(|reports| reports.into_iter().map(Into::into).collect());
                answer::<Vec<types::WriteReport>, types::CallError>(reports)
            })
        }),
        Function::GetObject => instance.func_wrap_async(name, |mut store, (object,): (types::ObjectRef,)| {
            Box::new(async move { answer::<_, types::CallError>(store.data_mut().get_object(object.into()).await) })
        }),
        Function::Scale => instance.func_wrap(name, |mut store, (object, replicas): (types::ObjectRef, u32)| {
            answer::<_, types::CallError>(store.data_mut().stage_scale(object.into(), replicas))
        }),
        Function::Emit => instance.func_wrap(
            name,
            |mut store, (target, event_type, reason, action, note): (Key, types::EventType, String, String, String)| {
                let event = Event { target: target.into(), event_type: event_type.into(), reason, action, note };
                answer::<_, types::CallError>(store.data_mut().emit_event(event))
            },
        ),
        Function::StateGet => instance.func_wrap(name, |mut store, (key,): (String,)| {
            let entry = store.data_mut().get_state(&key);
            answer::<Option<state::Entry>, types::CallError>(entry.map(|entry| entry.map(Into::into)))
        }),
        Function::StatePut => {
            instance.func_wrap(name, |mut store, (key, value, expected): (String, Vec<u8>, Option<u64>)| {
                Ok((store.data_mut().put_state(&key, value, expected).map_err(state::PutError::from),))
            })
        }
        Function::StateRemove => instance.func_wrap(name, |mut store, (key, expected): (String, Option<u64>)| {
            Ok((store.data_mut().remove_state(&key, expected).map_err(state::PutError::from),))
        }),
        Function::Log => instance.func_wrap(
            name,
            |mut store, (level, message, fields): (log::Level, String, Vec<(String, String)>)| {
                store.data_mut().write_log(level.into(), &message, &fields);
                Ok(())
            },
        ),
    }
}

impl From<log::Level> for LogLevel {
    fn from(level: log::Level) -> Self {
        match level {
            log::Level::Debug => Self::Debug,
            log::Level::Info => Self::Info,
            log::Level::Warn => Self::Warn,
            log::Level::Error => Self::Error,
        }
    }
}

impl From<StateEntry> for state::Entry {
    fn from(entry: StateEntry) -> Self {
        Self { value: entry.value, version: entry.version }
    }
}

impl From<StateError> for state::PutError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Conflict(entry) => Self::Conflict(entry.map(Into::into)),
            StateError::Refused(refused) => Self::Other(refused.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use podium_vocabulary::{Grant, Grants, INTERFACES, KeyPattern, LimitClass, ObjectGrant, ReadGrants, WriteGrants};
    use wasmtime::component::Component;

    use super::*;

    fn sized(bytes: &[u8]) -> Vec<u8> {
        [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    /// A component that imports one function without parameters and results. No function of the contract has this
    /// type, so a linker that has the function reports its type, and otherwise that it is missing.
    fn importing(interface: &str, function: &str) -> Vec<u8> {
        let named = |name: &str| [&[0][..], &sized(name.as_bytes())].concat();
        let function_type = [0x01, 0x40, 0, 1, 0];
        let export = [&[0x04][..], &named(function), &[1, 0]].concat();
        let instance_type = [&[1, 0x42, 2], &function_type[..], &export].concat();
        let import = [&[1], &*named(&format!("{PACKAGE}{interface}{VERSION}")), &[5, 0]].concat();
        let sections = [(7, instance_type), (10, import)];
        let sections = sections.into_iter().flat_map(|(id, body)| [vec![id], sized(&body)].concat());
        b"\0asm\x0d\0\x01\0".iter().copied().chain(sections).collect()
    }

    /// The contract's functions that a linker has.
    fn linked(linker: &Linker<Run>) -> Vec<(&'static str, &'static str)> {
        let functions = INTERFACES
            .into_iter()
            .flat_map(|interface| Function::in_interface(interface).map(move |function| (interface, function.name())));
        let has = |(interface, function): &(&str, &str)| {
            let component = Component::new(linker.engine(), importing(interface, function)).unwrap();
            let error = format!("{:#}", linker.instantiate_pre(&component).map(drop).unwrap_err());
            let missing = error.contains("function implementation is missing");
            assert!(missing || error.contains("type mismatch"), "{interface}.{function}: {error}");
            !missing
        };
        functions.filter(has).collect()
    }

    fn config_maps() -> Vec<ObjectGrant> {
        let [api_version, kind, resource] = ["v1", "ConfigMap", "configmaps"].map(Into::into);
        vec![ObjectGrant { api_version, kind, resource }]
    }

    /// Grants that meet exactly one need that a grant meets.
    fn granting(need: Grant) -> Grants {
        let mut grants = Grants::default();
        let keys = || vec![KeyPattern("a.example/*".into())];
        let write = &mut grants.write;
        match need {
            Grant::Read => grants.read = Some(ReadGrants::default()),
            Grant::Live => grants.read = Some(ReadGrants { live: true, ..ReadGrants::default() }),
            Grant::ReadObjects => grants.read_objects = config_maps(),
            Grant::Labels => write.labels = keys(),
            Grant::Annotations => write.annotations = keys(),
            Grant::Finalizers => write.finalizers = keys(),
            Grant::Conditions => write.conditions = keys(),
            Grant::Delete => write.delete = true,
            Grant::Evict => write.evict = true,
            Grant::Objects => write.objects = config_maps(),
            Grant::Scale => write.scale = config_maps(),
            Grant::Events => write.events = true,
        }
        grants
    }

    #[test]
    fn a_native_plugin_is_linked_with_its_grants_only() {
        let linkers = Linkers::new(&wasmtime::Engine::default()).unwrap();
        let functions_of =
            |grants: &Grants| linked(&linkers.get(Offer::new(WorldKind::Native, LimitClass::Native, grants)).unwrap());
        let free = [("writes", "commit"), ("state", "get"), ("state", "put"), ("state", "remove"), ("log", "write")];
        assert_eq!(functions_of(&Grants::default()), free);
        for (need, further) in [
            (Grant::Read, vec![("pods", "get"), ("pods", "find"), ("pods", "count")]),
            (Grant::Live, vec![("pods", "get"), ("pods", "find"), ("pods", "count"), ("pods", "get-live")]),
            (Grant::ReadObjects, vec![("objects", "get")]),
            (Grant::Labels, vec![("writes", "set-label"), ("writes", "remove-label")]),
            (Grant::Annotations, vec![("writes", "set-annotation"), ("writes", "remove-annotation")]),
            (Grant::Finalizers, vec![("writes", "add-finalizer"), ("writes", "remove-finalizer")]),
            (Grant::Conditions, vec![("writes", "set-condition"), ("writes", "remove-condition")]),
            (Grant::Delete, vec![("writes", "delete-pod")]),
            (Grant::Evict, vec![("writes", "evict-pod")]),
            (Grant::Objects, vec![("writes", "apply-object"), ("writes", "delete-object")]),
            (Grant::Scale, vec![("objects", "scale")]),
            (Grant::Events, vec![("events", "emit")]),
        ] {
            let mut functions = functions_of(&granting(need));
            functions.retain(|function| !free.contains(function));
            assert_eq!(functions, further, "{need:?}");
        }
    }

    #[test]
    fn an_interpreter_is_linked_with_granted_interfaces() {
        let linkers = Linkers::new(&wasmtime::Engine::default()).unwrap();
        let interfaces_of = |world, grants: &Grants| {
            let offer = Offer::new(world, LimitClass::Interpreter, grants);
            let functions = linked(&linkers.get(offer).unwrap());
            let mut interfaces: Vec<_> = functions.iter().map(|(interface, _)| *interface).collect();
            interfaces.dedup();
            let whole: usize = interfaces.iter().map(|interface| Function::in_interface(interface).count()).sum();
            assert_eq!(functions.len(), whole, "whole interfaces: {functions:?}");
            interfaces
        };
        assert_eq!(interfaces_of(WorldKind::Json, &Grants::default()), ["state", "log"]);
        assert_eq!(interfaces_of(WorldKind::Json, &granting(Grant::Evict)), ["writes", "state", "log"]);
        assert_eq!(interfaces_of(WorldKind::Json, &granting(Grant::ReadObjects)), ["objects", "state", "log"]);
        assert_eq!(interfaces_of(WorldKind::Json, &granting(Grant::Events)), ["events", "state", "log"]);
        assert_eq!(interfaces_of(WorldKind::Json, &granting(Grant::Read)), ["pods-json", "state", "log"]);
        assert_eq!(interfaces_of(WorldKind::Native, &granting(Grant::Read)), ["pods", "state", "log"]);
    }

    #[test]
    fn plugins_of_the_same_functions_share_a_linker() {
        let linkers = Linkers::new(&wasmtime::Engine::default()).unwrap();
        let of = |needs: &[Grant]| {
            let mut grants = Grants::default();
            for need in needs {
                let Grants { read, write, .. } = granting(*need);
                grants.read = grants.read.or(read);
                let WriteGrants { labels, annotations, events, delete, evict, .. } = write;
                grants.write.labels.extend(labels);
                grants.write.annotations.extend(annotations);
                grants.write.events |= events;
                grants.write.delete |= delete;
                grants.write.evict |= evict;
            }
            linkers.get(Offer::new(WorldKind::Native, LimitClass::Native, &grants)).unwrap()
        };
        let needs = [Grant::Read, Grant::Labels, Grant::Annotations, Grant::Events, Grant::Delete, Grant::Evict];
        let first = of(&needs[..2]);
        assert!(Arc::ptr_eq(&first, &of(&needs[..2])));
        for set in 0..1 << needs.len() {
            let chosen = needs.iter().enumerate().filter(|(at, _)| set & 1 << at != 0).map(|(_, need)| *need);
            of(&chosen.collect::<Vec<_>>());
        }
        assert_eq!(linkers.by_offer.lock().len(), KEPT.get());
    }
}
