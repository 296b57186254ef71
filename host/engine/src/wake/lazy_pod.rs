//! [`LazyPod`]: one state of a Pod, of which nothing is decoded before a selector or a relation needs it.

use std::{
    borrow::Cow,
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
};

use podium_pods::pod::CachedPod;
use podium_vocabulary::{Expressions, PodKey, Relation, Scope};
use podium_wire::Labels;

use super::RelatedInterest;

/// The labels and the workload of one state, decoded when the first selector or relation needs them, and its groups,
/// of which plugins have few different ones.
pub(super) struct LazyPod<'a> {
    pod: Option<&'a CachedPod>,
    labels: OnceCell<Labels>,
    workload: OnceCell<Option<String>>,
    /// By relation, and whether the plugin is one of the cluster.
    groups: RefCell<Vec<(Relation, bool, Option<PodKey>)>>,
}

impl<'a> LazyPod<'a> {
    pub(super) fn new(pod: Option<&'a CachedPod>) -> Self {
        Self { pod, labels: OnceCell::new(), workload: OnceCell::new(), groups: RefCell::default() }
    }

    /// Returns the group of the state, if it has a value.
    pub(super) fn group(&self, RelatedInterest { by, scope, .. }: &RelatedInterest) -> Option<PodKey> {
        let pod = self.pod?;
        let is_of_cluster = *scope == Scope::Cluster;
        let mut groups = self.groups.borrow_mut();
        if let Some((.., key)) = groups.iter().find(|(of, cluster, _)| of == by && *cluster == is_of_cluster) {
            return key.clone();
        }
        let value = match by {
            Relation::Workload => self.workload().map(Cow::Borrowed),
            Relation::Node => pod.node(),
            Relation::Label(key) => self.labels().get(key).map(|value| Cow::Borrowed(&**value)),
        };
        let key = value.and_then(|value| by.group(scope, &pod.key.namespace, &value));
        groups.push((by.clone(), is_of_cluster, key.clone()));
        key
    }

    fn workload(&self) -> Option<&str> {
        let text = || Some(self.pod?.workload(|| self.labels().clone())?.owner_text());
        self.workload.get_or_init(text).as_deref()
    }

    pub(super) fn matches(&self, selector: &Expressions) -> bool {
        self.pod.is_some() && (selector.is_empty() || selector.matches(self.labels()))
    }

    /// Returns the labels that the other state lacks, or has with another value.
    pub(super) fn without<'b>(&'b self, other: &LazyPod<'_>) -> BTreeMap<&'b str, &'b str> {
        let labels = self.labels();
        #[cfg(test)]
        super::tests::VISITED.set(super::tests::VISITED.get() + labels.len());
        let changed = labels.iter().filter(|(key, value)| other.labels().get(*key) != Some(value));
        changed.map(|(key, value)| (&**key, &**value)).collect()
    }

    /// Returns the labels, or an empty map without a Pod.
    pub(super) fn labels(&self) -> &Labels {
        // The cache encoded the labels, so they can be decoded; otherwise a plugin too would see a Pod without labels.
        self.labels.get_or_init(|| self.pod.and_then(|pod| pod.labels().ok()).unwrap_or_default())
    }
}
