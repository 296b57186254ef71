//! A skeleton: the shared part of one fragment, which is its JSON with placeholders and its encoded sections with
//! holes.
//!
//! To locate the values in the sections, the fragment is rendered with a sentinel for each value, decoded and encoded
//! like any Pod, and the sentinels are located in the bytes. This is only sound for values that the decoder passes on
//! unread, and if nothing else looks like a sentinel: no value is one, and no literal contains one. For strings that
//! may have any contents, the decoder's own list decides; for the other kinds it is checked with the present Pod,
//! whose sections must be those that the decoder makes of it.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use foldhash::quality::FixedState;
use podium_sync::{Mutex, Weak, downgrade};
use podium_wire::{Header, Pod, Section, SectionBytes};

use super::{
    chunks::{ChunkedBytes, Interner},
    forms,
    fragment::{Fragment, PerFragment},
    hot_fields::{HotFields, Source},
    placeholder::{Kind, PLACEHOLDER, Value, ValueReader},
    structure::Structure,
    template::{Hole, Template},
    tokens::{self, Json, Placeholder, Resolved, Tokens, resolve, resolved_kind},
};

/// Name, uid and revision of a Pod: values that are stored beside the skeleton's values.
#[derive(Debug, Clone, Copy)]
pub struct PodIdentity<'a> {
    /// The Pod's name.
    pub name: &'a str,
    /// The Pod's uid.
    pub uid: &'a str,
    /// The Pod's resourceVersion.
    pub revision: u64,
}

/// The most placeholders of a skeleton: sentinels are numbered through all fragments.
pub(super) const MAX_PLACEHOLDERS: usize = 10_000;

/// Returns the fragment that contains a section, and the section's index within it, or `None` for the full object.
pub(super) fn place(section: Section) -> Option<(Fragment, usize)> {
    match section {
        Section::Labels => Some((Fragment::Object, 0)),
        Section::Annotations => Some((Fragment::Object, 1)),
        Section::Owners => Some((Fragment::Object, 2)),
        Section::Lifecycle => Some((Fragment::Object, 3)),
        Section::Spec => Some((Fragment::Spec, 0)),
        Section::Status => Some((Fragment::Status, 0)),
        Section::Full => None,
    }
}

/// Returns the sections of a fragment, and their indexes.
pub(super) fn sections(fragment: Fragment) -> impl Iterator<Item = (Section, usize)> {
    let of_part = move |section| place(section).filter(|(of, _)| *of == fragment).map(|(_, place)| (section, place));
    Section::ALL.into_iter().filter_map(of_part)
}

pub(super) struct Skeleton {
    /// Each Pod has a text of its own (`unshared.rs`), and this has no sections.
    pub(super) is_unshared: bool,
    /// At least one placeholder is a string that may have any contents, or a word of one.
    pub(super) is_generalised: bool,
    /// The JSON with placeholders. Empty for a fragment that the object does not have. Never in chunks for the object
    /// around spec and status. Of an unshared skeleton it is the dictionary of the Pods' own texts, never in chunks;
    /// empty for a Pod whose object is its whole JSON.
    pub(super) text: ChunkedBytes,
    pub(super) placeholders: Box<[Placeholder]>,
    /// The number of bytes before the first placeholder.
    before: u32,
    templates: Box<[Template]>,
    /// The most bytes of a template, without values.
    longest: u32,
    /// Empty for spec and status.
    pub(super) namespace: Arc<str>,
    pub(super) hot: HotFields,
    /// The skeletons to which Pods with this one changed, the latest first. Most Pods go through the same states.
    next: Mutex<[Weak<Skeleton>; TRANSITIONS]>,
    /// Set while only one Pod has used the skeleton: its share of the namespace's limit.
    only_user: Mutex<Option<Charge>>,
    users: AtomicU8,
    /// A later generalised skeleton also serves the Pods of this one.
    is_superseded: AtomicBool,
    /// For a generalised skeleton: the namespaces that learned it, as one bit of each namespace's hash.
    learned_in: AtomicU64,
}

/// The bytes of a namespace's skeletons that have one user each.
pub(super) type Usage = Arc<AtomicUsize>;

/// Bytes that count as used until this is dropped.
#[derive(Debug)]
pub(super) struct Charge {
    usage: Usage,
    bytes: usize,
}

