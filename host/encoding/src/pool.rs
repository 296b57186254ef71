//! All skeletons of the Pods of a process, and how a Pod finds or makes its own.

use std::{
    collections::{HashMap, VecDeque},
    hash::BuildHasher,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use foldhash::quality::FixedState;
use podium_sync::{Mutex, Weak, downgrade};
use podium_vocabulary::{Prune, Revision};
use podium_wire::SectionBytes;

use super::{
    FRAGMENTS, Packed, PodIdentity, PodJson, Read, ReadError,
    candidates::Candidates,
    chunks::Interner,
    fragment::{Fragment, PerFragment},
    hot_fields,
    learned::{self, Learned, Owner},
    scan::{self, Draft, Extent, Head, Scanned, Scratch},
    skeleton::{self, Charge, Skeleton, Usage},
    structure::{Generalised, Positions, Structure},
    tokens, unshared,
    workloads::{Sighting, Workloads},
};

/// The three skeletons of a Pod. Pods that share all of them share this.
#[derive(Debug)]
pub struct Shape {
    pub(super) skeletons: PerFragment<Arc<Skeleton>>,
}

impl Shape {
    pub(super) fn namespace(&self) -> &Arc<str> {
        &self.skeletons[Fragment::Object].namespace
    }

    /// Returns true for a Pod whose object is its whole JSON.
    pub(super) fn is_whole(&self) -> bool {
        let object = &self.skeletons[Fragment::Object];
        object.is_unshared && object.dictionary().is_empty()
    }

    /// Returns true if its Pods, read again, would have skeletons that they share with more Pods.
    pub(super) fn is_superseded(&self) -> bool {
        self.skeletons.0.iter().any(|skeleton| skeleton.is_superseded())
    }

    /// Returns the approximate bytes of its skeletons.
    fn size(&self) -> usize {
        self.skeletons.0.iter().map(|skeleton| skeleton.size()).sum()
    }

    /// Returns a prefix that the names of Pods of this shape may have.
    pub(super) fn name_prefix(&self) -> &str {
        self.skeletons[Fragment::Object].name_prefix()
    }
}

/// The shapes of the Pods that were read last. A state that each Pod of a workload has for a moment, such as the one
/// before it is scheduled, would otherwise be learned again for each Pod, unless another Pod has it at that moment.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The latest is the last.
    shapes: VecDeque<RecentShape>,
    bytes: usize,
}

#[derive(Debug)]
struct RecentShape {
    shape: Arc<Shape>,
    /// The workload whose latest new Pod had this shape when it was read for the first time.
    first_of: Option<u64>,
}

impl Recent {
    /// The most bytes of their skeletons; the latest is kept in any case. Enough for five states of each of 40
    /// workloads with ordinary Pods.
    const MAX_BYTES: usize = 2 << 20;

    /// Returns the shape with which the latest Pod of this workload was read for the first time, otherwise the latest
    /// one.
    pub(super) fn like_new(&self, workload: Option<u64>) -> Option<Arc<Shape>> {
        let first = workload.and_then(|_| self.shapes.iter().find(|known| known.first_of == workload));
        first.or(self.shapes.back()).map(|known| Arc::clone(&known.shape))
    }

    fn remember(&mut self, shape: &Arc<Shape>, first_of: Option<u64>) {
        let at = self.shapes.iter().rposition(|known| Arc::ptr_eq(&known.shape, shape));
        let known = at.and_then(|at| self.shapes.remove(at));
        if known.is_none() {
            self.bytes += shape.size();
        }
        if first_of.is_some() {
            self.shapes.iter_mut().filter(|known| known.first_of == first_of).for_each(|known| known.first_of = None);
        }
        let first_of = first_of.or(known.and_then(|known| known.first_of));
        self.shapes.push_back(RecentShape { shape: Arc::clone(shape), first_of });
        while self.bytes > Self::MAX_BYTES && self.shapes.len() > 1 {
            let oldest = self.shapes.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.shape.size());
        }
    }
}

/// All skeletons and shapes of Pods, and the fields that are removed from every Pod.
#[derive(Debug)]
pub struct Pool {
    pub(super) table: Mutex<Table>,
    /// Seeded, so that no tenant can construct many texts with one hash.
    pub(super) hasher: FixedState,
    /// The annotations that are removed from every Pod before it is stored.
    pub prune: Prune,
}

