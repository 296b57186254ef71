//! The read and the watch of one object that is an input of plugins, as their account.

use std::{sync::Arc, time::Duration};

use http::{Request, request};
use podium_api::{Api, ApiError, in_query, plugin_user_agent, resource_path};
use podium_vocabulary::{Input, PluginId, PluginSpec, Tenant, json};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

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

/// The answer of a list. Its objects are not parsed with it.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

impl InputState {
    /// Returns the bytes that runs receive.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Present(text) => text.len(),
            Self::Absent | Self::Unavailable => 0,
        }
    }
}

impl InputKind {
    /// Returns the inputs of a plugin with their ids; none for a plugin without an account, whose configuration is
    /// refused if it has some.
    pub(crate) fn of_plugin(spec: &PluginSpec) -> impl Iterator<Item = (&str, Arc<Self>)> {
        spec.inputs.iter().filter_map(|input| {
            let kind = Self {
                tenant: spec.tenant(),
                account: spec.impersonate.clone()?,
                namespace: spec.account()?.0.to_owned(),
                input: Input { id: String::new(), ..input.clone() },
            };
            Some((&*input.id, Arc::new(kind)))
        })
    }

    fn resource_path(&self) -> String {
        let Input { api_version, resource, .. } = &self.input;
        resource_path(api_version, Some(&self.namespace), resource)
    }

    fn selector(&self) -> String {
        let selector = format!("metadata.name={}", self.input.name);
        format!("fieldSelector={}", in_query(&selector))
    }

    fn as_account(&self, uri: &str) -> request::Builder {
        Request::get(uri).header("impersonate-user", &self.account)
    }

    /// Reads the object for a plugin that is being loaded.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or is too large.
    pub(crate) async fn read(&self, api: &Api, plugin: &PluginId, id: &str) -> Result<InputState, FetchFailure> {
        let resource = &self.input.resource;
        let object = self.describe();
        let failed = |reason, message: String| {
            let field = format!("spec.inputs[{id}]");
            FetchFailure { step: Step::Granted, ..FetchFailure::fetching(&field, reason, &message) }
        };
        let request = self
            .as_account(&format!("{}?limit=1&{}", self.resource_path(), self.selector()))
            .header(http::header::USER_AGENT, plugin_user_agent(&plugin.to_string()))
            .body(Vec::new())
            .map_err(|error| failed("InputUnavailable", error.to_string()))?;
        let bytes = match api.bytes(request).await {
            Ok(bytes) => bytes,
            Err(ApiError::Status { code: 403, .. }) => {
                let message = format!(
                    "{} may not list {object}; grant it the verbs list and watch on {resource} with this name, and the \
                     host the verb impersonate on the ServiceAccount",
                    self.account
                );
                return Err(failed("InputForbidden", message));
            }
            Err(error) => return Err(failed("InputUnavailable", format!("{object}: {}", error.for_guests()))),
        };
        let malformed = || failed("InputUnavailable", format!("{object}: the API server's answer is malformed"));
        let List { items } = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
        let Some(item) = items.first() else { return Ok(InputState::Absent) };
        let too_large = |error| failed("InputTooLarge", format!("{object} is not read: {error}"));
        let value = json::value(item.get().as_bytes()).map_err(too_large)?;
        if !self.is_named(&value) {
            return Err(malformed());
        }
        match self.state(&value) {
            Ok(state) => Ok(state),
            Err(bytes) => {
                let most = Input::MOST_BYTES;
                let message = format!("{object} has {bytes} bytes in these fields; at most {most}: name fewer fields");
                Err(failed("InputTooLarge", message))
            }
        }
    }

    /// Returns true if this is the object, and not another one of a server that ignores the selector.
    fn is_named(&self, object: &Value) -> bool {
        object["metadata"]["name"] == self.input.name
    }

    /// Returns the object for log lines.
    pub(crate) fn describe(&self) -> String {
        format!("{} {}/{}", self.input.kind, self.namespace, self.input.name)
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
        format!("{}?{}", self.resource_path(), self.selector())
    }

    fn request(&self, uri: &str, _: bool) -> request::Builder {
        self.as_account(uri)
    }

    fn page(&self) -> u32 {
        1
    }

    fn refused(&self) -> Option<(Duration, String)> {
        let message = format!(
            "{} may not list and watch the input {}: without list runs do not receive it, and without watch it is up \
             to 30 s old",
            self.account,
            self.describe()
        );
        Some((REFUSED, message))
    }
}

impl Watchable for InputState {
    type Kind = Arc<InputKind>;
    type Id = ();

    fn read(kind: &Self::Kind, object: &str) -> Result<Self, String> {
        // An error would leave the object out, and runs with its last state.
        let object = json::value(object.as_bytes()).ok().filter(|object| kind.is_named(object));
        Ok(object.and_then(|object| kind.state(&object).ok()).unwrap_or(Self::Unavailable))
    }

    fn id(self) {}

    fn is_full(objects: &[Self]) -> bool {
        !objects.is_empty()
    }

    fn trim(_: &mut Vec<Self>, _: &mut Trimming, _: Option<&Policy>) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_whose_values_take_much_memory_is_not_available() {
        let input = Input {
            id: String::new(),
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            resource: "configmaps".into(),
            name: "prices".into(),
            fields: vec!["data".into()],
        };
        let kind = InputKind { tenant: Tenant::Cluster, account: "a".into(), namespace: "shop".into(), input };
        for (values, expected) in
            [(1, InputState::Present(r#"{"data":{"cart":"3"}}"#.into())), (100_000, InputState::Unavailable)]
        {
            let spec = vec![json!({ "": 0 }); values];
            let object = json!({ "metadata": { "name": "prices" }, "data": { "cart": "3" }, "spec": spec });
            assert_eq!(InputState::read(&Arc::new(kind.clone()), &object.to_string()), Ok(expected), "{values}");
        }
    }
}
