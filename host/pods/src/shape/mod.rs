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
mod learned;
#[cfg(test)]
mod own_values;
mod packed;
mod part;
mod pieces;
mod saved;
mod scan;
mod skip;
mod string;
mod structure;
mod template;
#[cfg(test)]
mod tests;
mod text;
#[cfg(test)]
mod unusual;
mod whole;

use std::{
    collections::HashMap,
    hash::BuildHasher,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use foldhash::quality::FixedState;
pub(crate) use leaf::{put_varint, uuid, uuid_text, varint};
use learned::Learned;
pub use packed::Packed;
pub use part::Identity;
use part::{Account, Charge, Part};
use pieces::Texts;
use podium_wire::{Pod, json::JsonError};
pub(crate) use scan::PARTS;
pub use scan::Scratch;
use scan::{Cut, Draft, Leaves, Likely, OUTER, SPEC, STATUS};
use structure::{Generalised, Positions, Structure};

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
    learned: Learned,
    /// By namespace.
    accounts: HashMap<Box<str>, Account, FixedState>,
    /// By the addresses of the parts, which live as long as the shape.
    shapes: HashMap<[usize; PARTS], Weak<Shape>, FixedState>,
    /// What has died is taken out when there are so many entries.
    sweep_at: usize,
}

/// What a Pod is likely to be like.
#[derive(Debug, Default)]
struct Like {
    /// Its own last state.
    held: Option<Arc<Shape>>,
    /// If there is none: the Pod that was read before.
    recent: Option<Arc<Shape>>,
}

impl Like {
    fn shape(&self) -> Option<&Arc<Shape>> {
        self.held.as_ref().or(self.recent.as_ref())
    }

    /// The Pod has this shape: for the next ones that are alike.
    fn is_now(&self, shape: &Arc<Shape>) {
        let like = self.shape();
        let keeps_outer = like.is_some_and(|like| Arc::ptr_eq(&like.parts[OUTER], &shape.parts[OUTER]));
        for (at, part) in shape.parts.iter().enumerate() {
            let before = like.map(|like| &like.parts[at]).filter(|before| !Arc::ptr_eq(before, part));
            if self.held.is_none() || before.is_some() {
                part.adopted();
            }
            // In a list, states of one workload follow each other.
            if let Some(before) = before.filter(|_| self.held.is_some() || (at == STATUS && keeps_outer)) {
                before.followed_by(part);
            }
        }
    }
}

/// What a part is made for.
struct Of<'a> {
    part: usize,
    json: &'a [u8],
    namespace: &'a str,
    workload: u64,
    identity: Identity<'a>,
}

