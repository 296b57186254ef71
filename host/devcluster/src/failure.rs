//! Errors of the API server: a `Status` object with code, reason, details and causes. Only their form; the modules
//! with the rules decide when each is returned.

use serde_json::{Value, json};

use crate::{kinds::Kind, meta};

/// A refused request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: u16,
    /// The reason; empty if there is none.
    reason: &'static str,
    message: String,
    details: Value,
}

/// One invalid field.
#[derive(Clone, Debug)]
pub(crate) struct Cause {
    reason: &'static str,
    message: String,
    field: String,
}

impl Cause {
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        let message = if detail.is_empty() { "Required value".into() } else { format!("Required value: {detail}") };
        Self { reason: "FieldValueRequired", message, field: field.into() }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self { reason: "FieldValueInvalid", message: format!("Invalid value: {value}: {detail}"), field: field.into() }
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {detail}"), field: field.into() }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self { reason: "FieldValueDuplicate", message: format!("Duplicate value: {value}"), field: field.into() }
    }

    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self { reason: "FieldValueNotFound", message: format!("Not found: {value}"), field: field.into() }
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let supported = supported.iter().map(|s| format!("\"{s}\"")).collect::<Vec<_>>().join(", ");
        Self {
            reason: "FieldValueNotSupported",
            message: format!("Unsupported value: {value}: supported values: {supported}"),
            field: field.into(),
        }
    }

    pub(crate) fn too_long(field: impl Into<String>, bytes: usize) -> Self {
        Self {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {bytes} bytes"),
            field: field.into(),
        }
    }

    pub(crate) fn too_many(field: impl Into<String>, count: u64, most: u64) -> Self {
        Self {
            reason: "FieldValueTooMany",
            message: format!("Too many: {count}: must have at most {most} items"),
            field: field.into(),
        }
    }

    /// Returns the cause for a value of another type than its schema's; both types in OpenAPI's terms.
    pub(crate) fn of_type(field: &str, found: &str, expected: &str) -> Self {
        Self {
            reason: "FieldValueTypeInvalid",
            message: format!("Invalid value: \"{found}\": {field} in body must be of type {expected}: \"{found}\""),
            field: field.into(),
        }
    }

    /// Returns the cause about a field of an object that is a part of another one.
    pub(crate) fn within(mut self, path: &str) -> Self {
        self.field = format!("{path}.{}", self.field);
        self
    }

    #[cfg(test)]
    pub(crate) fn field(&self) -> &str {
        &self.field
    }

    #[cfg(test)]
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    fn to_value(&self) -> Value {
        json!({"reason": self.reason, "message": self.message, "field": self.field})
    }
}

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>, details: Value) -> Self {
        Self { code, reason, message: message.into(), details }
    }

    fn about(kind: &Kind, name: &str) -> Value {
        let mut details = json!({"name": name, "kind": kind.plural});
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        details
    }

    pub(crate) fn no_route() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource", json!({}))
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.qualified());
        Self::new(404, "NotFound", message, Self::about(kind, name))
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.qualified());
        Self::new(409, "AlreadyExists", message, Self::about(kind, name))
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        Self::new(409, "Conflict", message, Self::about(kind, name))
    }

    /// Returns the failure of a deletion's precondition; the message has the kind instead of the resource.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let qualified = if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        let mut details = Self::about(kind, name);
        details["kind"] = json!(kind.kind);
        let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
        Self::new(409, "Conflict", message, details)
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// Returns the conflicts of an apply: manager (with its version) and field of each.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(manager, field)| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager}"), "field": field})
            })
            .collect();
        let message = match conflicts {
            [(manager, field)] => format!("Apply failed with 1 conflict: conflict with {manager}: {field}"),
            several => {
                let mut text = format!("Apply failed with {} conflicts:", several.len());
                let mut last = "";
                for (manager, field) in several {
                    if manager != last {
                        let gap = if last.is_empty() { ' ' } else { '\n' };
                        text.push_str(&format!("{gap}conflicts with {manager}:"));
                        last = manager;
                    }
                    text.push_str(&format!("\n- {field}"));
                }
                text
            }
        };
        Self::new(409, "Conflict", message, json!({"causes": causes}))
    }

    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> Self {
        // Errors name both versions of an Event as the core group's.
        let group = if kind.resource() == "events" { "" } else { &kind.group };
        Self::invalid_of(group, &kind.kind, name, causes)
    }

    pub(crate) fn invalid_of(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let mut lines: Vec<String> = Vec::new();
        for cause in causes {
            let line = format!("{}: {}", cause.field, cause.message);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let text = if lines.len() == 1 { lines.remove(0) } else { format!("[{}]", lines.join(", ")) };
        let full = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes: Vec<Value> = causes.iter().map(Cause::to_value).collect();
        let mut details = json!({"name": name, "kind": kind, "causes": causes});
        if !group.is_empty() {
            details["group"] = json!(group);
        }
        Self::new(422, "Invalid", format!("{full} \"{name}\" is invalid: {text}"), details)
    }

    /// Returns the failure of an update without a revision for a kind that requires one; the message has the resource
    /// instead of the kind.
    pub(crate) fn unconditional(kind: &Kind, name: &str) -> Self {
        let cause = Cause::invalid("metadata.resourceVersion", &0.into(), "must be specified for an update");
        Self::invalid_of(&kind.group, &kind.plural, name, &[cause])
    }

    /// Returns the failure of a patch whose result is not an object of its kind; `patch` in the server's format.
    pub(crate) fn unpatchable(patch: &str, why: &str) -> Self {
        let cause = Cause::invalid("patch", &patch.into(), why);
        let mut failure = Self::invalid_of("", "", "", &[cause]);
        meta::remove(&mut failure.details, &["name"]);
        meta::remove(&mut failure.details, &["kind"]);
        failure
    }

    /// Returns the failure of a JSON-patch operation, which has no details.
    pub(crate) fn unprocessable() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self::new(422, "Invalid", message, json!({}))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, Value::Null)
    }

    /// Returns the failure of a body that does not match the kind's types.
    pub(crate) fn undecodable(kind: &str, version: &str, why: &str) -> Self {
        Self::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    }

    /// Returns the failure of an applied object that does not match the kind's schema.
    pub(crate) fn untyped(kind: &Kind, object: &Value, wrong: &[String]) -> Self {
        let wrong = match wrong {
            [one] => one.clone(),
            several => format!("errors:\n  {}", several.join("\n  ")),
        };
        let place = Self::applied(kind, object);
        Self::unexpected(format!("failed to create typed patch object ({place}): {wrong}"))
    }

    /// Returns the failure of a merged object that does not match the kind's type.
    pub(crate) fn unconvertible(kind: &Kind, object: &Value, why: &str) -> Self {
        let place = Self::applied(kind, object);
        let kind = kind.full_name();
        let why = format!("unable to convert unstructured object to {kind}: {why}");
        Self::unexpected(format!("failed to convert new object ({place}) to proper version: {why}"))
    }

    fn applied(kind: &Kind, object: &Value) -> String {
        format!("{}/{}; {}", meta::namespace(object), meta::name(object), kind.full_name())
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() { kind.qualified() } else { format!("{} \"{name}\"", kind.qualified()) };
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}"), Self::about(kind, name))
    }

    pub(crate) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut failure = Self::forbidden(kind, name, &why);
        failure.details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        failure
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message, json!({}))
    }

    pub(crate) fn unsupported_media(offered: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            offered.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message, json!({}))
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = "only the following media types are accepted: application/json";
        Self::new(406, "NotAcceptable", message, json!({}))
    }

    /// A list is asked for in the representation of an object.
    pub(crate) fn no_list() -> Self {
        let message = "you requested PartialObjectMetadata, but the requested object is a list";
        Self::new(406, "NotAcceptable", message, json!({}))
    }

    pub(crate) fn too_large() -> Self {
        let message = "Request entity too large: limit is 3145728";
        Self::new(413, "RequestEntityTooLarge", message, json!({}))
    }

    /// Returns the failure of a request for a revision that is no longer in the history.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message, Value::Null)
    }

    /// Returns the failure of a request for a revision that does not exist yet.
    pub(crate) fn future_revision(asked: u64, current: u64) -> Self {
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        let details = json!({"causes": [cause], "retryAfterSeconds": 1});
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Self::new(504, "Timeout", message, details)
    }

    pub(crate) fn disruption_budget(name: &str, needed: u64, healthy: u64) -> Self {
        let cause = json!({
            "reason": "DisruptionBudget",
            "message": format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"),
        });
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        Self::new(429, "TooManyRequests", message, json!({"causes": [cause]}))
    }

    /// Returns the failure of an overloaded server.
    pub(crate) fn too_many_requests(retry_after_seconds: u32) -> Self {
        let message = "Too many requests, please try again later.";
        Self::new(429, "TooManyRequests", message, json!({"retryAfterSeconds": retry_after_seconds}))
    }

    /// Returns the failure of a request for logs: no container runs in this cluster.
    pub(crate) fn no_logs(pod: &str) -> Self {
        let message = format!("the dev cluster simulates containers and runs none: pod \"{pod}\" has no logs");
        Self::new(501, "", message, Value::Null)
    }

    pub(crate) fn unavailable() -> Self {
        Self::new(503, "ServiceUnavailable", "the server is currently unable to handle the request", Value::Null)
    }

    /// Returns an internal error without a reason.
    pub(crate) fn unexpected(message: impl Into<String>) -> Self {
        Self::new(500, "", message, Value::Null)
    }

    /// Returns the seconds after which the client should retry, if the failure has them.
    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.details.get("retryAfterSeconds").and_then(Value::as_u64).and_then(|s| u32::try_from(s).ok())
    }

    /// Returns the `Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if !self.reason.is_empty() {
            status["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status
    }
}

/// Returns the `Status` of a success that returns no object.
pub(crate) fn success(details: Option<Value>) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if let Some(details) = details {
        status["details"] = details;
    }
    status
}
