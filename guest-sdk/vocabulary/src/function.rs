//! [`Function`]: the host's functions by name, and the grant that each needs: one table for the check at load, the
//! linker, the check at the call and suggestions, so that they cannot disagree.

use crate::Grant;

/// The package of the contract, with which the names of its interfaces begin.
pub const PACKAGE: &str = "podium:reconcile/";
/// The version of the contract, with which the names of its interfaces end.
pub const VERSION: &str = "@0.1.0";

/// The interfaces of the contract that have functions, without package and version.
pub const INTERFACES: [&str; 6] = ["pods", "pods-json", "writes", "events", "state", "log"];

/// A host function. `pods` and `pods-json` are two renderings of the same four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Reads a Pod of the cache.
    Get,
    /// Searches Pods of the cache.
    Find,
    /// Counts Pods of the cache.
    Count,
    /// Reads a Pod of the API server.
    GetLive,
    /// Stages a label.
    SetLabel,
    /// Stages the removal of a label.
    RemoveLabel,
    /// Stages an annotation.
    SetAnnotation,
    /// Stages the removal of an annotation.
    RemoveAnnotation,
    /// Stages a finalizer.
    AddFinalizer,
    /// Stages the removal of a finalizer.
    RemoveFinalizer,
    /// Stages a condition.
    SetCondition,
    /// Stages the removal of a condition.
    RemoveCondition,
    /// Stages a deletion.
    DeletePod,
    /// Stages an eviction.
    EvictPod,
    /// Stages an object.
    ApplyObject,
    /// Stages the deletion of an object.
    DeleteObject,
    /// Sends the staged writes within the run.
    Commit,
    /// Sends an Event.
    Emit,
    /// Reads the plugin's state.
    StateGet,
    /// Writes the plugin's state.
    StatePut,
    /// Removes from the plugin's state.
    StateRemove,
    /// Writes a line of the log.
    Log,
}

impl Function {
    /// All functions.
    pub const ALL: [Self; 22] = [
        Self::Get,
        Self::Find,
        Self::Count,
        Self::GetLive,
        Self::SetLabel,
        Self::RemoveLabel,
        Self::SetAnnotation,
        Self::RemoveAnnotation,
        Self::AddFinalizer,
        Self::RemoveFinalizer,
        Self::SetCondition,
        Self::RemoveCondition,
        Self::DeletePod,
        Self::EvictPod,
        Self::ApplyObject,
        Self::DeleteObject,
        Self::Commit,
        Self::Emit,
        Self::StateGet,
        Self::StatePut,
        Self::StateRemove,
        Self::Log,
    ];

    /// Returns the interface, the name within it, and the required grant.
    const fn entry(self) -> (&'static str, &'static str, Option<Grant>) {
        match self {
            Self::Get => ("pods", "get", Some(Grant::Read)),
            Self::Find => ("pods", "find", Some(Grant::Read)),
            Self::Count => ("pods", "count", Some(Grant::Read)),
            Self::GetLive => ("pods", "get-live", Some(Grant::Live)),
            Self::SetLabel => ("writes", "set-label", Some(Grant::Labels)),
            Self::RemoveLabel => ("writes", "remove-label", Some(Grant::Labels)),
            Self::SetAnnotation => ("writes", "set-annotation", Some(Grant::Annotations)),
            Self::RemoveAnnotation => ("writes", "remove-annotation", Some(Grant::Annotations)),
            Self::AddFinalizer => ("writes", "add-finalizer", Some(Grant::Finalizers)),
            Self::RemoveFinalizer => ("writes", "remove-finalizer", Some(Grant::Finalizers)),
            Self::SetCondition => ("writes", "set-condition", Some(Grant::Conditions)),
            Self::RemoveCondition => ("writes", "remove-condition", Some(Grant::Conditions)),
            Self::DeletePod => ("writes", "delete-pod", Some(Grant::Delete)),
            Self::EvictPod => ("writes", "evict-pod", Some(Grant::Evict)),
            Self::ApplyObject => ("writes", "apply-object", Some(Grant::Objects)),
            Self::DeleteObject => ("writes", "delete-object", Some(Grant::Objects)),
            Self::Commit => ("writes", "commit", None),
            Self::Emit => ("events", "emit", Some(Grant::Events)),
            Self::StateGet => ("state", "get", None),
            Self::StatePut => ("state", "put", None),
            Self::StateRemove => ("state", "remove", None),
            Self::Log => ("log", "write", None),
        }
    }

    /// Returns its interface, one of [`INTERFACES`].
    #[must_use]
    pub const fn interface(self) -> &'static str {
        self.entry().0
    }

    /// Returns its name in the interface.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().1
    }

    /// Returns the grant that a call needs; `None` if all plugins may call it.
    #[must_use]
    pub const fn grant(self) -> Option<Grant> {
        self.entry().2
    }

    /// Returns true for a read: of something not granted it answers like a read of nothing.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Find | Self::Count | Self::GetLive)
    }

    /// Returns the function with this interface and name; `pods-json` has the functions of `pods`.
    #[must_use]
    pub fn by_name(interface: &str, name: &str) -> Option<Self> {
        Self::in_interface(interface).find(|function| function.name() == name)
    }

    /// Returns the functions of one interface.
    pub fn in_interface(interface: &str) -> impl Iterator<Item = Self> {
        let interface = if interface == "pods-json" { "pods" } else { interface };
        Self::ALL.into_iter().filter(move |function| function.interface() == interface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_exactly_the_functions_of_the_contract() {
        let wit = include_str!("../../../wit/podium.wit");
        let mut interface = "";
        let mut found = Vec::new();
        for line in wit.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("interface ") {
                interface = rest.trim_end_matches(" {");
            } else if let Some((name, _)) = line.split_once(": func(")
                && INTERFACES.contains(&interface)
            {
                assert!(Function::by_name(interface, name).is_some(), "{interface}.{name} is not in the table");
                found.push((interface, name));
            }
        }
        assert_eq!(found.len(), Function::ALL.len() + 4, "the table has functions that the contract lacks: {found:?}");
    }
}
