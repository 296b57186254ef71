//! The Retry-After of earlier responses, stored in the scope that the response is about:
//!
//! | answer | scope | at most |
//! |---|---|---|
//! | 429 of API priority and fairness, or of any other limit on requests | requests of the same account; live reads that a plugin asks for, though the host's account sends them: those of the same plugin | 60 s |
//! | 500, 503 and 504 with Retry-After | all requests | 5 s |
//! | 401: the API server does not accept the host's credentials | all requests | 5 s |
//! | anything to an eviction, anything that an admission webhook answered | none: only the write itself waits | - |
//!
//! A tenant can cause the last row: a hold for it would stop other tenants. An eviction is recognised by its request:
//! for a budget that another client keeps changing the API server answers 504 with Retry-After, and no cause
//! distinguishes that from a 504 for all requests.
//!
//! When the time is over, one request is sent as a probe, and another one each second until one is answered, because
//! a probe may be a write that hangs in its tenant's webhook. The first response ends the hold, unless it asks to
//! wait again. Without a response the hold ends one second after its time; a hold shorter than 5 s ends after 6 s in
//! all.
//!
//! The header `x-kubernetes-pf-prioritylevel-uid` does not distinguish the first row from the last: the API server sets
//! it on every answer that went through priority and fairness, also on those of evictions and webhooks.

use std::time::Duration;

use http::{Method, Request};
use parking_lot::Mutex;
use podium_engine::throttle::{HalfOpen, PROBE_PAUSE};
use tokio::time::Instant;

use super::ApiError;

/// The longest hold of one account. Longer ones are cut to this and then probed.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest hold of all requests. A wrong one stops every tenant, so it is probed early.
const LONGEST_OF_ALL: Duration = Duration::from_secs(5);

/// Marks a request as a live read of this plugin. A plugin may read as fast as it can, so a Retry-After on such a
/// read only delays this plugin's reads, and not what the host's account sends for others.
#[derive(Debug, Clone)]
pub struct LiveReadOf(pub String);

/// The holds of one API server, shared by all clones of a client.
#[derive(Debug, Default)]
pub struct Backpressure {
    holds: Mutex<HalfOpen<HoldScope>>,
}

/// The requests that a hold stops.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum HoldScope {
    All,
    /// An account; `None` is the host's own.
    Account(Option<String>),
    /// The live reads of one plugin.
    LiveReads(String),
}

/// Requests that are not sent for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldRequests {
    /// Which requests.
    pub scope: &'static str,
    /// Their account, if they are those of one plugin's account.
    pub account: Option<String>,
    /// Their plugin, if they are its live reads.
    pub plugin: Option<String>,
    /// The time until the next of them is sent.
    pub wait: Duration,
}

/// Permission to send a request. If it was a probe and is dropped without [`Pass::answered`], the next request is a
/// probe.
#[must_use]
pub(super) struct Pass<'a> {
    backpressure: &'a Backpressure,
    began: Instant,
    /// The request's own scope, beside [`HoldScope::All`].
    scope: HoldScope,
    /// True if the request is an eviction.
    evicts: bool,
    /// The holds for which this request is the probe.
    probes: Vec<HoldScope>,
}

/// The effect of a response on later requests.
enum Advice {
    /// The API server accepts requests.
    Ready,
    Nothing,
    Wait(HoldScope, Duration),
}

impl Backpressure {
    /// Returns how long requests of the account have to wait, or `None` if they may be sent.
    #[must_use]
    pub fn wait(&self, account: Option<&str>, now: Instant) -> Option<Duration> {
        let holds = self.holds.lock();
        let scopes = [HoldScope::All, HoldScope::Account(account.map(str::to_owned))];
        scopes.iter().filter_map(|scope| holds.wait(scope, now)).max()
    }

    /// Returns the requests that are held.
    pub(super) fn held(&self, now: Instant) -> Vec<HeldRequests> {
        let of = |(scope, wait): (&HoldScope, Duration)| HeldRequests {
            scope: scope.name(),
            account: scope.account().map(str::to_owned),
            plugin: scope.plugin().map(str::to_owned),
            wait,
        };
        self.holds.lock().list(now).map(of).collect()
    }

