//! Pods of the plugin's namespace and of others, in one cluster. Fields of all Pods have values of the same few; fields
//! of other tenants' Pods have canaries as well.

use std::sync::Arc;

use podium_encoding::{Pool, Scratch, testing};
use podium_pods::{
    cache::{self, Snapshot},
    pod::{CachedPod, PodEvent},
};
use podium_tests::programs::{Choices, Vocabulary};
use podium_vocabulary::Prune;
use serde_json::{Value, json};

use super::{CANARY, OWN};

/// Namespaces before and after the plugin's, and next to it.
pub(super) const OTHERS: [&str; 6] = ["ahoy", "bank", "shoo", "shop-2", "zoo", "cnry-ns"];
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
const OWNERS: [&str; 4] = ["owner-1", "owner-2", "owner-3", "owner-4"];
const PHASES: [&str; 4] = ["Running", "Pending", "Failed", ""];
const KEYS: [&str; 3] = ["app", "tier", "shop.example/x"];
const VALUES: [&str; 4] = ["cart", "web", "db", ""];
const NAMES: usize = 8;

/// Texts that random programs use. None of them is a canary.
pub(super) fn vocabulary() -> Vocabulary {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let mut words = Vocabulary {
        namespaces: texts(&[OWN, "bank", "shop-2", "zoo", "nowhere", "", "../bank", "BANK", "sho\u{440}"]),
        names: (0..NAMES).map(|at| format!("cart-{at}")).collect(),
        uids: (0..NAMES).flat_map(|at| [format!("{OWN}-{at}"), format!("bank-{at}")]).collect(),
        nodes: texts(&NODES),
        owners: texts(&OWNERS),
        phases: texts(&PHASES),
        keys: texts(&KEYS),
        values: texts(&VALUES),
        cursors: texts(&["", "bank/cart-1", "shop/", "shop/cart-2", "shop/cart-9", "zoo/cart-0", "shoo/zz", "ahoy/a"]),
    };
    words.names.push("%2e%2e/cart-0".to_owned());
    words.uids.push("nowhere".to_owned());
    words
}

/// The Pods of a cluster. Those of the plugin's namespace are the same for the same seed.
pub(super) struct Population {
    pub(super) snapshot: Arc<Snapshot>,
    /// All Pods of the plugin's namespace.
    pub(super) own: Vec<Arc<CachedPod>>,
}

/// The Pods of the other namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    Absent,
    /// This number of Pods. The number also determines their fields.
    Present(u64),
}

impl Population {
    pub(super) fn new(seed: u64, others: Others) -> Self {
        let mut choices = Choices::new(seed);
        let count = 1 + choices.below(NAMES - 1);
        let mut pods: Vec<_> = (0..count).map(|at| (revision(at), own(at, &mut choices))).collect();
        if let Others::Present(number) = others {
            let mut choices = Choices::new(seed ^ number << 32);
            for at in 0..=choices.below(24) {
                // Between those of the plugin's namespace, or after them.
                let revision = revision(choices.below(count + 1)) - 1 - at;
                pods.push((revision, other(at, &mut choices)));
            }
        }
        pods.sort_by_key(|(revision, _)| *revision);
        let pods = pods.into_iter().map(|(revision, mut pod)| {
            pod["metadata"]["resourceVersion"] = revision.to_string().into();
            testing::written(&pod)
        });
        Self::from_pods(pods)
    }

    /// Returns a number of Pods of other namespaces behind those of the plugin's.
    pub(super) fn large(others: usize) -> Self {
        let mut choices = Choices::new(7);
        let own: Vec<_> = (0..NAMES).map(|at| own(at, &mut choices)).collect();
        let others = (0..others).map(|at| {
            let mut pod = other(at, &mut choices);
            pod["status"]["phase"] = "Unknown".into();
            (pod["metadata"]["name"], pod["metadata"]["uid"]) =
                (format!("pod-{at}").into(), format!("uid-{at}").into());
            pod
        });
        let pods: Vec<_> = own.into_iter().chain(others).collect();
        Self::from_pods(pods.into_iter().enumerate().map(|(at, mut pod)| {
            pod["metadata"]["resourceVersion"] = (1_000 + at).to_string().into();
            testing::written(&pod)
        }))
    }

