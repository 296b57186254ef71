//! The read and the watch of the objects of an input of plugins, as their account.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{Request, request};
use podium_api::{Api, ApiError, in_query, plugin_user_agent, resource_path};
use podium_vocabulary::{Input, InputObjects, PluginId, PluginSpec, Tenant, fnv, json, text};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::{
    bounds::Trimming,
    watch::{Served, Watchable},
};
use crate::config::Policy;

/// The wait after the API server has refused the list or the watch. Rights are added by people.
const REFUSED: Duration = Duration::from_secs(30);
/// Up to 100 MiB are read of objects that are too large.
const EXCESS: Duration = Duration::from_secs(300);
/// The most bytes of a selector in messages.
const DESCRIBED_BYTES: usize = 128;
/// Objects of a page of a list. Each has up to 1.5 MiB.
const PAGE: u32 = 8;

/// An input, as an account reads it. Plugins of one account with equal inputs share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct InputKind {
    /// The owner of the plugins.
    pub(crate) tenant: Tenant,
    /// The name of the account, as the API server knows it.
    account: String,
    /// The namespace of the account and of the objects.
    namespace: String,
    /// Without its id.
    input: Input,
}

/// The state of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputState {
    /// Plugins receive this JSON: the fields of the object, or a list of those of the objects.
    Present(Arc<str>),
    /// There is no such object.
    Absent,
    /// It may not be read, is too large, or has too many objects: the reason.
    Unavailable(Arc<str>),
}

/// The failure to read an input.
pub(crate) struct Unread {
    /// In CamelCase, for a condition.
    pub(crate) reason: &'static str,
    /// With the object, and how to correct it.
    pub(crate) message: String,
}

/// An object of an input, as a list or a watch shows it.
#[derive(Debug, PartialEq)]
pub(crate) struct InputObject {
    pub(crate) name: String,
    pub(crate) fields: Fields,
}

/// The fields of an object that plugins receive, as JSON, or why they are too large.
pub(crate) type Fields = Result<Arc<str>, String>;

/// The answer of a list. Its objects are not parsed with it.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// The only part of an object that is read of one with too many values.
#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

