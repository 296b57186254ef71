//! Which path a kind has: asked of the API server once per group and version, when an object of it is written, and
//! again after a 404, because a CustomResourceDefinition may have been created again with another plural or scope.
//! A host whose plugins write only to Pods never asks, so it works with an API server that has only Pods.

use std::{num::NonZeroUsize, sync::Arc};

use lru::LruCache;
use parking_lot::Mutex;
use podium_engine::ports::Sender;
use podium_pods::model::ObjectRef;
use serde::Deserialize;

use super::http;
use crate::api::{Api, ApiError};

/// Group versions remembered; a platform grants a handful.
const MAX_GROUP_VERSIONS: NonZeroUsize = NonZeroUsize::new(256).unwrap();

pub(super) struct Discovery {
    known: Mutex<LruCache<String, Arc<[Resource]>>>,
}

#[derive(Debug, Deserialize)]
struct ResourceList {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Debug, Deserialize)]
struct Resource {
    /// In plural; a subresource has a '/'.
    name: String,
    kind: String,
    namespaced: bool,
}

/// Why there is no path.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathError {
    /// The kind is not served, or not with (or without) a namespace. For people.
    #[error("{0}")]
    Unserved(String),
    #[error(transparent)]
    Api(#[from] ApiError),
}

impl Discovery {
    pub(super) fn new() -> Self {
        Self { known: Mutex::new(LruCache::sparse(MAX_GROUP_VERSIONS)) }
    }

    /// Forgets the kinds of a group and version, because an answer contradicts them.
    pub(super) fn forget(&self, version: &str) {
        self.known.lock().pop(version);
    }

    /// The path of an object whose reference was authorised.
    pub(super) async fn path(&self, api: &Api, object: &ObjectRef, sender: &Sender) -> Result<String, PathError> {
        let version = &object.api_version;
        let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
        let held = self.known.lock().get(version).cloned();
        let resources = match held {
            // A kind that is missing may have been defined since.
            Some(resources) if resources.iter().any(|resource| resource.kind == object.kind) => resources,
            _ => self.ask(api, version, &root, sender).await?,
        };
        let served = |resource: &&Resource| resource.kind == object.kind && http::is_resource(&resource.name);
        let unserved = |rule: &str| PathError::Unserved(format!("{} {} {rule}", object.api_version, object.kind));
        let resource = resources.iter().find(served).ok_or_else(|| unserved("is not served by this API server"))?;
        match (resource.namespaced, &object.namespace) {
            (true, Some(namespace)) => Ok(format!("{root}/namespaces/{namespace}/{}/{}", resource.name, object.name)),
            (false, None) => Ok(format!("{root}/{}/{}", resource.name, object.name)),
            (true, None) => Err(unserved("lives in a namespace; set metadata.namespace")),
            (false, Some(_)) => Err(unserved("has no namespace; leave metadata.namespace out")),
        }
    }

    async fn ask(&self, api: &Api, version: &str, root: &str, sender: &Sender) -> Result<Arc<[Resource]>, PathError> {
        let request = http::get(root, sender).map_err(|error| PathError::Unserved(error.to_string()))?;
        let list = match api.json(request).await {
            Ok(list) => serde_json::from_value::<ResourceList>(list)
                .map_err(|error| ApiError::Malformed(format!("the list of resources of {version}: {error}")))?,
            Err(error) if error.code() == Some(404) => {
                return Err(PathError::Unserved(format!("{version} is not served by this API server")));
            }
            Err(error) => return Err(error.into()),
        };
        let resources: Arc<[Resource]> = list.resources.into();
        self.known.lock().put(version.to_owned(), Arc::clone(&resources));
        Ok(resources)
    }
}
