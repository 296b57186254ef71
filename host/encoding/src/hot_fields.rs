//! Fields of a Pod that the cache reads often: a skeleton has them as constants, or the number of the placeholder that
//! has the value, so that no section is decoded for them.

use std::borrow::Cow;

use podium_sync::{Mutex, Weak};
use podium_wire::Pod;

use super::{
    fragment::Fragment,
    placeholder::{self, Kind, PLACEHOLDER, Value},
    skeleton::{MAX_PLACEHOLDERS, PodIdentity, STATUSES, Skeleton},
    template::number_of,
    tokens::Placeholder,
};

/// A constant of the skeleton, or the number of the placeholder that has the value.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Source<T> {
    Constant(T),
    Placeholder(usize),
}

/// Fields that are read so often that they are available without decoding a section.
pub(super) enum HotFields {
    Outer {
        /// A prefix that the names of its Pods may have.
        name_prefix: Box<str>,
        /// Epoch milliseconds.
        created: Source<i64>,
        generation: Source<i64>,
        /// The statuses that Pods with this object had, the latest first. A Pod often gets a status that its neighbours
        /// had before, in an order that no Pod had before.
        statuses: Box<Mutex<[Weak<Skeleton>; STATUSES]>>,
    },
    Spec {
        node: Source<Option<Box<str>>>,
        /// The literal after the placeholder of the node's name.
        domain: Box<str>,
    },
    Status {
        phase: Source<Box<str>>,
    },
    /// Each Pod has its own.
    UnsharedPart,
}

impl HotFields {
    /// Returns the fields of a skeleton with this text; `traced` is decoded from the text with sentinels.
    pub(super) fn new(fragment: Fragment, key: &[u8], traced: &Pod, placeholders: &[Placeholder]) -> Self {
        // The placeholder that a string consists of.
        let placeholder = |text: &str| {
            number_of(text.as_bytes())
                .and_then(|at| at.checked_sub(fragment as usize * MAX_PLACEHOLDERS))
                .filter(|at| *at < placeholders.len())
        };
        match fragment {
            Fragment::Object => {
                let created = usize::try_from(traced.header.created.0 / 1_000 - placeholder::sentinel_time(0)).ok();
                let created = created
                    .filter(|at| placeholders.get(*at).is_some_and(|placeholder| placeholder.kind == Kind::Time));
                let generation = traced.header.generation.checked_sub(placeholder::sentinel_count(0).into());
                let generation = generation
                    .and_then(|at| usize::try_from(at).ok())
                    .filter(|at| placeholders.get(*at).is_some_and(|placeholder| placeholder.kind == Kind::Generation));
                // If another value is part of one of these, the constant is a sentinel, and the skeleton is refused.
                Self::Outer {
                    name_prefix: generate_name(key).into(),
                    created: created.map_or(Source::Constant(traced.header.created.0), Source::Placeholder),
                    generation: generation.map_or(Source::Constant(traced.header.generation), Source::Placeholder),
                    statuses: Box::new(Mutex::new(Default::default())),
                }
            }
            Fragment::Spec => {
                let node = traced.spec.node_name.as_deref();
                let of_leaf = node.and_then(|name| {
                    let (own, domain) = name.split_at_checked(placeholder::sentinel_text(0).len())?;
                    Some((placeholder(own)?, domain))
                });
                match of_leaf {
                    Some((placeholder, domain)) => {
                        Self::Spec { node: Source::Placeholder(placeholder), domain: domain.into() }
                    }
                    None => Self::Spec { node: Source::Constant(node.map(Box::from)), domain: Box::default() },
                }
            }
            _ => {
                let phase = &*traced.status.phase;
                let phase = placeholder(phase).map_or_else(|| Source::Constant(phase.into()), Source::Placeholder);
                Self::Status { phase }
            }
        }
    }
}

/// Returns the `generateName` in a skeleton's text, with which most names begin.
pub(super) fn generate_name(key: &[u8]) -> &str {
    const MEMBER: &[u8] = br#""generateName":""#;
    let from = key.windows(MEMBER.len()).position(|window| window == MEMBER).map(|at| &key[at + MEMBER.len()..]);
    let text = from.and_then(|from| from.split(|byte| matches!(*byte, b'"' | b'\\' | PLACEHOLDER)).next());
    text.and_then(|text| str::from_utf8(text).ok()).unwrap_or_default()
}

impl Skeleton {
    pub(super) fn name_prefix(&self) -> &str {
        match &self.hot {
            HotFields::Outer { name_prefix, .. } => name_prefix,
            _ => "",
        }
    }

    /// Returns the creation time in milliseconds since 1970, and the generation.
    pub(super) fn created_and_generation(&self, own: &[u8], identity: PodIdentity<'_>) -> (i64, i64) {
        let HotFields::Outer { created, generation, .. } = &self.hot else { return (0, 0) };
        if let (Source::Constant(created), Source::Constant(generation)) = (created, generation) {
            return (*created, *generation);
        }
        let values = self.values(own, identity);
        let created = match created {
            Source::Constant(millis) => *millis,
            Source::Placeholder(at) => match values[*at] {
                Value::Time(seconds) => seconds * 1_000,
                // A skeleton is built only if the field can be read from it; the same holds for the others.
                _ => 0,
            },
        };
        let generation = match generation {
            Source::Constant(generation) => *generation,
            Source::Placeholder(at) => match values[*at] {
                Value::Count(generation) => generation.into(),
                _ => 0,
            },
        };
        (created, generation)
    }

    pub(super) fn node<'a>(&'a self, own: &'a [u8], identity: PodIdentity<'a>) -> Option<Cow<'a, str>> {
        let HotFields::Spec { node, domain } = &self.hot else { return None };
        match node {
            Source::Constant(node) => node.as_deref().map(Cow::Borrowed),
            Source::Placeholder(at) => {
                let mut name = Vec::with_capacity(64);
                match self.values(own, identity)[*at] {
                    Value::Text(own) if domain.is_empty() => return Some(own.into()),
                    own => own.write(&mut name),
                }
                name.extend_from_slice(domain.as_bytes());
                String::from_utf8(name).ok().map(Cow::Owned)
            }
        }
    }

    pub(super) fn phase<'a>(&'a self, own: &'a [u8], identity: PodIdentity<'a>) -> &'a str {
        match &self.hot {
            HotFields::Status { phase: Source::Constant(phase), .. } => phase,
            HotFields::Status { phase: Source::Placeholder(at), .. } => match self.values(own, identity)[*at] {
                Value::Text(text) => text,
                _ => "",
            },
            _ => "",
        }
    }
}
