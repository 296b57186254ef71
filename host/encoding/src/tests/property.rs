//! The property of the encoding over all kinds of Pods: reading returns the Pod, its sections and its changes.

use proptest::prelude::*;
use serde_json::json;

use super::{
    hostile::{contents, pod},
    own_values::CHANGES,
    *,
};
use crate::testing::{Checked, pod_json, real_pods};

/// States of Pods: the JSON, and whether it is read as the next state of the last one with its names.
type States = Vec<(Vec<u8>, bool)>;

fn holds(states: &[(Vec<u8>, bool)]) {
    let mut checked = Checked::new(Pool::new(7));
    states.iter().for_each(|(json, is_held)| _ = checked.read(json, *is_held));
}

/// Returns texts that often differ only in words, among escapes and placeholders.
fn words() -> impl Strategy<Value = String> {
    let word =
        prop::sample::select(&["10.0.0.1", "10.0.0.2", "a", "b", "x-1", "web-1-5d9c7b8f-x", "0a:58:0a:80:02:0e"][..]);
    let separator = prop::sample::select(&["\":\"", "\n", "\u{1}", " é ", "\\", "/"][..]);
    prop::collection::vec((word, separator), 3..6).prop_map(|all| {
        all.into_iter().map(|(word, separator)| format!("{word}{separator}")).collect::<String>() + "the rest is shared"
    })
}

/// Places of strings in a Pod.
const POINTERS: &[&str] = &[
    "/metadata/annotations/note",
    "/spec/containers/0/env/0/value",
    "/spec/hostname",
    "/status/podIP",
    "/metadata/labels/app",
    "/spec/containers/0/image",
    "/status/containerStatuses/0/image",
    "/metadata/ownerReferences/0/name",
    "/spec/volumes/0/name",
];

/// Generates strings of characters that JSON escapes, of words, and such as placeholders stand for.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a\"\\\\\u{0}é\u{1f600}]{0,4}",
        words(),
        Just("10.0.0.1".to_owned()),
        Just("2026-01-01T00:00:00Z".to_owned()),
        Just("web-1-5d9c7b8f-x".to_owned()),
    ]
}

/// Returns a Pod whose members differ in presence, order and number.
fn any_structure() -> impl Strategy<Value = Value> {
    let value = prop_oneof![
        "[a-z0-9.\\\\\"\u{e9} -]{0,12}".prop_map(Value::from),
        (0..3_i64).prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!("10.0.0.1")),
        Just(json!("2026-03-09T09:09:09Z")),
        Just(json!(null)),
    ];
    let members = prop::collection::vec(("[a-c]{1,2}", value), 0..5);
    (0..4_u64, members.clone(), members.clone(), members, prop::option::of("[a-z]{0,3}")).prop_map(
        |(own, annotations, spec, status, node)| {
            let mut object = pod_json(1, own, "Running");
            for (key, value) in annotations {
                let text = value.as_str().map_or(value.to_string(), str::to_owned);
                object["metadata"]["annotations"][&key] = text.into();
            }
            for (key, value) in spec {
                object["spec"]["containers"][0][&key] = value;
            }
            for (key, value) in status {
                object["status"][&key] = value;
            }
            if let Some(node) = node {
                object["spec"]["nodeName"] = node.into();
            }
            object
        },
    )
}

/// Generates Pods of two workloads with values of their own.
fn pods_with_unique_values() -> impl Strategy<Value = States> {
    let changes = prop::collection::vec((0..CHANGES.len(), 0..6_u64), 0..4);
    let texts = prop::collection::vec((prop::sample::select(POINTERS), text()), 0..3);
    let one = (0..2_usize, 0..4_u64, changes, texts, any::<bool>(), any::<bool>());
    prop::collection::vec(one, 2..14).prop_map(|pods| {
        let written =
            |(workload, own, changes, texts, is_one, is_held): (usize, u64, Vec<(usize, u64)>, Vec<_>, _, _)| {
                let mut object = pod_json(workload, own, "Running");
                for (change, own) in changes {
                    CHANGES[change].1(&mut object, own);
                }
                for (pointer, text) in texts {
                    if let Some(value) = object.pointer_mut(pointer) {
                        *value = Value::from(text);
                    }
                }
                if is_one {
                    (object["metadata"]["name"], object["metadata"]["uid"]) = ("web-1-5d9c7b8f-x".into(), "u".into());
                }
                (written(&object).into_bytes(), is_held)
            };
        pods.into_iter().map(written).collect()
    })
}

fn pods_of_any_structure() -> impl Strategy<Value = States> {
    let pods = prop::collection::vec((any_structure(), any::<bool>()), 1..16);
    pods.prop_map(|pods| pods.iter().map(|(object, is_held)| (written(object).into_bytes(), *is_held)).collect())
}

