//! The one choke point: every host call of both worlds is authorised, accounted, done and recorded here, in this order.
//!
//! Whether a write's arguments are right and granted is [`authorize`]'s to say. Reads are in [`reads`](super::reads), what a WASI guest prints joins the log; both come through here as well.

use super::{function::Function, run::Run, text::at_most};
use crate::{
    authz::authorize,
    model::{Action, Event, ObjectRef, PodKey, Refused, Write, WriteReport},
    seam::{LogLevel, StateEntry, StateError},
};

/// Below what etcd takes (1.5 MiB), as JSON.
const OBJECT_BYTES: usize = 1 << 20;
const STATE_KEY_BYTES: usize = 256;
const STATE_VALUE_BYTES: usize = 64 << 10;

/// Whether a call goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Admitted,
    /// A read of what is not granted: answered as a read of nothing.
    Withheld,
}

impl Run {
    /// Authorises and accounts. A call that is refused counts as well, so that refusals cannot be had for nothing.
    pub(super) fn admit(&mut self, function: Function) -> Result<Admission, Refused> {
        self.drain_output();
        let granted = function.need().is_met(&self.terms.grants);
        self.ledger.host_calls = self.ledger.host_calls.saturating_add(1);
        if self.ledger.host_calls > self.terms.limits.host_calls {
            return Err(Refused::OverBudget);
        }
        match granted {
            true => Ok(Admission::Admitted),
            false if function.is_read() => Ok(Admission::Withheld),
            false => Err(Refused::NotGranted),
        }
    }

    /// Says how the call ended, to whoever traces.
    pub(super) fn record(&self, function: Function, refused: Option<&Refused>) {
        tracing::trace!(
            plugin = %self.terms.id,
            interface = function.interface(),
            function = function.name(),
            refused = refused.map(tracing::field::display),
            "host call"
        );
    }

    /// A host call that does not wait.
    pub(super) fn call<T: Default>(
        &mut self,
        function: Function,
        work: impl FnOnce(&mut Self) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let answer = match self.admit(function) {
            Ok(Admission::Admitted) => work(self),
            Ok(Admission::Withheld) => Ok(T::default()),
            Err(refused) => Err(refused),
        };
        self.record(function, answer.as_ref().err());
        answer
    }

    /// Stages a write; gives its number.
    pub(super) fn stage(&mut self, action: Action) -> Result<u32, Refused> {
        let function = function_of(&action);
        self.call(function, |run| run.stage_admitted(action))
    }

    /// Stages the apply of an object given as JSON. The kind that is authorised is read from the very value that is
    /// sent: the text is parsed once.
    pub(super) fn stage_object(&mut self, object: &str, owner: Option<PodKey>) -> Result<u32, Refused> {
        self.call(Function::ApplyObject, |run| {
            at_most("object", object, OBJECT_BYTES)?;
            let body: serde_json::Value =
                serde_json::from_str(object).map_err(|error| Refused::Invalid(format!("object: {error}")))?;
            let object = object_ref(&body)?;
            run.stage_admitted(Action::ApplyObject { object, body, owner })
        })
    }

    fn stage_admitted(&mut self, action: Action) -> Result<u32, Refused> {
        let id = self.ledger.next_write;
        let write = authorize(&self.terms.scope, &self.terms.grants, Write { id, action })?;
        self.account_write()?;
        self.ledger.next_write = id.saturating_add(1);
        self.staged.writes.push(write);
        Ok(id)
    }

    fn account_write(&mut self) -> Result<(), Refused> {
        if self.ledger.writes >= self.terms.limits.writes {
            return Err(Refused::OverBudget);
        }
        self.ledger.writes += 1;
        Ok(())
    }

    pub(super) fn emit_event(&mut self, event: Event) -> Result<(), Refused> {
        self.call(Function::Emit, |run| {
            let event = authorize(&run.terms.scope, &run.terms.grants, event)?;
            run.account_write()?;
            run.staged.events.push(event);
            Ok(())
        })
    }

