//! Random writes near the border between granted and refused. Most texts of a case are right or right except for a
//! detail: wrong case, one letter more, a letter that only looks the same, one byte beyond a length, a piece of a path.

use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::{Map, Value, json};

use crate::{
    Action, ConditionStatus, Event, EventType, Grants, KeyPattern, ObjectGrant, ObjectOwner, ObjectRef, PodKey, Scope,
    WriteGrants,
};

#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) scope: Scope,
    pub(super) grants: Grants,
    pub(super) asked: Asked,
}

#[derive(Debug, Clone)]
pub(super) enum Asked {
    Write(Action),
    Event(Event),
    Read(ObjectRef),
}

const NAMESPACES: &[&str] = &["shop", "shop-a", "sho", "Shop", "bank", "", "..", "shop/../bank", "sh\u{43e}p", "shop."];
const NAMES: &[&str] =
    &["cart-0", "cart-0.a", "Cart-0", "", "..", ".", "a/b", "a%2fb", "cart-0?dryRun=All", "cart-", "a..b"];
const UIDS: &[&str] = &["u1", "0b5c4a3e-95b4-4d1c-9d3c-0d6ffb0a9f2e", "", "u 1", "u\u{e9}", "u1\0"];
const KEYS: &[&str] = &[
    "team",
    "Team",
    "shop.example/team",
    "shop.example/tri",
    "shop.example/triage",
    "shop.example.evil/team",
    "shop.example/",
    "Shop.example/team",
    "app.kubernetes.io/name",
    "app.kubernetes.io/managed-by",
    "akubernetes.io/name",
    "kubernetes.io/name",
    "kubernetes.io.example/name",
    "K8s.io/name",
    "a.k8s.io/name",
    "k8s.io/name",
    "podium.dev/workload",
    "podium.dev/applied-0123",
    "podium.dev/applied",
    "a.podium.dev/applied-0",
    "kubectl.kubernetes.io/last-applied-configuration",
    "kubectl.kubernetes.io/last-applied-configurations",
    "kubectl.kubernetes.io/restartedAt",
    "pod-template-hash",
    "pod-template-hashes",
    "pod-template-generation",
    "controller-revision-hash",
    "controller-uid",
    "job-name",
    "shop.example/Ready",
    "Ready",
    "PodScheduled",
    "ContainersReady",
    "Initialized",
    "PodReadyToStartContainers",
    "PodHasNetwork",
    "DisruptionTarget",
    "PodResizePending",
    "PodResizeInProgress",
    "AllContainersRestarting",
    "kubernetes.io/pvc-protection",
    "orphan",
    "foregroundDeletion",
    "a/b/c",
    "",
    "*",
];
const PATTERNS: &[&str] = &[
    "shop.example/*",
    "shop.example/tri*",
    "app.kubernetes.io/*",
    "k8s.io/*",
    "podium.dev/*",
    "*",
    "t*",
    "/*",
    "*/*",
    "",
];
const KINDS: &[(&str, &str, &str)] = &[
    ("v1", "ConfigMap", "configmaps"),
    ("v1", "Secret", "secrets"),
    ("v1", "Namespace", "namespaces"),
    ("v1", "Node", "nodes"),
    ("v1", "Pod", "pods"),
    ("v1", "Disguised", "pods"),
    ("v1", "Pod", "configmaps"),
    ("v1", "ConfigMap", "pods/exec"),
    ("v1", "ConfigMap", "configmaps/status"),
    ("v1", "ConfigMap", "configmaps/../pods"),
    ("v1", "List", "configmaps"),
    ("v1", "ConfigMapList", "configmaps"),
    ("v1", "configMap", "configmaps"),
    ("v1", "ConfigMap", "ConfigMaps"),
    ("v1", "ConfigMap", ""),
    ("v1", "Eviction", "evictions"),
    ("apps/v1", "Deployment", "deployments"),
    ("apps/v1", "Pod", "pods"),
    ("apps/v1/", "Deployment", "deployments"),
    ("V1", "ConfigMap", "configmaps"),
    ("v1/../../v1", "ConfigMap", "configmaps"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles"),
];
const METADATA: &[&str] = &[
    "ownerReferences",
    "managedFields",
    "uid",
    "resourceVersion",
    "generateName",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "selfLink",
    "finalizers",
    "Finalizers",
];
const MEMBERS: &[&str] = &[
    "$patch",
    "$retainKeys",
    "$setElementOrder/ports",
    "$setElementOrder",
    "$deleteFromPrimitiveList/finalizers",
    "$patches",
    "$ref",
    "metadata",
    "template",
    "status",
    "data",
];
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1.5",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "9.223372036854775e18",
    "1e18",
    "1e19",
    "1e308",
];