/// Generates Pods of two namespaces with texts of words, escapes and sentinels.
fn hostile_pods() -> impl Strategy<Value = States> {
    let changes = prop::collection::vec((0..7_usize, contents()), 0..4);
    let states = prop::collection::vec((0..3_usize, 0..2_usize, any::<bool>(), changes), 2..14);
    (states, prop::collection::vec(contents(), 7)).prop_map(|(states, common)| {
        let written = |(of, namespace, is_held, changes): (usize, usize, bool, Vec<(usize, String)>)| {
            let mut texts = common.clone();
            changes.into_iter().for_each(|(at, text)| texts[at] = text);
            let [a, b, c, d, e, f, g] = &texts[..] else { unreachable!() };
            let json = pod(
                ["shop", "other"][namespace],
                ["web-abcde", "web-fghij", "web-klmno"][of],
                &format!(r#""a":"{a}","b":"{b}""#),
                &format!(
                    "\"containers\":[{{\"name\":\"a\",\"image\":\"i\",\"args\":[\"{c}\",\"{d}\"]}}],\
                    \"nodeName\":\"node-1\",\"hostname\":\"{e}\""
                ),
                &format!(
                    "\"phase\":\"Running\",\"message\":\"{f}\",\"podIP\":\"{g}\",\"hostIP\":\"10.0.0.1\",\
                    \"containerStatuses\":[{{\"name\":\"a\",\"ready\":true,\"restartCount\":3}}]"
                ),
            );
            (json.into_bytes(), is_held)
        };
        states.into_iter().map(written).collect()
    })
}

/// Generates a Pod, and another one of which bytes were changed, cut off and repeated.
fn modified_bytes() -> impl Strategy<Value = States> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(&b"\"\\{}[],:0\0aT-Z"[..])];
    let changes = prop::collection::vec((any::<prop::sample::Index>(), byte), 1..4);
    let cut = prop::option::weighted(0.1, any::<prop::sample::Index>());
    let twice = prop::option::weighted(0.3, (any::<prop::sample::Index>(), any::<prop::sample::Index>()));
    let flags = (any::<bool>(), prop::bool::weighted(0.7), any::<bool>());
    (0..6_u64, flags, changes, cut, twice).prop_map(|(own, (is_rich, is_ordered, is_held), changes, cut, twice)| {
        let write = |own| {
            let object = if is_rich { of_its_own(own) } else { pod_json(1, own, "Running") };
            if is_ordered { written(&object) } else { object.to_string() }
        };
        let mut bytes = write(own).into_bytes();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Some((from, to)) = twice.filter(|_| !bytes.is_empty()) {
            let from = from.index(bytes.len());
            let to = to.index(bytes.len());
            let (from, to) = (from.min(to), from.max(to));
            let piece = bytes[from..to].to_vec();
            bytes.splice(to..to, piece);
        }
        vec![(write(1).into_bytes(), false), (write(own).into_bytes(), false), (bytes, is_held)]
    })
}

proptest! {
    // PROPTEST_CASES increases it.
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases))]

    #[test]
    fn what_is_read_is_the_pod_its_sections_and_its_changes(
        states in prop_oneof![
            2 => pods_with_unique_values(),
            2 => pods_of_any_structure(),
            2 => hostile_pods(),
            5 => modified_bytes(),
        ],
    ) {
        holds(&states);
    }
}

