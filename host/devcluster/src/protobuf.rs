//! Decodes the protobuf that Go clients send for the kinds they know: kubectl's `create` and `auth`, leader election,
//! Events, evictions. Responses are JSON, which those clients accept. Pods and Nodes in protobuf are not supported,
//! because no supported Go client creates them so.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The first bytes of every Kubernetes protobuf body.
const MAGIC: &[u8] = b"k8s\0";
/// The maximum nesting depth of messages; hostile bytes may nest deeper.
const DEEPEST: usize = 16;

/// Message, then `number name type` of each field; a type is `s` text, `i` integer, `b` boolean, `t` a time, `m` a time
/// in microseconds, `y` bytes, `q` an integer or text, `{s`/`{y` a map of text to text or bytes, or a message. `*`
/// before it makes a list, and `-` leaves a field out. A message that begins with `!` must have no other fields.
const MESSAGES: &[(&str, &str)] = &[
    (
        "ObjectMeta",
        "1 name s;2 generateName s;3 namespace s;5 uid s;6 resourceVersion s;7 generation i;8 creationTimestamp t;\
         9 deletionTimestamp t;10 deletionGracePeriodSeconds i;11 labels {s;12 annotations {s;\
         13 ownerReferences *OwnerReference;14 finalizers *s",
    ),
    ("OwnerReference", "1 kind s;3 name s;4 uid s;5 apiVersion s;6 controller b;7 blockOwnerDeletion b"),
    ("ObjectReference", "1 kind s;2 namespace s;3 name s;4 uid s;5 apiVersion s;6 resourceVersion s;7 fieldPath s"),
    ("LocalObjectReference", "1 name s"),
    ("LabelSelector", "1 matchLabels {s;2 matchExpressions *LabelSelectorRequirement"),
    ("LabelSelectorRequirement", "1 key s;2 operator s;3 values *s"),
    ("Namespace", "1 metadata ObjectMeta;2 spec NamespaceSpec"),
    ("NamespaceSpec", "1 finalizers *s"),
    ("ConfigMap", "1 metadata ObjectMeta;2 data {s;3 binaryData {y;4 immutable b"),
    ("Secret", "1 metadata ObjectMeta;2 data {y;3 type s;4 stringData {s;5 immutable b"),
    (
        "ServiceAccount",
        "1 metadata ObjectMeta;2 secrets *ObjectReference;3 imagePullSecrets *LocalObjectReference;\
         4 automountServiceAccountToken b",
    ),
    ("Role", "1 metadata ObjectMeta;2 rules *PolicyRule"),
    ("ClusterRole", "1 metadata ObjectMeta;2 rules *PolicyRule"),
    ("PolicyRule", "1 verbs *s;2 apiGroups *s;3 resources *s;4 resourceNames *s;5 nonResourceURLs *s"),
    ("RoleBinding", "1 metadata ObjectMeta;2 subjects *Subject;3 roleRef RoleRef"),
    ("ClusterRoleBinding", "1 metadata ObjectMeta;2 subjects *Subject;3 roleRef RoleRef"),
    ("Subject", "1 kind s;2 apiGroup s;3 name s;4 namespace s"),
    ("RoleRef", "1 apiGroup s;2 kind s;3 name s"),
    ("Lease", "1 metadata ObjectMeta;2 spec LeaseSpec"),
    (
        "LeaseSpec",
        "1 holderIdentity s;2 leaseDurationSeconds i;3 acquireTime m;4 renewTime m;5 leaseTransitions i;6 strategy s;\
         7 preferredHolder s",
    ),
    ("PodDisruptionBudget", "1 metadata ObjectMeta;2 spec PodDisruptionBudgetSpec"),
    (
        "PodDisruptionBudgetSpec",
        "1 minAvailable q;2 selector LabelSelector;3 maxUnavailable q;4 unhealthyPodEvictionPolicy s",
    ),
    ("Deployment", "1 metadata ObjectMeta;2 spec DeploymentSpec;3 status -"),
    (
        "DeploymentSpec",
        "!;1 replicas i;2 selector LabelSelector;3 template PodTemplateSpec;4 strategy DeploymentStrategy;\
         5 minReadySeconds i;6 revisionHistoryLimit i;7 paused b;9 progressDeadlineSeconds i",
    ),
    ("DeploymentStrategy", "1 type s;2 rollingUpdate RollingUpdateDeployment"),
    ("RollingUpdateDeployment", "1 maxUnavailable q;2 maxSurge q"),
    ("Job", "1 metadata ObjectMeta;2 spec JobSpec;3 status -"),
    (
        "JobSpec",
        "!;1 parallelism i;2 completions i;3 activeDeadlineSeconds i;4 selector LabelSelector;5 manualSelector b;\
         6 template PodTemplateSpec;7 backoffLimit i;8 ttlSecondsAfterFinished i;9 completionMode s;10 suspend b;\
         14 podReplacementPolicy s;15 managedBy s",
    ),
    ("PodTemplateSpec", "1 metadata ObjectMeta;2 spec PodSpec"),
    (
        "PodSpec",
        "!;2 containers *Container;3 restartPolicy s;4 terminationGracePeriodSeconds i;5 activeDeadlineSeconds i;\
         6 dnsPolicy s;7 nodeSelector {s;8 serviceAccountName s;9 serviceAccount s;10 nodeName s;11 hostNetwork b;\
         12 hostPID b;13 hostIPC b;15 imagePullSecrets *LocalObjectReference;16 hostname s;17 subdomain s;\
         19 schedulerName s;20 initContainers *Container;21 automountServiceAccountToken b;24 priorityClassName s;\
         25 priority i;29 runtimeClassName s;30 enableServiceLinks b;31 preemptionPolicy s",
    ),
    (
        "Container",
        "!;1 name s;2 image s;3 command *s;4 args *s;5 workingDir s;6 ports *ContainerPort;7 env *EnvVar;\
         8 resources ResourceRequirements;13 terminationMessagePath s;14 imagePullPolicy s;16 stdin b;17 stdinOnce b;\
         18 tty b;20 terminationMessagePolicy s",
    ),
    ("ContainerPort", "1 name s;2 hostPort i;3 containerPort i;4 protocol s;5 hostIP s"),
    ("EnvVar", "!;1 name s;2 value s"),
    ("ResourceRequirements", "!;"),
    ("DeleteOptions", "1 gracePeriodSeconds i;2 preconditions Preconditions;4 propagationPolicy s;5 dryRun *s"),
    ("Preconditions", "1 uid s;2 resourceVersion s"),
    ("Eviction", "1 metadata ObjectMeta;2 deleteOptions DeleteOptions"),
    ("Binding", "1 metadata ObjectMeta;2 target ObjectReference"),
    ("SelfSubjectReview", "1 metadata ObjectMeta"),
    ("SelfSubjectAccessReview", "1 metadata ObjectMeta;2 spec SelfSubjectAccessReviewSpec"),
    (
        "SelfSubjectAccessReviewSpec",
        "1 resourceAttributes ResourceAttributes;2 nonResourceAttributes NonResourceAttributes",
    ),
    ("ResourceAttributes", "1 namespace s;2 verb s;3 group s;4 version s;5 resource s;6 subresource s;7 name s"),
    ("NonResourceAttributes", "1 path s;2 verb s"),
    ("SelfSubjectRulesReview", "1 metadata ObjectMeta;2 spec SelfSubjectRulesReviewSpec"),
    ("SelfSubjectRulesReviewSpec", "1 namespace s"),
    (
        "v1/Event",
        "1 metadata ObjectMeta;2 involvedObject ObjectReference;3 reason s;4 message s;5 source EventSource;\
         6 firstTimestamp t;7 lastTimestamp t;8 count i;9 type s;10 eventTime m;11 series EventSeries;12 action s;\
         13 related ObjectReference;14 reportingComponent s;15 reportingInstance s",
    ),
    (
        "events.k8s.io/v1/Event",
        "1 metadata ObjectMeta;2 eventTime m;3 series EventSeries;4 reportingController s;5 reportingInstance s;\
         6 action s;7 reason s;8 regarding ObjectReference;9 related ObjectReference;10 note s;11 type s;\
         12 deprecatedSource EventSource;13 deprecatedFirstTimestamp t;14 deprecatedLastTimestamp t;\
         15 deprecatedCount i",
    ),
    ("EventSource", "1 component s;2 host s"),
    ("EventSeries", "1 count i;2 lastObservedTime m"),
];

