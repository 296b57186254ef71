//! Faults of the rules of configurations.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    let rules = In { file: "guest-sdk/config/src/rules.rs", tests: "rules" };
    vec![
        rules.fault(
            "a pull Secret is read as the account of the host",
            "get(\"pullSecretName\").is_set() && «!account.is_set()»",
            "false",
        ),
        rules.fault(
            "a source has two places",
            "_ => «source.problem(format!(\"has more than one place; name {named}\"))»",
            "()",
        ),
    ]
}