impl InputState {
    /// Returns the bytes that runs receive.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Present(text) => text.len(),
            Self::Absent | Self::Unavailable(_) => 0,
        }
    }

    /// Returns true if runs do not receive it.
    pub(crate) fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_))
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
        match &self.input.objects {
            InputObjects::Named(name) => format!("fieldSelector={}", in_query(&format!("metadata.name={name}"))),
            InputObjects::Labelled(labels) => format!("labelSelector={}", in_query(labels)),
        }
    }

    fn as_account(&self, uri: &str) -> request::Builder {
        Request::get(uri).header("impersonate-user", &self.account)
    }

    /// Reads the objects for a plugin that is being loaded, in the turns of its tenant and of the host.
    ///
    /// # Errors
    /// Returns an error if they cannot be read, or are too large.
    pub(crate) async fn read(
        self: &Arc<Self>,
        api: &Api,
        plugin: &PluginId,
        turns: [&Semaphore; 2],
    ) -> Result<InputState, Unread> {
        let failed = |reason, message| Unread { reason, message };
        let described = self.describe();
        let mut objects = BTreeMap::new();
        let mut next = String::new();
        loop {
            let uri = format!("{}?limit={}&{}{next}", self.resource_path(), self.page(), self.selector());
            let request = self
                .as_account(&uri)
                .header(http::header::USER_AGENT, plugin_user_agent(&plugin.to_string()))
                .body(Vec::new())
                .map_err(|error| failed("InputUnavailable", error.to_string()))?;
            let [of_tenant, of_host] = turns;
            // Never closed.
            let _of_tenant = of_tenant.acquire().await;
            let (bytes, _turn) = match api.bytes_in_turn(request, of_host.acquire()).await {
                Ok(read) => read,
                Err(ApiError::Status { code: 403, .. }) => return Err(failed("InputForbidden", self.refusal())),
                Err(error) => {
                    return Err(failed("InputUnavailable", format!("{described}: {}", error.for_guests())));
                }
            };
            let malformed = || failed("InputUnavailable", format!("{described}: the API server's answer is malformed"));
            let List { metadata, items } = serde_json::from_slice(&bytes).map_err(|_| malformed())?;
            for item in items {
                let InputObject { name, fields } = self.object(item.get()).ok_or_else(malformed)?;
                objects.insert(name, fields);
            }
            match metadata.next.filter(|next| !next.is_empty() && !self.is_full(objects.values())) {
                Some(token) => next = format!("&continue={}", in_query(&token)),
                None => break,
            }
        }
        self.state(&objects).map_err(|excess| failed("InputTooLarge", format!("{described}: {excess}")))
    }

    /// Returns why the API server does not list the objects.
    pub(crate) fn refusal(&self) -> String {
        let object = self.describe();
        let resource = &self.input.resource;
        let with_name = if self.is_named() { " with this name" } else { "" };
        format!(
            "{} may not list {object}, or the kind is not served; grant it the verbs list and watch on \
             {resource}{with_name}, and the host the verb impersonate on the ServiceAccount",
            self.account
        )
    }

    /// Returns an object of a list or a watch; `None` if it is not one of these, as from a server that ignores the
    /// selector.
    fn object(&self, json: &str) -> Option<InputObject> {
        let Named { metadata: Metadata { name } } = serde_json::from_str(json).ok()?;
        match &self.input.objects {
            InputObjects::Named(named) if *named != name => return None,
            InputObjects::Named(_) | InputObjects::Labelled(_) => {}
        }
        let value = json::value(json.as_bytes()).map_err(|error| format!("is not read: {error}"));
        let fields = value.and_then(|value| bounded(self.input.prune(&value).to_string()));
        Some(InputObject { name, fields })
    }

    /// Returns how long objects that are too many or too large are not listed again. Inputs do not list together.
    pub(crate) fn pause(&self) -> Duration {
        EXCESS + Duration::from_secs(fnv(&self.describe()) % 60)
    }

    /// Returns true for one object by its name.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self.input.objects, InputObjects::Named(_))
    }

    /// The most objects.
    fn most(&self) -> usize {
        if self.is_named() { 1 } else { Input::MOST_OBJECTS }
    }

    /// Returns the objects for log lines.
    pub(crate) fn describe(&self) -> String {
        let Input { kind, objects, .. } = &self.input;
        match objects {
            InputObjects::Named(name) => format!("{kind} {}/{name}", self.namespace),
            // The reason follows it in a line of bounded length.
            InputObjects::Labelled(labels) => {
                format!("{kind} {}/[{}]", self.namespace, text::bounded(labels, DESCRIBED_BYTES))
            }
        }
    }

    /// Returns what plugins receive of these objects, by their names.
    ///
    /// # Errors
    /// Returns a message if they are too many, or too large.
    pub(crate) fn state(&self, objects: &BTreeMap<String, Fields>) -> Result<InputState, String> {
        let mut fields = Vec::new();
        for (name, object) in objects {
            let of = if self.is_named() { String::new() } else { format!("object {name} ") };
            fields.push(&**object.as_ref().map_err(|excess| format!("{of}{excess}"))?);
        }
        if objects.len() > self.most() {
            return Err(format!("more than {} objects match; use a narrower selector", Input::MOST_OBJECTS));
        }
        match (&self.input.objects, fields.first()) {
            (InputObjects::Named(_), None) => Ok(InputState::Absent),
            (InputObjects::Named(_), Some(object)) => Ok(InputState::Present((*object).into())),
            (InputObjects::Labelled(_), _) => bounded(format!("[{}]", fields.join(",")))
                .map(InputState::Present)
                .map_err(|excess| format!("all objects: {excess}, or use a narrower selector")),
        }
    }

    /// Returns true if further objects would change nothing about what plugins receive.
    fn is_full<'a>(&self, objects: impl ExactSizeIterator<Item = &'a Fields>) -> bool {
        let count = objects.len();
        let most = Input::MOST_BYTES;
        let bytes: usize = objects.map(|fields| fields.as_ref().map_or(most + 1, |text| text.len())).sum();
        count > self.most() || self.is_named() && count == 1 || bytes > most
    }
}

