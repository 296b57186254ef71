//! Queries of the cache compared with a plain filter, page by page with the text of cursors, while Pods are created
//! and deleted.
//!
//! The input is a list of steps of a few bytes each; the rest after the first zero byte at a step's position is
//! parsed as the text of a cursor, which a guest may forge.

#![expect(clippy::unwrap_used, reason = "a panic is a finding")]

use std::{collections::BTreeMap, sync::Arc};

use podium_pods::{
    cache::{self, Snapshot},
    pod::{CachedPod, PodEvent, PodView},
};
use podium_vocabulary::{Cursor, LabelOperator, LabelRequirement, LabelSelector, PodQuery};
use podium_wire::{Header, Owner, Pod, Spec};

const NAMESPACES: [&str; 4] = ["bank", "shop", "shop-1", "z"];
const PHASES: [&str; 3] = ["Running", "Pending", ""];
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const OWNERS: [&str; 3] = ["owner-1", "owner-2", "owner-3"];
/// The owners of queries: those of Pods, and workloads.
const OWNED_BY: [&str; 6] = ["owner-1", "owner-2", "owner-3", "Deployment/o1", "ReplicaSet/o1-a", "ReplicaSet/o2"];
/// The label whose value ends the name of a Deployment's ReplicaSet.
const HASH: &str = "pod-template-hash";
const KEYS: [&str; 3] = ["app", "tier", "app.example/x"];
const VALUES: [&str; 4] = ["", "a", "b", "c"];

/// A reader of bytes as small choices, which returns 0 at the end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns one of them, or none.
    fn maybe<T: Copy>(&mut self, of: &[T]) -> Option<T> {
        of.get(usize::from(self.byte()) % (of.len() + 1)).copied()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }
}

pub fn run(input: &[u8]) {
    let (mut writer, reader) = cache::new(7);
    let mut model: BTreeMap<(String, String), Pod> = BTreeMap::new();
    let mut choices = Choices(input);
    let mut revision = 1;
    loop {
        match choices.byte() {
            0 => break,
            1..=127 => {
                revision += 1;
                let pod = pod(&mut choices, revision);
                let name = (pod.header.namespace.clone(), pod.header.name.clone());
                writer.apply(vec![PodEvent::applied(Arc::new(CachedPod::new(&pod).unwrap()))]).publish();
                model.insert(name, pod);
            }
            128..=191 => {
                revision += 1;
                let (namespace, name) = (choices.one(&NAMESPACES), format!("p{}", choices.byte() % 32));
                if let Some(mut pod) = model.remove(&(namespace.to_owned(), name)) {
                    pod.header.resource_version = revision.to_string();
                    writer.apply(vec![PodEvent::deleted(Arc::new(CachedPod::new(&pod).unwrap()))]).publish();
                }
            }
            192.. => ask(&reader.snapshot(), &model, &query(&mut choices), 1 + usize::from(choices.byte() % 8)),
        }
    }
    ask(&reader.snapshot(), &model, &PodQuery::default(), 3);
    continued(&reader.snapshot(), &model, &String::from_utf8_lossy(choices.0));
}

/// Returns one of the few Pods of each namespace, sometimes with another incarnation.
fn pod(choices: &mut Choices<'_>, revision: u64) -> Pod {
    let (namespace, name, owners) = (choices.one(&NAMESPACES), choices.byte(), choices.byte());
    let mut pod = Pod {
        header: Header {
            namespace: namespace.to_owned(),
            name: format!("p{}", name % 32),
            uid: format!("{namespace}-{name}"),
            resource_version: revision.to_string(),
            ..Header::default()
        },
        spec: Spec { node_name: choices.maybe(&NODES).map(str::to_owned), ..Spec::default() },
        ..Pod::default()
    };
    for (at, uid) in OWNERS.iter().enumerate().filter(|(at, _)| owners & 1 << at != 0) {
        // The second and the third one may be controllers, of which the first counts; the second one's name may be a
        // Deployment's and the hash of its ReplicaSet.
        let hash = if at == 1 && owners & 16 != 0 { "-a" } else { "" };
        pod.owners.push(Owner {
            uid: (*uid).to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: format!("o{at}{hash}"),
            controller: at > 0 && owners & 8 != 0,
            ..Owner::default()
        });
    }
    if owners & 32 != 0 {
        pod.labels.insert(HASH.to_owned(), "a".to_owned());
    }
    for key in KEYS {
        if let Some(value) = choices.maybe(&VALUES) {
            pod.labels.insert(key.to_owned(), value.to_owned());
        }
    }
    // May also be empty, as for a Pod without a status.
    pod.status.phase = PHASES[pod.labels.len() % PHASES.len()].to_owned();
    pod
}