impl Charge {
    /// Charges the bytes. Returns `None` if the usage would exceed `most`.
    pub(super) fn new(usage: &Usage, bytes: usize, most: usize) -> Option<Self> {
        let before = usage.fetch_add(bytes, Relaxed);
        let charge = Self { usage: Arc::clone(usage), bytes };
        (before + bytes <= most).then_some(charge)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.usage.fetch_sub(self.bytes, Relaxed);
    }
}

/// The bit in the result of [`Skeleton::differing`] of any value that differs.
pub(super) const ANY: u8 = 1 << 7;
/// The number of transitions that a skeleton remembers.
pub(super) const TRANSITIONS: usize = 4;
/// The number of statuses that the skeleton of an object remembers.
pub(super) const STATUSES: usize = 8;

impl fmt::Debug for Skeleton {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.to_vec();
        formatter
            .debug_struct("Skeleton")
            .field("text", &String::from_utf8_lossy(&text))
            .field("placeholders", &self.placeholders.len())
            .finish_non_exhaustive()
    }
}

/// Returns the smallest object around a spec and a status.
fn bystander() -> Vec<u8> {
    let fragment = |fragment: Fragment| [PLACEHOLDER, Kind::Fragment as u8, fragment as u8];
    let head = br#"{"metadata":{"namespace":"n","name":"n","uid":"u","resourceVersion":"1"},"spec":"#;
    [&head[..], &fragment(Fragment::Spec), br#","status":"#, &fragment(Fragment::Status), b"}"].concat()
}

/// Decodes a fragment with this text; `write` appends the value of a placeholder.
///
/// The Pod's other fragments are left out, because the decoder's output for one fragment does not depend on the
/// others.
fn decode(fragment: Fragment, key: &[u8], write: impl Fn(usize, &mut Vec<u8>) -> Option<()>) -> Option<Pod> {
    let outer = bystander();
    let mut keys = PerFragment([&*outer, b"{}", b"{}"]);
    // The decoder treats an absent fragment as an empty one.
    keys[fragment] = if key.is_empty() { b"{}" } else { key };
    let json =
        tokens::render(
            PerFragment(keys.0.map(Tokens::from)),
            |of, at, out| {
                if of == fragment { write(at, out) } else { None }
            },
        )?;
    podium_wire::json::decode(&json).ok()
}

/// Decodes a fragment with this text and these values.
pub(super) fn decoded(fragment: Fragment, key: &[u8], values: &[Value<'_>]) -> Option<Pod> {
    decode(fragment, key, |at, out| {
        values.get(at)?.write(out);
        Some(())
    })
}

/// Builds the skeleton with this text and verifies it with the values of one Pod. Returns `None` if the verification
/// fails.
pub(super) fn build(fragment: Fragment, key: &[u8], own: &[u8], identity: PodIdentity<'_>) -> Option<Skeleton> {
    let mut placeholders = tokens::placeholders(key)?;
    // One Pod cannot prove that any string is valid at a position.
    let is_generalised = placeholders.iter().any(|placeholder| matches!(placeholder.kind, Kind::String | Kind::Word));
    if is_generalised && !Structure::new(fragment, key, &FixedState::default())?.is_sound(key)? {
        return None;
    }
    let values = resolve(&placeholders, own, identity)?;
    // A literal like a sentinel would be mistaken for a hole, and pass the verification if the value is equal.
    if !values.iter().all(|value| value.is_valid()) || tokens::has_sentinel(key)? {
        return None;
    }
    let actual = decoded(fragment, key, &values)?;
    let traced = decode(fragment, key, |at, out| {
        tokens::write_sentinel(resolved_kind(&placeholders, at), fragment as usize * MAX_PLACEHOLDERS + at, out);
        Some(())
    })?;
    let traced_bytes = SectionBytes::encode(&traced).ok()?;
    let actual_bytes = SectionBytes::encode(&actual).ok()?;
    let mut templates = Vec::new();
    for (section, _) in sections(fragment) {
        let template = Template::trace(traced_bytes.get(section), fragment, &placeholders)?;
        if template.fill(&placeholders, &values) != actual_bytes.get(section) {
            return None;
        }
        for hole in &template.holes {
            mark(&mut placeholders, usize::from(hole.placeholder), 1 << templates.len());
        }
        templates.push(template);
    }
    let hot = HotFields::new(fragment, key, &traced, &placeholders);
    let built = Skeleton {
        text: ChunkedBytes::Contiguous(key.into()),
        before: tokens::before_placeholders(key),
        is_generalised,
        longest: templates.iter().map(|template| template.bytes.len()).max().unwrap_or_default() as u32,
        templates: templates.into(),
        namespace: if fragment == Fragment::Object { actual.header.namespace.as_str().into() } else { Arc::default() },
        placeholders,
        ..Skeleton::empty(hot)
    };
    let proven = match fragment {
        Fragment::Object => {
            let Header { created, generation, .. } = actual.header;
            built.created_and_generation(own, identity) == (created.0, generation)
        }
        Fragment::Spec => built.node(own, identity).as_deref() == actual.spec.node_name.as_deref(),
        _ => built.phase(own, identity) == actual.status.phase,
    };
    proven.then_some(built)
}

/// Records that a section contains the value of a placeholder, and of the placeholder that it refers to.
fn mark(placeholders: &mut [Placeholder], at: usize, section: u8) {
    placeholders[at].sections |= section;
    if placeholders[at].kind == Kind::Same {
        mark(placeholders, usize::from(placeholders[at].place), section);
    }
}

impl Skeleton {
    fn empty(hot: HotFields) -> Self {
        Self {
            is_unshared: false,
            is_generalised: false,
            text: ChunkedBytes::Contiguous(Box::default()),
            placeholders: Box::default(),
            before: 0,
            templates: Box::default(),
            longest: 0,
            namespace: Arc::default(),
            hot,
            next: Mutex::new(Default::default()),
            only_user: Mutex::new(None),
            users: AtomicU8::new(0),
            is_superseded: AtomicBool::new(false),
            learned_in: AtomicU64::new(0),
        }
    }

    /// Returns the skeleton of unshared fragments, with the text of this one as dictionary.
    pub(super) fn unshared(&self) -> Self {
        let hot = match &self.hot {
            HotFields::Outer { name_prefix, .. } => HotFields::Outer {
                name_prefix: name_prefix.clone(),
                created: Source::Constant(0),
                generation: Source::Constant(0),
                statuses: Box::new(Mutex::new(Default::default())),
            },
            _ => HotFields::UnsharedPart,
        };
        let text = ChunkedBytes::Contiguous(self.text.to_vec().into());
        Self { is_unshared: true, text, namespace: Arc::clone(&self.namespace), ..Self::empty(hot) }
    }

    /// Returns the skeleton of each fragment of a Pod whose object is its whole JSON, with its sections or without.
    pub(super) fn whole(namespace: &str, templates: Box<[Template]>) -> Self {
        Self { is_unshared: true, namespace: namespace.into(), templates, ..Self::empty(HotFields::UnsharedPart) }
    }

    /// Interns the texts that are likely to have chunks in common with other skeletons.
    pub(super) fn share(&mut self, fragment: Fragment, key: &[u8], interner: &mut Interner) {
        // Objects around spec and status share little, and are compared faster in one piece.
        if fragment != Fragment::Object {
            self.text = interner.intern_json(key);
        }
        // A workload has many statuses, and therefore many encoded ones; the encoded spec is short.
        if fragment == Fragment::Status {
            self.templates.iter_mut().for_each(|template| template.share(interner));
        }
    }

    /// Returns the skeletons to which Pods with this one changed.
    pub(super) fn transitions(&self) -> [Option<Arc<Self>>; TRANSITIONS] {
        self.next.lock().each_ref().map(Weak::upgrade)
    }

    /// Records that a Pod changed from this skeleton to `next`.
    pub(super) fn record_transition(&self, next: &Arc<Self>) {
        if self.is_unshared || next.is_unshared {
            return;
        }
        let mut known = self.next.lock();
        if known.iter().all(|known| known.upgrade().is_none_or(|known| !Arc::ptr_eq(&known, next))) {
            known.rotate_right(1);
            known[0] = downgrade(next);
        }
    }

    /// Returns one of the latest statuses of Pods with this object.
    pub(super) fn latest_status(&self, at: usize) -> Option<Arc<Self>> {
        match &self.hot {
            HotFields::Outer { statuses, .. } => statuses.lock().get(at)?.upgrade(),
            _ => None,
        }
    }

    /// Records that a Pod with this object has this status.
    pub(super) fn record_status(&self, status: &Arc<Self>) {
        let HotFields::Outer { statuses, .. } = &self.hot else { return };
        if status.is_unshared {
            return;
        }
        let mut known = statuses.lock();
        if known.iter().all(|known| known.upgrade().is_none_or(|known| !Arc::ptr_eq(&known, status))) {
            known.rotate_right(1);
            known[0] = downgrade(status);
        }
    }

    /// Charges the namespace of the Pod that the skeleton was built for.
    pub(super) fn charged(self, charge: Charge) -> Self {
        Self { only_user: Mutex::new(Some(charge)), ..self }
    }

    #[cfg(test)]
    pub(super) fn charged_bytes(&self) -> Option<usize> {
        self.only_user.lock().as_ref().map(Charge::bytes)
    }

    /// Counts a Pod that has the skeleton now and did not have it before.
    pub(super) fn count_user(&self) {
        // Two threads may count one Pod at the same time; then the third Pod is the second user.
        match self.users.load(Relaxed) {
            0 => self.users.store(1, Relaxed),
            1 => {
                self.users.store(2, Relaxed);
                drop(self.only_user.lock().take());
            }
            _ => {}
        }
    }

    /// Records that a generalised skeleton also serves its Pods, so that no further Pod gets this one.
    pub(super) fn supersede(&self) {
        self.is_superseded.store(true, Relaxed);
    }

    pub(super) fn is_superseded(&self) -> bool {
        self.is_superseded.load(Relaxed)
    }

    /// Records that the namespace with this hash learned to generalise as this skeleton does.
    pub(super) fn learned_in(&self, namespace: u64) {
        if self.is_generalised {
            self.learned_in.fetch_or(1 << (namespace % 64), Relaxed);
        }
    }

    /// Returns false if only other namespaces learned to generalise like this skeleton, and true if that is unknown.
    pub(super) fn is_for(&self, namespace: u64) -> bool {
        !self.is_generalised || self.learned_in.load(Relaxed) & 1 << (namespace % 64) != 0
    }

    /// Returns true if only one Pod has ever had it.
    pub(super) fn has_one_user(&self) -> bool {
        self.users.load(Relaxed) < 2
    }

    /// Returns its approximate size in bytes, with what the pool's tables store for it.
    pub(super) fn size(&self) -> usize {
        const OF_TABLES: usize = 256;
        let bytes = self.text.len() + self.templates.iter().map(|template| template.bytes.len()).sum::<usize>();
        let holes = self.templates.iter().map(|template| size_of_val(&*template.holes)).sum::<usize>();
        size_of::<Self>() + OF_TABLES + bytes + holes + size_of_val(&*self.placeholders)
    }

    /// Returns the dictionary of the Pods' own texts.
    pub(super) fn dictionary(&self) -> &[u8] {
        self.text.contiguous().filter(|_| self.is_unshared).unwrap_or_default()
    }

    /// Returns its text as tokens.
    pub(super) fn tokens(&self) -> Tokens<'_> {
        Tokens::from(&self.text).plain(self.before)
    }

    /// Returns the number of its placeholders.
    pub(super) fn placeholders(&self) -> usize {
        self.placeholders.len()
    }

    /// Returns the bytes of a section if they contain no values.
    pub(super) fn fixed(&self, place: usize) -> Option<&[u8]> {
        let template = self.templates.get(place)?;
        template.bytes.contiguous().filter(|_| template.holes.is_empty())
    }

    /// Returns the bytes of a section with these values.
    pub(super) fn section(&self, place: usize, own: &[u8], identity: PodIdentity<'_>) -> Vec<u8> {
        self.templates[place].fill(&self.placeholders, &self.values(own, identity))
    }

    /// Returns one bit for each section that differs between two Pods of this skeleton, and [`ANY`] if any value does.
    /// Bytes of another process may have other forms of equal values.
    #[expect(clippy::expect_used, reason = "checked when the Pods were encoded")]
    pub(super) fn differing(&self, one: &[u8], other: &[u8]) -> u8 {
        let mut one = ValueReader::new(one);
        let mut other = ValueReader::new(other);
        let mut places = 0;
        for placeholder in self.placeholders.iter().filter(|placeholder| placeholder.kind.is_kept()) {
            let here = one.next(placeholder.kind).expect("values of the skeleton");
            if !here.is_same_text(other.next(placeholder.kind).expect("values of the skeleton")) {
                places |= placeholder.sections | ANY;
            }
        }
        places
    }

    /// Returns true if sections with these values, of JSON of this length, are short enough to encode.
    pub(super) fn has_encodable_sections(&self, own: &[u8], identity: PodIdentity<'_>, json: usize) -> bool {
        // Each value is in the JSON with at least one byte. A section has its text, and the length of its string in
        // eight bytes.
        const PER_BYTE: usize = 9;
        if self.is_unshared || self.longest as usize + PER_BYTE * json <= podium_wire::MAX_ENCODED_BYTES {
            return true;
        }
        let Some(values) = self.resolve(own, identity) else { return false };
        let length = |template: &Template| template.len(&self.placeholders, &values);
        self.templates.iter().all(|template| length(template) <= podium_wire::MAX_ENCODED_BYTES)
    }

    /// Returns true if a section is the same for two Pods of this skeleton, whatever their names and uids.
    pub(super) fn is_alike(&self, place: usize, one: &[u8], other: &[u8]) -> bool {
        let is_kept = |hole: &Hole| resolved_kind(&self.placeholders, usize::from(hole.placeholder)).is_kept();
        self.templates[place].holes.iter().all(is_kept) && self.differing(one, other) & 1 << place == 0
    }

    /// Returns true if a section has the same bytes with this skeleton and values as with another one.
    pub(super) fn is_same(&self, place: usize, own: &[u8], other: (&Self, &[u8]), identity: PodIdentity<'_>) -> bool {
        let here = &self.templates[place];
        let there = &other.0.templates[place];
        if here.holes.is_empty() && there.holes.is_empty() {
            return here.bytes == there.bytes;
        }
        !here.differs_always(&self.placeholders, there, &other.0.placeholders)
            && self.section(place, own, identity) == other.0.section(place, other.1, identity)
    }

    /// Returns true if the JSON is the same with this skeleton and values as with another one, ignoring the revision.
    #[expect(clippy::expect_used, reason = "skeletons are parsed when they are built")]
    pub(super) fn is_same_json(&self, own: &[u8], other: (&Self, &[u8]), identity: PodIdentity<'_>) -> bool {
        if own == other.1 && self.text == other.0.text {
            return true;
        }
        let values = self.values(own, identity);
        let others = other.0.values(other.1, identity);
        let is_same = Json::new(self.tokens(), &values).equals(Json::new(other.0.tokens(), &others));
        is_same.expect("skeletons with their values")
    }

    /// Returns the values of all placeholders, or `None` if `own` are not values of this skeleton.
    pub(super) fn resolve<'a>(&self, own: &'a [u8], identity: PodIdentity<'a>) -> Option<Resolved<'a>> {
        resolve(&self.placeholders, own, identity)
    }

    /// Returns true if `own` are values of this skeleton.
    pub(super) fn has_values(&self, own: &[u8], identity: PodIdentity<'_>) -> bool {
        let mut values = ValueReader::new(own);
        let is_value = |placeholder: &Placeholder| match placeholder.kind {
            Kind::Ordinal => forms::ordinal(identity.name.as_bytes()).is_some(),
            Kind::Run => forms::run(identity.name.as_bytes()).is_some(),
            kind => !kind.is_kept() || values.next(kind).is_some(),
        };
        self.placeholders.iter().all(is_value) && values.is_empty()
    }

    /// Returns the values of all placeholders. `own` must be values of this skeleton, as those of a [`Packed`] are.
    ///
    /// [`Packed`]: super::Packed
    #[expect(clippy::expect_used, reason = "checked when the Pod was encoded or came from another process")]
    pub(super) fn values<'a>(&self, own: &'a [u8], identity: PodIdentity<'a>) -> Resolved<'a> {
        self.resolve(own, identity).expect("values of the skeleton")
    }
}
