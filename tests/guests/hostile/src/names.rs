//! Names, keys, uids and cursors that are not the guest's to use.

use bindings::{
    pods, state,
    types::{ConditionStatus, LabelOperator, LabelRequirement, PodKey, PodQuery},
    writes,
};

use crate::{Attack, foreign, tally::Tally, tricks};

pub const ATTACKS: &[(&str, Attack)] = &[
    ("read-through-names-with-paths", |_, tally| {
        for trick in tricks() {
            tally.read(pods::get(&trick, "vault-0"));
            tally.read(pods::get("shop", &trick));
        }
        None
    }),
    ("read-live-through-namespaces-with-paths", |_, tally| {
        for trick in tricks().into_iter().take(10) {
            tally.read(pods::get_live(&trick, "vault-0"));
        }
        None
    }),
    ("read-live-through-names-with-paths", |_, tally| {
        for trick in tricks().into_iter().take(10) {
            tally.read(pods::get_live("shop", &trick));
        }
        None
    }),
    ("search-other-namespaces", |_, tally| {
        for trick in tricks().into_iter().chain(["bank".to_owned()]) {
            let query = PodQuery { namespace: Some(trick), ..all() };
            match pods::count(&query) {
                Ok(0) => tally.count("none"),
                other => drop(tally.add(other)),
            }
            if let Some(page) = tally.add(pods::find(&query, 10, None)) {
                tally.count(if page.pods.is_empty() { "empty" } else { "FOUND" });
            }
        }
        None
    }),
    ("search-by-sections-without-a-grant", |_, tally| {
        let text = || Some("x".to_owned());
        for query in [
            PodQuery { node: text(), ..all() },
            PodQuery { owner_uid: text(), ..all() },
            PodQuery { phase: Some("Failed".into()), ..all() },
        ] {
            tally.add(pods::count(&query));
            tally.add(pods::find(&query, 1, None));
        }
        None
    }),
    ("forge-cursors", |_, tally| {
        let more = ["bank/vault-0", "shop", "shop/", "/cart-0", "shop/cart-0/x", "zzzz/zzzz", "../../etc/passwd"];
        for cursor in tricks().iter().map(String::as_str).chain(more) {
            // Two Pods are the guest's own. A cursor that is none is invalid.
            match pods::find(&all(), 500, Some(cursor)) {
                Ok(page) if contains(&page.pods, b"vault") => tally.count("FOREIGN"),
                other => drop(tally.add(other)),
            }
        }
        None
    }),
    ("ask-for-more-than-a-page", |_, tally| {
        tally.add(pods::find(&all(), u32::MAX, None));
        tally.add(pods::find(&all(), 0, None));
        None
    }),
    ("search-with-operators-that-lie", |_, tally| {
        let texts = |count: usize| vec!["x".to_owned(); count];
        for (operator, values) in [
            (LabelOperator::In, texts(0)),
            (LabelOperator::NotIn, texts(65)),
            (LabelOperator::Exists, texts(1)),
            (LabelOperator::DoesNotExist, texts(1)),
        ] {
            tally.add(pods::count(&labelled(vec![requirement("app", operator, values)])));
        }
        tally.add(pods::count(&labelled(vec![requirement("app", LabelOperator::Exists, Vec::new()); 33])));
        let long = requirement(&"k".repeat(4_000), LabelOperator::Exists, Vec::new());
        tally.add(pods::count(&labelled(vec![long])));
        None
    }),
    ("write-to-pods-of-others", |_, tally| {
        let target = foreign();
        tally.add(writes::set_label(&target, "guests.example/a", "1"));
        tally.add(writes::remove_annotation(&target, "guests.example/a"));
        tally.add(writes::add_finalizer(&target, "guests.example/a"));
        tally.add(writes::set_condition(&target, "guests.example/a", ConditionStatus::True, "", ""));
        tally.add(writes::delete_pod(&target, Some(0)));
        tally.add(writes::evict_pod(&target));
        None
    }),
    ("write-to-targets-with-paths", |request, tally| {
        for trick in tricks() {
            let own = &request.key;
            for key in [PodKey { namespace: trick.clone(), ..own.clone() }, PodKey { name: trick, ..own.clone() }] {
                tally.add(writes::set_label(&key, "guests.example/a", "1"));
            }
        }
        None
    }),
    ("write-to-uids-out-of-syntax", |request, tally| {
        for uid in ["", " ", "a b", "a\nb", "\u{430}", &"x".repeat(129), &"x".repeat(64 << 10)] {
            let key = PodKey { uid: uid.into(), ..request.key.clone() };
            tally.add(writes::set_label(&key, "guests.example/a", "1"));
        }
        None
    }),
    ("label-keys-out-of-syntax", |request, tally| {
        keys_out_of_syntax(tally, |key| writes::set_label(&request.key, key, "1"))
    }),
    ("annotation-keys-out-of-syntax", |request, tally| {
        keys_out_of_syntax(tally, |key| writes::set_annotation(&request.key, key, "1"))
    }),
    ("label-values-out-of-syntax", |request, tally| {
        for value in ["a b", "a/b", "-a", "a-", "\u{430}", "a\nb", "\u{202e}", &"v".repeat(64), &"v".repeat(64 << 10)] {
            tally.add(writes::set_label(&request.key, "guests.example/a", value));
        }
        None
    }),
    ("reserved-labels", |request, tally| {
        for key in RESERVED {
            tally.add(writes::set_label(&request.key, key, "1"));
            tally.add(writes::remove_label(&request.key, key));
        }
        None
    }),
    ("reserved-annotations", |request, tally| {
        for key in RESERVED {
            tally.add(writes::set_annotation(&request.key, key, "1"));
            tally.add(writes::remove_annotation(&request.key, key));
        }
        None
    }),
    ("finalizers-of-others", |request, tally| {
        for name in ["bank.example/hold", "kubernetes.io/pvc-protection", "podium.dev/x", "other.example/y"] {
            tally.add(writes::add_finalizer(&request.key, name));
            tally.add(writes::remove_finalizer(&request.key, name));
        }
        for name in ["orphan", "foregroundDeletion"] {
            tally.add(writes::add_finalizer(&request.key, name));
        }
        None
    }),
    ("conditions-of-kubernetes", |request, tally| {
        for kind in ["Ready", "PodScheduled", "ContainersReady", "Initialized", "DisruptionTarget", "bank.example/x"] {
            tally.add(writes::set_condition(&request.key, kind, ConditionStatus::False, "", ""));
            tally.add(writes::remove_condition(&request.key, kind));
        }
        None
    }),
    ("state-keys-of-others", |_, tally| {
        for key in ["bank/secret", "../bank/secret", "bank\0secret", "", "secret"] {
            tally.read(state::get(key));
        }
        tally.read(state::get(&"k".repeat(257)));
        tally.put(state::put(&"k".repeat(257), b"", None));
        None
    }),
];

