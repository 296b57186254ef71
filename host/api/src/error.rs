//! [`ApiError`]: why a request did not return a usable response, so that a caller can act on it. Texts of the API
//! server are bounded and escaped.

use std::{error::Error as StdError, time::Duration};

use hyper_util::client::legacy;
use podium_vocabulary::text;
use serde::Deserialize;

/// The most bytes that are stored of an error's message, because it goes to logs, reports and guests.
pub(super) const MAX_MESSAGE_BYTES: usize = 1 << 10;
/// The most bytes that are stored of each field of a cause.
pub(super) const MAX_CAUSE_BYTES: usize = 256;
/// The most causes that are stored. The API server names each wrong field of an object.
pub(super) const MAX_CAUSES: usize = 16;
/// The most bytes that are quoted of a response that is not a Status.
const MAX_QUOTE_BYTES: usize = 200;

/// Why a request did not return a usable response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiError {
    /// The API server, or a proxy before it, returned an error status.
    #[error("{code}{}: {message}", .reason.as_ref().map(|reason| format!(" {reason}")).unwrap_or_default())]
    Status {
        /// The HTTP status code.
        code: u16,
        /// The Status' reason, such as "Conflict"; `None` if the response was not a Status, or a Status without a
        /// reason.
        reason: Option<String>,
        /// The name of the object that the Status is about; `None` if it names none, as when the path is not served.
        object: Option<String>,
        /// The Status' message, escaped, at most 1 KiB.
        message: String,
        /// The first 16 causes.
        causes: Vec<Cause>,
        /// The Retry-After of the response.
        retry_after: Option<Duration>,
    },
    /// Nothing was sent, because the API server had asked to wait. The value is the remaining time.
    #[error("not sent: the API server asked to wait {} s", .0.as_secs_f32())]
    Held(Duration),
    /// No response arrived within this deadline. The request may have been executed.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// The connection failed. If `sent` is false, nothing reached the API server; otherwise the request may have been
    /// executed.
    #[error("{message}")]
    Transport {
        /// Whether the request may have reached the API server.
        sent: bool,
        /// The error and its causes.
        message: String,
    },
    /// The response is longer than this number of bytes, of which no more were read.
    #[error("the API server's answer is longer than {0} bytes")]
    TooLong(usize),
    /// The response has an unexpected form. A write was executed.
    #[error("malformed answer: {0}")]
    Malformed(String),
}

/// One cause in the details of a Status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Cause {
    /// The field at fault, such as "metadata.uid".
    pub field: String,
    /// The machine-readable reason, such as "DisruptionBudget".
    pub reason: String,
    /// The explanation for people.
    pub message: String,
}

impl Cause {
    fn bounded(self) -> Self {
        let Self { field, reason, message } = self;
        let bounded = |text: String| text::bounded(&text, MAX_CAUSE_BYTES);
        Self { field: bounded(field), reason: bounded(reason), message: bounded(message) }
    }
}

/// The fields of a `metav1.Status` that errors need.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    kind: String,
    code: u16,
    reason: String,
    message: String,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    name: String,
    causes: Option<Vec<Cause>>,
    retry_after_seconds: Option<u32>,
}

impl ApiError {
    /// Returns the error for the Status in an ERROR event of a watch.
    #[must_use]
    pub fn from_status(json: &[u8]) -> Self {
        refusal(0, None, json)
    }

    /// Returns the message for a guest, without addresses and host names of the connection to the API server.
    #[must_use]
    pub fn for_guests(&self) -> String {
        match self {
            Self::Status { code, reason: None, .. } => format!("the API server answered {code}"),
            Self::Status { code, reason: Some(reason), message, .. } => {
                format!("the API server answered {code} {reason}: {message}")
            }
            Self::Transport { .. } => "the connection to the API server failed".to_owned(),
            Self::Malformed(_) => "the API server's answer cannot be read".to_owned(),
            Self::Held(_) | Self::Timeout(_) | Self::TooLong(_) => self.to_string(),
        }
    }

    /// Returns the status code of an error response.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Returns true if the API server did not accept the host's own credentials. Nothing was executed then, and other
    /// requests fail in the same way, whoever they impersonate.
    #[must_use]
    pub fn is_unauthenticated(&self) -> bool {
        // Admission answers 401 too, and names the object or a cause then.
        let is_bare = matches!(self, Self::Status { object: None, causes, .. } if causes.is_empty());
        self.code() == Some(401) && is_bare && !self.is_about_the_object()
    }

    /// Returns true if a cause has this reason.
    #[must_use]
    pub fn has_cause(&self, name: &str) -> bool {
        matches!(self, Self::Status { causes, .. } if causes.iter().any(|cause| cause.reason == name))
    }

    /// Returns true if the error concerns the object of the request instead of the API server's load: a disruption
    /// budget forbids the eviction, or an admission webhook, which may be a tenant's, answered.
    #[must_use]
    pub fn is_about_the_object(&self) -> bool {
        let webhook = |message: &str| message.starts_with("admission webhook ");
        self.has_cause("DisruptionBudget") || matches!(self, Self::Status { message, .. } if webhook(message))
    }

    /// Returns the Retry-After of the response, or `None` if there was none or no response.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// Makes the error of a response. With a `code` of 0 the Status' own code is used.
pub(super) fn refusal(code: u16, retry_after: Option<Duration>, body: &[u8]) -> ApiError {
    let status = serde_json::from_slice::<Status>(body).ok().filter(|status| status.kind == "Status");
    let Some(status) = status else {
        let quote = String::from_utf8_lossy(&body[..body.len().min(2 * MAX_QUOTE_BYTES)]).into_owned();
        let message = text::bounded(quote.trim(), MAX_QUOTE_BYTES);
        return ApiError::Status { code, reason: None, object: None, message, causes: Vec::new(), retry_after };
    };
    let details = status.details.unwrap_or_default();
    let seconds = details.retry_after_seconds.filter(|seconds| *seconds > 0).map(u64::from);
    ApiError::Status {
        code: if code == 0 { status.code } else { code },
        reason: Some(text::bounded(&status.reason, MAX_CAUSE_BYTES)).filter(|reason| !reason.is_empty()),
        object: Some(text::bounded(&details.name, MAX_CAUSE_BYTES)).filter(|name| !name.is_empty()),
        message: text::bounded(&status.message, MAX_MESSAGE_BYTES),
        causes: details.causes.unwrap_or_default().into_iter().take(MAX_CAUSES).map(Cause::bounded).collect(),
        retry_after: retry_after.or(seconds.map(Duration::from_secs)),
    }
}

/// Makes the error of a connection.
pub(super) fn transport(error: &(dyn StdError + 'static)) -> ApiError {
    let mut message = error.to_string();
    let mut sent = true;
    let mut next = Some(error);
    while let Some(error) = next {
        // There were no credentials or no connection: nothing was sent.
        sent &= !error.downcast_ref().is_some_and(legacy::Error::is_connect);
        sent &= !matches!(error.downcast_ref(), Some(kube::Error::Auth(_)));
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        next = error.source();
    }
    // rustls names the rule only.
    if message.contains("CaUsedAsEndEntity") {
        message += ": the API server presents the certificate of an authority (CA:TRUE) as its own; it needs one with \
            CA:FALSE, signed by an authority that the kubeconfig has in certificate-authority";
    }
    ApiError::Transport { sent, message: text::line(&message) }
}
