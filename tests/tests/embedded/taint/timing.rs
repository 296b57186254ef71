//! The processor time of runs that ask for what exists in other namespaces, and for what exists nowhere.
//!
//! A guest has no clock that moves with real time, so an attacker measures a run from outside, with more noise than
//! here: this classifier reads the processor time of the thread around each run, in which the same call is made many
//! times. Its figure is the probability that it orders two runs correctly (the area under the ROC curve); 0.5 is
//! chance.
//!
//! PODIUM_TIMING_PROBES makes it more; `just figures-timing`.

use std::{env, time::Duration};

use podium_pods::pod::CachedPod;
use podium_runtime::Plugin;
use podium_tests::programs::{Choices, Program, Search};
use podium_wire::SectionSet;
use tokio::runtime::Runtime;

use super::{
    CANARY, OWN, caller, engine, load,
    population::Population,
    runs::{runtime, timed},
};

/// Equal calls of one run.
const CALLS: usize = 50;
/// The most texts of a call. The time depends a little on the text itself, whether it exists or not: on its place in
/// the indexes, which is random.
const TEXTS: usize = 32;
/// Pods of other namespaces.
const OTHERS: usize = 2_000;

/// A call with one text.
type Ask = fn(&mut Program, &str);

/// A field of Pods of other namespaces, and the calls that name its value.
struct Field {
    /// Returns the value of a Pod, if it is in no Pod of the plugin's namespace.
    of: fn(&CachedPod) -> Option<String>,
    calls: &'static [(&'static str, Ask)],
}

/// Calls that are refused or that name an object, and searches by a value.
const FIELDS: &[Field] = &[
    Field {
        of: |pod| Some(pod.key.name.to_string()),
        calls: &[
            ("get by name", |program, name| program.get("bank", name)),
            ("get-live by name", |program, name| program.get_live("bank", name)),
            ("find after a name", |program, name| {
                program.find(&Search::default(), 1, Some(&format!("bank/{name}")));
            }),
        ],
    },
    Field {
        of: |pod| Some(pod.key.namespace.to_string()),
        calls: &[
            ("get by namespace", |program, namespace| program.get(namespace, "pod-1")),
            ("count by namespace", |program, namespace| {
                program.count(&Search { namespace: Some(namespace), ..Search::default() });
            }),
            ("set-label by namespace", |program, namespace| {
                program.set_label(Some([namespace, "pod-1", "uid-1"]), "guests.example/a", "x");
            }),
            ("emit by namespace", |program, namespace| {
                program.emit(Some([namespace, "pod-1", "uid-1"]), "Called", "x");
            }),
        ],
    },
    Field {
        of: |pod| Some(pod.key.uid.to_string()),
        calls: &[
            ("set-label by uid", |program, uid| {
                program.set_label(Some([OWN, "cart-1", uid]), "guests.example/a", "x");
            }),
            ("delete-pod by uid", |program, uid| program.delete_pod(Some([OWN, "cart-1", uid]))),
        ],
    },
    Field {
        of: |pod| pod.labels().unwrap().remove("secret"),
        calls: &[("count by label", |program, value| {
            program.count(&Search { label: Some(("secret", 2, &[value])), ..Search::default() });
        })],
    },
    Field {
        of: |pod| pod.node().filter(|node| node.starts_with(CANARY)).map(|node| node.to_string()),
        calls: &[("count by node", |program, node| {
            program.count(&Search { node: Some(node), ..Search::default() });
        })],
    },
    Field {
        of: |pod| pod.owner_uids().into_iter().find(|uid| uid.starts_with(CANARY)),
        calls: &[("count by owner", |program, owner| {
            program.count(&Search { owner: Some(owner), ..Search::default() });
        })],
    },
    Field {
        of: |pod| Some(pod.phase().to_owned()),
        calls: &[("count by phase", |program, phase| {
            program.count(&Search { phase: Some(phase), ..Search::default() });
        })],
    },
];

fn program(ask: Ask, text: &str) -> Program {
    let mut program = Program::default();
    (0..CALLS).for_each(|_| ask(&mut program, text));
    program
}

