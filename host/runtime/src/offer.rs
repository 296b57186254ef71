//! [`Offer`]: the functions that a plugin may import, by its world, its class and its grants.

use podium_vocabulary::{Function, Grants, INTERFACES, LimitClass};

/// Which of the worlds a component is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WorldKind {
    Native,
    Json,
    /// That of a runner, which executes scripts.
    Script,
}

impl WorldKind {
    /// The name in the contract.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Native => "plugin",
            Self::Json => "plugin-json",
            Self::Script => "script",
        }
    }

    /// The interface that the world exports.
    pub(super) const fn reconciler(self) -> &'static str {
        match self {
            Self::Native => "reconciler",
            Self::Json | Self::Script => "reconciler-json",
        }
    }

    /// The interfaces that the world imports and that have functions.
    pub(super) fn interfaces(self) -> impl Iterator<Item = &'static str> {
        let other = match self {
            Self::Native => "pods-json",
            Self::Json | Self::Script => "pods",
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
    /// offered when one of its functions that needs a grant is granted, or when none needs one. A runner executes every
    /// script, so it has its whole world, and each function is refused at the call.
    pub(super) fn new(world: WorldKind, class: LimitClass, grants: &Grants) -> Self {
        let by_function = world == WorldKind::Native && class == LimitClass::Native;
        let interface_granted = |interface: &str| {
            if world == WorldKind::Script {
                return true;
            }
            let mut needs = Function::in_interface(interface).filter_map(Function::grant).peekable();
            needs.peek().is_none() || needs.any(|need| need.is_in(grants))
        };
        let functions = Function::ALL.into_iter().filter(|function| match by_function {
            true => function.grant().is_none_or(|need| need.is_in(grants)),
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
    pub(super) fn in_interface(self, interface: &str) -> impl Iterator<Item = Function> {
        let imported = self.world.interfaces().any(|own| own == interface);
        Function::in_interface(interface).filter(move |function| imported && self.contains(*function))
    }
}
