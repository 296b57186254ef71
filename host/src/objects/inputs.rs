//! The read and the watch of one object that is an input of plugins, as their account.

use std::{sync::Arc, time::Duration};

use http::{Request, request};
use podium_api::{Api, ApiError, in_query};
use podium_vocabulary::{Input, PluginId, PluginSpec, Tenant, fnv};
use serde_json::Value;

use super::{
    FetchFailure, Step,
    bounds::Trimming,
    watch::{Served, Watchable},
};
use crate::config::Policy;

/// The wait after the API server has refused the list or the watch. Rights are added by people.
const REFUSED: Duration = Duration::from_secs(30);

/// An object, as an account reads it. Plugins of one account with equal inputs share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InputKind {
    /// The owner of the plugins.
    pub(crate) tenant: Tenant,
    /// The name of the account, as the API server knows it.
    account: String,
    /// The namespace of the account and of the object.
    namespace: String,
    /// Without its id.
    input: Input,
}

/// The state of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputState {
    /// The fields that plugins receive, as JSON.
    Present(Arc<str>),
    /// There is no such object.
    Absent,
    /// It may not be read, or is too large.
    Unavailable,
}

impl InputKind {
    /// Returns the inputs of a plugin with their ids; none for a plugin without an account, whose configuration is
    /// refused if it has some.
    pub(crate) fn of_plugin(spec: &PluginSpec) -> impl Iterator<Item = (&str, Arc<Self>)> {
        let user = spec.impersonate.as_deref();
        let account = user.and_then(|user| user.strip_prefix("system:serviceaccount:")?.split_once(':'));
        spec.inputs.iter().filter_map(move |input| {
            let kind = Self {
                tenant: spec.tenant(),
                account: user?.to_owned(),
                namespace: account?.0.to_owned(),
                input: Input { id: String::new(), ..input.clone() },
            };
            Some((&*input.id, Arc::new(kind)))
        })
    }

    /// Returns the seed of the jitter of waits: watches do not retry together.
    pub(crate) fn seed(&self, host: u64) -> u64 {
        host ^ fnv(&format!("{} {}", self.account, self.input.name))
    }

    fn resource_path(&self) -> String {
        let Input { api_version, resource, .. } = &self.input;
        let root = if api_version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{api_version}/namespaces/{}/{resource}", self.namespace)
    }

    fn as_account(&self, uri: &str) -> request::Builder {
        Request::get(uri).header("impersonate-user", &self.account)
    }

    /// Reads the object for a plugin that is being loaded.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or is too large.
    pub(crate) async fn read(&self, api: &Api, plugin: &PluginId, id: &str) -> Result<InputState, FetchFailure> {
        let Input { kind, resource, name, .. } = &self.input;
        let object = format!("{kind} {}/{name}", self.namespace);
        let failed = |reason, message: String| {
            let field = format!("spec.inputs[{id}]");
            FetchFailure { step: Step::Granted, ..FetchFailure::fetching(&field, reason, &message) }
        };
        let request = self
            .as_account(&format!("{}/{name}", self.resource_path()))
            .header(http::header::USER_AGENT, podium_api::plugin_user_agent(&plugin.to_string()))
            .body(Vec::new())
            .map_err(|error| failed("InputUnavailable", error.to_string()))?;
        let bytes = match api.bytes(request).await {
            Ok(bytes) => bytes,
            Err(ApiError::Status { code: 404, object: Some(_), .. }) => return Ok(InputState::Absent),
            Err(ApiError::Status { code: 403, .. }) => {
                let message = format!(
                    "{} may not get {object}; grant it the verbs get, list and watch on {resource} with this name, and \
                     the host the verb impersonate on the ServiceAccount",
                    self.account
                );
                return Err(failed("InputForbidden", message));
            }
            Err(error) => return Err(failed("InputUnavailable", format!("{object}: {}", error.for_guests()))),
        };
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|_| failed("InputUnavailable", format!("{object}: the API server's answer is malformed")))?;
        match self.state(&value) {
            Ok(state) => Ok(state),
            Err(bytes) => {
                let most = Input::MOST_BYTES;
                let message = format!("{object} has {bytes} bytes in these fields; at most {most}: name fewer fields");
                Err(failed("InputTooLarge", message))
            }
        }
    }

    /// # Errors
    /// Returns the size of an object that is too large.
    fn state(&self, object: &Value) -> Result<InputState, usize> {
        let text = self.input.prune(object).to_string();
        if text.len() > Input::MOST_BYTES { Err(text.len()) } else { Ok(InputState::Present(text.into())) }
    }
}

impl Served for Arc<InputKind> {
    fn resource(&self) -> &str {
        &self.input.resource
    }

    fn path(&self, _: Option<&str>) -> String {
        let selector = format!("metadata.name={}", self.input.name);
        format!("{}?fieldSelector={}", self.resource_path(), in_query(&selector))
    }

    fn request(&self, uri: &str, _: bool) -> request::Builder {
        self.as_account(uri)
    }

    fn page(&self) -> u32 {
        1
    }

    fn refused(&self) -> Option<(Duration, String)> {
        let Input { kind, name, .. } = &self.input;
        let InputKind { account, namespace, .. } = &**self;
        let object = format!("{kind} {namespace}/{name}");
        Some((REFUSED, format!("{account} may not list and watch the input {object}: runs do not receive it")))
    }
}

impl Watchable for InputState {
    type Kind = Arc<InputKind>;
    type Id = ();

    fn read(kind: &Self::Kind, json: &str) -> Result<Self, String> {
        let object: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
        Ok(kind.state(&object).unwrap_or_else(|bytes| {
            let Input { kind, name, .. } = &kind.input;
            tracing::warn!(kind, name, bytes, "an input has become too large: runs do not receive it");
            Self::Unavailable
        }))
    }

    fn id(self) {}

    fn trim(_: &mut Vec<Self>, _: &mut Trimming, _: Option<&Policy>) {}
}
