//! Podium and k8s-openapi read the Pods of each population, and each population differs in its own way.

use std::collections::{BTreeMap, HashMap, HashSet};

use clap::ValueEnum;
use serde_json::Value;

use super::{Action, Options, Population, PopulationKind};

fn generated(kind: PopulationKind, pods: usize) -> Population {
    Population::generate(&Options { kind, pods, hostile_pods: 40, ..Options::default() }).unwrap()
}

fn value(json: &str) -> Value {
    serde_json::from_str(json).unwrap()
}

fn all(population: &Population) -> Vec<Value> {
    (0..population.len()).map(|at| value(&population.json(at))).collect()
}

/// Returns every Pod, then each event with the Pod after it.
fn history(kind: PopulationKind) -> Vec<(String, String)> {
    let mut population = generated(kind, 12);
    let mut seen: Vec<_> = (0..population.len()).map(|at| (String::new(), population.json(at))).collect();
    for _ in 0..20 {
        let event = population.next_event().unwrap();
        seen.push((format!("{event:?}"), population.json(event.at)));
    }
    seen
}

#[test]
fn pods_of_every_population_are_read_and_follow_from_the_seed() {
    for kind in PopulationKind::value_variants() {
        let seen = history(*kind);
        assert!(seen == history(*kind), "{kind:?}: the same seed has two histories");
        for (event, json) in &seen {
            let ours = podium_wire::json::decode(json.as_bytes()).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            let theirs: k8s_openapi::api::core::v1::Pod = serde_json::from_str(json).unwrap();
            assert_eq!(Some(&ours.header.uid), theirs.metadata.uid.as_ref(), "{kind:?} {event}");
            let (spec, status) = (theirs.spec.unwrap(), theirs.status.unwrap());
            assert_eq!(spec.containers.len(), status.container_statuses.unwrap().len(), "{kind:?}");
        }
    }
}

/// Returns the strings at this path in all Pods that have it.
fn texts(kind: PopulationKind, pointer: &str) -> Vec<String> {
    let pods = all(&generated(kind, 300));
    pods.iter().filter_map(|pod| Some(pod.pointer(pointer)?.as_str()?.to_owned())).collect()
}

#[test]
fn values_of_a_population_differ_from_pod_to_pod() {
    // Address, MAC and gateway vary in length; the others have one pointer.
    for (kind, pointer) in [
        (PopulationKind::Annotation, "/metadata/annotations/example.com~1last-sync"),
        (PopulationKind::FreeText, "/metadata/annotations/example.com~1description"),
        (PopulationKind::LargeAnnotations, "/metadata/annotations/example.com~1manifest"),
        (PopulationKind::DualStack, "/status/podIPs/1/ip"),
        (PopulationKind::Cni, "/metadata/annotations/k8s.v1.cni.cncf.io~1network-status"),
        (PopulationKind::Sidecars, "/metadata/annotations/sidecar.istio.io~1status"),
    ] {
        let values = texts(kind, pointer);
        // Pending Pods have no addresses yet.
        assert!(values.len() > 280, "{kind:?}: {} Pods have {pointer}", values.len());
        let distinct: HashSet<_> = values.iter().collect();
        assert!(distinct.len() >= values.len() - 1, "{kind:?}: {} of {}", distinct.len(), values.len());
    }
    for kind in [PopulationKind::Annotation, PopulationKind::FreeText, PopulationKind::LargeAnnotations] {
        let population = generated(kind, 100);
        for at in 0..population.len() {
            let pod = value(&population.json(at));
            let values = pod["metadata"]["annotations"].as_object().unwrap().iter();
            let own = values.filter(|(key, _)| {
                ["example.com/last-sync", "example.com/description", "example.com/manifest"].contains(&key.as_str())
            });
            let own: usize = own.map(|(_, value)| value.as_str().unwrap().len()).sum();
            assert_eq!(population.own_bytes(at), own);
        }
    }
    for kind in [PopulationKind::Status, PopulationKind::Churn, PopulationKind::Containers] {
        assert_eq!(generated(kind, 50).own_bytes(7), 0, "{kind:?}");
    }
}

#[test]
fn free_text_and_large_annotations_have_their_lengths() {
    let lengths = texts(PopulationKind::FreeText, "/metadata/annotations/example.com~1description");
    let lengths: HashSet<usize> = lengths.iter().map(String::len).collect();
    assert!(lengths.len() > 50 && lengths.iter().all(|length| (40..=120).contains(length)), "{lengths:?}");
    let large = texts(PopulationKind::LargeAnnotations, "/metadata/annotations/example.com~1manifest");
    assert!(large.iter().all(|text| text.len() == 200_000));
}