/// The bytes are not such a message, or one of an unsupported kind.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error("the body is not a Kubernetes protobuf message")]
    Malformed,
    #[error("bodies of kind {0} are not read as protobuf")]
    Kind(String),
    #[error("field {0} of a workload is not read as protobuf")]
    Field(u64),
}

/// Decodes a body into the object that JSON would contain.
pub(crate) fn decode(body: &[u8]) -> Result<Value, Unreadable> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Unreadable::Malformed)?;
    let mut api_version = String::new();
    let mut kind = String::new();
    let mut raw = &[][..];
    for field in Fields(envelope) {
        match field? {
            (1, Wire::Bytes(type_meta)) => {
                for field in Fields(type_meta) {
                    match field? {
                        (1, Wire::Bytes(bytes)) => api_version = text(bytes)?,
                        (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let versioned = format!("{api_version}/{kind}");
    let fields = find(&versioned).or_else(|| find(&kind)).ok_or_else(|| Unreadable::Kind(kind.clone()))?;
    let mut object = message(fields, raw, 0)?;
    object.insert("apiVersion".into(), api_version.into());
    object.insert("kind".into(), kind.into());
    Ok(Value::Object(object))
}

fn find(name: &str) -> Option<&'static str> {
    MESSAGES.iter().find(|(message, _)| *message == name).map(|(_, fields)| *fields)
}

fn message(schema: &str, bytes: &[u8], depth: usize) -> Result<Map<String, Value>, Unreadable> {
    if depth > DEEPEST {
        return Err(Unreadable::Malformed);
    }
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, wire) = field?;
        let known = schema.split(';').find_map(|field| {
            let mut words = field.split(' ');
            let its: u64 = words.next()?.parse().ok()?;
            (its == number).then_some((words.next()?, words.next()?))
        });
        // Unnamed fields are newer than this table, or not needed here.
        let Some((name, kind)) = known.filter(|(_, kind)| *kind != "-") else {
            if known.is_none() && schema.starts_with('!') {
                return Err(Unreadable::Field(number));
            }
            continue;
        };
        if let Some(kind) = kind.strip_prefix('*') {
            let item = value(kind, &wire, depth)?;
            crate::meta::array(object.entry(name).or_insert(Value::Null)).push(item);
        } else if let Some(kind) = kind.strip_prefix('{') {
            let Wire::Bytes(bytes) = wire else { return Err(Unreadable::Malformed) };
            let mut key = String::new();
            let mut entry = Value::from("");
            for field in Fields(bytes) {
                match field? {
                    (1, Wire::Bytes(bytes)) => key = text(bytes)?,
                    (2, wire) => entry = value(kind, &wire, depth)?,
                    _ => {}
                }
            }
            crate::meta::object(object.entry(name).or_insert(Value::Null)).insert(key, entry);
        } else {
            let value = value(kind, &wire, depth)?;
            // Go's types omit empty values.
            if !value.is_null() && value != "" {
                object.insert(name.into(), value);
            }
        }
    }
    Ok(object)
}

fn value(kind: &str, wire: &Wire<'_>, depth: usize) -> Result<Value, Unreadable> {
    Ok(match (kind, wire) {
        ("s", Wire::Bytes(bytes)) => text(bytes)?.into(),
        ("y", Wire::Bytes(bytes)) => crate::rules::base64(bytes).into(),
        ("i", Wire::Number(number)) => number.cast_signed().into(),
        ("b", Wire::Number(number)) => (*number != 0).into(),
        ("t" | "m", Wire::Bytes(bytes)) => time(bytes, kind == "m")?,
        ("q", Wire::Bytes(bytes)) => {
            let mut is_text = false;
            let mut number = 0;
            let mut word = String::new();
            for field in Fields(bytes) {
                match field? {
                    (1, Wire::Number(kind)) => is_text = kind == 1,
                    (2, Wire::Number(value)) => number = value.cast_signed(),
                    (3, Wire::Bytes(bytes)) => word = text(bytes)?,
                    _ => {}
                }
            }
            if is_text { word.into() } else { number.into() }
        }
        (name, Wire::Bytes(bytes)) => {
            let fields = find(name).ok_or(Unreadable::Malformed)?;
            Value::Object(message(fields, bytes, depth + 1)?)
        }
        _ => return Err(Unreadable::Malformed),
    })
}

/// Returns the time, or null for Go's zero time, which is an empty message.
fn time(bytes: &[u8], micro: bool) -> Result<Value, Unreadable> {
    let mut seconds = None;
    let mut nanos = 0;
    for field in Fields(bytes) {
        match field? {
            (1, Wire::Number(number)) => seconds = Some(number.cast_signed()),
            (2, Wire::Number(number)) => nanos = i32::try_from(number).map_err(|_| Unreadable::Malformed)?,
            _ => {}
        }
    }
    let Some(seconds) = seconds else { return Ok(Value::Null) };
    let time = Timestamp::new(seconds, nanos).map_err(|_| Unreadable::Malformed)?;
    let form = if micro { "%Y-%m-%dT%H:%M:%S%.6fZ" } else { "%Y-%m-%dT%H:%M:%SZ" };
    Ok(time.strftime(form).to_string().into())
}

fn text(bytes: &[u8]) -> Result<String, Unreadable> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Unreadable::Malformed)
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of one message, in order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for place in 0..10 {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f).checked_shl(7 * place)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Wire::Bytes(bytes)
            }
            _ => return None,
        };
        Some((tag >> 3, wire))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>), Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(Unreadable::Malformed);
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &type_meta), field(2, raw)].concat()
    }

    #[test]
    fn a_config_map_from_a_go_client_is_read() {
        let metadata = [field(1, b"cm"), field(8, &[])].concat();
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &metadata), field(2, &entry)].concat();
        assert_eq!(
            decode(&body("ConfigMap", &raw)).unwrap(),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"k": "v"}})
        );
    }

    #[test]
    fn broken_bytes_and_unread_kinds_are_refused() {
        assert_eq!(decode(b"{}"), Err(Unreadable::Malformed));
        assert_eq!(decode(&body("ConfigMap", &[0x0a, 200])), Err(Unreadable::Malformed));
        assert_eq!(decode(&body("ConfigMap", &[0x80; 12])), Err(Unreadable::Malformed));
        assert_eq!(decode(&body("Pod", &[])), Err(Unreadable::Kind("Pod".into())));
        // A Deployment with a volume in its template.
        let volume = [2, 3, 2, 1].into_iter().rev().fold(Vec::new(), |inner, number| field(number, &inner));
        assert_eq!(decode(&body("Deployment", &volume)), Err(Unreadable::Field(1)));
    }
}
