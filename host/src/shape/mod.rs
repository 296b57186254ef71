//! How a Pod is kept: what it shares with other Pods, once for all of them, and what is its own, packed.
//!
//! Pods of one workload differ in little: their name, uid, revision, times, addresses, container ids, node. A Pod's JSON
//! is cut into three parts (the object around spec and status, the spec, the status), and each part into its key, the
//! bytes with these values cut out, and the values ([`Packed::own`] has them in some hundred bytes). A key that was seen
//! before has its sections ready, as bytes with places for the values, so nothing is decoded again; a new one is decoded
//! once, by itself, by `podium_wire::json`, the one decoder, and what is ready from then on was compared with what it gave.
//!
//! # What holds
//! - A part is taken for one that is known only if its key is the same, byte for byte, and its leaves are as many. So
//!   nothing is kept that the decoder would not have accepted; what is left out is not looked at.
//! - The object comes back byte for byte from its parts ([`Packed::json`]), but for managedFields, `kind` and
//!   `apiVersion`, which are left out before anything is kept, or (the last two) the same for all.
//! - Sections come out as `podium_wire` encodes them; a Pod for which that cannot be had is kept undivided.
//! - A part is freed with the last Pod that has it.
//!
//! What may change nothing but the value of a leaf is one of the kinds of `leaf.rs`; everything else is shared text.

mod leaf;
mod packed;
mod part;
mod scan;
mod skip;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use leaf::{put_varint, uuid, uuid_text, varint};
pub use packed::Packed;
pub use part::Identity;
pub use scan::Scratch;

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, Weak},
};

use foldhash::quality::FixedState;
use parking_lot::Mutex;
use podium_wire::{Pod, json::JsonError};

use part::Part;
use scan::{Cut, Leaves, OUTER, PARTS, SPEC, STATUS};

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
        &self.parts[OUTER].name_prefix
    }
}

/// All parts and shapes that some Pod has.
#[derive(Debug)]
pub struct Shapes {
    table: Mutex<Table>,
    /// Seeded, so that nobody outside can make two keys or two specs of one hash.
    hasher: FixedState,
}

#[derive(Debug)]
struct Table {
    parts: HashMap<u64, Weak<Part>, FixedState>,
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
    /// `seed` should be a secret of the process.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let table = Table {
            parts: HashMap::with_hasher(hasher.clone()),
            shapes: HashMap::with_hasher(hasher.clone()),
            sweep_at: 0,
        };
        Self { table: Mutex::new(table), hasher }
    }

    /// Reads a Pod's JSON.
    ///
    /// `held` gives what is kept of the incarnation of this namespace, name and uid, if anything: a spec that has not
    /// changed is then not read again.
    ///
    /// # Errors
    /// See [`ShapeError`].
    pub fn read<'a, H: AsRef<Packed>>(
        &self,
        json: &'a [u8],
        scratch: &mut Scratch,
        held: impl FnOnce(&str, &str, &str) -> Option<H>,
    ) -> Result<Read<'a>, ShapeError> {
        let mut known = None;
        let ask = |namespace: &str, name: &str, uid: &str| {
            known = held(namespace, name, uid);
            known.as_ref().map(|held| held.as_ref().spec_hash()).filter(|hash| *hash != 0)
        };
        let hash = |bytes: &[u8]| self.hasher.hash_one(bytes);
        let Some(cut) = scan::cut(json, scratch, Leaves::All, hash, ask) else {
            return Err(ShapeError::Unusual(Box::new(podium_wire::json::decode(json)?)));
        };
        let spec = known.as_ref().map(AsRef::as_ref).filter(|_| cut.spec_is_held);
        if let Some(shape) = self.shape(scratch, &cut, spec) {
            return Ok(read(cut, shape, scratch, spec));
        }
        let actual = podium_wire::json::decode(json)?;
        // Something in it is of the form of a leaf and not treated as one by the decoder.
        let again = scan::cut(json, scratch, Leaves::Identity, hash, |_, _, _| None);
        if let Some(cut) = again
            && let Some(shape) = self.shape(scratch, &cut, None)
        {
            return Ok(read(cut, shape, scratch, None));
        }
        Err(ShapeError::Unusual(Box::new(actual)))
    }

    /// The shape of what was cut. Parts that are not known are made; none where one of them cannot be.
    fn shape(&self, scratch: &Scratch, cut: &Cut<'_>, spec: Option<&Packed>) -> Option<Arc<Shape>> {
        let hashes = self.hashes(scratch);
        let known = {
            let mut table = self.table.lock();
            let known = [OUTER, SPEC, STATUS].map(|part| match spec {
                Some(held) if part == SPEC => Some(Arc::clone(held.part(SPEC))),
                _ => table.part(hashes[part], scratch, part),
            });
            match known {
                [Some(outer), Some(spec), Some(status)] => return Some(table.shape([outer, spec, status])),
                some => some,
            }
        };
        let identity = Identity { name: cut.name, uid: cut.uid, revision: cut.revision };
        let mut parts = Vec::with_capacity(PARTS);
        for (part, known) in known.into_iter().enumerate() {
            let draft = &scratch.parts[part];
            parts.push(match known {
                Some(known) => known,
                None => {
                    let fresh = part::build(part, &draft.key, &draft.own.bytes, identity)?;
                    self.table.lock().add(hashes[part], fresh)
                }
            });
        }
        Some(self.table.lock().shape(parts.try_into().ok()?))
    }

    /// A spec and a status may have one key, as when both are empty, and are not the same part.
    fn hashes(&self, scratch: &Scratch) -> [u64; PARTS] {
        [OUTER, SPEC, STATUS].map(|part| self.hasher.hash_one((part, &*scratch.parts[part].key)))
    }

    /// How many parts there are that some Pod has.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.table.lock().parts.values().filter(|part| part.strong_count() > 0).count()
    }
}

