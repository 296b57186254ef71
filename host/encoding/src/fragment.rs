//! The three fragments of a Pod's JSON, each of which has its own skeleton.

use std::ops::{Index, IndexMut};

/// The number of fragments.
pub(crate) const FRAGMENTS: usize = 3;

/// A fragment of a Pod's JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fragment {
    /// The object around spec and status: the metadata.
    Object,
    Spec,
    Status,
}

impl Fragment {
    /// All fragments, in the order in which texts and values are stored.
    pub(super) const ALL: [Self; FRAGMENTS] = [Self::Object, Self::Spec, Self::Status];

    /// The inverse of `as u8`.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// A value for each fragment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct PerFragment<T>(pub(crate) [T; FRAGMENTS]);

impl<T> PerFragment<T> {
    pub(super) fn from_fn(value: impl FnMut(Fragment) -> T) -> Self {
        Self(Fragment::ALL.map(value))
    }

    /// Calls `value` for each fragment. Returns `None` at the first fragment without a value.
    pub(super) fn try_from_fn(value: impl FnMut(Fragment) -> Option<T>) -> Option<Self> {
        let values: Vec<T> = Fragment::ALL.into_iter().map(value).collect::<Option<_>>()?;
        values.try_into().ok().map(Self)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Fragment, &T)> {
        Fragment::ALL.into_iter().zip(&self.0)
    }
}

impl<T> Index<Fragment> for PerFragment<T> {
    type Output = T;

    fn index(&self, fragment: Fragment) -> &T {
        &self.0[fragment as usize]
    }
}

impl<T> IndexMut<Fragment> for PerFragment<T> {
    fn index_mut(&mut self, fragment: Fragment) -> &mut T {
        &mut self.0[fragment as usize]
    }
}