/// How many bytes of parts that one Pod alone has used a namespace may have. Its other Pods are then kept undivided.
const MOST_OF_ONE_USER: usize = 32 << 20;

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
            learned: Learned::new(hasher.clone()),
            accounts: HashMap::with_hasher(hasher.clone()),
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
        let held = held.map(|held| Arc::clone(held.as_ref().shape()));
        let like = Like { recent: if held.is_none() { scratch.recent.upgrade() } else { None }, held };
        let namespace = head.as_ref().map_or("", |head| head.namespace);
        let likely = like.shape().map(|like| Likely::like(Arc::clone(like), namespace)).unwrap_or_default();
        if let Some(cut) = scan::cut(json, head, likely, scratch, Leaves::All, &self.prune)
            && let Some(read) = self.read_as(json, cut, scratch, &like)
        {
            return Ok(read);
        }
        let actual = podium_wire::json::decode(json)?;
        // Something in it is of the form of a leaf and not treated as one by the decoder, if it is not all unusual.
        if let Some(cut) = scan::cut(json, None, Default::default(), scratch, Leaves::Identity, &self.prune)
            && let Some(read) = self.read_as(json, cut, scratch, &Like::default())
        {
            return Ok(read);
        }
        Err(ShapeError::Unusual(Box::new(actual)))
    }

    /// Finds what was cut among what is known. Parts that are not known are made; none where one of them cannot be.
    fn read_as<'a>(&self, json: &[u8], cut: Cut<'a>, scratch: &mut Scratch, like: &Like) -> Option<Read<'a>> {
        let Cut { namespace, name, uid, revision, known } = cut;
        let same = like.shape().filter(|like| {
            like.parts.iter().zip(&known).all(|(is, known)| known.as_ref().is_some_and(|known| Arc::ptr_eq(is, known)))
        });
        let shape = match same {
            Some(shape) => Arc::clone(shape),
            None => {
                let identity = Identity { name, uid, revision };
                self.shape(json, known, scratch, namespace, identity)?
            }
        };
        like.is_now(&shape);
        if same.is_none() {
            scratch.recent = downgrade(&shape);
        }
        let own = [OUTER, SPEC, STATUS].map(|part| &*scratch.parts[part].own.bytes);
        Some(Read { namespace, name, uid, revision, packed: Packed::new(shape, own) })
    }

    fn shape(
        &self,
        json: &[u8],
        known: [Option<Arc<Part>>; PARTS],
        scratch: &mut Scratch,
        namespace: &str,
        identity: Identity<'_>,
    ) -> Option<Arc<Shape>> {
        let workload = match &known[OUTER] {
            Some(outer) => self.hasher.hash_one((namespace, outer.name_prefix())),
            None => self.hasher.hash_one((namespace, part::generate_name(&scratch.parts[OUTER].key))),
        };
        let mut parts = Vec::with_capacity(PARTS);
        for (at, known) in known.into_iter().enumerate() {
            parts.push(match known {
                Some(known) => known,
                None => {
                    let of = Of { part: at, json, namespace, workload, identity };
                    self.part(&of, &mut scratch.parts[at])?
                }
            });
        }
        Some(self.table.lock().shape(parts.try_into().ok()?))
    }

    /// The part of a draft: a known one, or a new one. The draft's values are those of that part.
    fn part(&self, of: &Of<'_>, draft: &mut Draft) -> Option<Arc<Part>> {
        if let Some(known) = self.known(of.part, &draft.key, draft.leaves()) {
            return Some(known);
        }
        let structure_of = |key: &[u8]| Structure::of(of.part, key, self.hasher.build_hasher());
        let Some(structure) = structure_of(&draft.key).filter(|structure| !structure.strings.is_empty()) else {
            return self.make(of, &draft.key, &draft.own.bytes, draft.leaves());
        };
        let id = self.hasher.hash_one((of.namespace, of.part, structure.hash));
        let (mut positions, recent) = self.table.lock().learned.of(id, of.workload);
        let generalised = |positions: &Positions| {
            let is_any = !positions.is_empty();
            is_any.then(|| structure.generalised(&draft.key, positions, of.json, &draft.leaves)).flatten()
        };
        let mut key = generalised(&positions);
        let known = |key: &Option<Generalised>| key.as_ref().and_then(|key| self.known(of.part, &key.key, key.leaves));
        let mut part = known(&key);
        if part.is_none() && learned::learn(&mut positions, &draft.key, &structure, &recent, structure_of) {
            self.table.lock().learned.generalise(id, &positions);
            key = generalised(&positions);
            part = known(&key);
        }
        if part.is_none() {
            part = match &key {
                Some(key) => self.make(of, &key.key, &key.own, key.leaves),
                None => self.make(of, &draft.key, &draft.own.bytes, draft.leaves()),
            };
            self.table.lock().learned.made(id, of.workload, part.as_ref()?);
        }
        if let Some(key) = key {
            draft.own.bytes = key.own;
        }
        part
    }

    fn known(&self, part: usize, key: &[u8], leaves: usize) -> Option<Arc<Part>> {
        let hash = self.hasher.hash_one(key);
        // A key with a mark in its text has other leaves than it seems to.
        self.table.lock().known(part, hash, key).filter(|known| known.leaves() == leaves)
    }

    /// Makes a part that is not known. None if it cannot be proven, or its namespace has no room for it.
    fn make(&self, of: &Of<'_>, key: &[u8], own: &[u8], leaves: usize) -> Option<Arc<Part>> {
        let account = self.table.lock().account(of.namespace);
        if account.load(Relaxed) > MOST_OF_ONE_USER {
            return None;
        }
        let made = part::build(of.part, key, own, of.identity).filter(|made| made.leaves() == leaves)?;
        let charge = Charge::new(&account, made.size(), MOST_OF_ONE_USER)?;
        Some(self.table.lock().add(of.part, self.hasher.hash_one(key), made.charged(charge), key))
    }

    /// How many parts there are that some Pod has.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.table.lock().parts.iter().flat_map(HashMap::values).filter(|part| part.strong_count() > 0).count()
    }
}

impl Table {
    fn known(&self, part: usize, hash: u64, key: &[u8]) -> Option<Arc<Part>> {
        self.parts[part].get(&hash)?.upgrade().filter(|known| known.key.is(key))
    }

    fn account(&mut self, namespace: &str) -> Account {
        if let Some(account) = self.accounts.get(namespace) {
            return Arc::clone(account);
        }
        Arc::clone(self.accounts.entry(namespace.into()).or_default())
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
        // Charges are in parts, so an account that only this table has is at zero.
        self.accounts.retain(|_, account| Arc::strong_count(account) > 1);
        self.sweep_at = 2 * self.entries();
    }

    fn entries(&self) -> usize {
        self.parts.iter().map(HashMap::len).sum::<usize>() + self.shapes.len()
    }
}