#[derive(Debug)]
pub(super) struct Table {
    /// Skeletons by the hash of their text. Each fragment has its own table, because `{}` and `null` are both a valid
    /// spec and a valid status.
    pub(super) skeletons: PerFragment<HashMap<u64, Weak<Skeleton>, FixedState>>,
    interner: Interner,
    pub(super) learned: Learned,
    workloads: Workloads,
    /// The bytes of skeletons with only one user, by namespace.
    usage: HashMap<Box<str>, Usage, FixedState>,
    /// Shapes by the addresses of their skeletons, which live as long as the shape.
    shapes: HashMap<[usize; FRAGMENTS], Weak<Shape>, FixedState>,
    /// The number of entries at which dead ones are removed.
    remove_unused_at: usize,
}

/// The Pod that the next one is expected to resemble.
#[derive(Debug, Default)]
struct Prediction {
    /// The previous state of the Pod itself.
    held: Option<Arc<Shape>>,
    /// Without a previous state: the latest new Pod of the same workload, otherwise the Pod that was read before.
    recent: Option<Arc<Shape>>,
}

impl Prediction {
    fn shape(&self) -> Option<&Arc<Shape>> {
        self.held.as_ref().or(self.recent.as_ref())
    }

    /// Records the Pod's shape, for the Pods that are read next.
    fn record(&self, shape: &Arc<Shape>) {
        let like = self.shape();
        let keeps_object =
            like.is_some_and(|like| Arc::ptr_eq(&like.skeletons[Fragment::Object], &shape.skeletons[Fragment::Object]));
        for (fragment, skeleton) in shape.skeletons.iter() {
            let before = like.map(|like| &like.skeletons[fragment]).filter(|before| !Arc::ptr_eq(before, skeleton));
            if self.held.is_none() || before.is_some() {
                skeleton.count_user();
            }
            // In a list, Pods of one workload are neighbours and differ in their states.
            if let Some(before) =
                before.filter(|_| self.held.is_some() || (fragment == Fragment::Status && keeps_object))
            {
                before.record_transition(skeleton);
            }
        }
    }
}

/// The fragment for which a skeleton is needed.
struct FragmentInput<'a> {
    fragment: Fragment,
    json: &'a [u8],
    namespace: &'a str,
    workload: u64,
    identity: PodIdentity<'a>,
}

/// The most bytes of skeletons used by only one Pod, and of learned positions, that a namespace may have. Beyond this,
/// its Pods are stored unshared, and no further position is generalised.
pub(super) const MAX_BYTES_OF_ONE_USER: usize = 32 << 20;

