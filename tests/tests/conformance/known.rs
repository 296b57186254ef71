//! Where devcluster is known to answer otherwise than the real API server. The suite fails when a step that is not
//! listed here differs, and also when one that is listed does so no more: the list can only be kept true.

/// Steps that differ for one reason.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    pub(crate) scenario: &'static str,
    /// What the real server does.
    pub(crate) real: &'static str,
    pub(crate) steps: &'static [&'static str],
}

const fn known(scenario: &'static str, real: &'static str, steps: &'static [&'static str]) -> Known {
    Known { scenario, real, steps }
}

const DELETED_AT_ONCE: &str = "a Pod deleted at once is answered and told as DELETED with deletionTimestamp, grace 0 and \
                               the next generation, after a MODIFIED of its own, revision";
const PRECONDITION: &str = "details.kind is Pod, and the message is of the REST layer's precondition, not the store's";
const NO_FIELDS: &str = "without data nothing is owned, so there are no managedFields";

#[rustfmt::skip]
pub(crate) const KNOWN: &[Known] = &[
    known("objects", "the Status has no reason", &["create with a resourceVersion"]),
    known("objects", "the message is the storage layer's, with its key", &["replace with another uid"]),
    known("lists", "422: resourceVersionMatch is forbidden without resourceVersion", &["a match without a revision"]),
    known("tables", "the label that the server adds to a Namespace is owned by who made it",
        &["/api/v1/namespaces?fieldSelector=metadata.name%3Dtables"]),
    known("tables", "these columns are strings", &["one ConfigMap", "/api/v1/namespaces/tables/events"]),
    known("tables", "includeObject=None leaves object null", &["without the objects"]),
    known("discovery", "namespaces have no deletecollection", &["/api/v1 namespaces"]),
    known("discovery", "404 as plain text", &["a group that is not served"]),
    known("watches", DELETED_AT_ONCE, &["delete", "all since then", "what was or is blue", "with bookmarks"]),
    known("watches", "500 without a reason", &["a revision that is none"]),
    known("streaming lists", "422: sendInitialEvents is forbidden for list", &["without a watch"]),
    known("pod metadata", "the message is of a label's key as a whole", &["a bad label key"]),
    known("pod metadata", "422 with the cause patch", &["a label that is no text"]),
    known("pod finalizers", "what a strategic merge adds to a list of texts comes first", &["add another"]),
    known("pod finalizers", "the cause's field has an index", &["a bad name", "a name without a domain"]),
    known("pod status", "what a strategic merge adds to a list of objects comes first", &["one without status or time"]),
    known("pod preconditions", "500 without a reason", &["a revision that is none"]),
    known("pod preconditions", PRECONDITION, &["delete another uid", "delete an old revision", "its deletion"]),
    known("pod preconditions", DELETED_AT_ONCE, &["delete the right one"]),
    known("deletion", DELETED_AT_ONCE, &["delete it", "what the watch saw"]),
    known("deletion", NO_FIELDS, &["create a ConfigMap"]),
    known("deletion", "a dry run is answered like a deletion, with a Status", &["a dry run"]),
    known("deletion", "options in a body make the query's count for nothing",
        &["options in the body: the query's are ignored", "so it is gone"]),
    known("graceful deletion", DELETED_AT_ONCE, &["delete without grace", "what the watch saw"]),
    known("eviction", PRECONDITION, &["evict another uid"]),
    known("eviction", "eviction sets the condition DisruptionTarget", &["it is terminating, with a condition"]),
    known("garbage collection", NO_FIELDS, &["the owner", "an owner again"]),
    known("garbage collection", "orphaning waits behind a finalizer, and the answer is the object",
        &["delete it and orphan the dependent", "the dependent stays"]),
    known("server-side apply", "conflicts are told without times, one to a line",
        &["another manager, another value", "and apply finds the conflict"]),
    known("apply on pods", "conflicts are told without times", &["apply and update under one name"]),
    known("events", "the Status names no group, and these are the core group's messages",
        &["without action", "without reason", "without eventTime", "without reportingController",
          "without reportingInstance", "without type", "a note that is too long", "a type that is none"]),
    known("events", "an Event may be about a Pod of another namespace",
        &["about a Pod elsewhere", "found by what it is about"]),
    known("leases", "the Status names the resource, not the kind", &["renew without a revision"]),
    known("custom resources", "values are held against the schema",
        &["a value against the schema", "a missing field", "another type"]),
    known("custom resources", "what the schema does not know is pruned", &["an unknown field"]),
    known("custom resources", "404 as plain text", &["it is served no more"]),
];