fn query(choices: &mut Choices<'_>) -> PodQuery {
    let namespace = choices.maybe(&NAMESPACES);
    let node = choices.maybe(&NODES);
    let owner = choices.maybe(&OWNED_BY);
    let operators = [LabelOperator::Exists, LabelOperator::Absent, LabelOperator::In, LabelOperator::NotIn];
    let mut labels = Vec::new();
    while let (true, Some(key)) = (labels.len() < 4, choices.maybe(&KEYS)) {
        let (operator, values) = (choices.one(&operators), choices.byte());
        let values = VALUES.iter().enumerate().filter(|(at, _)| values & 1 << at != 0);
        // A guest may name a value twice.
        let mut values: Vec<String> = values.map(|(_, value)| (*value).to_owned()).collect();
        if choices.byte() % 8 == 7 {
            values.extend(values.first().cloned());
        }
        labels.push(LabelRequirement { key: key.to_owned(), operator, values });
    }
    PodQuery {
        namespace: namespace.map(Into::into),
        node: node.map(Into::into),
        owner_uid: owner.map(Into::into),
        labels: LabelSelector(labels),
        phase: choices.maybe(&PHASES).map(Into::into),
    }
}

/// Returns true if the Pod has the owner, or is of the workload, as the contract defines it.
fn owns(owner: &str, pod: &Pod) -> bool {
    let Some((kind, name)) = owner.split_once('/') else { return pod.owners.iter().any(|of| of.uid == owner) };
    let Some(controller) = pod.owners.iter().find(|owner| owner.controller) else { return false };
    let above = pod.labels.get(HASH).and_then(|hash| controller.name.strip_suffix(&format!("-{hash}")));
    (kind, name) == above.map_or(("ReplicaSet", &*controller.name), |above| ("Deployment", above))
}

/// Matches as the contract defines it, without the host's code.
fn matches(query: &PodQuery, pod: &Pod) -> bool {
    let PodQuery { namespace, node, owner_uid, phase, labels: LabelSelector(labels) } = query;
    namespace.as_ref().is_none_or(|namespace| **namespace == *pod.header.namespace)
        && node.as_ref().is_none_or(|node| pod.spec.node_name.as_deref() == Some(&**node))
        && owner_uid.as_ref().is_none_or(|owner| owns(owner, pod))
        && phase.as_ref().is_none_or(|phase| **phase == *pod.status.phase)
        && labels.iter().all(|LabelRequirement { key, operator, values }| {
            let value = pod.labels.get(key);
            match operator {
                LabelOperator::Exists => value.is_some(),
                LabelOperator::Absent => value.is_none(),
                LabelOperator::In => values.iter().any(|wanted| Some(wanted) == value),
                LabelOperator::NotIn => !values.iter().any(|wanted| Some(wanted) == value),
            }
        })
}

type Names = Vec<(String, String)>;

fn ask(snapshot: &Snapshot, model: &BTreeMap<(String, String), Pod>, query: &PodQuery, limit: usize) {
    let matching = model.iter().filter(|(_, pod)| matches(query, pod));
    let expected: Names = matching.map(|(name, _)| name.clone()).collect();
    assert_eq!(snapshot.count(query), expected.len() as u64, "{query:?}");
    let (mut found, mut after) = (Names::new(), None);
    loop {
        let page = snapshot.find(query, limit, after.as_ref());
        assert!(page.pods.len() <= limit && page.examined >= page.pods.len());
        found.extend(page.pods.iter().map(|pod| (pod.key.namespace.to_string(), pod.key.name.to_string())));
        let Some(next) = page.next else { break };
        assert_eq!(page.pods.len(), limit, "a page that is not the last is full");
        // In the form that a guest stores.
        after = Cursor::parse(&next.to_string());
        assert_eq!(after, Some(next));
    }
    assert_eq!(found, expected, "{query:?}");
}

/// Checks that any text is refused, or continues after the position that it names, whether there is a Pod or not.
fn continued(snapshot: &Snapshot, model: &BTreeMap<(String, String), Pod>, text: &str) {
    let Some(cursor) = Cursor::parse(text) else { return };
    assert_eq!(cursor.to_string(), text);
    let after = (cursor.namespace.to_string(), cursor.name.to_string());
    let expected: Names = model.keys().filter(|name| **name > after).cloned().collect();
    let page = snapshot.find(&PodQuery::default(), model.len() + 1, Some(&cursor));
    let found: Names = page.pods.iter().map(|pod| (pod.key.namespace.to_string(), pod.key.name.to_string())).collect();
    assert_eq!(found, expected, "behind {text}");
}
