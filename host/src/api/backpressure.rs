//! What the API server asked for with Retry-After, kept in the scope that the answer is about:
//!
//! | answer | scope | at most |
//! |---|---|---|
//! | 429 of API priority and fairness, or of any other limit on requests | requests of the same account | 60 s |
//! | 500, 503 and 504 with Retry-After | all requests | 5 s |
//! | anything to an eviction, anything that an admission webhook answered | none: only what was asked for waits | - |
//!
//! The last row is what a tenant can bring about: a hold for it would stop other tenants. An eviction is known by its
//! request: of a budget that somebody else keeps changing the API server says 504 with Retry-After, and no cause tells
//! that from a 504 for all. When a hold ends, one request is let through as a probe; the others wait until it was
//! answered.
//!
//! The header `x-kubernetes-pf-prioritylevel-uid` does not tell the first row from the last: the API server sets it on
//! every answer that went through priority and fairness, also on those of evictions and webhooks.

use std::{collections::BTreeMap, time::Duration};

use http::{Method, Request};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ApiError;

/// The longest hold of one account. Longer ones are probed.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest hold of all requests: a wrong one stops every tenant, so it is probed soon.
const LONGEST_OF_ALL: Duration = Duration::from_secs(5);
/// How long a probe keeps the others waiting before they look again, and how soon a probe without an answer is
/// repeated.
const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// The holds of one API server, shared by those who send to it.
#[derive(Debug, Default)]
pub struct Backpressure {
    holds: Mutex<BTreeMap<Scope, Hold>>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    All,
    /// None: the host's own account.
    Account(Option<String>),
}

/// Stays until a probe was answered.
#[derive(Debug)]
struct Hold {
    until: Instant,
    /// A probe is under way.
    probing: bool,
}

/// A request that may be sent. Dropped without [`Pass::answered`], it gives its turn as a probe to the next one.
#[must_use]
pub(super) struct Pass<'a> {
    backpressure: &'a Backpressure,
    account: Option<String>,
    /// It asks for an eviction.
    evicts: bool,
    /// Holds for which this request is the probe.
    probes: Vec<Scope>,
}

/// What an answer tells of the API server, beyond what was asked for.
enum Told {
    /// It takes requests.
    Ready,
    Nothing,
    Wait(Scope, Duration),
}

impl Backpressure {
    /// How long requests of the account are to wait. None: they may be sent.
    #[must_use]
    pub fn wait(&self, account: Option<&str>, now: Instant) -> Option<Duration> {
        let holds = self.holds.lock();
        let scopes = [Scope::All, Scope::Account(account.map(str::to_owned))];
        scopes.iter().filter_map(|scope| holds.get(scope)?.wait(now)).max()
    }

    /// # Errors
    /// How long to wait, where the request may not be sent.
    pub(super) fn admit<B>(&self, request: &Request<B>, now: Instant) -> Result<Pass<'_>, Duration> {
        let account = request.headers().get("impersonate-user").and_then(|user| user.to_str().ok()).map(str::to_owned);
        let scopes = [Scope::All, Scope::Account(account.clone())];
        let mut holds = self.holds.lock();
        if let Some(wait) = scopes.iter().filter_map(|scope| holds.get(scope)?.wait(now)).max() {
            return Err(wait);
        }
        let mut probes = Vec::new();
        for scope in scopes {
            if let Some(hold) = holds.get_mut(&scope) {
                hold.probing = true;
                probes.push(scope);
            }
        }
        let evicts = request.method() == Method::POST && request.uri().path().ends_with("/eviction");
        Ok(Pass { backpressure: self, account, evicts, probes })
    }
}

impl Hold {
    fn wait(&self, now: Instant) -> Option<Duration> {
        let left = self.until.saturating_duration_since(now);
        match left.is_zero() {
            false => Some(left),
            true => self.probing.then_some(PROBE_PAUSE),
        }
    }
}

impl Pass<'_> {
    /// Takes what came of the request.
    pub(super) fn answered(mut self, error: Option<&ApiError>, now: Instant) {
        let told = self.told(error);
        let mut holds = self.backpressure.holds.lock();
        for scope in self.probes.drain(..) {
            // Of the account a refusal of all requests tells nothing.
            let is_over = match &told {
                Told::Ready => true,
                Told::Nothing => false,
                Told::Wait(of, _) => *of != Scope::All && scope == Scope::All,
            };
            if is_over {
                tracing::info!(scope = scope.name(), account = scope.account(), "the API server takes requests again");
                holds.remove(&scope);
            } else if let Some(hold) = holds.get_mut(&scope) {
                (hold.until, hold.probing) = (now + PROBE_PAUSE, false);
            }
        }
        let Told::Wait(scope, wait) = told else { return };
        let until = now + wait;
        let hold = holds.entry(scope.clone()).or_insert_with(|| {
            let (name, account, millis) = (scope.name(), scope.account(), u64::try_from(wait.as_millis()));
            tracing::warn!(scope = name, account, millis = millis.unwrap_or(u64::MAX), "the API server asks to wait");
            Hold { until, probing: false }
        });
        hold.until = hold.until.max(until);
    }

    fn told(&self, error: Option<&ApiError>) -> Told {
        let error = match error {
            None => return Told::Ready,
            Some(ApiError::Timeout(_) | ApiError::Transport { .. }) => return Told::Nothing,
            Some(error) => error,
        };
        let Some(wait) = error.retry_after().filter(|_| !error.is_about_the_object()) else { return Told::Ready };
        match error.code() {
            Some(429 | 500 | 503 | 504) if self.evicts => Told::Nothing,
            Some(429) => Told::Wait(Scope::Account(self.account.clone()), wait.min(LONGEST)),
            Some(500 | 503 | 504) => Told::Wait(Scope::All, wait.min(LONGEST_OF_ALL)),
            _ => Told::Ready,
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.probes.is_empty() {
            return;
        }
        let mut holds = self.backpressure.holds.lock();
        for scope in &self.probes {
            if let Some(hold) = holds.get_mut(scope) {
                hold.probing = false;
            }
        }
    }
}

