//! Get and list: selectors, pages of one revision, revisions that are too old or too new.

use serde_json::{Value, json};

use crate::{
    failure::Failure,
    kinds::Kind,
    meta::{self, Object},
    options,
    request::Request,
    rules,
    selector::{Fields, Labels},
    state::State,
    store::{Compacted, Key, Store},
};

/// The objects of a list or a watch.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Labels,
    pub(crate) fields: Fields,
}

impl Selection {
    pub(crate) fn from_request(request: &Request) -> Result<Self, Failure> {
        let labels = Labels::parse(request.query.get("labelSelector")).map_err(Failure::bad_request)?;
        let fields =
            Fields::parse(request.query.get("fieldSelector"), &request.target.kind).map_err(Failure::bad_request)?;
        Ok(Self { namespace: request.target.namespace.clone(), labels, fields })
    }

    pub(crate) fn holds(&self, object: &Value) -> bool {
        self.namespace.as_deref().is_none_or(|n| meta::namespace(object) == n)
            && self.labels.matches(object)
            && self.fields.matches(object)
    }
}

/// A part of a list.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) items: Vec<Object>,
    pub(crate) revision: u64,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<u64>,
}

impl Page {
    /// Returns the metadata of the list.
    pub(crate) fn metadata(&self) -> Value {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if let Some(next) = &self.next {
            metadata["continue"] = json!(next);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

pub(crate) fn get(state: &State, kind: &Kind, key: &Key) -> Result<Object, Failure> {
    let object = state.store.get(&kind.resource(), key).ok_or_else(|| Failure::not_found(kind, &key.name))?;
    Ok(rules::to_view(kind, object))
}

pub(crate) fn list(store: &Store, request: &Request) -> Result<Page, Failure> {
    let kind = &request.target.kind;
    let scope = Selection::from_request(request)?;
    let query = &request.query;
    options::check_list(query)?;
    let limit = query.number("limit")?.filter(|limit| *limit > 0).unwrap_or(u64::MAX);
    let token = query.get("continue");
    let asked = query.number("resourceVersion")?;
    let newest = store.revision();
    let exact = query.get("resourceVersionMatch") == "Exact";
    let (revision, after) = match (token, asked) {
        ("", Some(asked)) if asked > newest => return Err(Failure::future_revision(asked, newest)),
        ("", Some(asked)) if exact => (asked, None),
        // Not older than requested: the newest state.
        ("", _) => (newest, None),
        (token, _) => {
            let (revision, key) = parse_token(token)?;
            (revision, Some(key))
        }
    };
    let resource = kind.resource();
    let past;
    let found: Box<dyn Iterator<Item = (&Key, &Object)>> = if revision == newest {
        Box::new(store.iter(&resource, scope.namespace.as_deref()))
    } else {
        past = store.at(&resource, revision).map_err(|Compacted { .. }| too_old(token))?;
        Box::new(past.iter())
    };
    let mut matching = found
        .filter(|(key, object)| after.as_ref().is_none_or(|after| *key > after) && scope.holds(object))
        .map(|(_, object)| object);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let items: Vec<Object> = matching.by_ref().take(limit).map(|object| rules::to_view(kind, object)).collect();
    let rest = matching.count() as u64;
    let next = items.last().filter(|_| rest > 0).map(|last| write_token(revision, last));
    // With a selector the API server does not count objects that it has not examined.
    let selected = query.get("labelSelector").is_empty() && query.get("fieldSelector").is_empty();
    let remaining = (rest > 0 && selected).then_some(rest);
    Ok(Page { items, revision, next, remaining })
}

fn too_old(token: &str) -> Failure {
    if token.is_empty() {
        return Failure::expired("The resourceVersion for the provided list is too old.");
    }
    Failure::expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter.",
    )
}

/// Returns a continue token, opaque to clients: revision, namespace and name of the last returned object.
fn write_token(revision: u64, last: &Value) -> String {
    format!("{revision}/{}/{}", meta::namespace(last), meta::name(last))
}

fn parse_token(token: &str) -> Result<(u64, Key), Failure> {
    let mut parts = token.splitn(3, '/');
    let parsed = (|| {
        let revision = parts.next()?.parse().ok()?;
        Some((revision, Key::new(parts.next()?, parts.next()?)))
    })();
    parsed.ok_or_else(|| Failure::bad_request("continue key is not valid"))
}
