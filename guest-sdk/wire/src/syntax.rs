//! The syntax of names, keys and values in Kubernetes. The host checks staged writes and configuration files with it,
//! and the SDK's test host does the same. Never looser than the API server, and in places stricter; each function
//! documents where.
//!
//! Errors are texts that follow a quoted value: `label key "x y" must ...`.

/// The API server allows 256 KiB for all annotations of an object together; one plugin gets a quarter for one key.
pub const MAX_ANNOTATION_VALUE_BYTES: usize = 64 << 10;
/// The API server's bound on the `note` of an Event.
pub const MAX_NOTE_BYTES: usize = 1 << 10;
/// The bound of `metav1.Condition`; a Pod's condition has no bound of its own on the API server.
pub const MAX_CONDITION_MESSAGE_BYTES: usize = 32 << 10;

/// Quotes a hostile text for a message: escaped, and cut if it is long.
#[must_use]
pub fn quoted(text: &str) -> String {
    const SHOWN: usize = 100;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns true if every byte passes `inside`, the first and the last pass `edge`, and the text is not empty.
fn is_word(text: &str, edge: fn(u8) -> bool, inside: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let edges = bytes.first().zip(bytes.last());
    edges.is_some_and(|(first, last)| edge(*first) && edge(*last)) && bytes.iter().all(|byte| inside(*byte))
}

fn is_dns_word(text: &str) -> bool {
    is_word(text, is_lower_alphanumeric, |byte| is_lower_alphanumeric(byte) || byte == b'-')
}

fn is_name_word(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    is_word(text, |byte| byte.is_ascii_alphanumeric(), inside)
}

/// Checks a DNS-1123 label: the name of a namespace.
///
/// # Errors
/// Returns an error for any other text.
pub fn dns_label(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("must not be empty"),
        _ if text.len() > 63 => Err("must be at most 63 characters"),
        _ if is_dns_word(text) => Ok(()),
        _ => Err("must consist of lower case letters, digits and '-', and begin and end with a letter or digit"),
    }
}

/// Checks a DNS-1123 subdomain: the name of a Pod or another object, and the domain of a key.
///
/// # Errors
/// Returns an error for any other text.
pub fn dns_subdomain(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("must not be empty"),
        _ if text.len() > 253 => Err("must be at most 253 characters"),
        _ if text.split('.').all(is_dns_word) => Ok(()),
        _ => Err("must consist of lower case letters, digits, '-' and '.', \
                  and begin and end every part between dots with a letter or digit"),
    }
}

/// Checks the key of a label or an annotation, or the type of a condition: `name` or `domain/name`. The API server
/// accepts upper case letters in the domain of an annotation; here they are refused, so that no spelling evades a
/// reserved domain.
///
/// # Errors
/// Returns an error for any other text.
pub fn qualified_name(text: &str) -> Result<(), &'static str> {
    let name = match text.split_once('/') {
        Some((domain, name)) => {
            dns_subdomain(domain).map_err(|_| "must have a DNS name in lower case before its '/'")?;
            name
        }
        None => text,
    };
    match name {
        "" => Err("must not have an empty name"),
        _ if name.len() > 63 => Err("must have a name of at most 63 characters"),
        _ if is_name_word(name) => Ok(()),
        _ => Err("must be a name of letters, digits, '-', '_' and '.', that begins and ends with a letter or digit, \
                  with or without a domain and '/' before it"),
    }
}

/// Checks the value of a label, which may be empty.
///
/// # Errors
/// Returns an error for any other text.
pub fn label_value(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Ok(()),
        _ if text.len() > 63 => Err("must be at most 63 characters"),
        _ if is_name_word(text) => Ok(()),
        _ => Err("must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or digit"),
    }
}

/// Checks a uid. The API server assigns UUIDs; other texts are accepted too, but no empty one, because an empty
/// precondition would be none.
///
/// # Errors
/// Returns an error for any other text.
pub fn uid(text: &str) -> Result<(), &'static str> {
    match text {
        "" => Err("must not be empty"),
        _ if text.len() > 128 => Err("must be at most 128 characters"),
        _ if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(()),
        _ => Err("must consist of visible ASCII characters"),
    }
}

/// Checks `version` or `group/version`.
///
/// # Errors
/// Returns an error for any other text.
pub fn api_version(text: &str) -> Result<(), &'static str> {
    let (group, version) = text.split_once('/').map_or((None, text), |(group, version)| (Some(group), version));
    if group.is_none_or(|group| dns_subdomain(group).is_ok()) && dns_label(version).is_ok() {
        Ok(())
    } else {
        Err("must be a version like \"v1\" or a group and a version like \"apps/v1\"")
    }
}

/// Checks the kind of an object, or the reason or the action of an Event: at most 128 letters and digits that begin
/// with a capital.
///
/// # Errors
/// Returns an error for any other text.
pub fn upper_camel_case(text: &str) -> Result<(), &'static str> {
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase());
    if begins && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        Ok(())
    } else {
        Err("must be an UpperCamelCase word of at most 128 letters and digits")
    }
}