const RESERVED: [&str; 10] = [
    "kubernetes.io/metadata.name",
    "app.kubernetes.io/managed-by",
    "kubectl.kubernetes.io/last-applied-configuration",
    "pod-template-hash",
    "controller-revision-hash",
    "batch.kubernetes.io/job-name",
    "node-role.kubernetes.io/x",
    "podium.dev/applied-x",
    "app",
    "other.example/a",
];

fn keys_out_of_syntax<T>(
    tally: &mut Tally,
    write: impl Fn(&str) -> Result<T, bindings::types::CallError>,
) -> Option<Result<bindings::Outcome, bindings::Failure>> {
    let long = format!("guests.example/{}", "k".repeat(64));
    let huge = "k".repeat(64 << 10);
    for key in [
        "",
        "/",
        "a/",
        "/a",
        "guests.example/",
        "guests.example/a/b",
        "GUESTS.EXAMPLE/a",
        "guests.example/\u{e4}",
        "guests.example/a b",
        "guests.example/a\n",
        "guests.example/../a",
        "$patch",
        "guests.example%2fa",
        "a\0",
        "\u{202e}a",
        &long,
        &huge,
    ] {
        tally.add(write(key));
    }
    None
}

pub fn all() -> PodQuery {
    PodQuery { namespace: None, node: None, owner_uid: None, phase: None, labels: Vec::new() }
}

pub fn labelled(labels: Vec<LabelRequirement>) -> PodQuery {
    PodQuery { labels, ..all() }
}

pub fn requirement(key: &str, operator: LabelOperator, values: Vec<String>) -> LabelRequirement {
    LabelRequirement { key: key.into(), operator, values }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
