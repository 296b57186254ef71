//! The world of one run: a snapshot, the plugin's memory and log, and the way out for its writes.

use std::sync::Arc;

use futures::future::BoxFuture;
use podium_pods::pod::{CachedPod, PodView};
use podium_vocabulary::{
    PodKey, Refused, WriteReport,
    authz::{Authorized, ObjectRead},
};
use tokio::time::Instant;

use super::{Dispatch, LoadedPlugin, PodJob, RunWrites, budget, log_rate::Line};
use crate::ports::{Asker, LogLevel, ObjectAnswer, PLUGIN_TARGET, Staged, StateEntry, StateError, World};

pub(super) struct RunWorld {
    dispatch: Arc<Dispatch>,
    plugin: Arc<LoadedPlugin>,
    subject: PodKey,
    job: PodJob,
    snapshot: Arc<dyn PodView>,
    writes: Arc<RunWrites>,
}

impl RunWorld {
    pub(super) fn new(
        dispatch: Arc<Dispatch>,
        plugin: Arc<LoadedPlugin>,
        subject: PodKey,
        job: PodJob,
        snapshot: Arc<dyn PodView>,
        writes: Arc<RunWrites>,
    ) -> Self {
        Self { dispatch, plugin, subject, job, snapshot, writes }
    }

    fn spend_live_read(&self) -> Result<(), Refused> {
        let Self { dispatch, job, .. } = self;
        if !dispatch.queue.has_tokens(job, budget::LIVE_READS, 1) {
            return Err(Refused::Unavailable(budget::NO_LIVE_READS.to_owned()));
        }
        dispatch.queue.spend(job, budget::LIVE_READS, 1);
        Ok(())
    }
}

impl World for RunWorld {
    fn is_revoked(&self) -> bool {
        self.plugin.is_revoked()
    }

    fn view(&self) -> &dyn PodView {
        &*self.snapshot
    }

    fn live<'a>(
        &'a mut self,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        match self.spend_live_read() {
            Ok(()) => self.dispatch.live.get(Asker::Plugin, &self.plugin.sender, namespace, name),
            Err(refused) => Box::pin(std::future::ready(Err(refused))),
        }
    }

    fn object<'a>(&'a mut self, read: &'a Authorized<ObjectRead>) -> ObjectAnswer<'a> {
        match self.spend_live_read() {
            Ok(()) => self.dispatch.live.object(&self.plugin.sender, read),
            Err(refused) => Box::pin(std::future::ready(Err(refused))),
        }
    }

    fn commit(&mut self, staged: Staged) -> BoxFuture<'_, Vec<WriteReport>> {
        Box::pin(async {
            let mut staged = staged;
            if let Some(not_sent) = self.dispatch.refuse_commit(&self.job, &self.plugin, &staged) {
                // The key does not settle without them.
                self.writes.withheld(Instant::now());
                self.writes.note(&not_sent);
                return not_sent;
            }
            self.dispatch.admit_events(&self.job, &self.plugin, &mut staged);
            let Self { dispatch, plugin, subject, job, writes, .. } = &*self;
            let claim = dispatch.expectations.claims.claim(plugin.lane, &staged).await;
            // Planned against the present state, not the run's snapshot, because other clients may have changed it.
            let list = dispatch.expectations.seen.latest_list();
            let view = dispatch.reader.snapshot();
            let sent = dispatch.send(job, plugin, subject, &*view, staged, writes).await;
            // If the watch is interrupted, the run continues without its writes in the cache.
            if !dispatch.await_writes(job, &sent.expected, list, writes).await {
                tracing::debug!("the cache does not show the committed writes yet");
            }
            drop(claim);
            self.snapshot = self.dispatch.reader.snapshot();
            sent.reports
        })
    }

    fn state_get(&mut self, key: &str) -> Option<StateEntry> {
        self.plugin.state.lock().get(key)
    }

    fn state_put(&mut self, key: &str, value: Vec<u8>, expected: Option<u64>) -> Result<u64, StateError> {
        let put = self.plugin.state.lock().put(key, value, expected);
        self.plugin.states.make_room();
        put
    }

    fn state_remove(&mut self, key: &str, expected: Option<u64>) -> Result<(), StateError> {
        self.plugin.state.lock().remove(key, expected)
    }

    fn not_granted(&mut self, why: &str) {
        log(&self.plugin, LogLevel::Debug, why, &[]);
    }

    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]) {
        log(&self.plugin, level, message, fields);
    }
}

/// Logs one line of a plugin, in the present span.
pub(super) fn log(plugin: &LoadedPlugin, level: LogLevel, message: &str, fields: &[(String, String)]) {
    // A line that the filter drops costs nothing.
    let is_wanted = match level {
        LogLevel::Debug => tracing::enabled!(target: PLUGIN_TARGET, tracing::Level::DEBUG),
        LogLevel::Info => tracing::enabled!(target: PLUGIN_TARGET, tracing::Level::INFO),
        LogLevel::Warn => tracing::enabled!(target: PLUGIN_TARGET, tracing::Level::WARN),
        LogLevel::Error => tracing::enabled!(target: PLUGIN_TARGET, tracing::Level::ERROR),
    };
    if !is_wanted {
        return;
    }
    let text = fields.iter().fold(message.len(), |sum, (key, value)| sum + key.len() + value.len());
    if let Line::Lost(due) = plugin.log_rate.take(text, Instant::now()) {
        plugin.status.log_lines_dropped.add(1);
        if let Some(lines) = due {
            tracing::warn!(lines, "log lines of the plugin were dropped: its tenant's share of the log is used up");
        }
        return;
    }
    // The names of tracing's fields are fixed at compile time: a plugin's travel as one JSON object, which
    // `telemetry` writes as fields.
    let fields = serde_json::Map::from_iter(fields.iter().cloned().map(|(key, value)| (key, value.into())));
    let plugin_fields = (!fields.is_empty()).then(|| tracing::field::display(serde_json::Value::Object(fields)));
    match level {
        LogLevel::Debug => tracing::debug!(target: PLUGIN_TARGET, plugin_fields, "{message}"),
        LogLevel::Info => tracing::info!(target: PLUGIN_TARGET, plugin_fields, "{message}"),
        LogLevel::Warn => tracing::warn!(target: PLUGIN_TARGET, plugin_fields, "{message}"),
        LogLevel::Error => tracing::error!(target: PLUGIN_TARGET, plugin_fields, "{message}"),
    }
}