/// Makes cases; the same seed makes the same ones.
pub(super) struct Cases {
    random: SmallRng,
    /// One of this number of texts is damaged. It changes from case to case.
    spoilt: u32,
}

impl Cases {
    pub(super) fn new(seed: u64) -> Self {
        Self { random: SmallRng::seed_from_u64(seed), spoilt: 0 }
    }

    fn one_in(&mut self, of: u32) -> bool {
        self.random.random_range(0..of) == 0
    }

    fn any<T: Copy>(&mut self, of: &[T]) -> T {
        *of.choose(&mut self.random).unwrap()
    }

    /// `good`, or sometimes another text of the pool, one like `good`, or one at the border of a length.
    fn text(&mut self, good: &str, pool: &[&str], longest: usize) -> String {
        if !self.one_in(self.spoilt) {
            return good.to_owned();
        }
        match self.random.random_range(0..4) {
            0 => self.any(pool).to_owned(),
            1 => "a".repeat(longest + self.random.random_range(0..2)),
            2 => format!("{}a", "A.".repeat(longest.min(400) / 2)),
            _ => self.near(good),
        }
    }

    /// A text like another, and not always a different one.
    fn near(&mut self, text: &str) -> String {
        let mut letters: Vec<char> = text.chars().collect();
        let at = self.random.random_range(0..=letters.len());
        let letter = self.any(&[
            'a', 'A', '0', '-', '.', '_', '/', '*', '%', ' ', '\0', '\n', '~', '\u{7f}', '\u{430}', '\u{ff0f}',
            '\u{130}',
        ]);
        match self.random.random_range(0..5) {
            0 => letters.insert(at, letter),
            1 if at < letters.len() => letters[at] = letter,
            2 if at < letters.len() => drop(letters.remove(at)),
            3 if at < letters.len() => {
                let other = letters[at];
                letters[at] =
                    if other.is_lowercase() { other.to_ascii_uppercase() } else { other.to_ascii_lowercase() };
            }
            _ => letters.truncate(at),
        }
        letters.into_iter().collect()
    }

    fn patterns(&mut self) -> Vec<KeyPattern> {
        let count = self.random.random_range(0..3);
        let pattern = |_| {
            let key = self.any(KEYS);
            KeyPattern(match self.random.random_range(0..8) {
                0 | 1 => self.any(PATTERNS).to_owned(),
                2 => format!("{key}*"),
                3 => format!("{}*", &key[..self.random.random_range(0..=key.len())]),
                4 => self.near(key),
                _ => key.to_owned(),
            })
        };
        (0..count).map(pattern).collect()
    }

    /// A key that one of the patterns covers, if there is one, or another.
    fn key(&mut self, patterns: &[KeyPattern]) -> String {
        let key = match patterns.choose(&mut self.random) {
            Some(KeyPattern(pattern)) if !self.one_in(4) => {
                pattern.replace('*', self.any(KEYS).split('/').next_back().unwrap())
            }
            _ => self.any(KEYS).to_owned(),
        };
        match self.random.random_range(0..24 * u64::from(self.spoilt)) {
            0 => format!(
                "{}/{}",
                "a".repeat(252 + self.random.random_range(0..3)),
                "b".repeat(62 + self.random.random_range(0..3))
            ),
            1 => "b".repeat(62 + self.random.random_range(0..3)),
            _ => self.text(&key, KEYS, 63),
        }
    }

    fn target(&mut self) -> PodKey {
        let namespace = self.text("shop", NAMESPACES, 63);
        let name = self.text("cart-0", NAMES, 253);
        let uid = self.text("u1", UIDS, 128);
        PodKey::new(&namespace, &name, &uid)
    }

    /// A text whose length matters and nothing else.
    fn long(&mut self, most: usize) -> String {
        let length =
            if self.one_in(256) { most + self.random.random_range(0..2) } else { self.random.random_range(0..9) };
        "\u{e9} ".repeat(length / 3) + &"x".repeat(length % 3)
    }

