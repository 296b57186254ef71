//! The floor of the benchmark of new Pods: the host's client over TLS, one watch, and one PATCH for each Pod that
//! appears without the label. Nothing is stored, nothing is queued, no write is tried again, and only the metadata of a
//! new Pod is read.

use std::{borrow::Cow, collections::HashSet, path::Path, time::Duration};

use anyhow::Context;
use bytes::Bytes;
use http::{Request, header};
use memchr::memmem;
use podium_api::{Api, METADATA};
use serde::Deserialize;
use serde_json::json;

use crate::{
    controller::{LABEL, config, workload},
    subject::{Encoding, Event, Events},
};

/// As in the host.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
const NEW: &[u8] = b"{\"type\":\"ADDED\"";
const LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    object: Object<'a>,
}

#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    namespace: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    owner_references: Vec<Owner<'a>>,
}

#[derive(Deserialize)]
struct Owner<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    controller: bool,
}

/// Labels the new Pods of these namespaces until the process ends.
///
/// # Errors
/// Returns an error if the API server cannot be reached or the watch violates the protocol.
pub(crate) fn run(kubeconfig: &Path, namespaces: &[String]) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let api = Api::new(podium_api::client(config(kubeconfig).await?)?, REQUEST_DEADLINE);
        let namespaces: HashSet<&str> = namespaces.iter().map(String::as_str).collect();
        let mut from = None;
        loop {
            from = Some(watch(&api, &namespaces, from).await?);
        }
    })
}

/// Returns the revision at which the watch ended.
async fn watch(api: &Api, namespaces: &HashSet<&str>, from: Option<u64>) -> anyhow::Result<u64> {
    let from_where = from.map_or_else(|| LIST.to_owned(), |revision| format!("resourceVersion={revision}"));
    let query = format!("watch=1&allowWatchBookmarks=true&timeoutSeconds=300&{from_where}");
    let request = Request::get(format!("/api/v1/pods?{query}")).body(Vec::new())?;
    let mut events = Events::new(api.stream(request).await?, Encoding::Json);
    let mut last = from.unwrap_or_default();
    let label = memmem::Finder::new(LABEL);
    while let Some(batch) = events.batch().await? {
        for event in batch {
            match events.read(&event)? {
                Event::Pod(revision) | Event::Bookmark(revision) => last = last.max(revision),
                Event::Error => anyhow::bail!("history was lost"),
            }
            if !event.starts_with(NEW) || label.find(&event).is_some() {
                continue;
            }
            if let Some(patch) = patch(&event, namespaces)? {
                let api = api.clone();
                tokio::spawn(async move {
                    if let Err(error) = api.bytes(patch).await {
                        eprintln!("floor: {error}");
                    }
                });
            }
        }
    }
    Ok(last)
}

/// Returns the request that labels the Pod of an event.
fn patch(event: &Bytes, namespaces: &HashSet<&str>) -> anyhow::Result<Option<Request<Vec<u8>>>> {
    let line: Line<'_> = serde_json::from_slice(event).context("no event of a Pod")?;
    let Metadata { namespace, name, uid, owner_references } = line.object.metadata;
    let Some(owner) = owner_references.iter().find(|owner| owner.controller) else { return Ok(None) };
    if !namespaces.contains(&*namespace) {
        return Ok(None);
    }
    let label = workload(&owner.kind, &owner.name, None);
    let body = json!({ "metadata": { "uid": uid, "labels": { LABEL: label } } }).to_string();
    let request = Request::patch(format!("/api/v1/namespaces/{namespace}/pods/{name}?fieldManager=floor"))
        .header(header::CONTENT_TYPE, "application/strategic-merge-patch+json")
        .header(header::ACCEPT, METADATA);
    Ok(Some(request.body(body.into_bytes())?))
}