/// Returns how well the processor time of runs distinguishes the two programs of each pair.
fn classified(
    runtime: &Runtime,
    plugin: &Plugin,
    cluster: &Population,
    programs: &[[Program; 2]],
    probes: usize,
    seed: u64,
) -> f64 {
    let mut choices = Choices::new(seed);
    let mut times: Vec<(Duration, bool)> = Vec::with_capacity(probes);
    for pair in 0..probes.div_ceil(2) + 10 {
        let first = choices.percent(50);
        for is_elsewhere in [first, !first] {
            let program = &programs[pair % programs.len()][usize::from(is_elsewhere)];
            let (trace, took) = timed(runtime, plugin, cluster, &cluster.own[0], program);
            assert!(trace.result.starts_with("Ok"), "{trace:?}");
            // The first ones warm caches up.
            if pair >= 10 {
                times.push((took, is_elsewhere));
            }
        }
    }
    area(times)
}

/// Returns the area under the ROC curve: the mean rank of the true ones, from 0 to 1. Equal times share a rank.
fn area(mut times: Vec<(Duration, bool)>) -> f64 {
    times.sort_unstable();
    let (mut ranks, mut seen) = (0.0, 0);
    for equal in times.chunk_by(|(one, _), (other, _)| one == other) {
        let positives = equal.iter().filter(|(_, is_elsewhere)| *is_elsewhere).count();
        let rank = seen as f64 + (equal.len() + 1) as f64 / 2.0;
        (ranks, seen) = (ranks + rank * positives as f64, seen + equal.len());
    }
    let positives = times.iter().filter(|(_, is_elsewhere)| *is_elsewhere).count() as f64;
    let negatives = times.len() as f64 - positives;
    (ranks - positives * (positives + 1.0) / 2.0) / (positives * negatives)
}

/// Returns the figure of each call, by its name.
fn figures(fields: &[Field], probes: usize) -> Vec<(&'static str, f64)> {
    let (engine, runtime) = (engine(), runtime());
    let mut spec = caller();
    spec.grants.read.as_mut().unwrap().sections = SectionSet::ALL;
    let plugin = load(&engine, &spec);
    let cluster = Population::large(OTHERS);
    let pods: Vec<_> = cluster.snapshot.iter().filter(|pod| &*pod.key.namespace == "bank").collect();
    let figure = |field: &Field, ask: Ask, seed| {
        let values = pods.iter().skip(pods.len() / 2).filter_map(|pod| (field.of)(pod)).take(TEXTS);
        let pair = |elsewhere: String| {
            let nowhere = format!("{}x", &elsewhere[..elsewhere.len() - 1]);
            [&nowhere, &elsewhere].map(|text| program(ask, text))
        };
        let programs: Vec<_> = values.map(pair).collect();
        classified(&runtime, &plugin, &cluster, &programs, probes, seed)
    };
    let calls = fields.iter().flat_map(|field| field.calls.iter().map(move |(name, ask)| (field, *name, *ask)));
    calls.zip(1..).map(|((field, name, ask), seed)| (name, figure(field, ask, seed))).collect()
}

fn probes() -> usize {
    env::var("PODIUM_TIMING_PROBES").map_or(1_000, |probes| probes.parse().unwrap())
}

/// The most by which the figure of equal times differs from 0.5, with a probability of 1 to 10 million.
fn chance(probes: usize) -> f64 {
    5.3 * (1.0 / (3.0 * probes as f64)).sqrt()
}

#[test]
#[expect(clippy::print_stdout, reason = "figures")]
fn a_call_takes_as_long_for_what_exists_elsewhere_as_for_nothing() {
    let probes = probes();
    for (name, figure) in figures(FIELDS, probes) {
        println!("{name}: {figure:.3}");
        let most = chance(probes).max(0.05);
        assert!((figure - 0.5).abs() <= most, "{name}: {figure:.3} of {probes} probes, {most:.3} around 0.5 is chance");
    }
}

#[test]
fn a_pod_of_the_own_namespace_takes_other_time_than_none() {
    let (engine, runtime) = (engine(), runtime());
    let plugin = load(&engine, &caller());
    let cluster = Population::large(0);
    let programs = ["cart-x", "cart-1"].map(|name| program(|program, name| program.get(OWN, name), name));
    let figure = classified(&runtime, &plugin, &cluster, &[programs], 200, 1);
    assert!(figure > 0.9, "{figure}: otherwise the others mean nothing");
}