/// Keys that have a meaning to Kubernetes itself or to this host: no wildcard covers them. `key` is a valid
/// [`qualified_name`].
#[must_use]
pub fn is_reserved_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((domain, _)) => is_reserved_domain(domain),
        // Keys that controllers wrote before keys had domains.
        None => matches!(
            key,
            "pod-template-hash"
                | "controller-revision-hash"
                | "pod-template-generation"
                | "controller-uid"
                | "job-name"
        ),
    }
}

/// `kubernetes.io`, `k8s.io` and their subdomains, and `podium.dev`, whose keys belong to the host and to its plugins.
#[must_use]
pub fn is_reserved_domain(domain: &str) -> bool {
    let is_below = |reserved: &&str| {
        domain.strip_suffix(reserved).is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    domain == "podium.dev" || ["kubernetes.io", "k8s.io"].iter().any(is_below)
}

/// The annotation with the previous manifest of `kubectl apply`.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns true for keys that no plugin may write, whatever is granted: `kubectl apply` and the host record there
/// what they applied.
#[must_use]
pub fn is_forbidden_key(key: &str) -> bool {
    key == LAST_APPLIED || key.starts_with("podium.dev/applied-")
}

/// Returns true for condition types of a Pod that belong to the kubelet, the scheduler and the controllers: no plugin
/// writes them.
#[must_use]
pub fn is_builtin_condition(condition_type: &str) -> bool {
    matches!(
        condition_type,
        "Ready"
            | "PodScheduled"
            | "ContainersReady"
            | "Initialized"
            | "PodReadyToStartContainers"
            | "PodHasNetwork"
            | "DisruptionTarget"
            | "PodResizePending"
            | "PodResizeInProgress"
            | "AllContainersRestarting"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_could_change_a_path_are_refused() {
        let hostile =
            ["", ".", "..", "a/b", "%2f", "a%2fb", "A", "\u{e4}", "a b", "a\0", "-a", "a-", "a..b", "a?b", "a#b"];
        for name in hostile {
            assert!(dns_label(name).is_err(), "{name:?}");
            assert!(dns_subdomain(name).is_err(), "{name:?}");
        }
        for check in [dns_label, dns_subdomain, uid] {
            assert_eq!(check(""), Err("must not be empty"));
        }
        assert_eq!(qualified_name("a/"), Err("must not have an empty name"));
        assert!(dns_label("a.b").is_err());
        assert!(dns_label(&"a".repeat(64)).is_err() && dns_label(&"a".repeat(63)).is_ok());
        assert!(dns_subdomain(&"a".repeat(254)).is_err() && dns_subdomain(&"a".repeat(253)).is_ok());
        assert!(dns_subdomain("web-0.shop.example").is_ok());
    }

    #[test]
    fn a_key_is_a_name_with_or_without_a_domain() {
        for key in ["app", "A.b_c-9", "shop.example/Team", &format!("{}/{}", "a".repeat(253), "b".repeat(63))] {
            assert!(qualified_name(key).is_ok(), "{key}");
        }
        let long = "a".repeat(64);
        for key in ["", "/", "/a", "a/", "a/b/c", "Shop.example/a", "_a", "a_", "a b", &long, "\u{e4}/a", "a/*"] {
            assert!(qualified_name(key).is_err(), "{key}");
        }
    }

    #[test]
    fn every_name_below_a_reserved_domain_is_reserved() {
        for key in [
            "kubernetes.io/a",
            "app.kubernetes.io/name",
            "k8s.io/a",
            "a.b.k8s.io/c",
            "pod-template-hash",
            "podium.dev/workload",
        ] {
            assert!(is_reserved_key(key), "{key}");
        }
        for key in ["notkubernetes.io/a", "kubernetes.io.example/a", "x-k8s.io/a", "app", "job-names", "a.podium.dev/b"]
        {
            assert!(!is_reserved_key(key), "{key}");
        }
    }

    #[test]
    fn a_quoted_text_is_escaped_and_bounded() {
        assert_eq!(quoted("a\u{1b}[0m"), r#""a\u{1b}[0m""#);
        assert!(quoted(&"\u{e4}".repeat(10_000)).len() < 300);
        let shown = "b".repeat(100);
        let longer = "b".repeat(101);
        assert_eq!([quoted(&shown), quoted(&longer)], [format!("{shown:?}"), format!("{shown:?}...")]);
    }

    #[test]
    fn a_text_beyond_its_limit_is_refused_with_the_limit() {
        type Check = fn(&str) -> Result<(), &'static str>;
        let checks: [(Check, usize, &str); 5] = [
            (dns_label, 63, "must be at most 63 characters"),
            (dns_subdomain, 253, "must be at most 253 characters"),
            (qualified_name, 63, "must have a name of at most 63 characters"),
            (label_value, 63, "must be at most 63 characters"),
            (uid, 128, "must be at most 128 characters"),
        ];
        for (check, limit, error) in checks {
            assert_eq!(check(&"a".repeat(limit)), Ok(()), "{limit}");
            assert_eq!(check(&"a".repeat(limit + 1)), Err(error));
            // A text that is wrong in both ways is too long.
            assert_eq!(check(&" ".repeat(limit + 1)), Err(error));
            assert_eq!(check("a"), Ok(()));
        }
        assert_eq!(upper_camel_case(&"A".repeat(128)), Ok(()));
        assert!(upper_camel_case(&"A".repeat(129)).is_err());
        assert!(qualified_name(&format!("{}/a", "a".repeat(254))).is_err());
    }

    #[test]
    fn a_label_value_is_empty_or_a_name() {
        for value in ["", "a", "A.b_c-9", "1.2.3", "0"] {
            assert_eq!(label_value(value), Ok(()), "{value}");
        }
        let error = "must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or digit";
        for value in ["_a", "a_", "a b", "a/b", "\u{e4}", "-", ".", "a\n"] {
            assert_eq!(label_value(value), Err(error), "{value:?}");
        }
    }

    #[test]
    fn the_error_of_a_name_says_of_what_it_must_consist() {
        let label = "must consist of lower case letters, digits and '-', and begin and end with a letter or digit";
        assert_eq!(["A", "a_b", "-a"].map(dns_label), [Err(label); 3]);
        let subdomain = "must consist of lower case letters, digits, '-' and '.', \
                         and begin and end every part between dots with a letter or digit";
        assert_eq!(["A", "a..b", "a.-b"].map(dns_subdomain), [Err(subdomain); 3]);
        assert_eq!(dns_label("a-b-0"), Ok(()));
        let domain = "must have a DNS name in lower case before its '/'";
        assert_eq!(["A.example/b", "/b", "a b/c"].map(qualified_name), [Err(domain); 3]);
        let name = "must be a name of letters, digits, '-', '_' and '.', that begins and ends with a letter or digit, \
                    with or without a domain and '/' before it";
        assert_eq!(["_a", "a b", "a.example/b/c"].map(qualified_name), [Err(name); 3]);
        assert_eq!(qualified_name(""), Err("must not have an empty name"));
    }

    #[test]
    fn a_uid_consists_of_visible_characters() {
        for text in ["a", "0e1f", "!~", "A/B"] {
            assert_eq!(uid(text), Ok(()), "{text}");
        }
        for text in ["a b", "\u{e4}", "a\n", "\0", "\u{7f}"] {
            assert_eq!(uid(text), Err("must consist of visible ASCII characters"), "{text:?}");
        }
    }

    #[test]
    fn a_version_has_a_group_or_none() {
        for text in ["v1", "apps/v1", "shop.example/v1alpha1"] {
            assert_eq!(api_version(text), Ok(()), "{text}");
        }
        let error = "must be a version like \"v1\" or a group and a version like \"apps/v1\"";
        for text in ["", "/", "/v1", "apps/", "apps/v1/a", "Apps/v1", "apps/V1", "v1.0", " v1"] {
            assert_eq!(api_version(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn a_kind_or_reason_is_a_capital_then_letters_and_digits() {
        for text in ["A", "Pod", "V2Ray9"] {
            assert_eq!(upper_camel_case(text), Ok(()), "{text}");
        }
        let error = "must be an UpperCamelCase word of at most 128 letters and digits";
        for text in ["", "pod", "9A", "A b", "A-b", "A_b", "\u{c4}b", "A\u{e4}", "Pod\n"] {
            assert_eq!(upper_camel_case(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn each_reserved_name_is_refused_by_name_and_similar_ones_are_not() {
        let keys =
            ["pod-template-hash", "controller-revision-hash", "pod-template-generation", "controller-uid", "job-name"];
        for key in keys {
            assert!(is_reserved_key(key) && !is_reserved_key(&format!("{key}s")), "{key}");
        }
        for domain in ["kubernetes.io", "a.kubernetes.io", "k8s.io", "a.b.k8s.io", "podium.dev"] {
            assert!(is_reserved_domain(domain) && is_reserved_key(&format!("{domain}/a")), "{domain}");
        }
        for domain in ["", "io", "a.podium.dev", "xkubernetes.io", "kubernetes.io.a", "x-k8s.io"] {
            assert!(!is_reserved_domain(domain), "{domain}");
        }
        let conditions = [
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
        ];
        for condition in conditions {
            assert!(is_builtin_condition(condition), "{condition}");
            assert!(!is_builtin_condition(&condition.to_lowercase()), "{condition}");
        }
        assert!(!is_builtin_condition("") && !is_builtin_condition("shop.example/Ready"));
    }

    #[test]
    fn the_keys_that_record_what_was_applied_are_forbidden() {
        for key in ["kubectl.kubernetes.io/last-applied-configuration", "podium.dev/applied-", "podium.dev/applied-a"] {
            assert!(is_forbidden_key(key), "{key}");
        }
        for key in ["kubectl.kubernetes.io/last-applied", "podium.dev/workload", "a.podium.dev/applied-a", "app", ""] {
            assert!(!is_forbidden_key(key), "{key}");
        }
    }
}
