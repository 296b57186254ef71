//! The response of `/debug/reconcile-status`, read from the modules at each request.

use std::{cmp::Reverse, time::Duration};

use podium_engine::{
    dispatch::{Lane, OpenLoop, OpenLoops},
    queue::TenantFigures,
};
use podium_pods::pod::PodView;
use podium_vocabulary::{PodKey, text};
use podium_writeback::ClosedKind;
use tokio::time::Instant;

use super::operator::{Observed, stale};
use crate::admin::{ActiveRun, CacheSize, Closed, Held, Listed, Loop, Panic, ReconcileStatus, TEXT, Tenant};

impl Observed {
    pub(super) fn reconcile_status(&self) -> ReconcileStatus {
        let now = Instant::now();
        let snapshot = self.reader.snapshot();
        let reason = stale(&self.reader);
        let cache = CacheSize {
            pods: snapshot.len(),
            revision: snapshot.revision().0,
            stale: reason.map(|reason| shown(&reason)),
        };
        let mut runs = Vec::new();
        let mut panics = Vec::new();
        for (id, status) in self.status.plugins() {
            let plugin = shown(&id.to_string());
            runs.extend(status.active_runs().into_iter().map(|run| {
                let millis = millis(now.saturating_duration_since(run.since));
                ActiveRun { plugin: plugin.clone(), pod: pod(&run.pod), millis }
            }));
            panics.extend(status.last_panic().map(|panic| {
                let reason = panic.kind.to_owned();
                let message = shown(&panic.message);
                let millis_ago = millis(now.saturating_duration_since(panic.at));
                Panic { plugin: plugin.clone(), reason, message, millis_ago }
            }));
        }
        let OpenLoops { loops, total } = self.expectations.open_loops();
        let unnamed = total.saturating_sub(loops.len());
        let loops = loops.into_iter().map(|open| self.open_loop(&open)).collect();
        let closed = (self.closed)().iter().map(|closed| self.closed(closed)).collect();
        let held = (self.held)().into_iter().map(|of| Held {
            scope: of.scope.to_owned(),
            account: of.account.as_deref().map(shown),
            plugin: of.plugin.as_deref().map(shown),
            wait_millis: millis(of.wait),
        });
        ReconcileStatus {
            cache,
            active_runs: Listed::new(runs, 0, |run| Reverse(run.millis)),
            tenants: Listed::new(self.tenants(), 0, |of| Reverse((of.stale, of.waiting, of.runs))),
            loops: Listed::new(loops, unnamed, |open: &Loop| Reverse(open.wait_millis)),
            closed_by_forbidden: Listed::new(closed, 0, |closed: &Closed| Reverse(closed.wait_millis)),
            held_by_retry_after: Listed::new(held.collect(), 0, |held: &Held| Reverse(held.wait_millis)),
            last_panics: Listed::new(panics, 0, |panic| panic.millis_ago),
        }
    }

    /// Returns the tenants that have a key, a run or a debt.
    fn tenants(&self) -> Vec<Tenant> {
        let names = self.registry.tenants();
        let of = |(number, figures): (u32, TenantFigures)| {
            let TenantFigures { runs, deliveries, waiting, stale, without_tokens, refused: _, debt } = figures;
            let throttled = without_tokens;
            let debt_millis = millis(debt);
            let is_quiet = runs + deliveries + waiting == 0 && debt_millis == 0;
            let tenant = shown(names.get(&number).filter(|_| !is_quiet)?);
            Some(Tenant { tenant, runs, deliveries, waiting, stale, throttled, debt_millis })
        };
        self.queue.tenants().into_iter().filter_map(of).collect()
    }

    fn open_loop(&self, open: &OpenLoop) -> Loop {
        let OpenLoop { lane, pod: of, field, counterpart, wait } = open;
        Loop {
            plugin: self.plugin_in(*lane),
            pod: pod(of),
            field: shown(field),
            counterpart: shown(counterpart),
            wait_millis: millis(*wait),
        }
    }

    fn closed(&self, closed: &ClosedKind) -> Closed {
        let ClosedKind { manager, account, verb, resource, namespace, only, wait } = closed;
        let plugin = self.registry.by_manager(manager);
        let text = |text: &Option<String>| text.as_deref().map(shown);
        Closed {
            plugin: plugin.map_or_else(|| shown(manager), |plugin| shown(&plugin.spec.id.to_string())),
            account: text(account),
            verb: (*verb).to_owned(),
            resource: shown(resource),
            namespace: text(namespace),
            only: text(only),
            wait_millis: millis(*wait),
        }
    }

    /// Returns the name of a plugin. One that was unloaded since has no loops.
    fn plugin_in(&self, lane: Lane) -> String {
        self.registry.get(lane).map(|plugin| shown(&plugin.spec.id.to_string())).unwrap_or_default()
    }
}

/// Returns a text as one line without hidden characters, of bounded length.
pub(super) fn shown(text: &str) -> String {
    text::bounded(text, TEXT)
}

fn pod(key: &PodKey) -> String {
    shown(&format!("{}/{}", key.namespace, key.name))
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use podium_engine::{
        ports::{Failure, FailureKind},
        status::Status,
    };
    use podium_pods::testing::{NASTY, assert_clean};
    use podium_vocabulary::PluginId;
    use tokio::sync::watch;

    use super::*;
    use crate::app::{Phase, operator::tests::observed};

    #[test]
    fn text_of_plugins_and_servers_is_escaped_and_bounded() {
        let status = Arc::<Status>::default();
        let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
        let failure = Failure { kind: FailureKind::Trap, message: NASTY.repeat(1_000) };
        let _ = status.plugin(&id).end(&Err(failure), 0, Duration::ZERO);
        let (_progress, phase) = watch::channel(Phase::Serving);
        let nasty = || Some(NASTY.repeat(1_000));
        let closed = ClosedKind {
            manager: NASTY.into(),
            account: nasty(),
            verb: "patch",
            resource: NASTY.repeat(1_000),
            namespace: nasty(),
            only: nasty(),
            wait: Duration::from_secs(1),
        };
        let observed = Observed { closed: Box::new(move || vec![closed.clone()]), ..observed(status, phase) };
        let text = serde_json::to_string_pretty(&observed.reconcile_status()).unwrap();
        assert!(text.contains("\"reason\": \"trap\"") && text.contains("\"plugin\": \"shop/tidy\""), "{text}");
        text.lines().for_each(|line| assert_clean(line, 2 * TEXT + 64));
    }
}
