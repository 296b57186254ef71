//! The host's functions by name, and the grant that each needs: one table for the check at load and the check at the
//! call, so that the two cannot disagree.

use podium_pods::model::Grants;

/// A host function. `pods` and `pods-json` are two renderings of the same four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Get,
    Find,
    Count,
    GetLive,
    SetLabel,
    RemoveLabel,
    SetAnnotation,
    RemoveAnnotation,
    AddFinalizer,
    RemoveFinalizer,
    SetCondition,
    RemoveCondition,
    DeletePod,
    EvictPod,
    ApplyObject,
    DeleteObject,
    Commit,
    Emit,
    StateGet,
    StatePut,
    StateRemove,
    Log,
}

/// What must be granted before a function does anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    Nothing,
    Read,
    Live,
    Labels,
    Annotations,
    Finalizers,
    Conditions,
    Delete,
    Evict,
    Objects,
    Events,
}

impl Need {
    /// The field under `spec.grants` that grants it.
    pub(super) const fn field(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Read => "read.pods",
            Self::Live => "read.pods.live",
            Self::Labels => "write.labels",
            Self::Annotations => "write.annotations",
            Self::Finalizers => "write.finalizers",
            Self::Conditions => "write.conditions",
            Self::Delete => "write.delete",
            Self::Evict => "write.evict",
            Self::Objects => "write.objects",
            Self::Events => "write.events",
        }
    }

    pub(super) fn is_met(self, grants: &Grants) -> bool {
        let write = &grants.write;
        match self {
            Self::Nothing => true,
            Self::Read => grants.read.is_some(),
            Self::Live => grants.read.as_ref().is_some_and(|read| read.live),
            Self::Labels => !write.labels.is_empty(),
            Self::Annotations => !write.annotations.is_empty(),
            Self::Finalizers => !write.finalizers.is_empty(),
            Self::Conditions => !write.conditions.is_empty(),
            Self::Delete => write.delete,
            Self::Evict => write.evict,
            Self::Objects => !write.objects.is_empty(),
            Self::Events => write.events,
        }
    }
}

/// The interfaces of the contract that have functions, without package and version.
pub(super) const INTERFACES: [&str; 6] = ["pods", "pods-json", "writes", "events", "state", "log"];

impl Function {
    pub(super) const ALL: [Self; 22] = [
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

    /// Interface, name within it, and what it needs.
    const fn entry(self) -> (&'static str, &'static str, Need) {
        match self {
            Self::Get => ("pods", "get", Need::Read),
            Self::Find => ("pods", "find", Need::Read),
            Self::Count => ("pods", "count", Need::Read),
            Self::GetLive => ("pods", "get-live", Need::Live),
            Self::SetLabel => ("writes", "set-label", Need::Labels),
            Self::RemoveLabel => ("writes", "remove-label", Need::Labels),
            Self::SetAnnotation => ("writes", "set-annotation", Need::Annotations),
            Self::RemoveAnnotation => ("writes", "remove-annotation", Need::Annotations),
            Self::AddFinalizer => ("writes", "add-finalizer", Need::Finalizers),
            Self::RemoveFinalizer => ("writes", "remove-finalizer", Need::Finalizers),
            Self::SetCondition => ("writes", "set-condition", Need::Conditions),
            Self::RemoveCondition => ("writes", "remove-condition", Need::Conditions),
            Self::DeletePod => ("writes", "delete-pod", Need::Delete),
            Self::EvictPod => ("writes", "evict-pod", Need::Evict),
            Self::ApplyObject => ("writes", "apply-object", Need::Objects),
            Self::DeleteObject => ("writes", "delete-object", Need::Objects),
            Self::Commit => ("writes", "commit", Need::Nothing),
            Self::Emit => ("events", "emit", Need::Events),
            Self::StateGet => ("state", "get", Need::Nothing),
            Self::StatePut => ("state", "put", Need::Nothing),
            Self::StateRemove => ("state", "remove", Need::Nothing),
            Self::Log => ("log", "write", Need::Nothing),
        }
    }

    pub(super) const fn interface(self) -> &'static str {
        self.entry().0
    }
    pub(super) const fn name(self) -> &'static str {
        self.entry().1
    }
    pub(super) const fn need(self) -> Need {
        self.entry().2
    }

    /// A read of something not granted answers like a read of nothing.
    pub(super) const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Find | Self::Count | Self::GetLive)
    }

    /// By interface (`pods-json` stands for `pods`) and name.
    pub(super) fn by_name(interface: &str, name: &str) -> Option<Self> {
        Self::of(interface).find(|function| function.name() == name)
    }

    /// The functions of one interface.
    pub(super) fn of(interface: &str) -> impl Iterator<Item = Self> {
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