    pub(super) fn next(&mut self) -> Case {
        self.spoilt = self.any(&[8, 32, 1_000_000]);
        let scope = match self.random.random_range(0..8) {
            0 => Scope::Cluster,
            1 => Scope::Namespace(self.any(NAMESPACES).into()),
            _ => Scope::Namespace("shop".into()),
        };
        let verbs: u32 = self.random.random();
        let write = WriteGrants {
            labels: self.patterns(),
            annotations: self.patterns(),
            finalizers: self.patterns(),
            conditions: self.patterns(),
            events: verbs & 3 > 0,
            delete: verbs & 12 > 0,
            evict: verbs & 48 > 0,
            objects: self.kinds(),
            forced: Vec::new(),
            scale: self.kinds(),
        };
        let grants = Grants { read: None, read_objects: self.kinds(), write };
        let asked = self.asked(&grants);
        Case { scope, grants, asked }
    }

    fn kinds(&mut self) -> Vec<ObjectGrant> {
        let kind = |(api_version, kind, resource): (&str, &str, &str)| ObjectGrant {
            api_version: api_version.into(),
            kind: kind.into(),
            resource: resource.into(),
        };
        (0..self.random.random_range(0..4)).map(|_| kind(self.any(KINDS))).collect()
    }

    fn asked(&mut self, Grants { read: _, read_objects, write }: &Grants) -> Asked {
        Asked::Write(match self.random.random_range(0..22) {
            0 | 1 => Action::SetLabel {
                target: self.target(),
                key: self.key(&write.labels),
                value: self.text("web", &["", "two words", "-", "Web_0.a"], 63),
            },
            2 => Action::RemoveLabel { target: self.target(), key: self.key(&write.labels) },
            3 => {
                let target = self.target();
                let key = self.key(&write.annotations);
                Action::SetAnnotation { target, key, value: self.long(65_536) }
            }
            4 => Action::RemoveAnnotation { target: self.target(), key: self.key(&write.annotations) },
            5 => Action::AddFinalizer { target: self.target(), name: self.key(&write.finalizers) },
            6 => Action::RemoveFinalizer { target: self.target(), name: self.key(&write.finalizers) },
            7 | 8 => Action::SetCondition {
                target: self.target(),
                condition_type: self.key(&write.conditions),
                status: ConditionStatus::True,
                reason: self.text("MutableTag", &["", "a", "9", "two words", "a,", "a:b", "a_", "_"], 1_024),
                message: self.long(32_768),
            },
            9 => Action::RemoveCondition { target: self.target(), condition_type: self.key(&write.conditions) },
            10 => Action::DeletePod { target: self.target(), grace_seconds: None },
            11 => Action::EvictPod { target: self.target() },
            12 | 13 => {
                let uid = self.text("u1", UIDS, 128);
                Action::DeleteObject { object: self.object(&write.objects), uid: Some(uid).filter(|_| !self.one_in(2)) }
            }
            14..18 => {
                let object = self.object(&write.objects);
                let body = self.body(write, &object);
                let owner = self.one_in(4).then(|| self.target());
                let owner = owner.map(if self.one_in(2) { ObjectOwner::Pod } else { ObjectOwner::Workload });
                Action::ApplyObject { object, body, owner }
            }
            18 => {
                let replicas = self.any(&[0, 1, 3, i32::MAX as u32, 1 << 31, u32::MAX]);
                Action::Scale { object: self.object(&write.scale), replicas }
            }
            19 => return Asked::Read(self.object(read_objects)),
            _ => {
                let target = self.target();
                let (reason, action) =
                    (self.text("Crash", &["", "crash", "A b"], 128), self.text("Diagnose", &["", "9A"], 128));
                return Asked::Event(Event {
                    target,
                    event_type: EventType::Warning,
                    reason,
                    action,
                    note: self.long(1_024),
                });
            }
        })
    }

    fn object(&mut self, granted: &[ObjectGrant]) -> ObjectRef {
        let (api_version, kind, resource) = match granted.choose(&mut self.random) {
            Some(grant) if !self.one_in(8) => (&*grant.api_version, &*grant.kind, &*grant.resource),
            _ => self.any(KINDS),
        };
        ObjectRef {
            api_version: self.text(api_version, &["v1", "", "apps/v1", "a/b/c", "v1beta1"], 63),
            kind: self.text(kind, &["ConfigMap", "Pod", "", "Config-Map"], 128),
            resource: self.text(resource, &["pods", "secrets", "configmaps", ""], 63),
            namespace: (!self.one_in(8)).then(|| self.text("shop", NAMESPACES, 63)),
            name: self.text("summary", NAMES, 253),
        }
    }

