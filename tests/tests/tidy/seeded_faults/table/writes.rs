//! Faults of the authorization and of requests to the API server.

use super::{Fault, In};

pub(super) fn faults() -> Vec<Fault> {
    let pod = In { file: "guest-sdk/vocabulary/src/authz/pod.rs", tests: "authz::" };
    let query = In { file: "guest-sdk/vocabulary/src/authz/query.rs", tests: "authz::" };
    let answer = In { file: "host/writeback/src/answer.rs", tests: "" };
    let closings = In { file: "host/writeback/src/closings.rs", tests: "" };
    let holds = In { file: "host/api/src/backpressure.rs", tests: "backpressure::" };
    let plan = In { file: "host/writeback/src/plan.rs", tests: "" };
    vec![
        pod.fault(
            "a plugin writes outside of its scope",
            "granted(covered && «scope.contains(&target.namespace)»)",
            "true",
        ),
        pod.fault(
            "a plugin writes labels of Kubernetes",
            "«!syntax::is_forbidden_key(key)» && covers(&grants.labels, key)",
            "true",
        ),
        pod.fault(
            "a plugin writes annotations of Kubernetes",
            "«!syntax::is_forbidden_key(key)» && covers(&grants.annotations, key)",
            "true",
        ),
        pod.fault(
            "a plugin writes conditions of Kubernetes",
            "«!syntax::is_builtin_condition(condition_type)»",
            "true",
        ),
        pod.fault(
            "a plugin with evict deletes",
            "Action::DeletePod { .. } => «grants.delete»,",
            "grants.delete || grants.evict",
        ),
        query.fault("a search reveals a section that is not granted", "*asked && «!is_covered(*section)»", "false"),
        answer.fault("the answer of a Pod that is gone is waited for", "if «is_gone» {", "false"),
        answer.fault("refused credentials are a missing right", "401 if «error.is_unauthenticated()»", "false"),
        closings.fault(
            "a 403 does not close its kind of writes",
            "all.closed.close(self.kind.clone(), now + wait, now + FORGET, now);",
            "",
        ),
        closings.fault("a 403 of a webhook closes a kind of writes", "«is_of_rbac(text)»", "true"),
        closings.fault("a closing never ends", "all.open(&self.kind, now);", ""),
        closings.fault("a closing does not grow", "(2 * earlier.wait).min(LONGEST)", "(2 * earlier.wait).min(FIRST)"),
        closings.fault(
            "a probe that was dropped blocks its kind",
            "self.of.closed.lock().closed.give_up(&self.kind, self.began);",
            "",
        ),
        holds.fault(
            "an account's Retry-After holds all accounts",
            "Some(429) => Advice::Wait(«self.scope.clone()», wait.min(LONGEST)),",
            "HoldScope::All",
        ),
        holds.fault(
            "a Retry-After of an eviction holds its account",
            "Some(429 | 500 | 503 | 504) if «self.evicts» =>",
            "false",
        ),
        holds.fault("a hold is as long as the API server wants", "wait.min(LONGEST_OF_ALL)", "wait"),
        holds.fault(
            "a hold ends before its probe was answered",
            "«Advice::Nothing => false»,",
            "Advice::Nothing => true",
        ),
        plan.fault(
            "a deletion is repeated within its grace period",
            "«self.going.is_some_and(|going| grace_seconds.is_none_or(|asked| going <= i64::from(asked)))»",
            "false",
        ),
        plan.fault("a condition is sent after the last finalizer is gone", "if «!add && behind» {", "false"),
        plan.fault(
            "a write moves across a deletion",
            "«self.meta.remove(&key);»\n            self.status.remove(&key);",
            "",
        ),
    ]
}
