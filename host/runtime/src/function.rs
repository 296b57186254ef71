//! The host's functions by name, and the grant that each needs: one table for the check at load, the linker and the
//! check at the call, so that they cannot disagree.

use podium_vocabulary::{Grants, LimitClass};

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

/// The grant that a function needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequiredGrant {
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

impl RequiredGrant {
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

/// Which of the two worlds a component is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WorldKind {
    Native,
    Json,
}

impl WorldKind {
    /// The name in the contract.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Native => "plugin",
            Self::Json => "plugin-json",
        }
    }

    /// The interface that the world exports.
    pub(super) const fn reconciler(self) -> &'static str {
        match self {
            Self::Native => "reconciler",
            Self::Json => "reconciler-json",
        }
    }

    /// The interfaces that the world imports and that have functions.
    pub(super) fn interfaces(self) -> impl Iterator<Item = &'static str> {
        let other = match self {
            Self::Native => "pods-json",
            Self::Json => "pods",
        };
        INTERFACES.into_iter().filter(move |interface| *interface != other)
    }
}

/// The functions that a plugin may import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Offer {
    pub(super) world: WorldKind,
    by_function: bool,
    /// A bit for each of [`Function::ALL`].
    functions: u32,
}

impl Offer {
    /// Function by function for a native guest, whose imports are exactly what it uses. An interpreter imports all of
    /// its world, so what counts there is the interface, and single functions are refused at the call: an interface is
    /// offered when one of its functions that needs a grant is granted, or when none needs one.
    pub(super) fn new(world: WorldKind, class: LimitClass, grants: &Grants) -> Self {
        let by_function = world == WorldKind::Native && class == LimitClass::Native;
        let interface_granted = |interface: &str| {
            let mut needs = Function::of(interface)
                .map(Function::required_grant)
                .filter(|need| *need != RequiredGrant::Nothing)
                .peekable();
            needs.peek().is_none() || needs.any(|need| need.is_met(grants))
        };
        let functions = Function::ALL.into_iter().filter(|function| match by_function {
            true => function.required_grant().is_met(grants),
            false => interface_granted(function.interface()),
        });
        Self { world, by_function, functions: functions.fold(0, |set, function| set | 1 << function as u32) }
    }

    /// True if each function is granted or not, and false if each interface is.
    pub(super) const fn by_function(self) -> bool {
        self.by_function
    }

    pub(super) const fn contains(self, function: Function) -> bool {
        self.functions & 1 << function as u32 != 0
    }

    /// The offered functions of one interface, none if it is of the other world.
    pub(super) fn of(self, interface: &str) -> impl Iterator<Item = Function> {
        let imported = self.world.interfaces().any(|own| own == interface);
        Function::of(interface).filter(move |function| imported && self.contains(*function))
    }
}

/// The package of the contract, with which the names of its interfaces begin.
pub(super) const PACKAGE: &str = "podium:reconcile/";
/// The version of the contract, with which the names of its interfaces end.
pub(super) const VERSION: &str = "@0.1.0";

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

    /// Returns the interface, the name within it, and the required grant.
    const fn entry(self) -> (&'static str, &'static str, RequiredGrant) {
        match self {
            Self::Get => ("pods", "get", RequiredGrant::Read),
            Self::Find => ("pods", "find", RequiredGrant::Read),
            Self::Count => ("pods", "count", RequiredGrant::Read),
            Self::GetLive => ("pods", "get-live", RequiredGrant::Live),
            Self::SetLabel => ("writes", "set-label", RequiredGrant::Labels),
            Self::RemoveLabel => ("writes", "remove-label", RequiredGrant::Labels),
            Self::SetAnnotation => ("writes", "set-annotation", RequiredGrant::Annotations),
            Self::RemoveAnnotation => ("writes", "remove-annotation", RequiredGrant::Annotations),
            Self::AddFinalizer => ("writes", "add-finalizer", RequiredGrant::Finalizers),
            Self::RemoveFinalizer => ("writes", "remove-finalizer", RequiredGrant::Finalizers),
            Self::SetCondition => ("writes", "set-condition", RequiredGrant::Conditions),
            Self::RemoveCondition => ("writes", "remove-condition", RequiredGrant::Conditions),
            Self::DeletePod => ("writes", "delete-pod", RequiredGrant::Delete),
            Self::EvictPod => ("writes", "evict-pod", RequiredGrant::Evict),
            Self::ApplyObject => ("writes", "apply-object", RequiredGrant::Objects),
            Self::DeleteObject => ("writes", "delete-object", RequiredGrant::Objects),
            Self::Commit => ("writes", "commit", RequiredGrant::Nothing),
            Self::Emit => ("events", "emit", RequiredGrant::Events),
            Self::StateGet => ("state", "get", RequiredGrant::Nothing),
            Self::StatePut => ("state", "put", RequiredGrant::Nothing),
            Self::StateRemove => ("state", "remove", RequiredGrant::Nothing),
            Self::Log => ("log", "write", RequiredGrant::Nothing),
        }
    }

    pub(super) const fn interface(self) -> &'static str {
        self.entry().0
    }
    pub(super) const fn name(self) -> &'static str {
        self.entry().1
    }
    pub(super) const fn required_grant(self) -> RequiredGrant {
        self.entry().2
    }

    /// A read of something not granted answers like a read of nothing.
    pub(super) const fn is_read(self) -> bool {
        matches!(self, Self::Get | Self::Find | Self::Count | Self::GetLive)
    }

    /// Returns the function with this interface and name; `pods-json` has the functions of `pods`.
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
