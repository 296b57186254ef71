//! Answers RunReports, the questions of tenants about the runs of their plugins. `objects` decides which are answered
//! and deleted, and when.

use std::{error::Error, sync::Arc, time::Duration};

use bytes::Bytes;
use http::Request;
use podium_api::{Api, ApiError};
use podium_config::run_report::Status;
use podium_engine::{clock::Clock, intervals::Intervals};
use podium_vocabulary::{Tenant, text};
use serde::Serialize;
use tokio::{
    pin,
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval},
};

use super::{life::Driver, operator::Observed};
use crate::{
    admin::PodRuns,
    objects::{Due, Kind, ObjectWatch, Report, ReportPage, Reports, list_reports, listed_reports, time},
};

/// Capacity of the channel of changes.
const CHANGES: usize = 16;
/// How often known objects are looked at. With none there is no timer.
const TICK: Duration = Duration::from_millis(100);
/// The most lists and deletions at once, which delay no answer.
const AT_ONCE: usize = 4;
/// The most bytes of a report as JSON.
const MOST_BYTES: usize = 32 << 10;

/// Answers and deletes RunReports while this replica runs the plugins.
pub(super) struct RunReports {
    pub(super) api: Api,
    /// `None` for all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) driver: Arc<Driver>,
    pub(super) observed: Arc<Observed>,
    pub(super) clock: Clock,
    pub(super) seed: u64,
}

/// The end of a request.
enum Ended {
    Answered(Report, Result<(), ApiError>),
    Deleted(Arc<str>, Result<(), ApiError>),
    Listed(Arc<str>, Result<ReportPage, ApiError>),
}

type Requests = JoinSet<Ended>;

impl RunReports {
    /// Never returns. Without the kind, or the right to watch it, it only asks again.
    ///
    /// # Errors
    /// Returns an error if a request panicked.
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let (sender, mut changes) = mpsc::channel(CHANGES);
        let watch = ObjectWatch::new(self.api.clone(), Kind::RunReport, self.namespace.clone(), self.seed);
        let watch = watch.run(sender);
        pin!(watch);
        let mut reports = Reports::new(Instant::now());
        let mut requests = Requests::new();
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut failures = Intervals::new();
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(ended) = requests.join_next() => {
                    for due in ended_request(&mut reports, ended?, &mut failures) {
                        self.begin(due, &turns, &mut requests);
                    }
                }
                _ = ticks.tick(), if !reports.is_empty() => {
                    // The replica that runs the plugins knows of their runs.
                    let due = reports.due(Instant::now(), self.driver.owns());
                    due.into_iter().for_each(|due| self.begin(due, &turns, &mut requests));
                }
                Some((_, change)) = changes.recv() => reports.change(change, Instant::now()),
                () = &mut watch => anyhow::bail!("the watch of RunReports ended"),
            }
        }
    }

    fn begin(&self, due: Due, turns: &Arc<Semaphore>, requests: &mut Requests) {
        let namespace = match &due {
            Due::Answer(Report { key, .. }) | Due::Delete(key) => &key.namespace,
            Due::List(namespace, _) => namespace,
        };
        let api = self.api.for_tenant(Tenant::Namespace(namespace.clone()));
        let turns = turns.clone();
        match due {
            Due::Answer(report) => {
                let request = report.key.answer(&self.answer(&report));
                requests.spawn(async move { Ended::Answered(report, send(&api, request).await.map(drop)) });
            }
            Due::Delete(key) => {
                requests.spawn(async move {
                    let _turn = turns.acquire().await;
                    let deleted = send(&api, key.delete()).await;
                    Ended::Deleted(key.namespace, deleted.map(drop))
                });
            }
            Due::List(namespace, next) => {
                requests.spawn(async move {
                    let _turn = turns.acquire().await;
                    let listed = send(&api, list_reports(&namespace, &next)).await;
                    let page = listed.and_then(|page| listed_reports(&page).map_err(malformed));
                    Ended::Listed(namespace, page)
                });
            }
        }
    }

    fn answer(&self, Report { key, spec, .. }: &Report) -> Status {
        let namespace = &*key.namespace;
        let report = spec.as_ref().map_err(Clone::clone).and_then(|spec| {
            let plugin = spec.plugin.as_ref().map(|plugin| format!("{namespace}/{}", &**plugin));
            let runs = self.observed.pod_runs(namespace, &spec.pod.name, plugin.as_deref(), false);
            runs.ok_or_else(|| format!("no ReconcilePlugin {} is configured", plugin.unwrap_or_default()))
        });
        let answered_at = time(self.clock.now_millis());
        match report {
            Ok(report) => {
                let (report, truncated) = bounded(report);
                let report = serde_json::to_value(report).ok();
                Status { answered_at, report, truncated, error: None }
            }
            Err(error) => Status { answered_at, report: None, truncated: false, error: Some(text::line(&error)) },
        }
    }
}

