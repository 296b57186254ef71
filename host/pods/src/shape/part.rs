//! What Pods of one workload share of one part: its JSON and its encoded sections, with places for what is each Pod's
//! own.
//!
//! How a value's way into the sections is known: the part is rendered with sentinels in the place of its values,
//! decoded and encoded as any Pod is, and the sentinels are found in the bytes. That is sound as far as the decoder
//! passes such values on unseen; that it did is checked on the Pod at hand, whose sections must come out as they would
//! directly.

use std::{
    borrow::Cow,
    fmt,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed},
    },
};

use foldhash::quality::FixedState;
use podium_wire::{Header, Pod, Section, SectionBytes};

use super::{
    key::{self, Leaf, Resolved, Token, Tokens, real, resolve},
    leaf::{self, Kind, MARK, Value, Values},
    pieces::{Text, Texts},
    scan::{OUTER, PARTS, SPEC, STATUS},
    structure::Structure,
    template::{Hole, Template, number_of},
};
use crate::sync::{Mutex, Weak, downgrade};

/// Whose a Pod is: what its key and its revision hold need not be kept again.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    pub name: &'a str,
    pub uid: &'a str,
    pub revision: u64,
}

/// Sentinels are numbered through all parts.
pub(super) const MAX_LEAVES: usize = 10_000;

/// Where a section is: its part, and its place among the part's. None for the one that is in all of them.
pub(super) fn place(section: Section) -> Option<(usize, usize)> {
    match section {
        Section::Labels => Some((OUTER, 0)),
        Section::Annotations => Some((OUTER, 1)),
        Section::Owners => Some((OUTER, 2)),
        Section::Lifecycle => Some((OUTER, 3)),
        Section::Spec => Some((SPEC, 0)),
        Section::Status => Some((STATUS, 0)),
        Section::Full => None,
    }
}

/// The sections of a part, and their places.
pub(super) fn sections(part: usize) -> impl Iterator<Item = (Section, usize)> {
    let of_part = move |section| place(section).filter(|(of, _)| *of == part).map(|(_, place)| (section, place));
    Section::ALL.into_iter().filter_map(of_part)
}

/// A value that is fixed, or a leaf.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Slot<T> {
    Fixed(T),
    Leaf(usize),
}

pub(super) struct Part {
    /// Of the outer part: the others stand within it undivided.
    pub(super) is_whole: bool,
    /// Some strings are values of each Pod.
    pub(super) is_generalised: bool,
    /// Empty for a part that is not there, and for spec and status of a Pod that is kept undivided: its outer part has
    /// all. That of the outer part is whole.
    pub(super) key: Text,
    pub(super) leaves: Box<[Leaf]>,
    /// How many bytes of the key come before the first mark.
    before: u32,
    templates: Box<[Template]>,
    /// Of the outer part.
    pub(super) namespace: Arc<str>,
    facts: Facts,
    /// What Pods of this part had next, the last first: states follow each other as they did before.
    next: Mutex<[Weak<Part>; SUCCESSORS]>,
    /// Set while one Pod alone has used it: what it takes from its namespace's room.
    only_user: Mutex<Option<Charge>>,
    users: AtomicU8,
}

/// How many bytes of its namespace's parts have one user each.
pub(super) type Account = Arc<AtomicUsize>;

/// Bytes of an account, given back when dropped.
#[derive(Debug)]
pub(super) struct Charge {
    account: Account,
    bytes: usize,
}

impl Charge {
    /// None if the account would have more than `most`.
    pub(super) fn new(account: &Account, bytes: usize, most: usize) -> Option<Self> {
        let before = account.fetch_add(bytes, Relaxed);
        let charge = Self { account: Arc::clone(account), bytes };
        (before + bytes <= most).then_some(charge)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.fetch_sub(self.bytes, Relaxed);
    }
}

/// What is asked of a Pod so often that it need not be looked for in a section.
enum Facts {
    Outer {
        /// What the names of its Pods may begin with.
        name_prefix: Box<str>,
        /// Milliseconds of the epoch.
        created: Slot<i64>,
        generation: i64,
    },
    Spec {
        node: Slot<Option<Box<str>>>,
        /// What follows the leaf of the node's name in it.
        domain: Box<str>,
    },
    Status {
        phase: Slot<Box<str>>,
    },
}

/// How many successors of a part are remembered.
pub(super) const SUCCESSORS: usize = 4;

impl fmt::Debug for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.key.to_vec();
        formatter
            .debug_struct("Part")
            .field("key", &String::from_utf8_lossy(&key))
            .field("leaves", &self.leaves.len())
            .finish_non_exhaustive()
    }
}

