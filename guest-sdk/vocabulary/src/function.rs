//! [`Function`]: the host's functions by name, and the grant that each needs: one table for the check at load, the
//! linker, the check at the call and suggestions, so that they cannot disagree.

use crate::Grant;

/// The package of the contract, with which the names of its interfaces begin.
pub const PACKAGE: &str = "podium:reconcile/";
/// The version of the contract, with which the names of its interfaces end.
pub const VERSION: &str = "@0.1.0";

/// The interfaces of the contract that have functions, without package and version.
pub const INTERFACES: [&str; 7] = ["pods", "pods-json", "writes", "objects", "events", "state", "log"];

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
    /// Reads an object of the API server.
    GetObject,
    /// Stages the replicas of an object.
    Scale,
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
    pub const ALL: [Self; 24] = [
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
        Self::GetObject,
        Self::Scale,
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
            Self::GetObject => ("objects", "get", Some(Grant::ReadObjects)),
            Self::Scale => ("objects", "scale", Some(Grant::Scale)),
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

    /// Returns true for a read of Pods: of something not granted it answers like a read of nothing.
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

    /// The interfaces of the contract, each with FNV-1a-64 of its text without comments and line breaks.
    const TEXTS: [(&str, u64); 12] = [
        ("types", 0x3e34_b54b_8926_7d45),
        ("pods", 0xa214_c7c4_fcef_57a6),
        ("pods-json", 0x1bf9_e654_0022_efb3),
        ("writes", 0x1deb_08da_5cf3_54f9),
        ("objects", 0x47dc_5c72_077a_7434),
        ("events", 0xa201_47da_443f_5be9),
        ("state", 0x554d_3f5d_7d72_75eb),
        ("log", 0x5ec0_9d97_f67c_a918),
        ("reconciler", 0x1fb9_52ee_f007_6777),
        ("reconciler-json", 0x843b_8920_8861_e134),
        ("program", 0x9f72_f958_e07b_2fd9),
        ("preparation", 0x5526_1473_6fff_75c4),
    ];

    /// Another function or type in an interface breaks components or hosts that were built before.
    #[test]
    fn the_interfaces_of_the_contract_are_as_they_were_published() {
        let wit = include_str!("../../../wit/podium.wit");
        let lines = wit.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
        let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
        // A world follows the last interface.
        let starts: Vec<_> = text.match_indices("interface ").map(|(at, _)| at).collect();
        let mut found = Vec::new();
        for start in starts {
            let mut depth = 0;
            let end = text[start..].char_indices().find_map(|(at, letter)| {
                depth += i32::from(letter == '{') - i32::from(letter == '}');
                (letter == '}' && depth == 0).then_some(start + at + 1)
            });
            let interface = &text[start..end.unwrap()];
            found.push((interface.split(' ').nth(1).unwrap(), crate::fnv(interface)));
        }
        for (name, hash) in &found {
            let published = TEXTS.iter().find(|(own, _)| own == name);
            let (_, published) = published.unwrap_or_else(|| panic!("add (\"{name}\", {hash:#x}) to the table"));
            assert_eq!(published, hash, "{name}: interfaces of a published version do not change: add a new one");
        }
        assert_eq!(found.len(), TEXTS.len(), "an interface of a published version is gone");
    }
}
