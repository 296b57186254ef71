//! The only door to a write: [`authorize`] by grants and scope, deny by default. Pure.

use crate::model::{Grants, Refused, Scope};

/// A value that [`authorize`] let through. Only this module makes one, and only such a value can be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Authorized<T>(T);

impl<T> Authorized<T> {
    #[must_use]
    pub fn get(&self) -> &T {
        &self.0
    }
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// What can be authorised: writes and Events.
pub trait Guarded: Sized {
    /// # Errors
    /// [`Refused::NotGranted`] where grants or scope do not cover it, [`Refused::Invalid`] where it can never be right.
    fn check(&self, scope: &Scope, grants: &Grants) -> Result<(), Refused>;
}

/// # Errors
/// See [`Guarded::check`].
pub fn authorize<T: Guarded>(scope: &Scope, grants: &Grants, value: T) -> Result<Authorized<T>, Refused> {
    value.check(scope, grants)?;
    Ok(Authorized(value))
}
