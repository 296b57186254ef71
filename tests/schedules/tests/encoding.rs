//! Pods that are read and dropped concurrently, in many orders: shared parts live as long as a Pod uses them.

#![cfg(podium_model = "shuttle")]
#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use podium_encoding::{Packed, PodIdentity, PodJson, Pool, Scratch};
use podium_wire::Section;
use shuttle::{
    rand::{Rng, thread_rng},
    thread,
};

/// Pods of several workloads. They share one spec; metadata and status differ in structure.
static PODS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..6).map(pod).collect());
/// The number of Pods that are read concurrently; the others existed before.
const CONCURRENT: usize = 2;

fn pod(at: usize) -> Vec<u8> {
    let identity = r#""namespace":"shop","uid":"web-uid","resourceVersion":"5""#;
    let labels = format!(r#"{{"app-{at}":"web"}}"#);
    let metadata = format!(r#"{{"name":"web","generateName":"w{at}-",{identity},"labels":{labels}}}"#);
    let spec = r#"{"containers":[{"name":"app","image":"app:1"}]}"#;
    let status = format!(r#"{{"phase":"Running","later":{at}}}"#);
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{spec},"status":{status}}}"#).into_bytes()
}

fn read(pool: &Pool, at: usize) -> Packed {
    pool.read(&PodJson::new(&PODS[at]), None, &mut Scratch::default()).unwrap().packed
}

/// Checks that the table has each skeleton of the Pods once: the shared spec, and two fragments of each workload.
fn parts_are_those_of(pool: &Pool, held: &[(usize, Packed)]) {
    let workloads = held.iter().map(|(at, _)| at).collect::<BTreeSet<_>>().len();
    assert_eq!(pool.shared_texts(), 2 * workloads + usize::from(workloads > 0));
}

#[test]
fn skeletons_are_stored_once_and_freed_with_their_last_pod() {
    common::check(250, 16, || {
        let pool = Arc::new(Pool::new(7));
        // Enough Pods that unused entries are removed while others read.
        (CONCURRENT..PODS.len()).for_each(|at| drop(read(&pool, at)));
        let readers = [(); 2].map(|()| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let mut held = Vec::new();
                for _ in 0..3 {
                    let at = thread_rng().gen_range(0..CONCURRENT);
                    held.push((at, read(&pool, at)));
                    if thread_rng().r#gen() {
                        held.swap_remove(thread_rng().gen_range(0..held.len()));
                    }
                }
                held
            })
        });
        let mut held: Vec<_> = readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
        while !held.is_empty() {
            parts_are_those_of(&pool, &held);
            let (at, packed) = held.swap_remove(thread_rng().gen_range(0..held.len()));
            let identity = PodIdentity { name: "web", uid: "web-uid", revision: 5 };
            assert_eq!(*packed.section(identity, Section::Full), PODS[at]);
        }
        parts_are_those_of(&pool, &held);
    });
}

fn of_no_workload(at: usize) -> String {
    String::from_utf8(pod(at)).unwrap().replace(&format!(r#""generateName":"w{at}-","#), "")
}

/// Pods of one workload, of which each has another structure.
static STRUCTURES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| (0..4).map(|at| of_no_workload(at).into()).collect());

/// Pods of one workload, each with its own label and message.
static OWN: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let own = |at: usize, text: &str| {
        text.replace("app-", "app").replace(&format!(r#""app{at}":"web""#), &format!(r#""app":"web-{at}""#))
    };
    let pod = |at: usize| {
        own(at, &of_no_workload(at)).replace(&format!(r#""later":{at}"#), &format!(r#""message":"{at} is well""#))
    };
    (0..4).map(|at| pod(at).into_bytes()).collect()
});

#[test]
fn pods_generalised_during_reads_are_restored_and_fully_freed() {
    are_restored_and_freed(&OWN);
}

#[test]
fn unshared_pods_are_restored_and_fully_freed() {
    are_restored_and_freed(&STRUCTURES);
}

/// Reads Pods concurrently, of which some are dropped at once.
fn are_restored_and_freed(pods: &'static [Vec<u8>]) {
    common::check(250, 16, move || {
        let pool = Arc::new(Pool::new(7));
        let readers = [(); 2].map(|()| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || {
                let mut last = None;
                for _ in 0..3 {
                    let at = thread_rng().gen_range(0..pods.len());
                    let packed = pool.read(&PodJson::new(&pods[at]), None, &mut Scratch::default()).unwrap().packed;
                    let identity = PodIdentity { name: "web", uid: "web-uid", revision: 5 };
                    assert_eq!(*packed.section(identity, Section::Full), pods[at]);
                    last = thread_rng().r#gen::<bool>().then_some(packed);
                }
                drop(last);
            })
        });
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(pool.shared_texts(), 0);
    });
}
