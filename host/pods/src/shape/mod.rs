//! How a Pod is kept: what it shares with other Pods, once for all of them, and what is its own, packed.
//!
//! Pods of one workload differ in little: their name, uid, revision, times, addresses, container ids, node. A Pod's
//! JSON is cut into three parts (the object around spec and status, the spec, the status), and each part into its key,
//! the bytes with these values cut out, and the values ([`Packed::own`] has them in some hundred bytes). A key that was
//! seen before has its sections ready, as bytes with places for the values, so nothing is decoded again; a new one is
//! decoded once, by itself, by `podium_wire::json`, the one decoder, and what is ready from then on was compared with
//! what it gave.
//!
//! # What holds
//! - A part is taken for one that is known only if its key is the same, byte for byte, and its leaves are as many, or
//!   if that one's key with this one's values in it is this very JSON. So nothing is kept that the decoder would not
//!   have accepted; what is left out is not looked at.
//! - The object comes back byte for byte from its parts ([`Packed::json`]), but for managedFields and what [`Prune`]
//!   names, which are cut away before anything is kept, and for `kind` and `apiVersion`, which are the same for all.
//! - Sections come out as `podium_wire` encodes them; a Pod for which that cannot be had is kept undivided, with its
//!   JSON.
//! - A part is freed with the last Pod that has it.
//!
//! What may change nothing but the value of a leaf is one of the kinds of `leaf.rs`; everything else is shared text.

mod fit;
mod key;
mod leaf;
mod packed;
mod part;
mod pieces;
mod saved;
mod scan;
mod skip;
mod template;
#[cfg(test)]
mod tests;
mod text;
#[cfg(test)]
mod unusual;
mod whole;

use std::{collections::HashMap, hash::BuildHasher, sync::Arc};

use foldhash::quality::FixedState;
pub(crate) use leaf::{put_varint, uuid, uuid_text, varint};
pub use packed::Packed;
pub use part::Identity;
use part::Part;
use pieces::Texts;
use podium_wire::{Pod, json::JsonError};
pub(crate) use scan::PARTS;
pub use scan::Scratch;
use scan::{Cut, Leaves, Likely, OUTER, SPEC, STATUS};

use crate::{
    model::Prune,
    sync::{Mutex, Weak, downgrade},
};

/// The three parts of a Pod. Pods that share all of them share this.
#[derive(Debug)]
pub(crate) struct Shape {
    parts: [Arc<Part>; PARTS],
}

impl Shape {
    pub(crate) fn namespace(&self) -> &Arc<str> {
        &self.parts[OUTER].namespace
    }

    /// What the names of Pods of this shape may begin with.
    pub(crate) fn name_prefix(&self) -> &str {
        self.parts[OUTER].name_prefix()
    }
}

/// All parts and shapes that some Pod has.
#[derive(Debug)]
pub struct Shapes {
    table: Mutex<Table>,
    /// Seeded, so that nobody outside can make many keys of one hash.
    hasher: FixedState,
    prune: Prune,
}

#[derive(Debug)]
struct Table {
    /// Each of the three by itself: what is empty or null has one key in all of them.
    parts: [HashMap<u64, Weak<Part>, FixedState>; PARTS],
    texts: Texts,
    /// By the addresses of the parts, which live as long as the shape.
    shapes: HashMap<[usize; PARTS], Weak<Shape>, FixedState>,
    /// What has died is taken out when there are so many entries.
    sweep_at: usize,
}

/// A Pod as read.
#[derive(Debug)]
pub struct Read<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub revision: u64,
    pub packed: Packed,
}

/// Why JSON was not read.
#[derive(Debug, thiserror::Error)]
pub enum ShapeError {
    /// It is no Pod.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// It is a Pod, and not in the form in which an API server writes one. [`Packed::unshared`] keeps it.
    #[error("not in the form of an API server")]
    Unusual(Box<Pod>),
}

