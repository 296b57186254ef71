//! Events about Pods.

use super::{Guarded, granted, needs, valid, valid_length, valid_target};
use crate::{Event, Grant, Grants, Refused, Scope, syntax};

impl Guarded for Event {
    fn check(&self, scope: &Scope, grants: &Grants) -> Result<(), Refused> {
        valid_target(&self.target)?;
        valid("reason", &self.reason, syntax::upper_camel_case)?;
        valid("action", &self.action, syntax::upper_camel_case)?;
        valid_length("note", &self.note, syntax::MAX_NOTE_BYTES)?;
        if self.note.is_empty() {
            return Err(Refused::Invalid("note must not be empty".to_owned()));
        }
        granted(grants.write.events && scope.contains(&self.target.namespace))
    }

    fn lacking(&self, _: &Grants) -> String {
        needs(Grant::Events)
    }

    fn subject(&self) -> String {
        format!("the Pod {}", self.target)
    }
}
