//! The API server's audit log: which user wrote what, recorded by the API server itself.

use std::{fs, path::PathBuf};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The audit log of a control plane. It contains writes and some reads, see `controlplane/audit-policy.yaml`.
#[derive(Debug, Clone)]
pub struct Audit {
    path: PathBuf,
}

/// One answered request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedWrite {
    /// The authenticated user, before impersonation.
    pub user: String,
    /// The impersonated user, if there is one.
    pub impersonated: Option<String>,
    /// `create`, `patch`, `update`, `delete`; `get` for a read.
    pub verb: String,
    /// The resource: `pods`, `pods/status`, `events`.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    /// The HTTP status of the response.
    pub code: u16,
    /// The User-Agent; empty if the request had none.
    pub user_agent: String,
    /// The body of the writes to Pods and Leases by the account of the chart; `null` of others.
    pub body: Value,
    /// The time at which the API server received the request, and that at which it had answered it.
    pub received: Timestamp,
    pub answered: Timestamp,
}

/// A position in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(usize);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    impersonated_user: Option<User>,
    object_ref: Option<Object>,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    request_object: Value,
    response_status: Option<Status>,
    request_received_timestamp: String,
    stage_timestamp: String,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl Audit {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// # Errors
    /// Returns an error if the log cannot be read.
    pub fn now(&self) -> Result<Mark> {
        Ok(Mark(self.read()?.len()))
    }

    /// Returns the writes of `user` that were answered after `mark`, in order.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    pub fn writes_of(&self, user: &str, mark: Mark) -> Result<Vec<AuditedWrite>> {
        let requests = self.requests_of(user, mark)?;
        Ok(requests.into_iter().filter(|request| !["get", "list", "watch"].contains(&request.verb.as_str())).collect())
    }

    /// Like [`Self::writes_of`], with the reads of single Pods, ConfigMaps and Events.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    pub fn requests_of(&self, user: &str, mark: Mark) -> Result<Vec<AuditedWrite>> {
        let text = self.read()?;
        let new = text.get(mark.0..).context("the audit log is shorter than before")?;
        let requests = new.lines().map(parse).collect::<Result<Vec<_>>>()?;
        Ok(requests.into_iter().filter(|request| request.user == user).collect())
    }

    /// Reads the complete lines: the last line may be incomplete.
    fn read(&self) -> Result<String> {
        let mut text = fs::read_to_string(&self.path).context("read the audit log")?;
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        Ok(text)
    }
}

fn parse(line: &str) -> Result<AuditedWrite> {
    let line: Line = serde_json::from_str(line).with_context(|| format!("a line of the audit log: {line}"))?;
    let object = line.object_ref.unwrap_or_default();
    let slash = if object.subresource.is_empty() { "" } else { "/" };
    Ok(AuditedWrite {
        user: line.user.username,
        impersonated: line.impersonated_user.map(|user| user.username),
        verb: line.verb,
        resource: format!("{}{slash}{}", object.resource, object.subresource),
        namespace: object.namespace,
        name: object.name,
        code: line.response_status.map_or(0, |status| status.code),
        user_agent: line.user_agent,
        body: line.request_object,
        received: line.request_received_timestamp.parse().context("a time of the audit log")?,
        answered: line.stage_timestamp.parse().context("a time of the audit log")?,
    })
}