impl Pool {
    /// Returns an empty pool that prunes nothing. `seed` should be a secret of the process.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let hasher = FixedState::with_seed(seed);
        let table = Table {
            skeletons: PerFragment::from_fn(|_| HashMap::with_hasher(hasher.clone())),
            interner: Interner::new(hasher.clone()),
            learned: Learned::new(hasher.clone()),
            workloads: Workloads::new(hasher.clone()),
            usage: HashMap::with_hasher(hasher.clone()),
            shapes: HashMap::with_hasher(hasher.clone()),
            remove_unused_at: 0,
        };
        Self { table: Mutex::new(table), hasher, prune: Prune::NOTHING }
    }

    /// Reads a Pod's JSON. A Pod that cannot share text, or whose namespace has reached its limit, shares none.
    ///
    /// `held` is the stored state of the incarnation with these names, if there is one. The new state is first matched
    /// against its skeletons, and otherwise against those of the latest new Pod of its workload that was read with this
    /// scratch.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read<'a>(
        &self,
        json: &PodJson<'a>,
        held: Option<&Packed>,
        scratch: &mut Scratch,
    ) -> Result<Read<'a>, ReadError> {
        let PodJson { json, head, .. } = *json;
        let recent = match held {
            Some(_) => None,
            None => scratch.recent.like_new(head.as_ref().and_then(|head| self.workload_by_name(head))),
        };
        let like = Prediction { recent, held: held.map(|held| Arc::clone(&held.shape)) };
        let namespace = head.as_ref().map_or("", |head| head.namespace);
        let namespace = self.hasher.hash_one(namespace);
        let mut likely = like.shape().map(|like| Candidates::like(Arc::clone(like), namespace)).unwrap_or_default();
        if let Some(held) = held {
            likely = likely.with_held(held, &mut scratch.texts);
        }
        let cut = scan::cut(json, head, &likely, scratch, Extent::All, &self.prune);
        likely.return_buffers(&mut scratch.texts);
        if let Some(cut) = cut
            && let Some(read) = self.read_as(json, cut, scratch, &like)
        {
            return Ok(read);
        }
        let actual = podium_wire::json::decode(json)?;
        // A value has the form of a placeholder where the decoder does not treat it as one, or the form is unusual.
        if let Some(cut) = scan::cut(json, None, &Candidates::default(), scratch, Extent::Identity, &self.prune)
            && let Some(read) = self.read_as(json, cut, scratch, &Prediction::default())
        {
            return Ok(read);
        }
        Read::whole(actual, json, &self.prune)
    }

    /// Finds the skeletons of a scanned Pod and builds those that are not known. Returns None if one cannot be built.
    fn read_as<'a>(&self, json: &[u8], cut: Scanned<'a>, scratch: &mut Scratch, like: &Prediction) -> Option<Read<'a>> {
        let Scanned { namespace, name, uid, revision, known } = cut;
        let is_status_scanned = known[Fragment::Status].is_none();
        let same = like.shape().filter(|like| {
            let is = |(fragment, known): (_, &Option<Arc<Skeleton>>)| {
                known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &like.skeletons[fragment]))
            };
            known.iter().all(is)
        });
        let shape = match same {
            Some(shape) => Arc::clone(shape),
            None => {
                let identity = PodIdentity { name, uid, revision };
                self.shape(json, known, scratch, namespace, identity)?
            }
        };
        // A skeleton was verified with the values of one Pod; those of another one must not make a section too long.
        let is_encodable = |(fragment, skeleton): (Fragment, &Arc<Skeleton>)| {
            let identity = PodIdentity { name, uid, revision };
            skeleton.has_encodable_sections(&scratch.drafts[fragment].own.bytes, identity, json.len())
        };
        if !shape.skeletons.iter().all(is_encodable) {
            return None;
        }
        like.record(&shape);
        if is_status_scanned {
            shape.skeletons[Fragment::Object].record_status(&shape.skeletons[Fragment::Status]);
        }
        let first_of = like.held.is_none().then(|| self.workload(namespace, shape.name_prefix()));
        if same.is_none() || first_of.is_some() {
            scratch.recent.remember(&shape, first_of);
        }
        let own = PerFragment::from_fn(|fragment| &*scratch.drafts[fragment].own.bytes);
        let packed = Packed::new(shape, own, PodIdentity { name, uid, revision })?;
        let namespace = Arc::clone(packed.shape.namespace());
        Some(Read { namespace, name: name.into(), uid: uid.into(), revision: Revision(revision), packed })
    }

    /// Returns the identity of the workload whose Pods have names with this prefix.
    pub(super) fn workload(&self, namespace: &str, prefix: &str) -> u64 {
        self.hasher.hash_one((namespace, prefix))
    }

    /// Returns the workload that a Pod probably belongs to: the names of its Pods end behind the last hyphen.
    fn workload_by_name(&self, head: &Head<'_>) -> Option<u64> {
        let (prefix, _) = head.name.split_at(head.name.rfind('-')? + 1);
        Some(self.workload(head.namespace, prefix))
    }

    fn shape(
        &self,
        json: &[u8],
        mut known: PerFragment<Option<Arc<Skeleton>>>,
        scratch: &mut Scratch,
        namespace: &str,
        identity: PodIdentity<'_>,
    ) -> Option<Arc<Shape>> {
        let prefix = match &known[Fragment::Object] {
            Some(outer) => outer.name_prefix(),
            None => hot_fields::generate_name(&scratch.drafts[Fragment::Object].text),
        };
        let workload = self.workload(namespace, prefix);
        let skeletons = PerFragment::try_from_fn(|fragment| match known[fragment].take() {
            Some(known) => Some(known),
            None => self.skeleton(
                &FragmentInput { fragment, json, namespace, workload, identity },
                &mut scratch.drafts[fragment],
            ),
        })?;
        Some(self.table.lock().shape(skeletons))
    }

    /// Returns the skeleton of a scanned fragment, known or new, and makes `draft`'s values those of that skeleton.
    fn skeleton(&self, of: &FragmentInput<'_>, draft: &mut Draft) -> Option<Arc<Skeleton>> {
        if let Some(known) = self.known(of.fragment, &draft.text, draft.placeholders()) {
            return Some(known);
        }
        let structure_of = |key: &[u8]| Structure::new(of.fragment, key, &self.hasher);
        let Some(structure) = structure_of(&draft.text).filter(|structure| !structure.strings.is_empty()) else {
            return self.make(of, &draft.text, &draft.own.bytes, draft.placeholders());
        };
        let id = self.hasher.hash_one((of.namespace, of.fragment, structure.hash));
        let owner = Owner {
            workload: self.hasher.hash_one((of.workload, of.fragment)),
            namespace: self.hasher.hash_one((of.namespace, of.fragment)),
        };
        let (mut positions, recent) = self.table.lock().learned.recall(id, owner, &structure);
        let generalised = |positions: &Positions| {
            let is_any = !positions.is_empty();
            is_any.then(|| structure.generalised(&draft.text, positions, of.json, &draft.placeholders)).flatten()
        };
        let mut key = generalised(&positions);
        let known = |key: &Option<Generalised>| {
            key.as_ref().and_then(|key| self.known(of.fragment, &key.text, key.placeholders))
        };
        let mut skeleton = known(&key);
        if skeleton.is_none() && recent.is_empty() {
            let text = key.as_ref().map_or(&*draft.text, |key| &key.text);
            let values = key.as_ref().map_or(&*draft.own.bytes, |key| &key.own);
            let placeholders = key.as_ref().map_or(draft.placeholders(), |key| key.placeholders);
            let sighting = Sighting { structure: id as u32, pod: self.hasher.hash_one(of.identity.uid) as u32 };
            if let Some((unshared, stored)) = self.unshared(of, (text, values, placeholders), owner.workload, sighting)
            {
                draft.own.bytes = stored;
                return Some(unshared);
            }
        }
        if skeleton.is_none() && learned::learn(&mut positions, &draft.text, &structure, &recent, structure_of) {
            let is_recorded = {
                let table = &mut *self.table.lock();
                let usage = table.usage(of.namespace);
                table.learned.generalise(id, &positions, &usage)
            };
            if is_recorded {
                recent.iter().filter(|other| other.has_one_user()).for_each(|other| other.supersede());
                key = generalised(&positions);
                skeleton = known(&key);
            }
        }
        if skeleton.is_none() {
            skeleton = key.as_ref().and_then(|key| self.make(of, &key.text, &key.own, key.placeholders));
            if skeleton.is_none() {
                key = None;
                skeleton = self.make(of, &draft.text, &draft.own.bytes, draft.placeholders());
            }
            let table = &mut *self.table.lock();
            let usage = table.usage(of.namespace);
            table.learned.record_skeleton(id, owner, skeleton.as_ref()?, &structure, &positions, &usage);
            if of.fragment != Fragment::Status {
                table.workloads.record_skeleton(owner.workload, skeleton.as_ref()?);
            }
        }
        if let Some(key) = key {
            draft.own.bytes = key.own;
        }
        skeleton.inspect(|skeleton| skeleton.learned_in(self.hasher.hash_one(of.namespace)))
    }

    /// Stores a fragment with this text, these values and this number of placeholders unshared. Returns `None` if its
    /// workload has no dictionary, if another Pod had its structure, and if it is too long or no fragment of a Pod.
    fn unshared(
        &self,
        of: &FragmentInput<'_>,
        (text, values, placeholders): (&[u8], &[u8], usize),
        workload: u64,
        sighting: Sighting,
    ) -> Option<(Arc<Skeleton>, Vec<u8>)> {
        // A status changes with most events, and would be decoded with each.
        if of.fragment == Fragment::Status || text.len() + values.len() > unshared::LONGEST {
            return None;
        }
        let skeleton = {
            let table = &mut *self.table.lock();
            // Another thread may have made the skeleton in the meantime.
            if table.known(of.fragment, self.hasher.hash_one(text), text).is_some() {
                return None;
            }
            let usage = table.usage(of.namespace);
            table.workloads.unshared(workload, sighting, &usage)?
        };
        let known = tokens::placeholders(text).filter(|known| known.len() == placeholders)?;
        let pod = skeleton::decoded(of.fragment, text, &tokens::resolve(&known, values, of.identity)?)?;
        // It must not be too large to encode.
        SectionBytes::encode(&pod).ok()?;
        let head = unshared::Head::new(of.fragment, &pod);
        let stored = unshared::stored(head, text, skeleton.dictionary(), values);
        Some((skeleton, stored))
    }

    fn known(&self, fragment: Fragment, key: &[u8], placeholders: usize) -> Option<Arc<Skeleton>> {
        let hash = self.hasher.hash_one(key);
        // JSON that contains the placeholder byte has fewer placeholders than its skeleton appears to have.
        let known = self.table.lock().known(fragment, hash, key);
        known.filter(|known| known.placeholders() == placeholders && !known.is_superseded())
    }

    /// Builds a skeleton. Returns `None` if it cannot be verified, or if its namespace's limit is reached.
    fn make(&self, of: &FragmentInput<'_>, key: &[u8], own: &[u8], placeholders: usize) -> Option<Arc<Skeleton>> {
        let usage = self.table.lock().usage(of.namespace);
        if usage.load(Relaxed) > MAX_BYTES_OF_ONE_USER {
            return None;
        }
        let made =
            skeleton::build(of.fragment, key, own, of.identity).filter(|made| made.placeholders() == placeholders)?;
        let charge = Charge::new(&usage, made.size(), MAX_BYTES_OF_ONE_USER)?;
        Some(self.table.lock().add(of.fragment, self.hasher.hash_one(key), made.charged(charge), key))
    }

    /// Returns the number of texts that the Pods of this pool share, for tests and measurements.
    #[must_use]
    pub fn shared_texts(&self) -> usize {
        self.table
            .lock()
            .skeletons
            .0
            .iter()
            .flat_map(HashMap::values)
            .filter(|skeleton| skeleton.strong_count() > 0)
            .count()
    }
}

