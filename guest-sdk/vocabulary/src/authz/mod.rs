//! Authorization of writes and of reads of objects: [`authorize`] by grants and scope, deny by default; no write is
//! sent and no object is read without it. Pure.
//!
//! An invalid write is refused first, as [`Refused::Invalid`] with the reason; then the grants are checked. Neither
//! check looks at the cluster, so a refusal reveals nothing about existing objects. Whether a write would change
//! something is decided by `writeback`.

mod event;
mod object;
mod pod;
mod query;
mod read;

#[cfg(test)]
mod tests;

use podium_wire::refusal;
pub use query::lacking_sections;
pub use read::ObjectRead;

use crate::{Grant, Grants, KeyPattern, PodKey, Refused, Scope, Target, Write, syntax};

/// A value that [`authorize`] let through. Only this module makes one, and only such a value can be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Authorized<T>(T);

impl<T> Authorized<T> {
    /// Returns the value.
    #[must_use]
    pub fn get(&self) -> &T {
        &self.0
    }
    /// Returns the value, which can no longer be sent.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.0
    }
}

/// A value that [`authorize`] checks before it can be sent: a write, an Event or the read of an object.
pub trait Guarded: Sized {
    /// # Errors
    /// [`Refused::NotGranted`] if grants or scope do not cover the value, [`Refused::Invalid`] if no grants would.
    fn check(&self, scope: &Scope, grants: &Grants) -> Result<(), Refused>;

    /// Returns what the grants lack for a value that they do not cover, for people.
    fn lacking(&self, grants: &Grants) -> String;

    /// Returns the read or written Pod or object, for people.
    fn subject(&self) -> String;
}

/// # Errors
/// See [`Guarded::check`].
pub fn authorize<T: Guarded>(scope: &Scope, grants: &Grants, value: T) -> Result<Authorized<T>, Refused> {
    authorize_or(scope, grants, value, |_| ())
}

/// Like [`authorize`], and calls `refused` with the reason if the value is not granted.
///
/// # Errors
/// See [`Guarded::check`].
pub fn authorize_or<T: Guarded>(
    scope: &Scope,
    grants: &Grants,
    value: T,
    refused: impl FnOnce(String),
) -> Result<Authorized<T>, Refused> {
    match value.check(scope, grants) {
        Ok(()) => Ok(Authorized(value)),
        Err(Refused::NotGranted) => {
            refused(match scope {
                Scope::Namespace(own) if value.check(&Scope::Cluster, grants).is_ok() => {
                    refusal::outside(value.subject(), own)
                }
                Scope::Namespace(_) | Scope::Cluster => value.lacking(grants),
            });
            Err(Refused::NotGranted)
        }
        Err(other) => Err(other),
    }
}

impl Guarded for Write {
    fn lacking(&self, grants: &Grants) -> String {
        match self.action.target() {
            Target::Pod(_) => pod::lacking(&self.action, &grants.write),
            Target::Object(object) => object::lacking(&self.action, object, &grants.write),
        }
    }

    fn subject(&self) -> String {
        match self.action.target() {
            Target::Pod(target) => format!("the Pod {target}"),
            Target::Object(object) => object.to_string(),
        }
    }

    fn check(&self, scope: &Scope, grants: &Grants) -> Result<(), Refused> {
        match self.action.target() {
            Target::Pod(target) => pod::check(&self.action, target, scope, &grants.write),
            Target::Object(object) => object::check(&self.action, object, scope, &grants.write),
        }
    }
}

/// Returns the message about a grant that is true or absent.
fn needs(grant: Grant) -> String {
    refusal::needs(&format!("{}: true", grant.field()))
}

/// Turns a text of [`syntax`] into the refusal of `what`.
fn valid(what: &str, value: &str, check: fn(&str) -> Result<(), &'static str>) -> Result<(), Refused> {
    check(value).map_err(|rule| Refused::Invalid(format!("{what} {} {rule}", syntax::quoted(value))))
}

fn valid_length(what: &str, value: &str, bytes: usize) -> Result<(), Refused> {
    if value.len() <= bytes {
        return Ok(());
    }
    Err(Refused::Invalid(format!("{what} is {} bytes long, at most {bytes} are allowed", value.len())))
}

fn granted(granted: bool) -> Result<(), Refused> {
    if granted { Ok(()) } else { Err(Refused::NotGranted) }
}

fn valid_target(target: &PodKey) -> Result<(), Refused> {
    valid("namespace", &target.namespace, syntax::dns_label)?;
    valid("Pod name", &target.name, syntax::dns_subdomain)?;
    valid("uid", &target.uid, syntax::uid)
}

/// Whether an object of another kind may carry a valid key: its kind is granted, and with it all keys except those that
/// are reserved on Pods too.
fn may_carry(patterns: &[KeyPattern], key: &str) -> bool {
    !syntax::is_forbidden_key(key) && (!syntax::is_reserved_key(key) || covers(patterns, key))
}

/// Whether the patterns cover a valid key. A wildcard needs a domain before it, and covers no key of Kubernetes' own.
fn covers(patterns: &[KeyPattern], key: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.0.strip_suffix('*') {
        Some(prefix) => prefix.contains('/') && !syntax::is_reserved_key(key) && pattern.matches(key),
        None => pattern.matches(key),
    })
}
