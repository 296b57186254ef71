mod populations;

use clap::ValueEnum;
use podium_encoding::{Pool, testing::Checked};

use super::*;

fn population(pods: usize) -> Population {
    Population::generate(&Options { pods, ..Options::default() }).unwrap()
}

/// Returns the JSON of each Pod and of the Pods after each event. Pods of some populations do not change.
fn states(population: &mut Population, events: usize) -> Vec<String> {
    let mut states: Vec<String> = (0..population.len()).map(|at| population.json(at)).collect();
    for _ in 0..events {
        let Some(modified) = population.next_event() else { break };
        states.push(population.json(modified.at));
    }
    states
}

#[test]
fn the_same_seed_makes_the_same_pods_and_events() {
    let made =
        |seed| states(&mut Population::generate(&Options { pods: 200, seed, ..Options::default() }).unwrap(), 200);
    assert_eq!(made(1).len(), 400);
    assert!(made(1) == made(1));
    assert!(made(1) != made(2));
}

#[test]
fn podium_and_k8s_openapi_read_every_state_and_agree() {
    let mut population = population(1_000);
    let mut phases = std::collections::BTreeMap::new();
    for json in states(&mut population, 1_000) {
        let ours = podium_wire::json::decode(json.as_bytes()).unwrap();
        let theirs: k8s_openapi::api::core::v1::Pod = serde_json::from_str(&json).unwrap();
        assert_eq!(Some(&ours.header.name), theirs.metadata.name.as_ref());
        assert_eq!(Some(&ours.header.uid), theirs.metadata.uid.as_ref());
        let status = theirs.status.unwrap();
        assert_eq!(Some(&ours.status.phase), status.phase.as_ref());
        let restarts: u32 = ours.status.container_statuses.iter().map(|container| container.restart_count as u32).sum();
        assert_eq!(restarts as i32, status.container_statuses.unwrap()[0].restart_count);
        *phases.entry(status.phase.unwrap()).or_insert(0) += 1;
    }
    assert_eq!(phases.keys().collect::<Vec<_>>(), ["Pending", "Running", "Succeeded"], "{phases:?}");
}

#[test]
fn pods_of_every_population_are_read_with_their_sections_and_changes() {
    for kind in PopulationKind::value_variants() {
        let pods = if matches!(kind, PopulationKind::Containers | PopulationKind::LargeAnnotations) { 1 } else { 12 };
        let options = Options { kind: *kind, pods, hostile_pods: 4, ..Options::default() };
        let mut population = Population::generate(&options).unwrap();
        let mut checked = Checked::new(Pool::new(7));
        for json in states(&mut population, pods) {
            assert!(checked.read(json.as_bytes(), true).is_some(), "{}", kind.name());
        }
    }
}

#[test]
fn a_pod_is_about_as_large_as_a_real_one() {
    let population = population(5_000);
    let (mut all, mut managed) = (0, 0);
    for at in 0..population.len() {
        let json = population.json(at);
        let begin = json.find(r#""managedFields":"#).unwrap();
        let end = json.find(r#"]},"spec":"#).unwrap();
        all += json.len();
        managed += end - begin;
    }
    let mean = all / population.len();
    assert!((8_500..=11_000).contains(&mean), "{mean} bytes");
    assert!((35..=60).contains(&(managed * 100 / all)), "{} %", managed * 100 / all);
}

#[test]
fn names_are_in_order_and_no_two_pods_share_an_identity() {
    let population = population(3_000);
    let names: Vec<_> = (0..population.len()).map(|at| population.name(at)).collect();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]));
    let mut seen = std::collections::HashSet::new();
    for at in 0..population.len() {
        let pod: serde_json::Value = serde_json::from_str(&population.json(at)).unwrap();
        assert_eq!((pod["metadata"]["namespace"].as_str(), pod["metadata"]["name"].as_str()), {
            let (namespace, name) = population.name(at);
            (Some(namespace), Some(name))
        });
        assert!(seen.insert(pod["metadata"]["uid"].to_string()), "{pod}");
        let status = &pod["status"];
        for once in [&status["podIP"], &status["containerStatuses"][0]["containerID"]] {
            assert!(once.is_null() || seen.insert(once.to_string()), "{once} twice");
        }
    }
}

#[test]
fn an_event_has_the_next_revision_and_changes_only_the_status() {
    let mut population = population(500);
    let mut known: Vec<serde_json::Value> =
        (0..population.len()).map(|at| serde_json::from_str(&population.json(at)).unwrap()).collect();
    for _ in 0..500 {
        let revision = population.revision();
        let modified = population.next_event().unwrap();
        assert_eq!((modified.revision, population.revision()), (revision + 1, revision + 1));
        let new: serde_json::Value = serde_json::from_str(&population.json(modified.at)).unwrap();
        let old = std::mem::replace(&mut known[modified.at], new.clone());
        assert_eq!(new["metadata"]["resourceVersion"], (revision + 1).to_string());
        assert_ne!(old["status"], new["status"]);
        assert_eq!(old["spec"], new["spec"]);
        for part in ["name", "uid", "labels", "ownerReferences", "creationTimestamp"] {
            assert_eq!(old["metadata"][part], new["metadata"][part]);
        }
    }
}

#[test]
fn pods_of_a_workload_share_all_but_their_own_values() {
    let population = population(4_000);
    assert!((4_000 / population.workloads()) > 20, "{} workloads", population.workloads());
    let mut specs = std::collections::HashMap::new();
    for at in 0..population.len() {
        let mut pod: serde_json::Value = serde_json::from_str(&population.json(at)).unwrap();
        let owner = pod["metadata"]["ownerReferences"][0]["uid"].to_string();
        if pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet" {
            pod["spec"]["nodeName"].take();
            let token = pod["spec"]["volumes"].as_array().unwrap().last().unwrap()["name"].as_str().unwrap().to_owned();
            let spec = pod["spec"].to_string().replace(&token, "token");
            assert_eq!(specs.entry(owner).or_insert_with(|| spec.clone()), &spec);
        }
    }
    assert!(specs.len() > 5);
}

#[test]
fn real_objects_serve_as_templates() {
    // A generated Pod serves as a real one: it is written to a folder and read from there.
    let folder = std::env::temp_dir().join(format!("podium-bench-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("pods")).unwrap();
    let source = population(40);
    for at in 0..source.len() {
        std::fs::write(folder.join(format!("pods/{at}.json")), source.json(at)).unwrap();
    }
    let options = Options { pods: 300, pods_per_workload: 5, from: Some(folder.clone()), ..Options::default() };
    let made = Population::generate(&options);
    std::fs::remove_dir_all(&folder).unwrap();
    let mut made = made.unwrap();
    let mut uids = std::collections::HashSet::new();
    for at in 0..300 {
        let pod = podium_wire::json::decode(made.json(at).as_bytes()).unwrap();
        assert_eq!((pod.header.namespace.as_str(), pod.header.name.as_str()), made.name(at));
        uids.insert(pod.header.uid);
    }
    assert_eq!(uids.len(), 300);
    let before: Vec<_> = (0..300).map(|at| made.json(at)).collect();
    let modified = made.next_event().unwrap();
    assert_ne!(before[modified.at], made.json(modified.at));
}