impl Table {
    pub(super) fn known(&self, fragment: Fragment, hash: u64, key: &[u8]) -> Option<Arc<Skeleton>> {
        self.skeletons[fragment].get(&hash)?.upgrade().filter(|known| known.text.is(key))
    }

    pub(super) fn usage(&mut self, namespace: &str) -> Usage {
        if let Some(usage) = self.usage.get(namespace) {
            return Arc::clone(usage);
        }
        Arc::clone(self.usage.entry(namespace.into()).or_default())
    }

    pub(super) fn add(&mut self, fragment: Fragment, hash: u64, mut skeleton: Skeleton, key: &[u8]) -> Arc<Skeleton> {
        self.remove_unused();
        skeleton.share(fragment, key, &mut self.interner);
        let entry = self.skeletons[fragment].entry(hash).or_default();
        match entry.upgrade() {
            // Another thread built the same skeleton in the meantime.
            Some(known) if known.text == skeleton.text && !known.is_superseded() => known,
            // If two texts have the same hash, only the first is shared.
            Some(known) if known.text != skeleton.text => Arc::new(skeleton),
            // A superseded skeleton belongs to a namespace that has generalised it, and no other Pod gets it.
            _ => {
                let skeleton = Arc::new(skeleton);
                *entry = downgrade(&skeleton);
                skeleton
            }
        }
    }

    pub(super) fn shape(&mut self, skeletons: PerFragment<Arc<Skeleton>>) -> Arc<Shape> {
        let addresses = skeletons.0.each_ref().map(|skeleton| Arc::as_ptr(skeleton).addr());
        if let Some(shape) = self.shapes.get(&addresses).and_then(Weak::upgrade) {
            return shape;
        }
        self.remove_unused();
        let shape = Arc::new(Shape { skeletons });
        self.shapes.insert(addresses, downgrade(&shape));
        shape
    }

    fn remove_unused(&mut self) {
        const LEAST: usize = 16;
        if self.entries() < self.remove_unused_at.max(LEAST) {
            return;
        }
        self.shapes.retain(|_, shape| shape.strong_count() > 0);
        for skeletons in &mut self.skeletons.0 {
            skeletons.retain(|_, skeleton| skeleton.strong_count() > 0);
        }
        // Charges are stored in skeletons, so usage that only this table references is zero.
        self.usage.retain(|_, usage| Arc::strong_count(usage) > 1);
        self.remove_unused_at = 2 * self.entries();
    }

    fn entries(&self) -> usize {
        self.skeletons.0.iter().map(HashMap::len).sum::<usize>() + self.shapes.len()
    }
}
