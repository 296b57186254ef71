//! Reads of objects of other kinds from the API server, of exactly granted kinds.

use super::{Guarded, granted, object};
use crate::{Grant, Grants, ObjectRef, Refused, Scope};

/// The read of an object from the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRead(pub ObjectRef);

impl Guarded for ObjectRead {
    fn check(&self, scope: &Scope, grants: &Grants) -> Result<(), Refused> {
        let Self(read) = self;
        object::valid_object(read)?;
        let other_way = match &*read.kind {
            "Pod" => "Pods are read with the functions of pods",
            "Secret" => "no plugin reads Secrets",
            _ => "",
        };
        if !other_way.is_empty() {
            return Err(Refused::Invalid(format!("kind: {other_way}")));
        }
        // The resource is in the path of the request, whatever kind the grant has beside it.
        let is_other = !["pods", "secrets"].contains(&&*read.resource);
        granted(is_other && object::is_granted(read, &grants.read_objects) && object::in_scope(read, scope))
    }

    fn lacking(&self, grants: &Grants) -> String {
        object::lacking_kind(Grant::ReadObjects, &self.0, &grants.read_objects)
    }

    fn subject(&self) -> String {
        self.0.to_string()
    }
}