    /// # Errors
    /// Returns a pass for the request, or how long it has to wait.
    pub(super) fn admit<B>(&self, request: &Request<B>, now: Instant) -> Result<Pass<'_>, Duration> {
        let account = || request.headers().get("impersonate-user").and_then(|user| user.to_str().ok());
        let scope = match request.extensions().get() {
            Some(LiveReadOf(plugin)) => HoldScope::LiveReads(plugin.clone()),
            None => HoldScope::Account(account().map(str::to_owned)),
        };
        let scopes = [HoldScope::All, scope.clone()];
        let mut holds = self.holds.lock();
        for scope in holds.ended(now) {
            let (scope, account, plugin) = (scope.name(), scope.account(), scope.plugin());
            tracing::info!(scope, account, plugin, "requests resumed without an answered probe");
        }
        if let Some(wait) = scopes.iter().filter_map(|scope| holds.wait(scope, now)).max() {
            return Err(wait);
        }
        let probes = scopes.into_iter().filter(|scope| holds.send(scope, now)).collect();
        let evicts = request.method() == Method::POST && request.uri().path().ends_with("/eviction");
        Ok(Pass { backpressure: self, began: now, scope, evicts, probes })
    }
}

impl Pass<'_> {
    /// Records the result of the request.
    pub(super) fn answered(mut self, error: Option<&ApiError>, now: Instant) {
        let advice = self.advice(error);
        let mut holds = self.backpressure.holds.lock();
        for scope in self.probes.drain(..) {
            // An overload of the whole API server says nothing about the account or plugin.
            let is_over = match &advice {
                Advice::Ready => true,
                Advice::Nothing => false,
                Advice::Wait(of, _) => *of != HoldScope::All && scope == HoldScope::All,
            };
            // A hold that was renewed after this probe began does not end with it.
            if is_over && holds.open(&scope, self.began) {
                let name = scope.name();
                let account = scope.account();
                let plugin = scope.plugin();
                tracing::info!(scope = name, account, plugin, "requests to the API server resumed");
            }
        }
        let Advice::Wait(scope, wait) = advice else { return };
        let end = now + wait.max(LONGEST_OF_ALL) + PROBE_PAUSE;
        if holds.close(scope.clone(), now + wait, end, now) {
            let name = scope.name();
            let account = scope.account();
            let plugin = scope.plugin();
            let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            let why = match error.is_some_and(ApiError::is_unauthenticated) {
                true => "refused the host's credentials",
                false => "sent Retry-After",
            };
            tracing::warn!(scope = name, account, plugin, millis, "API server {why}; holding requests");
        }
    }

    fn advice(&self, error: Option<&ApiError>) -> Advice {
        let error = match error {
            None => return Advice::Ready,
            Some(ApiError::Timeout(_) | ApiError::Transport { .. }) => return Advice::Nothing,
            Some(error) => error,
        };
        if error.is_unauthenticated() {
            return Advice::Wait(HoldScope::All, LONGEST_OF_ALL);
        }
        let Some(wait) = error.retry_after().filter(|_| !error.is_about_the_object()) else { return Advice::Ready };
        match error.code() {
            Some(429 | 500 | 503 | 504) if self.evicts => Advice::Nothing,
            Some(429) => Advice::Wait(self.scope.clone(), wait.min(LONGEST)),
            Some(500 | 503 | 504) => Advice::Wait(HoldScope::All, wait.min(LONGEST_OF_ALL)),
            _ => Advice::Ready,
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.probes.is_empty() {
            let mut holds = self.backpressure.holds.lock();
            self.probes.iter().for_each(|scope| holds.give_up(scope, self.began));
        }
    }
}

