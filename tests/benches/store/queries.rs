//! Cost of finding the Pods of a node and of a label: by a query of the host, compared with a plugin that lists and
//! filters all Pods.
//!
//! The plugin's side runs natively here, page by page: its data is encoded and decoded as for a plugin, but the
//! sandbox is not measured.

use std::{collections::BTreeMap, hint::black_box};

use podium_pods::{cache, pod::PodView};
use podium_vocabulary::{LabelOperator, LabelRequirement, LabelSelector, PodQuery};
use podium_wire::{Record, Section, SectionSet};

use crate::{
    designs::{Locked, Papaya, Podium, Sharded, Store, Swapped},
    load::once,
    pods::Pods,
};

/// Selects the Pods that a plugin needs.
type Filter<'a> = dyn Fn(&Record) -> bool + 'a;

/// The size of the host's pages.
const PAGE_PODS: usize = 500;

pub(crate) fn table(pods: &Pods, repeats: usize) {
    let (mut writer, reader) = cache::new(1);
    writer.relist(pods.all.iter().map(|pod| pod.clone().into()).collect(), pods.newest()).publish();
    let node = &*pods.all.iter().find_map(|pod| pod.node()).unwrap();
    let by_node = PodQuery { node: Some(node.into()), ..PodQuery::default() };
    let label = label(pods);
    let LabelRequirement { key, values, .. } = &label;
    let by_label = PodQuery { labels: LabelSelector(vec![label.clone()]), ..PodQuery::default() };
    println!("| query | Pods | in the host, us | a plugin that filters all, ms | times |\n|---|---|---|---|---|");
    let rows: [(&str, &PodQuery, Section, &Filter<'_>); 2] = [
        ("of one node", &by_node, Section::Spec, &|record| {
            record.spec().is_ok_and(|spec| spec.node_name.as_deref() == Some(node))
        }),
        ("of one label", &by_label, Section::Labels, &|record| {
            record.labels().is_ok_and(|labels| labels.get(key).is_some_and(|value| values.contains(value)))
        }),
    ];
    for (what, query, section, wanted) in rows {
        let found = reader.snapshot().find(query, usize::MAX, None).pods.len();
        let sections = SectionSet::EMPTY.with(section);
        let filter = || {
            let snapshot = reader.snapshot();
            let (mut matching, mut after) = (0, None);
            loop {
                let page = snapshot.find(&PodQuery::default(), PAGE_PODS, after.as_ref());
                let records = page.pods.iter().map(|pod| Record::open(pod.record(sections).unwrap()).unwrap());
                matching += records.filter(|record| wanted(record)).count();
                after = page.next;
                if after.is_none() {
                    break matching;
                }
            }
        };
        assert_eq!(filter(), found, "both find the same");
        // Returns the records that a plugin would receive.
        let host = once(repeats.max(3), 50, |_| {
            let page = reader.snapshot().find(query, usize::MAX, None);
            page.pods.iter().for_each(|pod| drop(black_box(pod.record(sections))));
        });
        let plugin = once(repeats.max(3), 1, |_| {
            black_box(filter());
        });
        println!("| {what} | {found} | {:.1} | {:.1} | {:.0} |", host / 1e3, plugin / 1e6, plugin / host);
    }
    println!("\n| Pods of one node | us |\n|---|---|");
    design::<Podium>(pods, node, repeats);
    design::<Swapped>(pods, node, repeats);
    design::<Papaya>(pods, node, repeats);
    design::<Sharded>(pods, node, repeats);
    design::<Locked>(pods, node, repeats);
}

fn design<S: Store>(pods: &Pods, node: &str, repeats: usize) {
    let store = S::new(pods);
    let found = pods.all.iter().filter(|pod| pod.node().as_deref() == Some(node)).count();
    assert_eq!(store.on_node(node), found, "{}", S::NAME);
    let nanos = once(repeats.max(3), 5, |_| {
        black_box(store.on_node(node));
    });
    println!("| {} | {:.1} |", S::NAME, nanos / 1e3);
}

/// Returns the label that about as many Pods have as there are on a node.
fn label(pods: &Pods) -> LabelRequirement {
    const ON_A_NODE: usize = 50;
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for pod in &pods.all {
        pod.labels().unwrap().into_iter().for_each(|label| *counts.entry(label).or_default() += 1);
    }
    let ((key, value), _) = counts.into_iter().min_by_key(|(_, count)| count.abs_diff(ON_A_NODE)).unwrap();
    LabelRequirement { key, operator: LabelOperator::In, values: vec![value] }
}