/// The outer part of a Pod of which only another part matters.
fn bystander() -> Vec<u8> {
    let part = |part: usize| [MARK, Kind::Part as u8, part as u8];
    let head = br#"{"metadata":{"namespace":"n","name":"n","uid":"u","resourceVersion":"1"},"spec":"#;
    [&head[..], &part(SPEC), br#","status":"#, &part(STATUS), b"}"].concat()
}

/// Builds a part of a Pod from its key, and its own values by which it is proven. None where it is not.
///
/// The rest of the Pod is left out: the decoder passes nothing from one part to another.
pub(super) fn build(part: usize, key: &[u8], own: &[u8], identity: Identity<'_>) -> Option<Part> {
    let mut leaves = key::leaves(key)?;
    // One Pod cannot prove that any string may be here.
    let is_generalised = leaves.iter().any(|leaf| leaf.kind == Kind::String);
    if is_generalised && !Structure::of(part, key, FixedState::default().build_hasher())?.is_sound(key)? {
        return None;
    }
    let values = resolve(&leaves, own, identity)?;
    let outer = bystander();
    let mut keys = [&*outer, b"{}", b"{}"];
    // What is not there is decoded as what is empty.
    keys[part] = if key.is_empty() { b"{}" } else { key };
    let decode = |write: &dyn Fn(usize, &mut Vec<u8>) -> Option<()>| {
        let json = key::render(keys.map(Tokens::from), |of, at, out| if of == part { write(at, out) } else { None })?;
        podium_wire::json::decode(&json).ok()
    };
    let actual = decode(&|at, out| {
        values.get(at)?.write(out);
        Some(())
    })?;
    let traced = decode(&|at, out| {
        key::write_sentinel(real(&leaves, at), part * MAX_LEAVES + at, out);
        Some(())
    })?;
    let (traced_bytes, actual_bytes) = (SectionBytes::encode(&traced).ok()?, SectionBytes::encode(&actual).ok()?);
    let mut templates = Vec::new();
    for (section, _) in sections(part) {
        let template = Template::trace(traced_bytes.get(section), part, &leaves)?;
        if template.fill(&leaves, &values) != actual_bytes.get(section) {
            return None;
        }
        for hole in &template.holes {
            mark(&mut leaves, usize::from(hole.leaf), 1 << templates.len());
        }
        templates.push(template);
    }
    // The leaf that is the whole of a text, if one is.
    let leaf = |text: &str| {
        number_of(text.as_bytes()).and_then(|at| at.checked_sub(part * MAX_LEAVES)).filter(|at| *at < leaves.len())
    };
    let facts = match part {
        OUTER => {
            let created = usize::try_from(traced.header.created.0 / 1_000 - leaf::sentinel_time(0)).ok();
            let created = created.filter(|at| leaves.get(*at).is_some_and(|leaf| leaf.kind == Kind::Time));
            Facts::Outer {
                name_prefix: generate_name(key).into(),
                created: created.map_or(Slot::Fixed(actual.header.created.0), Slot::Leaf),
                generation: traced.header.generation,
            }
        }
        SPEC => {
            let node = traced.spec.node_name.as_deref();
            let of_leaf = node.and_then(|name| {
                let (own, domain) = name.split_at_checked(leaf::sentinel_text(0).len())?;
                Some((leaf(own)?, domain))
            });
            match of_leaf {
                Some((leaf, domain)) => Facts::Spec { node: Slot::Leaf(leaf), domain: domain.into() },
                None => Facts::Spec { node: Slot::Fixed(node.map(Box::from)), domain: Box::default() },
            }
        }
        _ => {
            let phase = &*traced.status.phase;
            let phase = leaf(phase).map_or_else(|| Slot::Fixed(phase.into()), Slot::Leaf);
            Facts::Status { phase }
        }
    };
    let built = Part {
        key: Text::Whole(key.into()),
        before: key::before_marks(key),
        is_whole: false,
        is_generalised,
        templates: templates.into(),
        namespace: if part == OUTER { actual.header.namespace.as_str().into() } else { Arc::default() },
        facts,
        leaves,
        next: Mutex::new(Default::default()),
        only_user: Mutex::new(None),
        users: AtomicU8::new(0),
    };
    let proven = match part {
        OUTER => {
            let Header { created, generation, .. } = actual.header;
            built.created(own, identity) == created.0 && built.generation() == generation
        }
        SPEC => built.node(own, identity).as_deref() == actual.spec.node_name.as_deref(),
        _ => built.phase(own, identity) == actual.status.phase,
    };
    proven.then_some(built)
}

/// A section holds the value of a leaf, which may be that of an earlier one.
fn mark(leaves: &mut [Leaf], at: usize, section: u8) {
    leaves[at].sections |= section;
    if leaves[at].kind == Kind::Same {
        mark(leaves, usize::from(leaves[at].place), section);
    }
}

/// The text of `generateName` in a key. Any text would do, but from this one most names follow.
pub(super) fn generate_name(key: &[u8]) -> &str {
    const MEMBER: &[u8] = br#""generateName":""#;
    let from = key.windows(MEMBER.len()).position(|window| window == MEMBER).map(|at| &key[at + MEMBER.len()..]);
    let text = from.and_then(|from| from.split(|byte| matches!(*byte, b'"' | b'\\' | MARK)).next());
    text.and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
}

/// Parts that nobody shares, of a Pod that is kept undivided. None where this is no key.
pub(super) fn unshared(pod: &Pod, bytes: &SectionBytes, key: &[u8]) -> Option<[Part; PARTS]> {
    let namespace: Arc<str> = pod.header.namespace.as_str().into();
    let mut leaves = [key::leaves(key)?, Box::default(), Box::default()];
    Some([OUTER, SPEC, STATUS].map(|part| {
        Part {
            key: Text::Whole(if part == OUTER { key.into() } else { Box::default() }),
            before: 0,
            is_whole: part == OUTER,
            is_generalised: false,
            leaves: std::mem::take(&mut leaves[part]),
            templates: sections(part)
                .map(|(section, _)| Template { bytes: Text::Whole(bytes.get(section).into()), holes: Box::default() })
                .collect(),
            namespace: Arc::clone(&namespace),
            facts: match part {
                OUTER => Facts::Outer {
                    name_prefix: Box::default(),
                    created: Slot::Fixed(pod.header.created.0),
                    generation: pod.header.generation,
                },
                SPEC => Facts::Spec {
                    node: Slot::Fixed(pod.spec.node_name.as_deref().map(Box::from)),
                    domain: Box::default(),
                },
                _ => Facts::Status { phase: Slot::Fixed(pod.status.phase.as_str().into()) },
            },
            next: Mutex::new(Default::default()),
            only_user: Mutex::new(None),
            users: AtomicU8::new(0),
        }
    }))
}

impl Part {
    /// Keeps in pieces that other parts have too what is worth it.
    pub(super) fn share(&mut self, part: usize, key: &[u8], texts: &mut Texts) {
        // What is outside has little that others have; it is compared from its beginning to before the spec at once.
        if part != OUTER {
            self.key = texts.share(key);
        }
        // There are many of a workload, as there are of their keys; a spec's section is short.
        if part == STATUS {
            self.templates.iter_mut().for_each(|template| template.share(texts));
        }
    }

    /// What Pods of this part had next.
    pub(super) fn successors(&self) -> [Option<Arc<Self>>; SUCCESSORS] {
        self.next.lock().each_ref().map(Weak::upgrade)
    }

    /// A Pod of this part has that one now.
    pub(super) fn followed_by(&self, next: &Arc<Self>) {
        let mut known = self.next.lock();
        if known.iter().all(|known| known.upgrade().is_none_or(|known| !Arc::ptr_eq(&known, next))) {
            known.rotate_right(1);
            known[0] = downgrade(next);
        }
    }

    /// As one that was made for one Pod, whose namespace has this charge.
    pub(super) fn charged(self, charge: Charge) -> Self {
        Self { only_user: Mutex::new(Some(charge)), ..self }
    }

    /// Another Pod, or the first one, has it now.
    pub(super) fn adopted(&self) {
        // Two threads that count one Pod each may count one: then a third Pod decides.
        match self.users.load(Relaxed) {
            0 => self.users.store(1, Relaxed),
            1 => {
                self.users.store(2, Relaxed);
                drop(self.only_user.lock().take());
            }
            _ => {}
        }
    }

    /// True if one Pod alone has ever had it.
    pub(super) fn has_one_user(&self) -> bool {
        self.users.load(Relaxed) < 2
    }

    /// About how many bytes it has.
    pub(super) fn size(&self) -> usize {
        self.key.len() + self.templates.iter().map(|template| template.bytes.len()).sum::<usize>()
    }

    /// Its key.
    pub(super) fn tokens(&self) -> Tokens<'_> {
        Tokens::from(&self.key).plain(self.before)
    }

    /// How many leaves a Pod of this part has.
    pub(super) fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// The bytes of a section, where they are the same for every Pod of this part.
    pub(super) fn fixed(&self, place: usize) -> Option<&[u8]> {
        let template = &self.templates[place];
        template.bytes.whole().filter(|_| template.holes.is_empty())
    }

    /// The bytes of a section.
    pub(super) fn section(&self, place: usize, own: &[u8], identity: Identity<'_>) -> Vec<u8> {
        // What was kept was read by these very leaves.
        let values = resolve(&self.leaves, own, identity).unwrap_or_default();
        self.templates[place].fill(&self.leaves, &values)
    }

    /// The places of sections that differ between two Pods of this part. None where these are not its values.
    pub(super) fn differing(&self, one: &[u8], other: &[u8]) -> Option<u8> {
        let (mut one, mut other) = (Values::new(one), Values::new(other));
        let mut places = 0;
        for leaf in self.leaves.iter().filter(|leaf| leaf.kind.is_kept()) {
            if !one.next(leaf.kind)?.is_same_text(other.next(leaf.kind)?) {
                places |= leaf.sections;
            }
        }
        Some(places)
    }

    /// True when a section is the same for two Pods of this part, whoever they are.
    pub(super) fn is_alike(&self, place: usize, one: &[u8], other: &[u8]) -> bool {
        let is_kept = |hole: &Hole| real(&self.leaves, usize::from(hole.leaf)).is_kept();
        self.templates[place].holes.iter().all(is_kept)
            && self.differing(one, other).is_some_and(|places| places & 1 << place == 0)
    }

    /// True when a section of a Pod of this part has the same bytes as that of a Pod of another.
    pub(super) fn is_same(&self, place: usize, own: &[u8], other: (&Self, &[u8]), identity: Identity<'_>) -> bool {
        let (here, there) = (&self.templates[place], &other.0.templates[place]);
        if here.holes.is_empty() && there.holes.is_empty() {
            return here.bytes == there.bytes;
        }
        !here.differs_always(&self.leaves, there, &other.0.leaves)
            && self.section(place, own, identity) == other.0.section(place, other.1, identity)
    }

    /// True when the JSON of a Pod of this part is that of a Pod of another, the revision aside.
    pub(super) fn is_same_json(&self, own: &[u8], other: (&Self, &[u8]), identity: Identity<'_>) -> bool {
        // JSON is its key and its values. One text has two keys only where a string of one of them is generalised.
        if !self.is_generalised && !other.0.is_generalised {
            return own == other.1 && self.key == other.0.key;
        }
        self.json(own, identity) == other.0.json(other.1, identity)
    }

    /// The JSON, with marks where other parts go.
    fn json(&self, own: &[u8], identity: Identity<'_>) -> Option<Vec<u8>> {
        let (mut tokens, mut out) = (self.tokens(), Vec::with_capacity(self.key.len() + own.len()));
        let values = self.values(own, identity)?;
        let mut values = values.iter();
        while let Some(token) = tokens.next()? {
            match token {
                Token::Literal(literal) => out.extend_from_slice(literal),
                Token::Leaf(..) => values.next()?.write(&mut out),
                Token::Part(part) => out.extend([MARK, Kind::Part as u8, part as u8]),
            }
        }
        Some(out)
    }

    pub(super) fn name_prefix(&self) -> &str {
        match &self.facts {
            Facts::Outer { name_prefix, .. } => name_prefix,
            _ => "",
        }
    }

    pub(super) fn generation(&self) -> i64 {
        match self.facts {
            Facts::Outer { generation, .. } => generation,
            _ => 0,
        }
    }

    pub(super) fn values<'a>(&self, own: &'a [u8], identity: Identity<'a>) -> Option<Resolved<'a>> {
        resolve(&self.leaves, own, identity)
    }

    pub(super) fn created(&self, own: &[u8], identity: Identity<'_>) -> i64 {
        match self.facts {
            Facts::Outer { created: Slot::Fixed(millis), .. } => millis,
            Facts::Outer { created: Slot::Leaf(at), .. } => self.time(own, identity, at).unwrap_or_default(),
            _ => 0,
        }
    }

    fn time(&self, own: &[u8], identity: Identity<'_>, at: usize) -> Option<i64> {
        match resolve(&self.leaves, own, identity)?.get(at)? {
            Value::Time(seconds) => Some(seconds * 1_000),
            _ => None,
        }
    }

    pub(super) fn node<'a>(&'a self, own: &'a [u8], identity: Identity<'a>) -> Option<Cow<'a, str>> {
        let Facts::Spec { node, domain } = &self.facts else { return None };
        match node {
            Slot::Fixed(node) => node.as_deref().map(Cow::Borrowed),
            Slot::Leaf(at) => {
                let own = self.text(own, identity, *at)?;
                Some(if domain.is_empty() { own.into() } else { [own, domain].concat().into() })
            }
        }
    }

    pub(super) fn phase<'a>(&'a self, own: &'a [u8], identity: Identity<'a>) -> &'a str {
        match &self.facts {
            Facts::Status { phase: Slot::Fixed(phase), .. } => phase,
            Facts::Status { phase: Slot::Leaf(at), .. } => self.text(own, identity, *at).unwrap_or_default(),
            _ => "",
        }
    }

    fn text<'a>(&'a self, own: &'a [u8], identity: Identity<'a>, at: usize) -> Option<&'a str> {
        match resolve(&self.leaves, own, identity)?.get(at)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}