impl Scope {
    fn name(&self) -> &'static str {
        match self {
            Self::All => "all requests",
            Self::Account(_) => "requests of one account",
        }
    }

    fn account(&self) -> Option<&str> {
        match self {
            Self::All | Self::Account(None) => None,
            Self::Account(Some(account)) => Some(account),
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
        ApiError::Status { code, reason: String::new(), message: message.into(), causes, retry_after }
    }

    fn busy(code: u16, seconds: u64) -> ApiError {
        status(code, seconds, "", "")
    }

    fn tell(of: &Backpressure, account: Option<&str>, error: Option<&ApiError>, now: Instant) {
        of.admit(&request(account), now).ok().unwrap().answered(error, now);
    }

    fn eviction(account: &str) -> Request<()> {
        let request = Request::post("/api/v1/namespaces/shop/pods/cart-0/eviction?timeout=7s");
        request.header("impersonate-user", account).body(()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_429_holds_one_account_and_a_503_all_of_them_for_five_seconds_at_most() {
        let (of, now) = (Backpressure::default(), Instant::now());
        tell(&of, Some("a"), Some(&busy(429, 10)), now);
        assert_eq!((of.wait(Some("a"), now), of.wait(Some("b"), now)), (Some(10 * SECOND), None));
        assert_eq!(of.wait(None, now), None);
        tell(&of, None, Some(&busy(429, 86_400)), now);
        assert_eq!(of.wait(None, now), Some(60 * SECOND));
        for code in [500, 503, 504] {
            let of = Backpressure::default();
            tell(&of, Some("b"), Some(&busy(code, 7)), now);
            assert_eq!((of.wait(Some("b"), now), of.wait(None, now)), (Some(5 * SECOND), Some(5 * SECOND)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_tenant_can_provoke_holds_nobody() {
        let (of, now) = (Backpressure::default(), Instant::now());
        let denied = r#"admission webhook "deny.example" denied the request: later"#;
        tell(&of, Some("a"), Some(&status(429, 10, "", "DisruptionBudget")), now);
        tell(&of, Some("a"), Some(&status(429, 10, denied, "")), now);
        tell(&of, Some("a"), Some(&status(503, 10, denied, "")), now);
        tell(&of, Some("a"), Some(&busy(403, 10)), now);
        assert_eq!(of.wait(Some("a"), now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_hold_one_probe_goes_out_and_its_answer_decides_for_the_others() {
        let (of, mut now) = (Backpressure::default(), Instant::now());
        tell(&of, None, Some(&busy(503, 5)), now);
        assert_eq!(of.admit(&request(None), now).err(), Some(5 * SECOND));
        now += 5 * SECOND;
        let probe = of.admit(&request(None), now).ok().unwrap();
        assert_eq!(of.admit(&request(Some("a")), now).err(), Some(PROBE_PAUSE));
        probe.answered(Some(&busy(503, 2)), now);
        assert_eq!(of.wait(None, now), Some(2 * SECOND));
        now += 2 * SECOND;
        // A probe that was cut off gives its turn to another, one without an answer is repeated a second later.
        drop(of.admit(&request(None), now));
        tell(&of, None, Some(&ApiError::Timeout(SECOND)), now);
        assert_eq!(of.wait(None, now), Some(PROBE_PAUSE));
        now += PROBE_PAUSE;
        let refused = ApiError::Status {
            code: 404,
            reason: String::new(),
            message: String::new(),
            causes: Vec::new(),
            retry_after: None,
        };
        tell(&of, None, Some(&refused), now);
        assert_eq!(of.wait(None, now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_from_before_the_hold_does_not_end_it() {
        let (of, now) = (Backpressure::default(), Instant::now());
        let before = of.admit(&request(None), now).ok().unwrap();
        tell(&of, None, Some(&busy(429, 10)), now);
        before.answered(None, now);
        assert_eq!(of.wait(None, now), Some(10 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_to_an_eviction_holds_nobody_and_a_refusal_ends_no_hold_either() {
        // pkg/registry/core/pod/storage/eviction.go: NewTimeoutError(.., 10), without a cause.
        let contested = r#"Timeout: couldn't update PodDisruptionBudget "a" due to conflicts"#;
        for refusal in [status(504, 10, contested, ""), busy(429, 10), busy(500, 10), busy(503, 10)] {
            let (of, mut now) = (Backpressure::default(), Instant::now());
            of.admit(&eviction("a"), now).ok().unwrap().answered(Some(&refusal), now);
            assert_eq!((of.wait(Some("a"), now), of.wait(Some("b"), now)), (None, None), "{refusal}");
            tell(&of, Some("b"), Some(&busy(503, 3)), now);
            now += 3 * SECOND;
            of.admit(&eviction("a"), now).ok().unwrap().answered(Some(&refusal), now);
            assert_eq!(of.wait(Some("b"), now), Some(PROBE_PAUSE), "{refusal}");
        }
    }
}
