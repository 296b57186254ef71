//! The cost of receiving an event completely, as JSON and as protobuf. The client, the requests and the batches are
//! the host's; only the revision of an event is read, and nothing is stored.

mod events;

use std::time::Duration;

use anyhow::Context;
use http::{Request, header::ACCEPT};
use podium_api::{self, Api};

pub(crate) use self::events::{Encoding, Event, Events};
use super::control::{Control, Reads};

/// Deadlines as in the host.
const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
const LIST: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=60";
const WATCH_SECONDS: u32 = 8;

pub(super) async fn follow(config: kube::Config, encoding: Encoding) -> anyhow::Result<()> {
    let api = Api::new(podium_api::client(config)?, REQUEST_DEADLINE);
    // There are no Pods to read.
    let (control, go) = Control::start(|| Reads { snapshot: 0, get: 0 });
    go.await.context("no order came")?;
    loop {
        let mut from = Some(list(ask(&api, encoding, LIST).await?, &control).await?);
        while let Some(revision) = from {
            let query = format!("resourceVersion={revision}&timeoutSeconds={WATCH_SECONDS}");
            from = watch(ask(&api, encoding, &query).await?, revision, &control).await?;
        }
    }
}

async fn list(mut events: Events, control: &Control) -> anyhow::Result<u64> {
    let mut pods = 0;
    while let Some(batch) = events.batch().await? {
        for event in &batch {
            match events.read(event)? {
                Event::Pod(_) => pods += 1,
                Event::Bookmark(revision) => {
                    control.synced(pods)?;
                    control.seen(revision)?;
                    return Ok(revision);
                }
                Event::Error => anyhow::bail!("the list ended with an error"),
            }
        }
    }
    anyhow::bail!("the list ended without a bookmark")
}

/// Returns the revision to continue from, or `None` when history was lost.
async fn watch(mut events: Events, mut from: u64, control: &Control) -> anyhow::Result<Option<u64>> {
    while let Some(batch) = events.batch().await? {
        let mut revisions = Vec::with_capacity(batch.len());
        for event in &batch {
            match events.read(event)? {
                Event::Pod(revision) => revisions.push(revision),
                Event::Bookmark(revision) => from = revision,
                Event::Error => return Ok(None),
            }
        }
        from = revisions.last().map_or(from, |last| from.max(*last));
        let begin = if control.is_recording() { 0 } else { revisions.len().saturating_sub(1) };
        for revision in &revisions[begin..] {
            control.seen(*revision)?;
        }
    }
    Ok(Some(from))
}

async fn ask(api: &Api, encoding: Encoding, query: &str) -> anyhow::Result<Events> {
    let mut request = Request::get(format!("/api/v1/pods?watch=1&allowWatchBookmarks=true&{query}"));
    if encoding == Encoding::Protobuf {
        request = request.header(ACCEPT, "application/vnd.kubernetes.protobuf;stream=watch");
    }
    Ok(Events::new(api.stream(request.body(Vec::new())?).await?, encoding))
}