/// JSON of one Pod whose parts have forms that are easily confused.
fn examples() -> Vec<String> {
    let metadata = r#""metadata":{"name":"web-abcde","namespace":"shop","uid":"u","resourceVersion":"5"}"#;
    let rests = ["", r#","spec":{}"#, r#","status":{}"#, r#","spec":null,"status":null"#, r#","spec":{},"status":{}"#];
    let mut all: Vec<_> = rests.iter().map(|rest| format!("{{{metadata}{rest}}}")).collect();
    all.push(
        "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"web-abcde\",\"namespace\":\"shop\",\
        \"uid\":\"u\",\"resourceVersion\":\"5\",\"managedFields\":[{\"a\":\"}\"}],\
        \"x\":{\"later\":[1.0e3,\"é\\n\"]}},\"later\":null,\"spec\":{\"nodeName\":\"n1\",\"b\":\"n1\"},\
        \"status\":{}}"
            .to_owned(),
    );
    let object = pod_json(1, 3, "Running");
    let json = written(&object);
    // Names like the one that is left out, and what follows it.
    let others = ["managedField", "managedFieldsX", "xanagedFields", "unmanagedFields"];
    all.extend(others.map(|other| json.replace("managedFields", other)));
    all.push(json.replacen(r#"]},"spec":"#, r#"],"later":[7]},"spec":"#, 1));
    all.push(json.replace(r#""hostname":"#, r#""hostname3" :"#));
    // More after the end, and a mark of a placeholder where the Pod before has a value.
    all.extend([json.clone(), format!("{json}}}"), json.clone()]);
    all.push(json.replacen("10.3.0.4", "\0\u{6}", 1));
    for mark in ["\0\u{e}\u{1}", "\0\u{e}\u{2}", "\0\u{e}\0"] {
        all.push(pod("shop", "web-abcde", "", "", "").replace(r#","spec""#, &format!(r#","later":{mark},"spec""#)));
    }
    for mark in ["\\\0\u{e}\0\u{1}", "\\\0\u{e}\u{2}\0\u{1}"] {
        all.push(pod("shop", "web-abcde", "", &format!(r#""restartPolicy":"{mark}""#), ""));
        all.push(pod("shop", "web-abcde", "", &format!(r#""hostname":"{mark}""#), ""));
    }
    // No API server writes spaces.
    all.push(serde_json::to_string_pretty(&object).unwrap());
    let mut with = |change: &dyn Fn(&mut Value)| {
        let mut object = object.clone();
        change(&mut object);
        all.push(written(&object));
    };
    for entry in [
        json!({"manager": "a]b"}),
        json!({"manager": "]},\"spec\":{}"}),
        json!({"list": [1, [2, {"x": [3]}]]}),
        json!({"x": {"y": [4]}, "spec": {"containers": []}, "status": {}}),
    ] {
        with(&|object| object["metadata"]["managedFields"] = json!([entry, entry]));
    }
    // Another value that no section has, and a name that does not begin as its workload's do.
    for time in ["2026-05-05T05:05:05Z", "2026-06-06T06:06:06Z"] {
        with(&|object| object["status"]["conditions"][1]["futureField"][1]["x"] = time.into());
    }
    with(&|object| object["metadata"]["generateName"] = "other-".into());
    with(&|object| object["status"]["nominatedNodeName"] = object["spec"]["nodeName"].clone());
    with(&|object| object["status"]["phase"] = "2026-03-01T01:01:01Z".into());
    with(&|object| object["status"]["phase"] = object["metadata"]["name"].clone());
    with(&|object| object["spec"]["nodeName"] = object["metadata"]["name"].clone());
    for generation in [i64::MAX, i64::MIN, -1, 0x6d5a_0000, i64::from(i32::MAX) + 1] {
        with(&|object| object["metadata"]["generation"] = generation.into());
    }
    with(&|object| object["status"]["conditions"][1]["observedGeneration"] = 8.into());
    with(&|object| {
        object["metadata"]["labels"]["app"] = placeholder::sentinel_text(2).into();
        object["metadata"]["annotations"]["note"] = "2096-10-02T07:06:43Z".into();
        object["status"]["containerStatuses"][0]["restartCount"] = placeholder::sentinel_count(20_004).into();
    });
    let name = object["metadata"]["name"].as_str().unwrap();
    for (times, between) in [(1, 70_000), (254, 275), (255, 1), (256, 256), (257, 255)] {
        with(&|object| object["status"]["message"] = format!("{}{name}", "-".repeat(between)).repeat(times).into());
    }
    for length in (0..66).chain([127, 128, 149]) {
        for text in ["a".repeat(length), "1".repeat(length), format!("//{}", "b".repeat(length))] {
            with(&|object| object["status"]["message"] = text.as_str().into());
        }
    }
    all
}

#[test]
fn examples_and_pods_of_real_servers_hold() {
    let real = real_pods().into_iter().map(|(_, json)| json);
    let states: States = examples().into_iter().map(String::into_bytes).chain(real).map(|json| (json, true)).collect();
    holds(&states);
}

#[test]
fn inputs_that_a_fuzzer_found_hold() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/regressions/pods");
    let files: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(files.len() > 3);
    for file in files {
        for is_held in [false, true] {
            holds(&file.split(|byte| *byte == b'\n').map(|json| (json.to_vec(), is_held)).collect::<States>());
        }
    }
}

/// A literal that looks like the decoder's input for a placeholder, before values that are equal to it.
#[test]
fn literals_like_sentinels_are_not_mistaken_for_equal_values() {
    for at in 0..12 {
        for fragment in 0..3 {
            let sentinel = placeholder::sentinel_text(fragment * skeleton::MAX_PLACEHOLDERS + at);
            let pods = [("web-aaaaa", "x"), ("web-bbbbb", &*sentinel), ("web-ccccc", "evil"), ("web-ddddd", "more")];
            let json = |(name, own): (&str, &str)| {
                let texts = |name: &str| format!(r#""a":"{sentinel}","{name}":"{own}""#);
                (pod("shop", name, &texts("b"), &texts("b"), &texts("message")).into_bytes(), false)
            };
            holds(&pods.map(json));
        }
        let seconds = placeholder::sentinel_time(Fragment::Spec as usize * skeleton::MAX_PLACEHOLDERS + at);
        let time = String::from_utf8(forms::time_text(seconds).to_vec()).unwrap();
        let json = |(name, time): (&str, &str)| {
            let spec = format!(r#""tolerations":[{{"key":"{time}","tolerationSeconds":{}}}]"#, seconds * 1_000);
            (pod("shop", name, "", &spec, "").into_bytes(), false)
        };
        holds(&[("web-aaaaa", &*time), ("web-bbbbb", "2026-01-01T00:00:00Z")].map(json));
    }
}