    /// Reads the Pods as the watch does, each with the Pods before it in the cache.
    fn from_pods(pods: impl Iterator<Item = String>) -> Self {
        let (mut writer, reader) = cache::new(7);
        let mut pool = Pool::new(7);
        pool.prune = Prune::default();
        let mut scratch = Scratch::default();
        let mut own = Vec::new();
        for pod in pods {
            let (pod, _) = CachedPod::read(pod.as_bytes(), &pool, &mut scratch, |_, _| None).unwrap();
            let pod = Arc::new(pod);
            if &*pod.key.namespace == OWN {
                own.push(Arc::clone(&pod));
            }
            writer.apply(vec![PodEvent::applied(pod)]).publish();
        }
        Self { snapshot: reader.snapshot(), own }
    }
}

/// The revision of a Pod of the plugin's namespace, the same in every cluster. There is space for others before each.
fn revision(at: usize) -> usize {
    1_000 + 100 * at
}

/// A Pod whose fields have values of the vocabulary.
fn plain(namespace: &str, at: usize, choices: &mut Choices) -> Value {
    let mut pod = testing::pod_json(1, at as u64, PHASES[choices.below(PHASES.len())]);
    let metadata = &mut pod["metadata"];
    metadata["namespace"] = namespace.into();
    metadata["name"] = format!("cart-{}", at % NAMES).into();
    metadata["uid"] = format!("{namespace}-{at}").into();
    metadata["labels"] = json!({});
    for key in KEYS {
        if let Some(value) = choices.maybe(&VALUES) {
            metadata["labels"][key] = (*value).into();
        }
    }
    metadata["ownerReferences"][0]["uid"] = (*choices.one(&OWNERS)).into();
    pod["spec"]["nodeName"] = (*choices.one(&NODES)).into();
    pod
}

fn own(at: usize, choices: &mut Choices) -> Value {
    plain(OWN, at, choices)
}

/// A Pod of another namespace, with canaries in all fields that a program cannot name, and in some that it can.
fn other(at: usize, choices: &mut Choices) -> Value {
    let mut pod = plain(OTHERS[choices.below(OTHERS.len())], at, choices);
    let canary = |field: &str| Value::from(format!("{CANARY}-{field}-{at}"));
    let metadata = &mut pod["metadata"];
    if choices.percent(50) {
        (metadata["name"], metadata["uid"]) = (canary("name"), canary("uid"));
    }
    metadata["generateName"] = canary("generate");
    metadata["labels"]["secret"] = canary("value");
    metadata["labels"][format!("{CANARY}-key-{at}")] = "x".into();
    metadata["annotations"] = json!({"note": canary("note"), format!("{CANARY}-annotation-{at}"): "x"});
    metadata["ownerReferences"][0]["name"] = canary("owner");
    if choices.percent(30) {
        metadata["ownerReferences"][0]["uid"] = canary("owner-uid");
    }
    metadata["finalizers"] = json!([format!("{CANARY}.example/{at}")]);
    let spec = &mut pod["spec"];
    if choices.percent(30) {
        spec["nodeName"] = canary("node");
    }
    spec["hostname"] = canary("host");
    spec["serviceAccountName"] = canary("account");
    spec["containers"][0]["name"] = canary("container");
    spec["containers"][0]["image"] = canary("image");
    spec["containers"][0]["env"] = json!([{"name": format!("{CANARY}_ENV"), "value": canary("env")}]);
    spec["volumes"][0]["name"] = canary("volume");
    let status = &mut pod["status"];
    (status["message"], status["reason"]) = (canary("message"), canary("reason"));
    status["containerStatuses"][0]["state"] =
        json!({"waiting": {"reason": canary("waiting"), "message": canary("waiting-message")}});
    status["conditions"][0]["message"] = canary("condition");
    pod
}