impl Shapes {
    /// `seed` should be a secret of the process. Nothing is pruned.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let table = Table {
            parts: [(); PARTS].map(|()| HashMap::with_hasher(hasher.clone())),
            texts: Texts::new(hasher.clone()),
            shapes: HashMap::with_hasher(hasher.clone()),
            sweep_at: 0,
        };
        Self { table: Mutex::new(table), hasher, prune: Prune::NOTHING }
    }

    /// The same for Pods of which this is cut away.
    #[must_use]
    pub fn pruning(self, prune: Prune) -> Self {
        Self { prune, ..self }
    }

    #[must_use]
    pub fn prune(&self) -> &Prune {
        &self.prune
    }

    /// Reads a Pod's JSON.
    ///
    /// `held` gives what is kept of the incarnation of this namespace, name and uid, if anything: the Pod is likely to
    /// be as it was. One that is not held is likely to be as the one that was read before it.
    ///
    /// # Errors
    /// See [`ShapeError`].
    pub fn read<'a, H: AsRef<Packed>>(
        &self,
        json: &'a [u8],
        scratch: &mut Scratch,
        held: impl FnOnce(&str, &str, &str) -> Option<H>,
    ) -> Result<Read<'a>, ShapeError> {
        let head = scan::head(json);
        let held = head.as_ref().and_then(|head| held(head.namespace, head.name, head.uid));
        let like = match &held {
            Some(held) => Some(Arc::clone(held.as_ref().shape())),
            None => scratch.recent.upgrade(),
        };
        let likely = like.clone().map(Likely::like).unwrap_or_default();
        if let Some(cut) = scan::cut(json, head, likely, scratch, Leaves::All, &self.prune)
            && let Some(read) = self.read_as(cut, scratch, like.as_ref())
        {
            return Ok(read);
        }
        let actual = podium_wire::json::decode(json)?;
        // Something in it is of the form of a leaf and not treated as one by the decoder, if it is not all unusual.
        if let Some(cut) = scan::cut(json, None, Default::default(), scratch, Leaves::Identity, &self.prune)
            && let Some(read) = self.read_as(cut, scratch, None)
        {
            return Ok(read);
        }
        Err(ShapeError::Unusual(Box::new(actual)))
    }

    /// Finds what was cut among what is known. Parts that are not known are made; none where one of them cannot be.
    fn read_as<'a>(&self, cut: Cut<'a>, scratch: &mut Scratch, like: Option<&Arc<Shape>>) -> Option<Read<'a>> {
        let Cut { namespace, name, uid, revision, known } = cut;
        let same = like.filter(|like| {
            like.parts.iter().zip(&known).all(|(is, known)| known.as_ref().is_some_and(|known| Arc::ptr_eq(is, known)))
        });
        let shape = match same {
            Some(shape) => Arc::clone(shape),
            None => self.shape(known, scratch, Identity { name, uid, revision })?,
        };
        if like.is_none_or(|like| !Arc::ptr_eq(like, &shape)) {
            scratch.recent = downgrade(&shape);
            if let Some(like) = like.filter(|like| Arc::ptr_eq(&like.parts[OUTER], &shape.parts[OUTER])) {
                like.parts[STATUS].followed_by(&shape.parts[STATUS]);
            }
        }
        let own = [OUTER, SPEC, STATUS].map(|part| &*scratch.parts[part].own.bytes);
        Some(Read { namespace, name, uid, revision, packed: Packed::new(shape, own) })
    }

    fn shape(
        &self,
        known: [Option<Arc<Part>>; PARTS],
        scratch: &Scratch,
        identity: Identity<'_>,
    ) -> Option<Arc<Shape>> {
        let hash = |part: usize| self.hasher.hash_one(&*scratch.parts[part].key);
        let hashes = [OUTER, SPEC, STATUS].map(|part| if known[part].is_some() { 0 } else { hash(part) });
        let known = {
            let mut table = self.table.lock();
            let mut at = 0..PARTS;
            let known =
                known.map(|known| at.next().and_then(|part| known.or_else(|| table.part(part, hashes[part], scratch))));
            match known {
                [Some(outer), Some(spec), Some(status)] => return Some(table.shape([outer, spec, status])),
                some => some,
            }
        };
        let mut parts = Vec::with_capacity(PARTS);
        for (part, known) in known.into_iter().enumerate() {
            let draft = &scratch.parts[part];
            parts.push(match known {
                Some(known) => known,
                None => {
                    let fresh = part::build(part, &draft.key, &draft.own.bytes, identity)?;
                    self.table.lock().add(part, hashes[part], fresh, &draft.key)
                }
            });
        }
        Some(self.table.lock().shape(parts.try_into().ok()?))
    }

    /// How many parts there are that some Pod has.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.table.lock().parts.iter().flat_map(HashMap::values).filter(|part| part.strong_count() > 0).count()
    }
}

impl Table {
    fn part(&self, part: usize, hash: u64, scratch: &Scratch) -> Option<Arc<Part>> {
        let draft = &scratch.parts[part];
        // A key with a mark in its text has other leaves than it seems to.
        self.known(part, hash, &draft.key).filter(|known| known.leaves() == draft.leaves())
    }

    fn known(&self, part: usize, hash: u64, key: &[u8]) -> Option<Arc<Part>> {
        self.parts[part].get(&hash)?.upgrade().filter(|known| known.key.is(key))
    }

    fn add(&mut self, at: usize, hash: u64, mut part: Part, key: &[u8]) -> Arc<Part> {
        self.sweep();
        part.share(at, key, &mut self.texts);
        let entry = self.parts[at].entry(hash).or_default();
        match entry.upgrade() {
            // Another thread made the same meanwhile.
            Some(known) if known.key == part.key && known.leaves() == part.leaves() => known,
            // Another key of this hash that is still in use stays: this one is then not shared.
            Some(_) => Arc::new(part),
            None => {
                let part = Arc::new(part);
                *entry = downgrade(&part);
                part
            }
        }
    }

    fn shape(&mut self, parts: [Arc<Part>; PARTS]) -> Arc<Shape> {
        let addresses = parts.each_ref().map(|part| Arc::as_ptr(part).addr());
        if let Some(shape) = self.shapes.get(&addresses).and_then(Weak::upgrade) {
            return shape;
        }
        self.sweep();
        let shape = Arc::new(Shape { parts });
        self.shapes.insert(addresses, downgrade(&shape));
        shape
    }

    fn sweep(&mut self) {
        const LEAST: usize = 16;
        if self.entries() < self.sweep_at.max(LEAST) {
            return;
        }
        self.shapes.retain(|_, shape| shape.strong_count() > 0);
        for parts in &mut self.parts {
            parts.retain(|_, part| part.strong_count() > 0);
        }
        self.sweep_at = 2 * self.entries();
    }

    fn entries(&self) -> usize {
        self.parts.iter().map(HashMap::len).sum::<usize>() + self.shapes.len()
    }
}
