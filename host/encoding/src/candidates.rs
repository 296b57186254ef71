//! The skeletons that a Pod is matched against before it is scanned.

use std::sync::Arc;

use super::{
    Packed, Shape,
    fragment::{Fragment, PerFragment},
    scan::Draft,
    skeleton::{STATUSES, Skeleton, TRANSITIONS},
    tokens::{Placeholder, Tokens},
    unshared::OwnText,
};

/// Skeletons to match first, in order: those of a shape, then their recorded successors.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    shape: Option<Arc<Shape>>,
    next: PerFragment<[Option<Arc<Skeleton>>; TRANSITIONS]>,
    /// The unshared fragments of the Pod's previous state.
    held: PerFragment<Option<OwnText>>,
    /// The hash of the Pod's namespace. Generalised skeletons of other namespaces are not used.
    namespace: u64,
}

/// A skeleton that a fragment may have.
#[derive(Debug, Clone)]
pub(super) struct Candidate<'c> {
    pub(super) skeleton: Arc<Skeleton>,
    /// The text of the Pod's previous state, if the skeleton is unshared.
    held: Option<&'c OwnText>,
}

impl Candidates {
    /// Returns the candidates for a Pod in the namespace with this hash.
    pub(super) fn like(shape: Arc<Shape>, namespace: u64) -> Self {
        Self {
            next: PerFragment::from_fn(|fragment| shape.skeletons[fragment].transitions()),
            held: PerFragment::default(),
            namespace,
            shape: Some(shape),
        }
    }

    /// Adds the unshared fragments of the Pod's previous state, which has the shape of these candidates. Their texts
    /// are in the buffers until [`Self::return_buffers`]: an allocation of their size takes longer than to decompress
    /// them.
    pub(super) fn with_held(self, held: &Packed, buffers: &mut PerFragment<Vec<u8>>) -> Self {
        if held.shape.is_whole() {
            return self;
        }
        let text = |fragment| match held.skeleton(fragment).is_unshared {
            true => held.own_text_in(fragment, std::mem::take(&mut buffers[fragment])),
            false => None,
        };
        Self { held: PerFragment::from_fn(text), ..self }
    }

    pub(super) fn return_buffers(self, buffers: &mut PerFragment<Vec<u8>>) {
        for (fragment, held) in Fragment::ALL.into_iter().zip(self.held.0) {
            if let Some(held) = held {
                buffers[fragment] = held.text;
            }
        }
    }

    /// Returns the skeletons that are tried first.
    pub(super) fn in_fragment(&self, fragment: Fragment) -> impl Iterator<Item = Candidate<'_>> {
        let skeletons =
            self.shape.iter().map(move |shape| &shape.skeletons[fragment]).chain(self.next[fragment].iter().flatten());
        skeletons.filter(|skeleton| self.is_usable(skeleton)).filter_map(move |skeleton| {
            let held = self.held[fragment].as_ref().filter(|_| skeleton.is_unshared);
            (held.is_some() || !skeleton.is_unshared).then(|| Candidate { skeleton: Arc::clone(skeleton), held })
        })
    }

    /// Returns the skeletons that are tried after those of [`Self::in_fragment`].
    pub(super) fn others(&self, fragment: Fragment) -> impl Iterator<Item = Candidate<'_>> {
        let object = self.shape.as_ref().filter(|_| fragment == Fragment::Status);
        let object = object.map(|shape| &shape.skeletons[Fragment::Object]);
        let statuses = object.into_iter().flat_map(|object| (0..STATUSES).filter_map(|at| object.latest_status(at)));
        let tried = move |skeleton: &Arc<Skeleton>| {
            let shape = self.shape.iter().map(|shape| &shape.skeletons[fragment]);
            shape.chain(self.next[fragment].iter().flatten()).any(|tried| Arc::ptr_eq(tried, skeleton))
        };
        statuses
            .filter(move |skeleton| self.is_usable(skeleton) && !tried(skeleton))
            .map(|skeleton| Candidate { skeleton, held: None })
    }

    fn is_usable(&self, skeleton: &Skeleton) -> bool {
        !skeleton.is_superseded() && skeleton.is_for(self.namespace)
    }
}

impl Candidate<'_> {
    /// Returns true for a fragment that the object does not have.
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_none() && self.skeleton.text.is_empty()
    }

    pub(super) fn tokens(&self) -> Tokens<'_> {
        match &self.held {
            Some(held) => Tokens::from(&*held.text),
            None => self.skeleton.tokens(),
        }
    }

    /// Returns the text of an object after its first bracket.
    pub(super) fn members(&self) -> Option<Tokens<'_>> {
        let text = match &self.held {
            Some(held) => &*held.text,
            None => self.skeleton.text.contiguous()?,
        };
        text.strip_prefix(b"{").map(Tokens::from)
    }

    pub(super) fn placeholders(&self) -> &[Placeholder] {
        self.held.as_ref().map_or(&self.skeleton.placeholders, |held| &held.placeholders)
    }

    /// Makes the values of a fragment that matched those to store. Returns `None` for an unshared fragment with other
    /// values than before: only the decoder knows whether they are valid.
    pub(super) fn accept(&self, draft: &mut Draft) -> Option<()> {
        let Some(held) = &self.held else { return Some(()) };
        (draft.own.bytes == held.values()).then(|| draft.own.bytes.clone_from(&held.stored))
    }
}
