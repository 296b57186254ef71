//! Watches: history from a revision, selectors, bookmarks, streaming lists, expired history.

use anyhow::Result;
use serde_json::{Value, json};

use super::{config_map, pod};
use crate::conformance::exchange::{Call, Exchange, MERGE, STRATEGIC, revision, text};

pub(crate) async fn watches(x: &mut Exchange) -> Result<()> {
    let all = x.path("pods");
    let start = revision(&x.step("the list to start from", Call::get(&*all)).await?);
    x.step("create", Call::post(&*all, pod("a", None, json!({ "team": "red" })))).await?;
    x.step("create another", Call::post(&*all, pod("b", None, json!({ "team": "blue" })))).await?;
    let relabelled = json!({ "metadata": { "labels": { "team": "blue" } } });
    x.step("change a label", Call::patch(STRATEGIC, x.path("pods/a"), relabelled)).await?;
    x.step("delete", Call::delete(x.path("pods/b"), json!({ "gracePeriodSeconds": 0 }))).await?;
    let from = format!("{all}?watch=1&resourceVersion={start}&timeoutSeconds=1");
    x.watch("all since then", from.clone()).await?;
    x.watch("objects that were or are red", format!("{from}&labelSelector=team%3Dred")).await?;
    x.watch("objects that were or are blue", format!("{from}&labelSelector=team%3Dblue")).await?;
    x.watch("one by name", format!("{from}&fieldSelector=metadata.name%3Da")).await?;
    let events = x.watch("with bookmarks", format!("{from}&allowWatchBookmarks=true")).await?;
    let now = events.last().map(|event| text(event, "/object/metadata/resourceVersion")).unwrap_or_default();
    x.watch("nothing since the last of them", format!("{all}?watch=1&resourceVersion={now}&timeoutSeconds=1")).await?;
    x.watch("from any revision", format!("{all}?watch=1&resourceVersion=0&timeoutSeconds=1")).await?;
    x.watch("without a revision", format!("{all}?watch=1&timeoutSeconds=1")).await?;
    x.step("a revision that is none", Call::get(format!("{all}?watch=1&resourceVersion=abc"))).await.map(drop)
}

pub(crate) async fn streaming_lists(x: &mut Exchange) -> Result<()> {
    let all = x.path("configmaps");
    for name in ["c", "a", "b"] {
        let mut body = config_map(name, json!({}));
        // A controller creates a ConfigMap in each namespace of only one server.
        body["metadata"]["labels"] = json!({ "own": "yes" });
        x.step("create", Call::post(&*all, body)).await?;
    }
    x.step("change the first", Call::patch(MERGE, x.path("configmaps/c"), json!({ "data": { "k": "v" } }))).await?;
    let stream = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan\
                  &labelSelector=own&timeoutSeconds=1";
    let events = x.watch("a list as a stream", format!("{all}?{stream}")).await?;
    let ends: Vec<&Value> = events
        .iter()
        .filter(|event| event["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true")
        .collect();
    x.note("one bookmark ends the list", ends.len());
    let at = ends.first().map(|end| text(end, "/object/metadata/resourceVersion")).unwrap_or_default();
    x.watch(
        "a watch from its bookmark",
        format!("{all}?watch=1&resourceVersion={at}&labelSelector=own&timeoutSeconds=1"),
    )
    .await?;
    let only_new = "watch=1&sendInitialEvents=false&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan\
                    &labelSelector=own&timeoutSeconds=1";
    x.watch("without initial events", format!("{all}?{only_new}&resourceVersion={at}")).await?;
    let path = format!("{all}?watch=1&sendInitialEvents=true&allowWatchBookmarks=true&timeoutSeconds=1");
    x.step("without the match that it needs", Call::get(path)).await?;
    let path = format!("{all}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
    x.step("without a watch", Call::get(path)).await.map(drop)
}
