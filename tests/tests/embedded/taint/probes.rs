//! Probes for what exists in other namespaces: a run that asks for it cannot be distinguished from a run that asks for
//! what exists nowhere, by its answers, its errors, the order of its outputs or the fuel that it uses. A classifier of
//! these observables can do no better than chance, because they are equal. [`timing`](super::timing) is about time.

use podium_pods::pod::PodView;
use podium_tests::programs::{Choices, Program, Search};
use podium_wire::SectionSet;

use super::{
    OWN, caller, engine, load, on_threads,
    population::{OTHERS, Others, Population},
    runs::{self, Trace},
};

/// Returns a text that exists in no cluster, of the same length as one that does, and on the same side of the plugin's
/// namespace: a cursor continues after the place that it names, whether a Pod is there or not.
fn nowhere(text: &str) -> String {
    let start = &text[..text.len() - 1];
    let candidates = ["x", "0"].map(|end| format!("{start}{end}"));
    let same_side = |other: &&String| (other.as_str() < OWN) == (text < OWN) && other.as_str() != text;
    candidates.iter().find(same_side).unwrap().clone()
}

/// A way to ask for one text.
type Probe = fn(&mut Program, &str);

/// Searches of Pods by every condition, and every call that names a Pod or an object.
const BY_NAME: &[Probe] = &[
    |program, name| program.get("bank", name),
    |program, name| program.get(OWN, name),
    |program, name| program.get_live("bank", name),
    |program, name| program.find(&Search::default(), 3, Some(&format!("bank/{name}"))),
    |program, name| program.apply_object(&config_map(OWN, name), None),
    |program, name| program.apply_object(&config_map("bank", name), None),
];
const BY_NAMESPACE: &[Probe] = &[
    |program, namespace| program.get(namespace, "cart-1"),
    |program, namespace| program.get_live(namespace, "cart-1"),
    |program, namespace| program.count(&Search { namespace: Some(namespace), ..Search::default() }),
    |program, namespace| program.find(&Search { namespace: Some(namespace), ..Search::default() }, 3, None),
    |program, namespace| program.find(&Search::default(), 3, Some(&format!("{namespace}/cart-1"))),
    |program, namespace| program.set_label(Some([namespace, "cart-1", "u-1"]), "guests.example/a", "x"),
    |program, namespace| program.emit(Some([namespace, "cart-1", "u-1"]), "Called", "x"),
];
const BY_UID: &[Probe] = &[
    |program, uid| program.set_label(Some([OWN, "cart-1", uid]), "guests.example/a", "x"),
    |program, uid| program.delete_pod(Some([OWN, "cart-1", uid])),
    |program, uid| program.delete_pod(Some(["bank", "cart-1", uid])),
    |program, uid| program.emit(Some([OWN, "cart-1", uid]), "Called", "x"),
    |program, uid| program.apply_object(&config_map(OWN, "a"), Some([OWN, "cart-1", uid])),
    |program, uid| program.apply_for_workload(&config_map(OWN, "a"), [OWN, "cart-1", uid]),
];
const BY_NODE: &[Probe] = &[
    |program, node| program.count(&Search { node: Some(node), ..Search::default() }),
    |program, node| program.find(&Search { node: Some(node), ..Search::default() }, 3, None),
    |program, node| program.count(&Search { node: Some(node), phase: Some("Running"), ..Search::default() }),
];
const BY_OWNER: &[Probe] = &[
    |program, owner| program.count(&Search { owner: Some(owner), ..Search::default() }),
    |program, owner| program.find(&Search { owner: Some(owner), namespace: Some(OWN), ..Search::default() }, 3, None),
];
const BY_PHASE: &[Probe] = &[|program, phase| program.count(&Search { phase: Some(phase), ..Search::default() })];
const BY_VALUE: &[Probe] = &[
    |program, value| program.count(&Search { label: Some(("secret", 2, &[value])), ..Search::default() }),
    |program, value| program.count(&Search { label: Some(("secret", 2, &[value, "cart"])), ..Search::default() }),
    |program, value| program.find(&Search { label: Some(("secret", 3, &[value])), ..Search::default() }, 3, None),
];
const BY_KEY: &[Probe] = &[
    |program, key| program.count(&Search { label: Some((key, 0, &[])), ..Search::default() }),
    |program, key| program.count(&Search { label: Some((key, 2, &["x"])), ..Search::default() }),
    |program, key| program.find(&Search { label: Some((key, 1, &[])), ..Search::default() }, 3, None),
];

