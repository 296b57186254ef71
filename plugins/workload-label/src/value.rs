//! The name of a workload as the value of a label. Does not use Pods.

/// The longest value of a label, in bytes.
const LONGEST: usize = 63;

/// A name as it is, or where it is too long for a label its beginning and a digest of the whole, so that two long names
/// with one beginning stay apart.
pub(crate) fn of_name(name: &str) -> String {
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

    #[test]
    fn long_names_are_shortened_to_distinct_valid_values() {
        let [one, other] = ["1", "2"].map(|end| of_name(&format!("{}{end}", "very.long-name-".repeat(10))));
        assert_ne!(one, other);
        for value in [&one, &other] {
            assert!(value.len() <= LONGEST, "{value}");
            assert!(value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)), "{value}");
        }
        assert_eq!(of_name(&"x".repeat(63)), "x".repeat(63));
    }
}
