//! Free text: words in a random order.

use super::template::mix;

const WORDS: [&str; 64] = [
    "account",
    "after",
    "alert",
    "backup",
    "because",
    "before",
    "billing",
    "branch",
    "canary",
    "capacity",
    "change",
    "client",
    "cluster",
    "customer",
    "database",
    "deploy",
    "during",
    "error",
    "every",
    "failover",
    "feature",
    "for",
    "from",
    "gateway",
    "handles",
    "in",
    "increase",
    "incident",
    "invoice",
    "is",
    "latency",
    "limit",
    "manual",
    "memory",
    "migration",
    "needs",
    "night",
    "of",
    "on",
    "order",
    "owner",
    "partner",
    "payment",
    "please",
    "policy",
    "quota",
    "queue",
    "region",
    "release",
    "request",
    "restart",
    "review",
    "rollback",
    "schedule",
    "see",
    "shard",
    "slow",
    "storage",
    "team",
    "tenant",
    "the",
    "ticket",
    "until",
    "with",
];

/// Appends this many bytes of words. The last word may be cut.
pub(super) fn push_words(seed: u64, bytes: usize, into: &mut String) {
    let end = into.len() + bytes;
    for at in 0.. {
        // Ten words from each number, because six bits select one.
        let mut bits = mix(seed.wrapping_add(at));
        for _ in 0..10 {
            into.push_str(WORDS[(bits % 64) as usize]);
            into.push(' ');
            bits >>= 6;
        }
        if into.len() >= end {
            break;
        }
    }
    into.truncate(end);
    // No text ends with a space.
    if into.ends_with(' ') {
        into.pop();
        into.push('.');
    }
}

#[cfg(test)]
mod tests {
    use super::push_words;

    #[test]
    fn a_text_has_the_requested_length_and_follows_its_seed() {
        let text = |seed, bytes| {
            let mut text = String::new();
            push_words(seed, bytes, &mut text);
            text
        };
        for bytes in 40..=300 {
            assert_eq!(text(7, bytes).len(), bytes);
        }
        assert!(text(7, 40) == text(7, 40));
        assert!(text(7, 40) != text(8, 40));
    }
}
