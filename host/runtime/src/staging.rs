//! Staging of writes and Events: accounted in number and in bytes, authorised, kept until they are sent. Whether a
//! write's arguments are right and granted is [`authorize_or`]'s to say.

use podium_vocabulary::{
    Action, Event, Function, ObjectGrant, ObjectOwner, ObjectRef, PodKey, Refused, Write,
    authz::{Authorized, Guarded, authorize_or},
    syntax,
};

use super::{
    limits::OBJECT_BYTES,
    meter::Size,
    object,
    run::Run,
    text::{check_argument_length, for_people},
};

/// The most strings that a write has: three of its target and four others. Every write is charged for as many.
const TEXTS: usize = 7;

impl Run {
    /// Stages a write and returns its id.
    pub(super) fn stage(&mut self, mut action: Action) -> Result<u32, Refused> {
        let bytes = text_of(&action);
        self.call(action.function(), Size { bytes, values: TEXTS }, |run| {
            if let Action::SetCondition { message, .. } = &mut action {
                run.escape(message, syntax::MAX_CONDITION_MESSAGE_BYTES);
            }
            let id = run.budget.next_write;
            let write = run.authorized(Write { id, action })?;
            run.budget.take_write(bytes, run.context.limits.writes)?;
            run.budget.next_write = id.saturating_add(1);
            run.staged.writes.push(write);
            Ok(id)
        })
    }

    /// Stages the deletion of an object.
    pub(super) fn stage_deletion(&mut self, object: ObjectRef, uid: Option<String>) -> Result<u32, Refused> {
        let object = with_resource(&self.context.grants.write.objects, object);
        self.stage(Action::DeleteObject { object, uid })
    }

    /// Stages the replicas of an object.
    pub(super) fn stage_scale(&mut self, object: ObjectRef, replicas: u32) -> Result<u32, Refused> {
        let object = with_resource(&self.context.grants.write.scale, object);
        self.stage(Action::Scale { object, replicas })
    }

    /// Stages the apply of an object from its JSON. Parsing costs the host more than the guest, so the write is
    /// counted before; an object that does not parse or is not granted counts as a write too.
    pub(super) fn stage_object(&mut self, text: &str, owner: Option<ObjectOwner>) -> Result<u32, Refused> {
        let bytes = text.len() + owner.as_ref().map_or(0, |owner| pod_of(owner.pod()));
        self.call(Function::ApplyObject, Size { bytes, values: 4 }, |run| {
            check_argument_length("object", text, OBJECT_BYTES)?;
            run.budget.take_write(text.len(), run.context.limits.writes)?;
            // The text is read twice, and text that is no JSON at least in part.
            run.bill.add(Size { bytes: 2 * text.len(), values: 0 }.rendered());
            let values = object::count_values(text)?;
            run.budget.take_values(values)?;
            run.bill.add(Size { bytes: 0, values }.rendered());
            let (object, body) = object::parse(text)?;
            let id = run.budget.next_write;
            let action =
                Action::ApplyObject { object: with_resource(&run.context.grants.write.objects, object), body, owner };
            let write = run.authorized(Write { id, action })?;
            run.budget.next_write = id.saturating_add(1);
            run.staged.writes.push(write);
            run.objects = run.objects.and(Size { bytes: text.len(), values });
            Ok(id)
        })
    }

    pub(super) fn emit_event(&mut self, mut event: Event) -> Result<(), Refused> {
        let bytes = pod_of(&event.target) + event.reason.len() + event.action.len() + event.note.len();
        self.call(Function::Emit, Size { bytes, values: TEXTS }, |run| {
            run.escape(&mut event.note, syntax::MAX_NOTE_BYTES);
            let event = run.authorized(event)?;
            run.budget.take_write(bytes, run.context.limits.writes)?;
            run.staged.events.push(event);
            Ok(())
        })
    }

    pub(super) fn authorized<T: Guarded>(&mut self, value: T) -> Result<Authorized<T>, Refused> {
        let Self { context, refusal, world, .. } = self;
        authorize_or(&context.scope, &context.grants, value, |why| {
            world.not_granted(&why);
            *refusal = Some(why);
        })
    }

    /// Makes a text that people read one line, and counts its price.
    fn escape(&mut self, text: &mut String, limit: usize) {
        if text.len() <= limit {
            self.bill.add(Size { bytes: text.len(), values: 1 }.rendered());
        }
        for_people(text, limit);
    }
}

/// Sets the resource of an object: the grant names it, and the plugin does not. Without a grant it stays empty, and
/// [`authorize_or`] refuses the call.
pub(super) fn with_resource(grants: &[ObjectGrant], object: ObjectRef) -> ObjectRef {
    let resource = ObjectGrant::resource(grants, &object.api_version, &object.kind);
    ObjectRef { resource: resource.unwrap_or_default().to_owned(), ..object }
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
        Action::DeleteObject { object, uid } => names_of(object) + uid.as_deref().map_or(0, str::len),
        Action::Scale { object, .. } => names_of(object),
        Action::DeletePod { .. } | Action::EvictPod { .. } | Action::ApplyObject { .. } => 0,
    };
    own + action.pod().map_or(0, pod_of)
}

fn names_of(object: &ObjectRef) -> usize {
    let ObjectRef { api_version, kind, resource: _, namespace, name } = object;
    api_version.len() + kind.len() + namespace.as_deref().map_or(0, str::len) + name.len()
}

fn pod_of(key: &PodKey) -> usize {
    key.namespace.len() + key.name.len() + key.uid.len()
}