    /// Sends what is staged. Not asked for nothing: an empty commit does not reach the world.
    pub(super) async fn commit_staged(&mut self) -> Result<Vec<WriteReport>, Refused> {
        let admitted = self.admit(Function::Commit);
        self.record(Function::Commit, admitted.as_ref().err());
        admitted?;
        let staged = std::mem::take(&mut self.staged);
        if staged.writes.is_empty() && staged.events.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.world.commit(staged).await)
    }

    pub(super) fn get_state(&mut self, key: &str) -> Result<Option<StateEntry>, Refused> {
        self.call(Function::StateGet, |run| {
            at_most("key", key, STATE_KEY_BYTES)?;
            Ok(run.world.state_get(key))
        })
    }

    pub(super) fn put_state(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        let mut conflict = None;
        let version = self.call(Function::StatePut, |run| {
            at_most("key", key, STATE_KEY_BYTES)?;
            if value.len() > STATE_VALUE_BYTES {
                let length = value.len();
                return Err(Refused::Invalid(format!("value: {length} bytes, at most {STATE_VALUE_BYTES}")));
            }
            settle(run.world.state_put(key, value, expected), &mut conflict)
        })?;
        conflict.map_or(Ok(version), Err)
    }

    pub(super) fn remove_state(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        let mut conflict = None;
        self.call(Function::StateRemove, |run| {
            at_most("key", key, STATE_KEY_BYTES)?;
            settle(run.world.state_remove(key, expected), &mut conflict)
        })?;
        conflict.map_or(Ok(()), Err)
    }

    /// Says nothing when over budget: the function has no answer.
    pub(super) fn write_log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        let _refused = self.call(Function::Log, |run| {
            run.log(level, message, fields);
            Ok(())
        });
    }
}

/// A conflict is an answer, not a refusal: it goes around the choke point's result.
fn settle<T: Default>(result: Result<T, StateError>, conflict: &mut Option<StateError>) -> Result<T, Refused> {
    match result {
        Ok(value) => Ok(value),
        Err(StateError::Refused(refused)) => Err(refused),
        Err(error @ StateError::Conflict(_)) => {
            *conflict = Some(error);
            Ok(T::default())
        }
    }
}

fn function_of(action: &Action) -> Function {
    match action {
        Action::SetLabel { .. } => Function::SetLabel,
        Action::RemoveLabel { .. } => Function::RemoveLabel,
        Action::SetAnnotation { .. } => Function::SetAnnotation,
        Action::RemoveAnnotation { .. } => Function::RemoveAnnotation,
        Action::AddFinalizer { .. } => Function::AddFinalizer,
        Action::RemoveFinalizer { .. } => Function::RemoveFinalizer,
        Action::SetCondition { .. } => Function::SetCondition,
        Action::RemoveCondition { .. } => Function::RemoveCondition,
        Action::DeletePod { .. } => Function::DeletePod,
        Action::EvictPod { .. } => Function::EvictPod,
        Action::ApplyObject { .. } => Function::ApplyObject,
        Action::DeleteObject { .. } => Function::DeleteObject,
    }
}

/// What an object calls itself. A namespace that is there and no text is refused, not ignored.
fn object_ref(body: &serde_json::Value) -> Result<ObjectRef, Refused> {
    let text = |path: &str| match body.pointer(path) {
        Some(serde_json::Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        _ => Err(Refused::Invalid(format!("object: {} must be text", path.trim_start_matches('/').replace('/', ".")))),
    };
    let namespace = match body.pointer("/metadata/namespace") {
        None => None,
        Some(_) => Some(text("/metadata/namespace")?),
    };
    Ok(ObjectRef { api_version: text("/apiVersion")?, kind: text("/kind")?, namespace, name: text("/metadata/name")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_without_a_name_or_with_a_namespace_that_is_no_text_is_refused() {
        for body in [
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": null}}),
            serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": ["b"]}}),
            serde_json::json!([]),
        ] {
            assert!(matches!(object_ref(&body), Err(Refused::Invalid(_))), "{body}");
        }
    }
}