    fn body(&mut self, write: &WriteGrants, object: &ObjectRef) -> Value {
        let mut body = json!({
            "apiVersion": self.text(&object.api_version, &["v1", "V1"], 63),
            "kind": self.text(&object.kind, &["ConfigMap", "Pod"], 128),
            "metadata": { "name": self.text(&object.name, NAMES, 253) },
        });
        if let Some(namespace) = &object.namespace {
            body["metadata"]["namespace"] = self.text(namespace, NAMESPACES, 63).into();
        }
        for (field, patterns) in [("labels", &write.labels), ("annotations", &write.annotations)] {
            if self.one_in(3) {
                body["metadata"][field] = self.keys(patterns);
            }
        }
        if self.one_in(self.spoilt) {
            body["metadata"]["finalizers"] = self.finalizers(write);
        }
        if self.one_in(2) {
            let data = self.data(write, 3);
            body[self.any(&["data", "spec"])] = data;
        }
        if self.one_in(self.spoilt) {
            self.spoil(&mut body);
        }
        body
    }

    /// Labels or annotations.
    fn keys(&mut self, patterns: &[KeyPattern]) -> Value {
        let keys: Map<String, Value> = (0..self.random.random_range(0..3))
            .map(|_| (self.key(patterns), self.text("web", &["", "two words"], 63).into()))
            .collect();
        keys.into()
    }

    /// The metadata of a template, or something in its place.
    fn template(&mut self, write: &WriteGrants) -> Value {
        let mut metadata = json!({});
        match self.random.random_range(0..4) {
            0 => metadata["labels"] = self.keys(&write.labels),
            1 => metadata["annotations"] = self.keys(&write.annotations),
            2 => metadata["finalizers"] = self.finalizers(write),
            _ => metadata["labels"] = json!({ "app": "a" }),
        }
        if self.one_in(self.spoilt) {
            let odd = [json!(null), json!([]), json!("a"), json!([1])];
            metadata[self.any(&["labels", "annotations", "finalizers"])] =
                odd.choose(&mut self.random).unwrap().clone();
        }
        metadata
    }

    fn finalizers(&mut self, write: &WriteGrants) -> Value {
        (0..self.random.random_range(0..3)).map(|_| self.key(&write.finalizers)).collect()
    }

    fn data(&mut self, write: &WriteGrants, levels: usize) -> Value {
        match self.random.random_range(0..6) {
            0 => serde_json::from_str(if self.one_in(self.spoilt) { self.any(NUMBERS) } else { "7" }).unwrap(),
            1 => json!({ "metadata": self.template(write) }),
            2 | 3 if levels > 0 => (0..2).map(|_| self.data(write, levels - 1)).collect(),
            4 if levels > 0 => {
                let member = self.text("template", MEMBERS, 8);
                json!({ member: self.data(write, levels - 1), "b": [] })
            }
            _ => "$patch".into(),
        }
    }

    /// One change that is not of a text.
    fn spoil(&mut self, body: &mut Value) {
        let odd = |cases: &mut Self| match cases.random.random_range(0..6) {
            0 => Value::Null,
            1 => json!([]),
            2 => json!({}),
            3 => json!([1]),
            4 => json!({ "a": 1 }),
            _ => json!("a"),
        };
        match self.random.random_range(0..8) {
            0 => body["metadata"][self.any(METADATA)] = odd(self),
            1 => body["metadata"][self.any(&["namespace", "name", "labels", "annotations"])] = odd(self),
            2 => {
                body["metadata"]["annotations"] = json!({ "note": "x".repeat(65_535 + self.random.random_range(0..3)) })
            }
            3 => body["status"] = odd(self),
            4 => {
                let levels = self.random.random_range(96..102);
                body["data"] = (0..levels)
                    .fold(json!(1), |inner, _| if self.one_in(2) { json!([inner]) } else { json!({ "a": inner }) });
            }
            5 => body[self.any(&["apiVersion", "kind"])] = odd(self),
            6 => body[self.any(MEMBERS)] = odd(self),
            _ => *body = odd(self),
        }
    }
}
