//! The objects of one step, found by kind and by controller.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{Kind, object, time};

/// Names beyond this length are cut before letters are appended, so that a generated name is a valid label.
const LONGEST_PREFIX: usize = 58;
const LETTERS: usize = 5;

/// All objects at one time.
pub(crate) struct World<'a> {
    pub(crate) now: i64,
    all: BTreeMap<Kind, Vec<&'a Value>>,
    /// By kind of the dependent and uid of its controller.
    owned: BTreeMap<Kind, BTreeMap<&'a str, Vec<&'a Value>>>,
    /// Objects without a controller, by kind and namespace.
    orphans: BTreeMap<Kind, BTreeMap<&'a str, Vec<&'a Value>>>,
    names: BTreeSet<(Kind, &'a str, &'a str)>,
}

impl<'a> World<'a> {
    pub(crate) fn new(objects: impl IntoIterator<Item = &'a Value>, now: i64) -> Self {
        let mut world = Self {
            now,
            all: BTreeMap::new(),
            owned: BTreeMap::new(),
            orphans: BTreeMap::new(),
            names: BTreeSet::new(),
        };
        for object in objects {
            let meta = (object::text(object, &["apiVersion"]), object::text(object, &["kind"]));
            let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.type_meta() == meta) else { continue };
            let namespace = object::namespace(object);
            if object::uid(object).is_empty() || !world.names.insert((kind, namespace, object::name(object))) {
                continue;
            }
            world.all.entry(kind).or_default().push(object);
            let (place, key) = match object::controller(object) {
                Some(owner) => (&mut world.owned, object::text(owner, &["uid"])),
                None => (&mut world.orphans, namespace),
            };
            place.entry(kind).or_default().entry(key).or_default().push(object);
        }
        world
    }

    pub(crate) fn all(&self, kind: Kind) -> &[&'a Value] {
        self.all.get(&kind).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the objects whose controller has this uid.
    pub(crate) fn owned(&self, kind: Kind, uid: &str) -> &[&'a Value] {
        self.owned.get(&kind).and_then(|owned| owned.get(uid)).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn orphans(&self, kind: Kind, namespace: &str) -> &[&'a Value] {
        self.orphans.get(&kind).and_then(|orphans| orphans.get(namespace)).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn is_taken(&self, kind: Kind, namespace: &str, name: &str) -> bool {
        self.names.contains(&(kind, namespace, name))
    }

    pub(crate) fn now_text(&self) -> String {
        time::format(self.now)
    }

    /// Returns names of new Pods of an owner: `prefix` and letters that depend on the owner's version, so that a Pod
    /// does not get the name of a deleted one.
    pub(crate) fn pod_names(&self, owner: &Value, prefix: &str, count: usize) -> Vec<String> {
        let mut end = prefix.len().min(LONGEST_PREFIX);
        while !prefix.is_char_boundary(end) {
            end -= 1;
        }
        let prefix = prefix.get(..end).unwrap_or_default();
        let version = object::text(owner, &["metadata", "resourceVersion"]);
        let now = self.now.to_string();
        let mut names: Vec<String> = Vec::new();
        let mut used = BTreeSet::new();
        let candidates = (0_u64..).map(|attempt| {
            let hash = object::hash(&[object::uid(owner), version, &now, &attempt.to_string()]);
            format!("{prefix}{}", object::letters(hash, LETTERS))
        });
        let free = |name: &String| !self.is_taken(Kind::Pod, object::namespace(owner), name);
        names.extend(candidates.filter(free).filter(|name| used.insert(name.clone())).take(count));
        names
    }
}