impl HoldScope {
    fn name(&self) -> &'static str {
        match self {
            Self::All => "all requests",
            Self::Account(_) => "requests of one account",
            Self::LiveReads(_) => "live reads of one plugin",
        }
    }

    fn account(&self) -> Option<&str> {
        match self {
            Self::Account(Some(account)) => Some(account),
            _ => None,
        }
    }

    fn plugin(&self) -> Option<&str> {
        match self {
            Self::LiveReads(plugin) => Some(plugin),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn request(account: Option<&str>) -> Request<()> {
        let request = Request::get("/");
        account.map_or(Request::get("/"), |user| request.header("impersonate-user", user)).body(()).unwrap()
    }

    fn status(code: u16, seconds: u64, message: &str, cause: &str) -> ApiError {
        let causes = vec![super::super::Cause { reason: cause.into(), ..Default::default() }];
        let retry_after = Some(Duration::from_secs(seconds));
        ApiError::Status { code, reason: None, object: None, message: message.into(), causes, retry_after }
    }

    fn busy(code: u16, seconds: u64) -> ApiError {
        status(code, seconds, "", "")
    }

    fn observe(of: &Backpressure, account: Option<&str>, error: Option<&ApiError>, now: Instant) {
        of.admit(&request(account), now).ok().unwrap().answered(error, now);
    }

    fn eviction(account: &str) -> Request<()> {
        let request = Request::post("/api/v1/namespaces/shop/pods/cart-0/eviction?timeout=7s");
        request.header("impersonate-user", account).body(()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_429_holds_one_account_and_a_503_all_for_at_most_5_s() {
        let of = Backpressure::default();
        let now = Instant::now();
        observe(&of, Some("a"), Some(&busy(429, 10)), now);
        assert_eq!((of.wait(Some("a"), now), of.wait(Some("b"), now)), (Some(10 * SECOND), None));
        assert_eq!(of.wait(None, now), None);
        observe(&of, None, Some(&busy(429, 86_400)), now);
        assert_eq!(of.wait(None, now), Some(60 * SECOND));
        let held = of.held(now).into_iter().map(|held| (held.account, held.wait)).collect::<Vec<_>>();
        assert_eq!(held, [(None, 60 * SECOND), (Some("a".to_owned()), 10 * SECOND)]);
        for code in [500, 503, 504] {
            let of = Backpressure::default();
            observe(&of, Some("b"), Some(&busy(code, 7)), now);
            assert_eq!((of.wait(Some("b"), now), of.wait(None, now)), (Some(5 * SECOND), Some(5 * SECOND)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn responses_that_a_tenant_can_provoke_hold_no_one_else() {
        let of = Backpressure::default();
        let now = Instant::now();
        let denied = r#"admission webhook "deny.example" denied the request: later"#;
        observe(&of, Some("a"), Some(&status(429, 10, "", "DisruptionBudget")), now);
        observe(&of, Some("a"), Some(&status(429, 10, denied, "")), now);
        observe(&of, Some("a"), Some(&status(503, 10, denied, "")), now);
        observe(&of, Some("a"), Some(&busy(403, 10)), now);
        assert_eq!(of.wait(Some("a"), now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn refused_credentials_hold_all_requests_and_a_webhooks_401_none() {
        let of = Backpressure::default();
        let mut now = Instant::now();
        let refused = ApiError::Status {
            code: 401,
            reason: Some("Unauthorized".into()),
            object: None,
            message: "Unauthorized".into(),
            causes: Vec::new(),
            retry_after: None,
        };
        let denied = r#"admission webhook "deny.example" denied the request: who are you"#;
        observe(&of, Some("a"), Some(&status(401, 10, denied, "")), now);
        assert_eq!(of.wait(Some("a"), now), None);
        let mut sent = 0;
        for _ in 0..30 {
            for account in [Some("a"), Some("b"), None] {
                if let Ok(pass) = of.admit(&request(account), now) {
                    sent += 1;
                    pass.answered(Some(&refused), now);
                }
            }
            now += SECOND;
        }
        assert_eq!(sent, 6, "one request each 5 s");
        now += 5 * SECOND;
        observe(&of, Some("a"), None, now);
        assert_eq!((of.wait(Some("b"), now), of.wait(None, now)), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_hold_the_answer_to_one_probe_decides() {
        let of = Backpressure::default();
        let mut now = Instant::now();
        observe(&of, None, Some(&busy(503, 5)), now);
        assert_eq!(of.admit(&request(None), now).err(), Some(5 * SECOND));
        now += 5 * SECOND;
        let probe = of.admit(&request(None), now).ok().unwrap();
        assert_eq!(of.admit(&request(Some("a")), now).err(), Some(PROBE_PAUSE));
        probe.answered(Some(&busy(503, 2)), now);
        assert_eq!(of.wait(None, now), Some(2 * SECOND));
        now += 2 * SECOND;
        // A probe that is dropped lets another request probe; a probe without a response is repeated after a second.
        drop(of.admit(&request(None), now));
        observe(&of, None, Some(&ApiError::Timeout(SECOND)), now);
        assert_eq!(of.wait(None, now), Some(PROBE_PAUSE));
        now += PROBE_PAUSE;
        let message = String::new();
        let causes = Vec::new();
        let refused = ApiError::Status { code: 404, reason: None, object: None, message, causes, retry_after: None };
        observe(&of, None, Some(&refused), now);
        assert_eq!(of.wait(None, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_from_before_the_hold_does_not_end_it() {
        let of = Backpressure::default();
        let now = Instant::now();
        let before = of.admit(&request(None), now).ok().unwrap();
        observe(&of, None, Some(&busy(429, 10)), now);
        before.answered(None, now);
        assert_eq!(of.wait(None, now), Some(10 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn responses_to_evictions_neither_start_nor_end_a_hold() {
        // pkg/registry/core/pod/storage/eviction.go: NewTimeoutError(.., 10), without a cause.
        let contested = r#"Timeout: couldn't update PodDisruptionBudget "a" due to conflicts"#;
        for refusal in [status(504, 10, contested, ""), busy(429, 10), busy(500, 10), busy(503, 10)] {
            let of = Backpressure::default();
            let mut now = Instant::now();
            of.admit(&eviction("a"), now).ok().unwrap().answered(Some(&refusal), now);
            assert_eq!((of.wait(Some("a"), now), of.wait(Some("b"), now)), (None, None), "{refusal}");
            observe(&of, Some("b"), Some(&busy(503, 3)), now);
            now += 3 * SECOND;
            of.admit(&eviction("a"), now).ok().unwrap().answered(Some(&refusal), now);
            assert_eq!(of.wait(Some("b"), now), Some(PROBE_PAUSE), "{refusal}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_delayed_by_a_webhook_holds_others_for_at_most_5_s() {
        let of = Backpressure::default();
        let mut now = Instant::now();
        observe(&of, Some("b"), Some(&busy(503, 5)), now);
        let mut held = 0;
        // The API server has recovered. Writes of account a hang in its webhook, each for the request deadline of 8
        // s.
        for _ in 0..5 {
            now += 5 * SECOND;
            while of.wait(None, now).is_some() {
                now += SECOND;
            }
            let probe = of.admit(&request(Some("a")), now).ok().unwrap();
            for _ in 0..8 {
                held += u32::from(of.admit(&request(Some("b")), now).is_err());
                now += SECOND;
            }
            probe.answered(Some(&ApiError::Timeout(8 * SECOND)), now);
        }
        assert!(held <= 5, "an account with which nothing is wrong was held for {held} s more");
    }

    #[tokio::test(start_paused = true)]
    async fn unanswered_probes_repeat_each_second_until_a_response() {
        let of = Backpressure::default();
        let begin = Instant::now();
        observe(&of, None, Some(&busy(503, 1)), begin);
        let mut now = begin + SECOND;
        let _hangs = of.admit(&request(Some("a")), now).ok().unwrap();
        assert_eq!(of.wait(Some("b"), now), Some(SECOND));
        now += SECOND;
        let second = of.admit(&request(Some("b")), now).ok().unwrap();
        assert_eq!(of.wait(None, now), Some(SECOND));
        // Without a response the hold ends after 6 s; with one it ends at once.
        assert_eq!(of.wait(None, begin + 6 * SECOND), None);
        second.answered(None, now);
        assert_eq!(of.wait(None, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_late_answer_of_a_probe_does_not_end_a_newer_hold() {
        let of = Backpressure::default();
        let mut now = Instant::now();
        observe(&of, None, Some(&busy(503, 1)), now);
        now += SECOND;
        let late = of.admit(&request(None), now).ok().unwrap();
        now += SECOND;
        observe(&of, None, Some(&busy(503, 5)), now);
        late.answered(None, now);
        assert_eq!(of.wait(None, now), Some(5 * SECOND));
    }
}