/// Returns the text, if it is no longer than plugins receive it.
fn bounded(fields: String) -> Fields {
    let most = Input::MOST_BYTES;
    if fields.len() > most {
        // Without the number, which changes with the object, as the condition would.
        return Err(format!("has more than {most} bytes in these fields; name fewer fields"));
    }
    Ok(fields.into())
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
        if self.is_named() { 1 } else { PAGE }
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

impl Watchable for InputObject {
    type Kind = Arc<InputKind>;
    type Id = String;

    fn read(kind: &Self::Kind, object: &str) -> Result<Self, String> {
        kind.object(object).ok_or_else(|| "not an object of this input".to_owned())
    }

    fn id(self) -> String {
        self.name
    }

    fn is_full(kind: &Self::Kind, objects: &[Self]) -> bool {
        kind.is_full(objects.iter().map(|object| &object.fields))
    }

    fn trim(_: &mut Vec<Self>, _: &mut Trimming, _: Option<&Policy>) {}
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kind(objects: InputObjects) -> InputKind {
        let input = Input {
            id: String::new(),
            api_version: "v1".into(),
            kind: "ConfigMap".into(),
            resource: "configmaps".into(),
            objects,
            fields: vec!["data".into()],
        };
        InputKind { tenant: Tenant::Cluster, account: "a".into(), namespace: "shop".into(), input }
    }

    #[test]
    fn an_object_whose_values_take_much_memory_is_not_available() {
        let kind = kind(InputObjects::Named("prices".into()));
        for (values, expected) in [(1, Ok(r#"{"data":{"cart":"3"}}"#)), (100_000, Err(()))] {
            let spec = vec![json!({ "": 0 }); values];
            let object = json!({ "metadata": { "name": "prices" }, "data": { "cart": "3" }, "spec": spec });
            let object = InputObject::read(&Arc::new(kind.clone()), &object.to_string()).unwrap();
            assert_eq!(object.fields.as_deref().map_err(drop), expected, "{values}");
            let objects = BTreeMap::from([(object.name, object.fields)]);
            assert_eq!(kind.state(&objects).is_ok(), expected.is_ok());
        }
        let other = json!({ "metadata": { "name": "other" } }).to_string();
        for json in ["", "[]", "{}", r#"{"metadata":{}}"#, &other] {
            assert!(InputObject::read(&Arc::new(kind.clone()), json).is_err(), "{json}");
        }
    }

    #[test]
    fn labels_select_a_list_by_name_within_the_bounds() {
        let kind = kind(InputObjects::Labelled("a=b".into()));
        let state = |objects: &[(&str, usize)]| {
            let objects = objects.iter().map(|(name, bytes)| {
                let object = json!({ "metadata": { "name": name }, "data": "x".repeat(*bytes) }).to_string();
                let InputObject { name, fields } = InputObject::read(&Arc::new(kind.clone()), &object).unwrap();
                (name, fields)
            });
            kind.state(&objects.collect())
        };
        assert_eq!(state(&[]), Ok(InputState::Present("[]".into())));
        let expected = r#"[{"data":"","metadata":{"name":"a"}},{"data":"x","metadata":{"name":"b"}}]"#;
        assert_eq!(state(&[("b", 1), ("a", 0)]), Ok(InputState::Present(expected.into())));
        let names: Vec<String> = (0..=Input::MOST_OBJECTS).map(|at| format!("n{at}")).collect();
        let many: Vec<(&str, usize)> = names.iter().map(|name| (&**name, 1)).collect();
        assert!(state(&many[1..]).is_ok());
        assert!(state(&many).is_err_and(|excess| excess.starts_with("more than 64 objects match")));
        assert!(
            state(&[("a", Input::MOST_BYTES)]).is_err_and(|excess| excess.starts_with("object a has more than 13"))
        );
        let half = Input::MOST_BYTES / 2;
        assert!(
            state(&[("a", half), ("b", half)]).is_err_and(|excess| excess.starts_with("all objects: has more than 13"))
        );
    }
}
