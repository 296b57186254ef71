//! [`Why`]: the reasons for which an item is due. The queue only joins those of additions that one run answers.

use podium_wire::{Section, SectionSet};

/// The reasons of one run; several additions may be answered by it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Why {
    /// The sections in which the Pod has changed.
    sections: SectionSet,
    others: u16,
}

impl Why {
    /// The Pod was added.
    pub const ADDED: Self = Self::other(0);
    /// The Pod was deleted.
    pub const DELETED: Self = Self::other(1);
    /// The plugin was loaded, and is run on every Pod that it watches.
    pub const LOAD: Self = Self::other(2);
    /// The resync interval is over.
    pub const RESYNC: Self = Self::other(3);
    /// The run before failed, or a write of it did not settle.
    pub const RETRY: Self = Self::other(4);
    /// The run before asked for this one.
    pub const REQUEUE: Self = Self::other(5);
    /// A write of the run before was not sent yet, or it is not known whether the cache shows it.
    pub const WRITES: Self = Self::other(6);
    /// Another client has changed an object that the plugin applied.
    pub const CHILD: Self = Self::other(7);
    /// An object of the plugin's inputs has changed.
    pub const INPUT: Self = Self::other(8);
    /// In the order in which they are named.
    const OTHERS: [(Self, &'static str); 9] = [
        (Self::ADDED, "added"),
        (Self::DELETED, "deleted"),
        (Self::LOAD, "load"),
        (Self::RESYNC, "resync"),
        (Self::RETRY, "retry"),
        (Self::REQUEUE, "requeue"),
        (Self::WRITES, "writes"),
        (Self::CHILD, "child"),
        (Self::INPUT, "input"),
    ];

    const fn other(bit: u8) -> Self {
        Self { sections: SectionSet::EMPTY, others: 1 << bit }
    }

    /// Returns the reason of a change in these sections. The whole object is none of them: it differs with any section.
    #[must_use]
    pub fn changed(sections: SectionSet) -> Self {
        let parts: SectionSet = sections.iter().filter(|section| *section != Section::Full).collect();
        Self { sections: if parts.is_empty() { sections } else { parts }, others: 0 }
    }

    /// Returns the reasons of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { sections: self.sections.union(other.sections), others: self.others | other.others }
    }

    pub(super) const fn contains(self, other: Self) -> bool {
        self.others & other.others == other.others
    }

    /// Returns these reasons without another one.
    #[must_use]
    pub(super) const fn without(self, other: Self) -> Self {
        Self { sections: self.sections, others: self.others & !other.others }
    }

    /// Returns the names of the reasons: those of sections first.
    #[must_use]
    pub fn names(self) -> Vec<&'static str> {
        let others = Self::OTHERS.iter().filter(|(of, _)| self.others & of.others != 0);
        self.sections.iter().map(Section::name).chain(others.map(|(_, name)| *name)).collect()
    }
}
