//! Why a call of the host was refused, for the author: the error of a call has no text, so the host, and the SDK's test
//! host in the same words, add it to the message of the run's failure.

use std::fmt::Display;

use crate::syntax;

/// The most granted keys that a message names.
const SHOWN: usize = 8;

/// Returns the message about an item that a list of grants does not have. `field` is below `spec.grants`, such as
/// `write.labels`.
#[must_use]
pub fn lacking<'a>(field: &str, item: &str, granted: impl IntoIterator<Item = &'a str>) -> String {
    let builtin = field == "write.conditions" && syntax::is_builtin_condition(item);
    if builtin || syntax::is_forbidden_key(item) {
        return format!("{item} belongs to Kubernetes or to the host, and cannot be granted in spec.grants.{field}");
    }
    let granted: Vec<&str> = granted.into_iter().take(SHOWN + 1).collect();
    let has = match granted.get(..SHOWN) {
        Some(first) if granted.len() > SHOWN => format!("has [{}, ..]", first.join(", ")),
        _ if granted.is_empty() => "is empty".to_owned(),
        _ => format!("has [{}]", granted.join(", ")),
    };
    format!("add {item} to spec.grants.{field}, which {has}")
}

/// Returns the message about a grant that the configuration does not have, such as `write.delete: true`.
#[must_use]
pub fn needs(grant: &str) -> String {
    format!("the call needs spec.grants.{grant}")
}

/// The message about an object of a granted kind whose metadata needs grants besides that of the kind.
pub const CARRIED: &str = "a label or annotation of a reserved domain in the object, or a finalizer of a template in \
                           it, needs a grant of its own below spec.grants.write";

/// Returns the message about a write outside of the plugin's own namespace.
#[must_use]
pub fn outside(what: impl Display, own: &str) -> String {
    format!(
        "{what} is outside of the namespace {own}, which is all that a ReconcilePlugin of {own} may touch; a \
         ClusterReconcilePlugin may touch all namespaces"
    )
}

/// Returns the message about a search by fields of sections that are not granted.
#[must_use]
pub fn search(lacking: &[&str]) -> String {
    format!("the search needs spec.grants.read.pods.sections: [{}]", lacking.join(", "))
}

/// Returns the message about a limit of the configuration that the run has used up. `field` is below `spec.limits`.
#[must_use]
pub fn used_up(field: &str, limit: impl Display) -> String {
    format!("spec.limits.{field} ({limit}) is used up; raise it, or do less in a run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_grant_is_named_with_what_is_granted() {
        assert_eq!(
            lacking("write.labels", "owner", ["team"]),
            "add owner to spec.grants.write.labels, which has [team]"
        );
        assert_eq!(lacking("write.labels", "a/b", []), "add a/b to spec.grants.write.labels, which is empty");
        let many: Vec<String> = (0..SHOWN + 2).map(|index| format!("l{index}")).collect();
        let text = lacking("write.labels", "owner", many.iter().map(String::as_str));
        assert!(text.ends_with("l6, l7, ..]"), "{text}");
        for (field, item) in [("write.conditions", "Ready"), ("write.annotations", "podium.dev/applied-0")] {
            assert!(lacking(field, item, []).contains("cannot be granted"), "{item}");
        }
        assert!(lacking("write.labels", "Ready", []).starts_with("add Ready"), "a label of that name is no condition");
    }
}