#[test]
fn an_annotation_has_a_new_value_with_every_event() {
    let mut population = generated(PopulationKind::Annotation, 50);
    let of = |pod: &Value| pod["metadata"]["annotations"]["example.com/last-sync"].to_string();
    let mut seen: HashSet<String> = all(&population).iter().map(of).collect();
    for _ in 0..500 {
        let event = population.next_event().unwrap();
        assert!(seen.insert(of(&value(&population.json(event.at)))));
    }
}

#[test]
fn addresses_of_both_families_are_valid() {
    for pod in all(&generated(PopulationKind::DualStack, 200)) {
        for list in ["podIPs", "hostIPs"] {
            let Some(addresses) = pod["status"][list].as_array() else { continue };
            let parsed: Vec<std::net::IpAddr> =
                addresses.iter().map(|address| address["ip"].as_str().unwrap().parse().unwrap()).collect();
            assert!(parsed.len() == 2 && parsed[0].is_ipv4() && parsed[1].is_ipv6(), "{addresses:?}");
        }
    }
}

#[test]
fn annotations_of_network_plugins_have_the_pods_address() {
    let population = generated(PopulationKind::Cni, 100);
    let running = all(&population).into_iter().filter(|pod| pod["status"]["podIP"].is_string());
    for pod in running {
        let ip = pod["status"]["podIP"].as_str().unwrap();
        let annotations = &pod["metadata"]["annotations"];
        let multus = annotations["k8s.v1.cni.cncf.io/network-status"].as_str().unwrap();
        assert!(multus.contains('\n') && multus.contains('"'), "{multus}");
        let multus = value(multus);
        let ovn = value(annotations["k8s.ovn.org/pod-networks"].as_str().unwrap());
        assert_eq!((multus[0]["ips"][0].as_str(), multus[0]["mac"].as_str().unwrap().len()), (Some(ip), 17));
        assert_eq!(ovn["default"]["ip_address"], format!("{ip}/24"));
        assert_eq!(ovn["default"]["mac_address"], multus[0]["mac"]);
    }
}

#[test]
fn each_pod_has_its_own_value_of_an_environment_variable() {
    let mut seen = HashSet::new();
    for pod in all(&generated(PopulationKind::Environment, 300)) {
        let environment = pod["spec"]["containers"][0]["env"].as_array().unwrap();
        let own: Vec<_> = environment.iter().filter(|entry| entry["name"] == "INSTANCE_KEY").collect();
        assert!(own.len() == 1 && seen.insert(own[0]["value"].to_string()), "{own:?}");
    }
}

#[test]
fn churn_replaces_pods_by_others_of_the_same_owner() {
    let mut population = generated(PopulationKind::Churn, 200);
    let identity = |pod: &Value| {
        let metadata = &pod["metadata"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&metadata["namespace"]), text(&metadata["name"]), text(&metadata["uid"]))
    };
    let mut held: BTreeMap<(String, String), Value> = BTreeMap::new();
    let mut uids = HashSet::new();
    for pod in all(&population) {
        let (namespace, name, uid) = identity(&pod);
        uids.insert(uid);
        held.insert((namespace, name), pod);
    }
    let (mut counts, mut deleted) = (HashMap::new(), None);
    for _ in 0..3_000 {
        let event = population.next_event().unwrap();
        let pod = value(&population.json(event.at));
        assert_eq!(pod["metadata"]["resourceVersion"], event.revision.to_string());
        let (namespace, name, uid) = identity(&pod);
        let owner = pod["metadata"]["ownerReferences"].clone();
        match event.action {
            Action::Deleted => {
                let old = held.remove(&(namespace, name)).unwrap();
                assert_eq!(old["metadata"]["uid"], pod["metadata"]["uid"]);
                deleted = Some(owner);
            }
            Action::Added => {
                assert_eq!(deleted.take(), Some(owner));
                assert!(uids.insert(uid), "a uid is used twice");
                assert!(held.insert((namespace, name), pod).is_none(), "a name is used twice");
            }
            Action::Modified => {
                assert_eq!(deleted, None);
                let old = held.insert((namespace, name), pod.clone()).unwrap();
                assert_ne!(old["status"], pod["status"]);
            }
        }
        *counts.entry(format!("{:?}", event.action)).or_insert(0) += 1;
    }
    // One change in five is a deletion and an addition.
    assert!((400..600).contains(&counts["Deleted"]), "{counts:?}");
    assert!(counts["Deleted"] - counts["Added"] <= 1, "{counts:?}");
}

/// Returns the names of fields and of list elements without their values.
fn structure(value: &Value) -> String {
    match value {
        Value::Object(fields) => fields.iter().map(|(key, value)| format!("{key}{{{}}}", structure(value))).collect(),
        Value::Array(items) => items.iter().map(|item| format!("[{}]", structure(item))).collect(),
        _ => String::new(),
    }
}

