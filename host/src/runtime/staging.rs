//! Staging of writes and Events: accounted in number and in bytes, authorised, kept until they are sent. Whether a
//! write's arguments are right and granted is [`authorize`]'s to say.

use podium_engine::authz::authorize;
use podium_pods::model::{Action, Event, ObjectRef, PodKey, Refused, Write};

use super::{function::Function, limits::OBJECT_BYTES, meter::Size, object, run::Run, text::at_most};

/// Texts of a write at the most: three of its target and four others. Not counted one by one.
const TEXTS: usize = 7;

impl Run {
    /// Stages a write and returns its id.
    pub(super) fn stage(&mut self, action: Action) -> Result<u32, Refused> {
        let bytes = text_of(&action);
        self.call(function_of(&action), Size { bytes, values: TEXTS }, |run| {
            let id = run.ledger.next_write;
            let write = authorize(&run.terms.scope, &run.terms.grants, Write { id, action })?;
            run.ledger.take_write(bytes, run.terms.limits.writes)?;
            run.ledger.next_write = id.saturating_add(1);
            run.staged.writes.push(write);
            Ok(id)
        })
    }

    /// Stages the deletion of an object.
    pub(super) fn stage_deletion(&mut self, object: ObjectRef, uid: Option<String>) -> Result<u32, Refused> {
        let object = self.resolved(object);
        self.stage(Action::DeleteObject { object, uid })
    }

    /// Sets the resource of an object: the grant names it, and the plugin does not. Without a grant it stays empty, and
    /// [`authorize`] refuses the write.
    fn resolved(&self, object: ObjectRef) -> ObjectRef {
        let resource = self.terms.grants.write.resource(&object.api_version, &object.kind);
        ObjectRef { resource: resource.unwrap_or_default().to_owned(), ..object }
    }

    /// Stages the apply of an object given as JSON. Parsing costs the host more than the guest, so it is accounted
    /// before, and what does not parse or is not granted has cost a write as well.
    pub(super) fn stage_object(&mut self, text: &str, owner: Option<PodKey>) -> Result<u32, Refused> {
        let bytes = text.len() + owner.as_ref().map_or(0, pod_of);
        self.call(Function::ApplyObject, Size { bytes, values: 4 }, |run| {
            at_most("object", text, OBJECT_BYTES)?;
            run.ledger.take_write(text.len(), run.terms.limits.writes)?;
            // The text is read twice, and text that is no JSON at least in part.
            run.bill.add(Size { bytes: 2 * text.len(), values: 0 }.rendered());
            let values = object::count_values(text)?;
            run.ledger.take_values(values)?;
            run.bill.add(Size { bytes: 0, values }.rendered());
            let (object, body) = object::parse(text)?;
            let id = run.ledger.next_write;
            let action = Action::ApplyObject { object: run.resolved(object), body, owner };
            let write = authorize(&run.terms.scope, &run.terms.grants, Write { id, action })?;
            run.ledger.next_write = id.saturating_add(1);
            run.staged.writes.push(write);
            Ok(id)
        })
    }

    pub(super) fn emit_event(&mut self, event: Event) -> Result<(), Refused> {
        let bytes = pod_of(&event.target) + event.reason.len() + event.action.len() + event.note.len();
        self.call(Function::Emit, Size { bytes, values: TEXTS }, |run| {
            let event = authorize(&run.terms.scope, &run.terms.grants, event)?;
            run.ledger.take_write(bytes, run.terms.limits.writes)?;
            run.staged.events.push(event);
            Ok(())
        })
    }
}

/// Bytes of the guest's text in it. An object's are taken before it is one.
fn text_of(action: &Action) -> usize {
    let own = match action {
        Action::SetLabel { key, value, .. } | Action::SetAnnotation { key, value, .. } => key.len() + value.len(),
        Action::RemoveLabel { key, .. } | Action::RemoveAnnotation { key, .. } => key.len(),
        Action::AddFinalizer { name, .. } | Action::RemoveFinalizer { name, .. } => name.len(),
        Action::SetCondition { condition_type, reason, message, .. } => {
            condition_type.len() + reason.len() + message.len()
        }
        Action::RemoveCondition { condition_type, .. } => condition_type.len(),
        Action::DeleteObject { object, uid } => {
            let namespace = object.namespace.as_deref().map_or(0, str::len);
            let names = object.api_version.len() + object.kind.len() + object.name.len();
            names + namespace + uid.as_deref().map_or(0, str::len)
        }
        Action::DeletePod { .. } | Action::EvictPod { .. } | Action::ApplyObject { .. } => 0,
    };
    own + action.pod().map_or(0, pod_of)
}

fn pod_of(key: &PodKey) -> usize {
    key.namespace.len() + key.name.len() + key.uid.len()
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