fn read<'a>(cut: Cut<'a>, shape: Arc<Shape>, scratch: &Scratch, spec: Option<&Packed>) -> Read<'a> {
    let mut own = [OUTER, SPEC, STATUS].map(|part| &*scratch.parts[part].own.bytes);
    if let Some(held) = spec {
        own[SPEC] = held.own(SPEC);
    }
    let Cut { namespace, name, uid, revision, spec_hash, .. } = cut;
    Read { namespace, name, uid, revision, packed: Packed::new(shape, own, spec_hash) }
}

impl Table {
    fn part(&self, hash: u64, scratch: &Scratch, part: usize) -> Option<Arc<Part>> {
        let draft = &scratch.parts[part];
        let known = self.parts.get(&hash)?.upgrade()?;
        // A key with a mark in its text has other leaves than it seems to.
        (*known.key == *draft.key && known.leaves() == draft.leaves()).then_some(known)
    }

    fn add(&mut self, hash: u64, part: Part) -> Arc<Part> {
        self.sweep();
        let part = Arc::new(part);
        // Another key of this hash that is still in use stays: this one is then not shared.
        let entry = self.parts.entry(hash).or_default();
        if entry.strong_count() == 0 {
            *entry = Arc::downgrade(&part);
        }
        part
    }

    fn shape(&mut self, parts: [Arc<Part>; PARTS]) -> Arc<Shape> {
        let addresses = parts.each_ref().map(|part| Arc::as_ptr(part).addr());
        if let Some(shape) = self.shapes.get(&addresses).and_then(Weak::upgrade) {
            return shape;
        }
        self.sweep();
        let shape = Arc::new(Shape { parts });
        self.shapes.insert(addresses, Arc::downgrade(&shape));
        shape
    }

    fn sweep(&mut self) {
        const LEAST: usize = 1_024;
        if self.parts.len() + self.shapes.len() < self.sweep_at.max(LEAST) {
            return;
        }
        self.shapes.retain(|_, shape| shape.strong_count() > 0);
        self.parts.retain(|_, part| part.strong_count() > 0);
        self.sweep_at = 2 * (self.parts.len() + self.shapes.len());
    }
}
