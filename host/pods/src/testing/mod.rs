//! Pods and plugins for the tests of this crate and of the crates above it, and assertions of such tests. No other code
//! uses it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use podium_vocabulary::{
    Grants, LabelOperator, LabelRequirement, LabelSelector, Limits, Phase, PluginId, PluginSpec, Source, WatchSpec,
};
use podium_wire::{Header, Owner, Pod, Spec, Status};

use crate::{
    cache::Snapshot,
    pod::{CachedPod, Change, PodView},
};

/// A text of a guest that would forge lines and fields, control a terminal, reorder text and hide in it.
pub const NASTY: &str = "a\n2026-01-01T00:00:00Z ERROR podium: forged=1\r\u{1b}[2J\u{1b}]0;title\u{7}\u{0}\t\u{7f}\
    \u{85}\u{9b}31m\u{2028}b\u{2029}c\u{202e}drowssap\u{202c}\u{2066}d\u{2069}\u{200f}\u{61c}\u{200b}\u{2060}\u{feff}\
    \u{ad}\u{e0041}\u{e007f}";

/// Fails unless `text` is one line of at most `most` bytes in which nothing of [`NASTY`] has an effect.
#[track_caller]
pub fn assert_clean(text: &str, most: usize) {
    let has_effect = |character: char| character.is_control() || (!character.is_ascii() && NASTY.contains(character));
    assert!(!text.contains(has_effect), "{text:?}");
    assert!(text.len() <= most, "{} bytes, at most {most}: {text:?}", text.len());
}

/// A plugin without grants that watches all Pods, or those of its namespace.
pub fn plugin(namespace: Option<&str>, name: &str) -> PluginSpec {
    PluginSpec {
        id: PluginId { namespace: namespace.map(Arc::from), name: name.into() },
        source: Source::File(format!("{name}.wasm").into()),
        language: None,
        suspend: false,
        impersonate: None,
        watch: WatchSpec::default(),
        grants: Grants::default(),
        limits: Limits::default(),
        phase: Phase::Main,
        after: Vec::new(),
        state_group: None,
        release_after: None,
        inputs: Vec::new(),
        config: "{}".into(),
    }
}

/// A selector of Pods with this label.
pub fn selector(key: &str, value: &str) -> LabelSelector {
    let operator = LabelOperator::In;
    let values = vec![value.to_owned()];
    LabelSelector(vec![LabelRequirement { key: key.to_owned(), operator, values }])
}

/// A Pod in namespace "shop" with one label, a node, an owner and a phase.
pub fn pod(name: &str, uid: &str, revision: u64, label: &str) -> Pod {
    Pod {
        header: Header {
            namespace: "shop".into(),
            name: name.into(),
            uid: uid.into(),
            resource_version: revision.to_string(),
            ..Header::default()
        },
        labels: [("app".to_owned(), label.to_owned())].into(),
        owners: vec![Owner { uid: format!("owner-of-{label}"), ..Owner::default() }],
        spec: Spec { node_name: Some(format!("node-of-{label}")), ..Spec::default() },
        status: Status { phase: format!("phase-of-{label}"), ..Status::default() },
        ..Pod::default()
    }
}

/// Packs a Pod, as the cache stores it.
pub fn cached(pod: &Pod) -> Arc<CachedPod> {
    Arc::new(CachedPod::new(pod).unwrap())
}

/// Formats changes: "+uid@revision" for an addition, "-uid@revision" for a deletion, "uid@old>new" for a change.
pub fn summary(changes: &[Change]) -> Vec<String> {
    let one = |change: &Change| match (&change.old, &change.new) {
        (Some(old), Some(new)) => format!("{}@{}>{}", new.key.uid, old.revision, new.revision),
        (Some(old), None) => format!("-{}@{}", old.key.uid, old.revision),
        (None, Some(new)) => format!("+{}@{}", new.key.uid, new.revision),
        (None, None) => "nothing".to_owned(),
    };
    changes.iter().map(one).collect()
}

/// Pods by name.
pub type Pods = BTreeMap<Arc<str>, Arc<CachedPod>>;

/// A subscriber that sees only the changes, and fails if one contradicts those before it: if it is reported twice or
/// too late, does not begin at the state where the last one ended, or goes back in time.
#[derive(Default)]
pub struct ChangeChecker {
    /// The Pods after the changes so far, by name.
    pub present: Pods,
    /// The uids of deleted Pods.
    deleted: BTreeSet<Arc<str>>,
    /// True if the next changes begin an epoch.
    rolled_back: bool,
}

impl ChangeChecker {
    /// Records that the history was rolled back: later changes may be older, and may restore deleted Pods.
    pub fn roll_back(&mut self) {
        self.deleted.clear();
        self.rolled_back = true;
    }

    /// Checks and applies the next changes.
    pub fn apply(&mut self, changes: &[Change]) -> Result<(), String> {
        for Change { old, new, .. } in changes {
            let name = &old.as_ref().or(new.as_ref()).unwrap().key.name;
            let last = self.present.get(name);
            ensure(last.map(|pod| &pod.key) == old.as_ref().map(|pod| &pod.key), || {
                format!("{name} was {last:?}, and the change begins with {old:?}")
            })?;
            if let (Some(last), Some(old)) = (last, old) {
                ensure(last.changed_from(old).is_empty(), || format!("{name} was {last:?}, and not {old:?}"))?;
            }
            match new {
                Some(new) => {
                    ensure(!self.deleted.contains(&new.key.uid), || format!("{} came back", new.key.uid))?;
                    let later = last.is_none_or(|old| old.revision < new.revision);
                    ensure(later || self.rolled_back, || format!("{name} went back"))?;
                    self.present.insert(Arc::clone(name), Arc::clone(new));
                }
                None => {
                    let old = self.present.remove(name).unwrap();
                    self.deleted.insert(Arc::clone(&old.key.uid));
                }
            }
        }
        Ok(())
    }

    /// Checks that readers see the reported Pods, and no others.
    pub fn agrees_with(&self, snapshot: &Snapshot) -> Result<(), String> {
        same_sections(snapshot, &self.present)
    }
}

/// Checks that a snapshot has these Pods, with these sections, and no others.
pub fn same_sections(snapshot: &Snapshot, expected: &Pods) -> Result<(), String> {
    ensure(snapshot.len() == expected.len(), || format!("{} Pods, expected {}", snapshot.len(), expected.len()))?;
    for (pod, expected) in snapshot.iter().zip(expected.values()) {
        let same = pod.key == expected.key && pod.changed_from(expected).is_empty();
        ensure(same, || format!("{pod:?}, expected {expected:?}"))?;
        let by_uid = snapshot.by_uid(&pod.key.uid);
        ensure(by_uid.as_ref() == Some(&pod), || format!("{pod:?} is {by_uid:?} by its uid"))?;
    }
    Ok(())
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
