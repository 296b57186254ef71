//! The workload of a controller, and its name as the value of a label. Does not use Pods.

use podium_sdk::Owner;

/// The longest value of a label, in bytes.
const LONGEST: usize = 63;

/// Returns the workload's name, or `None` if the controller is not a workload: a static Pod is controlled by its
/// Node.
pub(crate) fn name<'a>(controller: &'a Owner, pod_template_hash: Option<&str>) -> Option<&'a str> {
    match controller.kind.as_str() {
        "Node" => None,
        // A Deployment names its ReplicaSets after itself and the hash that it puts on their Pods. A ReplicaSet made by
        // hand has no such hash, or a name that does not end with it.
        "ReplicaSet" => Some(
            pod_template_hash
                .and_then(|hash| controller.name.strip_suffix(hash)?.strip_suffix('-'))
                .filter(|deployment| !deployment.is_empty())
                .unwrap_or(&controller.name),
        ),
        _ => Some(&controller.name),
    }
}

/// A name as it is, or where it is too long for a label its beginning and a digest of the whole, so that two long names
/// with one beginning stay apart.
pub(crate) fn label_value(name: &str) -> String {
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let digest = format!("-{:08x}", digest(name));
    // Names of objects are ASCII; where one were not, its beginning is no value of a label either.
    let beginning: String = name.chars().take_while(char::is_ascii).take(LONGEST - digest.len()).collect();
    format!("{}{digest}", beginning.trim_end_matches(['-', '.', '_']))
}

/// FNV-1a. It never changes, so a value stays what it is from one build to the next.
fn digest(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn controller(kind: &str, name: &str) -> Owner {
        Owner { kind: kind.to_owned(), name: name.to_owned(), ..Owner::default() }
    }

    #[test]
    fn a_deployments_replica_set_leads_to_the_deployments_name() {
        assert_eq!(name(&controller("ReplicaSet", "cart-7d9f8"), Some("7d9f8")), Some("cart"));
        assert_eq!(name(&controller("ReplicaSet", "cart-api-7d9f8"), Some("7d9f8")), Some("cart-api"));
    }

    #[test]
    fn a_bare_replica_set_keeps_its_name() {
        assert_eq!(name(&controller("ReplicaSet", "cart-7d9f8"), None), Some("cart-7d9f8"));
        assert_eq!(name(&controller("ReplicaSet", "cart"), Some("7d9f8")), Some("cart"));
        assert_eq!(name(&controller("ReplicaSet", "cart7d9f8"), Some("7d9f8")), Some("cart7d9f8"));
        assert_eq!(name(&controller("ReplicaSet", "-7d9f8"), Some("7d9f8")), Some("-7d9f8"));
    }

    #[test]
    fn other_kinds_give_their_own_name_and_a_node_none() {
        assert_eq!(name(&controller("StatefulSet", "db-7d9f8"), Some("7d9f8")), Some("db-7d9f8"));
        assert_eq!(name(&controller("Node", "node-1"), None), None);
    }

    #[test]
    fn long_names_are_shortened_to_distinct_valid_values() {
        let [one, other] = ["1", "2"].map(|end| label_value(&format!("{}{end}", "very.long-name-".repeat(10))));
        assert_ne!(one, other);
        for value in [&one, &other] {
            assert!(value.len() <= LONGEST, "{value}");
            assert!(value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)), "{value}");
        }
        assert_eq!(label_value(&"x".repeat(63)), "x".repeat(63));
    }
}
