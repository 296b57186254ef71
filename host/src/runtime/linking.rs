//! The contract's functions for the linker: each passes its arguments to one function of [`Run`], and converts the
//! result to the types of its world. No decision is made here.

use podium_engine::ports::{LogLevel, StateEntry, StateError};
use podium_pods::model::{Action, Event};
use wasmtime::component::{HasSelf, Linker};

use super::{
    bindings::{events, log, pods, pods_json, state, types, writes},
    reads::Format,
    run::Run,
    wasi,
};

pub(super) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<Run>> {
    type Me = HasSelf<Run>;
    let mut linker = Linker::new(engine);
    types::add_to_linker::<Run, Me>(&mut linker, |run| run)?;
    pods::add_to_linker::<Run, Me>(&mut linker, |run| run)?;
    pods_json::add_to_linker::<Run, Me>(&mut linker, |run| run)?;
    writes::add_to_linker::<Run, Me>(&mut linker, |run| run)?;
    events::add_to_linker::<Run, Me>(&mut linker, |run| run)?;
    state::add_to_linker::<Run, Me>(&mut linker, |run| run)?;
    log::add_to_linker::<Run, Me>(&mut linker, |run| run)?;
    wasi::add_to_linker(&mut linker)?;
    Ok(linker)
}

impl types::Host for Run {}

/// Records: each as bytes, a page as bytes with lengths between.
pub(super) struct Records;
/// Kubernetes JSON: each as text, a page as an array.
pub(super) struct Json;

impl pods::Host for Run {
    fn get(&mut self, namespace: String, name: String) -> Result<Option<Vec<u8>>, types::CallError> {
        self.get_pod::<Records>(&namespace, &name).map_err(Into::into)
    }
    async fn find(
        &mut self,
        query: types::PodQuery,
        limit: u32,
        after: Option<String>,
    ) -> Result<pods::Page, types::CallError> {
        let (pods, next) = self.find_pods::<Records>(query, limit, after).await?;
        Ok(pods::Page { pods, next })
    }
    async fn count(&mut self, query: types::PodQuery) -> Result<u64, types::CallError> {
        self.count_pods(query).await.map_err(Into::into)
    }
    async fn get_live(&mut self, namespace: String, name: String) -> Result<Option<Vec<u8>>, types::CallError> {
        self.get_live_pod::<Records>(&namespace, &name).await.map_err(Into::into)
    }
}

impl pods_json::Host for Run {
    fn get(&mut self, namespace: String, name: String) -> Result<Option<String>, types::CallError> {
        self.get_pod::<Json>(&namespace, &name).map_err(Into::into)
    }
    async fn find(
        &mut self,
        query: types::PodQuery,
        limit: u32,
        after: Option<String>,
    ) -> Result<pods_json::Page, types::CallError> {
        let (pods, next) = self.find_pods::<Json>(query, limit, after).await?;
        // A page of a withheld read is empty text, which is no array.
        let pods = if pods.is_empty() { Json::page(Vec::new()) } else { pods };
        Ok(pods_json::Page { pods, next })
    }
    async fn count(&mut self, query: types::PodQuery) -> Result<u64, types::CallError> {
        self.count_pods(query).await.map_err(Into::into)
    }
    async fn get_live(&mut self, namespace: String, name: String) -> Result<Option<String>, types::CallError> {
        self.get_live_pod::<Json>(&namespace, &name).await.map_err(Into::into)
    }
}

type Staged = Result<types::WriteId, types::CallError>;

impl writes::Host for Run {
    fn set_label(&mut self, target: types::PodKey, key: String, value: String) -> Staged {
        Ok(self.stage(Action::SetLabel { target: target.into(), key, value })?)
    }
    fn remove_label(&mut self, target: types::PodKey, key: String) -> Staged {
        Ok(self.stage(Action::RemoveLabel { target: target.into(), key })?)
    }
    fn set_annotation(&mut self, target: types::PodKey, key: String, value: String) -> Staged {
        Ok(self.stage(Action::SetAnnotation { target: target.into(), key, value })?)
    }
    fn remove_annotation(&mut self, target: types::PodKey, key: String) -> Staged {
        Ok(self.stage(Action::RemoveAnnotation { target: target.into(), key })?)
    }
    fn add_finalizer(&mut self, target: types::PodKey, name: String) -> Staged {
        Ok(self.stage(Action::AddFinalizer { target: target.into(), name })?)
    }
    fn remove_finalizer(&mut self, target: types::PodKey, name: String) -> Staged {
        Ok(self.stage(Action::RemoveFinalizer { target: target.into(), name })?)
    }
    fn set_condition(
        &mut self,
        target: types::PodKey,
        condition_type: String,
        status: types::ConditionStatus,
        reason: String,
        message: String,
    ) -> Staged {
        let (target, status) = (target.into(), status.into());
        Ok(self.stage(Action::SetCondition { target, condition_type, status, reason, message })?)
    }
    fn remove_condition(&mut self, target: types::PodKey, condition_type: String) -> Staged {
        Ok(self.stage(Action::RemoveCondition { target: target.into(), condition_type })?)
    }
    fn delete_pod(&mut self, target: types::PodKey, grace_period_seconds: Option<u32>) -> Staged {
        Ok(self.stage(Action::DeletePod { target: target.into(), grace_seconds: grace_period_seconds })?)
    }
    fn evict_pod(&mut self, target: types::PodKey) -> Staged {
        Ok(self.stage(Action::EvictPod { target: target.into() })?)
    }
    fn apply_object(&mut self, object: String, owner: Option<types::PodKey>) -> Staged {
        Ok(self.stage_object(&object, owner.map(Into::into))?)
    }
    fn delete_object(&mut self, object: types::ObjectRef, uid: Option<String>) -> Staged {
        Ok(self.stage_deletion(object.into(), uid)?)
    }
    async fn commit(&mut self) -> Result<Vec<types::WriteReport>, types::CallError> {
        let reports = self.commit_staged().await?;
        Ok(reports.into_iter().map(Into::into).collect())
    }
}

impl events::Host for Run {
    fn emit(
        &mut self,
        target: types::PodKey,
        event_type: types::EventType,
        reason: String,
        action: String,
        note: String,
    ) -> Result<(), types::CallError> {
        let (target, event_type) = (target.into(), event_type.into());
        Ok(self.emit_event(Event { target, event_type, reason, action, note })?)
    }
}

impl state::Host for Run {
    fn get(&mut self, key: String) -> Result<Option<state::Entry>, types::CallError> {
        Ok(self.get_state(&key)?.map(Into::into))
    }
    fn put(&mut self, key: String, value: Vec<u8>, expected: Option<u64>) -> Result<u64, state::PutError> {
        Ok(self.put_state(&key, value, expected)?)
    }
    fn remove(&mut self, key: String, expected: Option<u64>) -> Result<(), state::PutError> {
        Ok(self.remove_state(&key, expected)?)
    }
}

impl log::Host for Run {
    fn write(&mut self, level: log::Level, message: String, fields: Vec<(String, String)>) {
        let level = match level {
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.write_log(level, &message, &fields);
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