async fn send(api: &Api, request: Result<Request<Vec<u8>>, http::Error>) -> Result<Bytes, ApiError> {
    api.bytes(request.map_err(malformed)?).await
}

fn malformed(error: impl Error) -> ApiError {
    ApiError::Malformed(text::line(&error.to_string()))
}

/// Records the end of a request, and returns the requests that are due after it.
fn ended_request(reports: &mut Reports, ended: Ended, failures: &mut Intervals) -> Vec<Due> {
    let mut due = Vec::new();
    let result = match ended {
        Ended::Answered(report, result) => {
            if result.as_ref().is_err_and(is_transient) {
                reports.not_answered(report);
            }
            result
        }
        Ended::Deleted(namespace, result) => {
            reports.ended(&namespace, result.as_ref().is_err_and(is_transient));
            result
        }
        Ended::Listed(namespace, Ok(page)) => {
            due = reports.found(&namespace, Some(page), Instant::now());
            Ok(())
        }
        Ended::Listed(namespace, Err(error)) => {
            due = reports.found(&namespace, None, Instant::now());
            Err(error)
        }
    };
    // An object that is gone, or was made again, needs nothing.
    let error = result.err().filter(|error| !matches!(error.code(), Some(404 | 409)));
    if let Some(error) = error
        && let Some(count) = failures.occurred(Instant::now())
    {
        let error = text::line(&error.to_string());
        tracing::warn!(
            error,
            count,
            "RunReport not answered or deleted; the host's account needs list, watch and delete on runreports, and \
             patch on runreports/status"
        );
    }
    due
}

/// Returns true if the same request may succeed later: the object is there, and the request was not refused for its
/// contents or for want of a right.
fn is_transient(error: &ApiError) -> bool {
    !matches!(error.code(), Some(403 | 404 | 409 | 413 | 422))
}

/// Returns as much of a report as fits into [`MOST_BYTES`], the plugins first and then the latest runs of each, and
/// whether something is left out.
fn bounded(mut report: PodRuns) -> (PodRuns, bool) {
    if size(&report) <= MOST_BYTES {
        return (report, false);
    }
    let mut items = std::mem::take(&mut report.plugins.items);
    let runs: Vec<_> = items.iter_mut().map(|of| std::mem::take(&mut of.runs)).collect();
    let mut left = MOST_BYTES.saturating_sub(size(&report));
    let mut fits = |bytes: usize| left.checked_sub(bytes).map(|less| left = less).is_some();
    let all = items.len();
    let kept = items.iter().take_while(|of| fits(size(of))).count();
    items.truncate(kept);
    let latest = runs.iter().map(Vec::len).max().unwrap_or_default();
    for at in 0..latest {
        for (of, runs) in items.iter_mut().zip(&runs) {
            // Without gaps.
            if let Some(run) = runs.get(at).filter(|run| of.runs.len() == at && fits(size(run))) {
                of.runs.push(run.clone());
            }
        }
    }
    report.plugins.left_out += all - kept;
    report.plugins.items = items;
    (report, true)
}

/// Returns the bytes of a value as JSON, with the comma behind it.
fn size(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(MOST_BYTES, |json| json.len() + 1)
}

#[cfg(test)]
mod tests;