#[test]
fn no_two_pods_of_structure_have_the_same_fields() {
    let population = generated(PopulationKind::Structure, 300);
    let mut seen = HashSet::new();
    for pod in all(&population) {
        let of = format!("{}{}", structure(&pod["spec"]), structure(&pod["metadata"]["labels"]));
        assert!(seen.insert(of), "{}", pod["metadata"]["name"]);
    }
    assert!((0..300).all(|at| population.own_bytes(at) > 100));
}

#[test]
fn a_hostile_namespace_has_no_events() {
    let mut population = generated(PopulationKind::Hostile, 100);
    assert_eq!(population.len(), 140);
    let is_hostile = |population: &Population, at: usize| population.name(at).0 == "hostile";
    let hostile: Vec<_> = (0..140).filter(|at| is_hostile(&population, *at)).collect();
    assert_eq!(hostile.len(), 40);
    assert!((0..140).all(|at| (population.own_bytes(at) > 0) == hostile.contains(&at)));
    for _ in 0..500 {
        let event = population.next_event().unwrap();
        assert!(!is_hostile(&population, event.at));
    }
}

#[test]
fn sidecars_are_init_containers_with_their_own_volumes() {
    let population = generated(PopulationKind::Sidecars, 100);
    for pod in all(&population) {
        let sidecar = &pod["spec"]["initContainers"][0];
        assert_eq!((&sidecar["name"], &sidecar["restartPolicy"]), (&"istio-proxy".into(), &"Always".into()));
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let status = value(pod["metadata"]["annotations"]["sidecar.istio.io/status"].as_str().unwrap());
        for name in status["volumes"].as_array().unwrap() {
            assert!(volumes.iter().any(|volume| &volume["name"] == name), "{name}");
        }
        if pod["status"]["phase"] == "Running" {
            assert!(pod["status"]["initContainerStatuses"][0]["state"]["running"].is_object());
        }
    }
}

#[test]
fn a_resize_changes_the_spec_and_then_the_status() {
    let mut population = generated(PopulationKind::Resize, 40);
    let mut known = all(&population);
    let mut sizes = HashSet::new();
    for _ in 0..400 {
        let event = population.next_event().unwrap();
        let new = value(&population.json(event.at));
        let old = std::mem::replace(&mut known[event.at], new.clone());
        let of_status = |pod: &Value| {
            let status = &pod["status"]["containerStatuses"][0];
            assert_eq!(status["allocatedResources"], status["resources"]["requests"]);
            status["resources"].clone()
        };
        let asked = |pod: &Value| pod["spec"]["containers"][0]["resources"].clone();
        let spec_changed = asked(&old) != asked(&new);
        assert_ne!(spec_changed, of_status(&old) != of_status(&new));
        assert_eq!(spec_changed, old["metadata"]["generation"] != new["metadata"]["generation"]);
        // The kubelet allocates the requested resources.
        assert!(spec_changed || asked(&new) == of_status(&new));
        sizes.insert(asked(&new).to_string());
    }
    assert_eq!(sizes.len(), 6, "{sizes:?}");
}

#[test]
fn ten_labels_have_30_values_each() {
    let mut values: BTreeMap<String, HashSet<String>> = BTreeMap::new();
    for pod in all(&generated(PopulationKind::Labels, 1_000)) {
        for (key, value) in pod["metadata"]["labels"].as_object().unwrap() {
            if key.starts_with("example.com/dimension-") {
                values.entry(key.clone()).or_default().insert(value.to_string());
            }
        }
    }
    assert!(values.len() == 10 && values.values().all(|values| values.len() == 30), "{values:?}");
}

#[test]
fn a_pod_has_100_containers_with_ids_of_their_own() {
    for pod in all(&generated(PopulationKind::Containers, 10)) {
        let names: HashSet<_> =
            pod["spec"]["containers"].as_array().unwrap().iter().map(|of| of["name"].to_string()).collect();
        assert_eq!(names.len(), 100);
        let ids = pod["status"]["containerStatuses"].as_array().unwrap().iter();
        let ids: HashSet<_> = ids.filter_map(|of| Some(of["containerID"].as_str()?.to_owned())).collect();
        assert!(ids.len() == 100 || pod["status"]["phase"] == "Pending", "{} ids", ids.len());
    }
}

#[test]
fn real_pods_are_refused_where_a_population_invents_its_own() {
    let options = Options { kind: PopulationKind::Cni, from: Some("/pods".into()), ..Options::default() };
    let error = Population::generate(&options).err().unwrap().to_string();
    assert_eq!(error, "population cni cannot be made of the Pods of /pods; use --from with status or churn");
}
