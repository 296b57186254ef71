//! The condition of a plugin that holds Pods which are being deleted, while its object stays. Pure.

use super::status::Judged;

/// A release of such Pods, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Released {
    /// Their namespace is being deleted.
    NamespaceEnds,
    /// The time that the spec sets is over.
    AfterSeconds,
    /// The host may not see whether their namespace is being deleted: the condition's message.
    NamespaceForbidden(String),
}

impl Released {
    /// Returns the reason of the condition.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::NamespaceEnds => "NamespaceTerminating",
            Self::AfterSeconds => "ReleaseAfterSeconds",
            Self::NamespaceForbidden(_) => "NamespaceForbidden",
        }
    }

    pub(super) fn judged(&self) -> Judged {
        let of = |cause: &str| {
            format!(
                "{cause}, so finalizers of the plugin were removed from pods that were being deleted, without its run"
            )
        };
        let (holds, message) = match self {
            Self::NamespaceEnds => (true, of("the namespace is being deleted")),
            Self::AfterSeconds => (true, of("the time of spec.finalizers.releaseAfterSeconds was over")),
            Self::NamespaceForbidden(message) => (false, message.clone()),
        };
        Judged { kind: "FinalizersReleased", holds: Some(holds), reason: self.reason(), message }
    }
}

#[cfg(test)]
mod tests {
    use podium_pods::testing::{NASTY, assert_clean};
    use serde_json::Value;

    use super::{
        super::status::{Facts, State, status},
        *,
    };

    #[test]
    fn a_release_is_a_condition_beside_the_others_and_goes_with_it() {
        for (released, expected) in [
            (Released::NamespaceEnds, "True NamespaceTerminating"),
            (Released::AfterSeconds, "True ReleaseAfterSeconds"),
            (Released::NamespaceForbidden(NASTY.repeat(100)), "False NamespaceForbidden"),
        ] {
            let finalizers = vec!["shop.example/*".to_owned()];
            let facts = Facts { finalizers, ..Facts::new(3, State::Suspended) };
            let without = status(&facts, &Value::Null, 0).unwrap();
            let since = "1970-01-01T00:00:00Z";
            assert_eq!(without["finalizers"], serde_json::json!({ "names": ["shop.example/*"], "since": since }));
            let facts = Facts { released: Some(released), ..facts };
            let with = status(&facts, &without, 5_000).unwrap();
            assert_eq!(with["finalizers"]["since"], since, "it does not change");
            let conditions = with["conditions"].as_array().unwrap();
            let (last, others) = conditions.split_last().unwrap();
            assert_eq!(others, without["conditions"].as_array().unwrap());
            assert_eq!(last["type"], "FinalizersReleased");
            assert_eq!(format!("{} {}", last["status"].as_str().unwrap(), last["reason"].as_str().unwrap()), expected);
            assert_clean(last["message"].as_str().unwrap(), 3 << 10);
            assert_eq!(status(&facts, &with, 900_000).unwrap(), with, "nothing changes while it is shown");
        }
    }
}