fn config_map(namespace: &str, name: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"{namespace}","name":"{name}"}}}}"#)
}

/// Texts of Pods of other namespaces that no Pod of the plugin's namespace has, with the ways to ask for them.
fn targets(cluster: &Population) -> Vec<(String, &'static [Probe])> {
    let mut targets: Vec<(String, &'static [Probe])> = Vec::new();
    for pod in cluster.snapshot.iter().filter(|pod| &*pod.key.namespace != OWN) {
        let labels = pod.labels().unwrap();
        targets.extend([
            (pod.key.name.to_string(), BY_NAME),
            (pod.key.namespace.to_string(), BY_NAMESPACE),
            (pod.key.uid.to_string(), BY_UID),
            (pod.phase().to_owned(), BY_PHASE),
        ]);
        targets.extend(pod.node().map(|node| (node.to_string(), BY_NODE)));
        targets.extend(pod.owner_uids().into_iter().map(|uid| (uid, BY_OWNER)));
        targets.extend(labels.get("secret").map(|value| (value.clone(), BY_VALUE)));
        targets.extend(labels.keys().map(|key| (key.clone(), BY_KEY)));
    }
    let is_own = |text: &str| {
        cluster.own.iter().any(|pod| {
            *pod.key.name == *text
                || pod.phase() == text
                || pod.node().as_deref() == Some(text)
                || pod.owner_uids().iter().any(|uid| uid == text)
                || pod.labels().unwrap().contains_key(text)
        })
    };
    targets.retain(|(text, _)| !text.is_empty() && !is_own(text));
    targets
}

/// Replaces the texts that were asked for, both in the traces of both: a short text may be part of another one of the
/// plugin's own Pods, as `app` is of `apps/v1`.
fn without(trace: Trace, texts: [&str; 2]) -> Trace {
    let replace = |line: &str| texts.iter().fold(line.to_owned(), |line, text| line.replace(text, "TEXT"));
    let all = |lines: Vec<String>| lines.iter().map(|line| replace(line)).collect();
    Trace { lines: all(trace.lines), writes: all(trace.writes), result: replace(&trace.result), ..trace }
}

#[test]
fn objects_of_other_namespaces_look_like_absent_ones() {
    let engine = engine();
    let mut spec = caller();
    spec.grants.read.as_mut().unwrap().sections = SectionSet::ALL;
    let plugin = load(&engine, &spec);
    on_threads(200, |seed| {
        let cluster = Population::new(seed, Others::Present(1));
        let mut choices = Choices::new(seed);
        let targets = targets(&cluster);
        let (elsewhere, probes) = choices.one(&targets);
        let probe = choices.one(probes);
        let nowhere = nowhere(elsewhere);
        let observe = |text: &str| {
            let mut program = Program::default();
            // The last call shows a budget that the first one has used up.
            probe(&mut program, text);
            program.commit();
            probe(&mut program, text);
            without(runs::run(&plugin, &cluster, &cluster.own[0], &program), [elsewhere, &nowhere])
        };
        assert!(cluster.snapshot.by_uid(&nowhere).is_none() && !OTHERS.contains(&nowhere.as_str()));
        assert_eq!(observe(elsewhere), observe(&nowhere), "seed {seed}: {elsewhere}");
    });
}

#[test]
fn objects_of_the_own_namespace_do_not_look_absent() {
    let engine = engine();
    let plugin = load(&engine, &caller());
    let cluster = Population::new(1, Others::Present(1));
    let observe = |name: &str| {
        let mut program = Program::default();
        program.get(OWN, name);
        without(runs::run(&plugin, &cluster, &cluster.own[0], &program), [name, name])
    };
    assert_ne!(observe("cart-0"), observe("qqqq-q"));
}
