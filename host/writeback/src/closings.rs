//! [`Closings`]: kinds of writes that are not sent for a time, because RBAC refused one of them. Pure: the time is an
//! argument.
//!
//! The right to a write depends on the account, the verb, the resource and the namespace, and hardly ever on the Pod.
//! A plugin that lacks a right would otherwise send a request for each Pod that it watches, again and again. After a
//! refusal nothing of the kind is sent for 1 s, then one request as a probe; each probe that is refused too doubles the
//! time, up to 60 s, and any other answer ends it. A kind of which no write comes is forgotten 10 minutes after its
//! refusal: the status shows it until then, as it shows failures.
//!
//! A Role with `resourceNames` permits writes to some objects only. So that a refused object does not keep them out, it
//! is not the next probe while writes to another object wait, and once another one was permitted, only the refused one
//! waits.

use std::{collections::BTreeMap, time::Duration};

use parking_lot::Mutex;
use podium_engine::{
    ports::{Closing, Sender},
    status::FORGET,
    throttle::{HalfOpen, PROBE_PAUSE},
};
use podium_vocabulary::WriteResult;
use tokio::time::Instant;

use super::{plan::Request, shares::tenant_of};

const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
/// The most kinds that are closed at a time, of all plugins: some 4 MiB. Of the tenant with the most, the one that
/// is tried again soonest is forgotten for another.
const MAX_KINDS: usize = 4_096;

/// The closed kinds of all plugins.
#[derive(Debug, Default)]
pub(super) struct Closings {
    closed: Mutex<All>,
}

/// The properties of a write on which the right to it depends.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WriteKind {
    manager: String,
    account: Option<String>,
    verb: &'static str,
    resource: String,
    namespace: Option<String>,
}

#[derive(Debug, Default)]
struct All {
    closed: HalfOpen<WriteKind>,
    /// The latest refusal of each kind that is closed.
    refusals: BTreeMap<WriteKind, Refused>,
}

impl All {
    fn open(&mut self, kind: &WriteKind, now: Instant) {
        self.refusals.remove(kind);
        self.closed.open(kind, now);
    }
}

/// The latest refusal of a kind.
#[derive(Debug)]
struct Refused {
    at: Instant,
    wait: Duration,
    /// The object whose write was refused last, and another one whose write waits since then.
    refused: String,
    other: Option<String>,
    /// A write to another object was permitted since: only the refused one waits.
    narrow: bool,
    /// The API server's message.
    message: String,
}

/// Writes of one kind that are not sent for a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedKind {
    /// The field manager of the plugin's writes.
    pub manager: String,
    /// The account that has no right; `None` for the host's own.
    pub account: Option<String>,
    /// The verb of RBAC.
    pub verb: &'static str,
    /// The resource of RBAC, with subresource and group.
    pub resource: String,
    /// `None` for objects without a namespace.
    pub namespace: Option<String>,
    /// The only object that waits, if writes to another one were permitted.
    pub only: Option<String>,
    /// The time until the next probe; zero if the plugin has not sent one since then.
    pub wait: Duration,
}

/// A write that is not sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) wait: Duration,
    pub(super) message: String,
}

/// Permission to send a write. Dropped without [`Pass::answered`], the next write is the probe.
#[must_use]
#[derive(Debug)]
pub(super) struct Pass<'a> {
    of: &'a Closings,
    kind: WriteKind,
    object: String,
    began: Instant,
    is_probe: bool,
}

impl WriteKind {
    /// Returns the kind of a request, and the name of its object.
    pub(super) fn new(request: &Request, sender: &Sender) -> (Self, String) {
        let (verb, resource, namespace, object) = match request {
            Request::PatchMeta { key, .. } => ("patch", "pods".to_owned(), Some(&*key.namespace), &*key.name),
            Request::PatchStatus { key, .. } => ("patch", "pods/status".to_owned(), Some(&*key.namespace), &*key.name),
            Request::Delete { key, .. } => ("delete", "pods".to_owned(), Some(&*key.namespace), &*key.name),
            Request::Evict { key } => ("create", "pods/eviction".to_owned(), Some(&*key.namespace), &*key.name),
            Request::Apply { object, .. } | Request::DeleteObject { object, .. } | Request::Scale { object, .. } => {
                let verb = if matches!(request, Request::DeleteObject { .. }) { "delete" } else { "patch" };
                let group = object.api_version.split_once('/').map(|(group, _)| format!(".{group}"));
                let subresource = if matches!(request, Request::Scale { .. }) { "/scale" } else { "" };
                let resource = format!("{}{}{subresource}", object.resource, group.unwrap_or_default());
                (verb, resource, object.namespace.as_deref(), object.name.as_str())
            }
        };
        let manager = sender.manager.clone();
        let account = sender.impersonate.clone();
        let kind = Self { manager, account, verb, resource, namespace: namespace.map(str::to_owned) };
        (kind, object.to_owned())
    }
}

impl Closings {
    /// # Errors
    /// Returns the refusal of a write that is not sent now.
    pub(super) fn admit(&self, kind: WriteKind, object: String, now: Instant) -> Result<Pass<'_>, Refusal> {
        let mut all = self.closed.lock();
        let All { closed, refusals } = &mut *all;
        closed.ended(now).iter().for_each(|kind| drop(refusals.remove(kind)));
        let mut is_probe = false;
        let refused = refusals.get_mut(&kind).filter(|refused| !refused.narrow || refused.refused == object);
        if let (Some(refused), Some(opens)) = (refused, closed.opens(&kind)) {
            let turn = if refused.refused == object && refused.other.is_some() { PROBE_PAUSE } else { Duration::ZERO };
            let wait = (opens + turn).saturating_duration_since(now);
            if !wait.is_zero() {
                let quoted = |name: &str| format!("{name:?}");
                let message = refused.message.replacen(&quoted(&refused.refused), &quoted(&object), 1);
                if refused.other.is_none() && refused.refused != object {
                    refused.other = Some(object);
                }
                return Err(Refusal { wait, message });
            }
            is_probe = closed.send(&kind, now);
        }
        drop(all);
        Ok(Pass { of: self, kind, object, began: now, is_probe })
    }

    /// Returns the kinds that are closed, or were and are tried by the next write, at most 4,096.
    pub(super) fn closed(&self, now: Instant) -> Vec<ClosedKind> {
        let mut all = self.closed.lock();
        let All { closed, refusals } = &mut *all;
        closed.ended(now).iter().for_each(|kind| drop(refusals.remove(kind)));
        let of = |(kind, refused): (&WriteKind, &Refused)| {
            let WriteKind { manager, account, verb, resource, namespace } = kind.clone();
            let wait = (refused.at + refused.wait).saturating_duration_since(now);
            let only = refused.narrow.then(|| refused.refused.clone());
            ClosedKind { manager, account, verb, resource, namespace, only, wait }
        };
        refusals.iter().map(of).collect()
    }
}

impl Pass<'_> {
    /// Records the result of the write. Returns a closing that begins with it.
    pub(super) fn answered(mut self, result: &WriteResult, now: Instant) -> Option<Closing> {
        let mut all = self.of.closed.lock();
        let message = match result {
            // No answer; the next request is the probe.
            WriteResult::NotSent | WriteResult::Unknown => return None,
            WriteResult::Forbidden(text) => Some(text).filter(|text| is_of_rbac(text)),
            WriteResult::Applied
            | WriteResult::Unchanged
            | WriteResult::Gone
            | WriteResult::Conflict
            | WriteResult::OwnedByOther(_)
            | WriteResult::Blocked(_)
            | WriteResult::Invalid(_) => None,
        };
        let All { closed, refusals } = &mut *all;
        let earlier = refusals.get_mut(&self.kind);
        // A request from before the closing says nothing new.
        if earlier.as_ref().is_some_and(|earlier| !self.is_probe && self.began <= earlier.at) {
            return None;
        }
        self.is_probe = false;
        let Some(message) = message else {
            let earlier = earlier?;
            if !earlier.narrow {
                let WriteKind { manager, verb, resource, namespace, .. } = &self.kind;
                tracing::info!(manager, verb, resource, namespace, "writes are permitted again");
            }
            if earlier.refused == self.object {
                all.open(&self.kind, now);
            } else {
                earlier.narrow = true;
                earlier.other = None;
                closed.give_up(&self.kind, self.began);
            }
            return None;
        };
        let wait = earlier.as_ref().map_or(FIRST, |earlier| (2 * earlier.wait).min(LONGEST));
        let is_first = earlier.is_none();
        // Another refusal of the same object says nothing about the others, to which writes were permitted.
        let narrow = earlier.is_some_and(|earlier| earlier.narrow && earlier.refused == self.object);
        if is_first && refusals.len() >= MAX_KINDS {
            let mut counts = BTreeMap::<_, usize>::new();
            refusals.keys().for_each(|kind| *counts.entry(tenant_of(&kind.manager)).or_default() += 1);
            let most = counts.into_iter().max_by_key(|(_, count)| *count).map(|(tenant, _)| tenant);
            let of_most = refusals.iter().filter(|(kind, _)| Some(tenant_of(&kind.manager)) == most);
            let soonest = of_most.min_by_key(|(_, refused)| refused.at + refused.wait);
            if let Some(kind) = soonest.map(|(kind, _)| kind.clone()) {
                all.open(&kind, now);
            }
        }
        let refused = std::mem::take(&mut self.object);
        let message = message.clone();
        all.refusals.insert(self.kind.clone(), Refused { at: now, wait, refused, other: None, narrow, message });
        all.closed.close(self.kind.clone(), now + wait, now + FORGET, now);
        let WriteKind { verb, resource, namespace, .. } = self.kind.clone();
        Some(Closing { verb, resource, namespace, wait, is_first })
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.is_probe {
            self.of.closed.lock().closed.give_up(&self.kind, self.began);
        }
    }
}

/// Returns true for a message of RBAC: `pods "b" is forbidden: User "a" cannot patch resource "pods" ..`.
/// Webhooks and admission policies also answer 403, and their answer may depend on the object.
fn is_of_rbac(message: &str) -> bool {
    let rest = message.split_once("User \"").map_or("", |(_, rest)| rest);
    rest.contains(" cannot ") && rest.contains(" resource \"")
}

#[cfg(test)]
mod tests {
    use podium_vocabulary::PodKey;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn evict(plugin: &str, namespace: &str, name: &str) -> (WriteKind, String) {
        let sender = Sender { manager: plugin.into(), impersonate: None };
        WriteKind::new(&Request::Evict { key: PodKey::new(namespace, name, "u") }, &sender)
    }

    fn forbidden(name: &str) -> WriteResult {
        let text = r#"User "a" cannot create resource "pods/eviction" in API group "" in the namespace "shop""#;
        WriteResult::Forbidden(format!("pods {name:?} is forbidden: {text}"))
    }

    #[test]
    fn a_tenant_with_many_closed_kinds_opens_no_other_tenants() {
        let closings = Closings::default();
        let now = Instant::now();
        let refuse = |plugin: &str, after| {
            let (kind, object) = evict(plugin, "shop", "cart-0");
            closings.admit(kind, object, now).unwrap().answered(&forbidden("cart-0"), now + after);
        };
        // It is tried again soonest.
        refuse("podium/bank/quiet", Duration::ZERO);
        (0..MAX_KINDS + 100).for_each(|index| refuse(&format!("podium/shop/{index}"), SECOND / 2));
        let (kind, object) = evict("podium/bank/quiet", "shop", "cart-0");
        assert!(closings.admit(kind, object, now + SECOND / 2).is_err());
        assert_eq!(closings.closed(now + SECOND / 2).len(), MAX_KINDS);
    }

    /// Sends a write, and returns for how long the kind is closed by it.
    fn send(of: &Closings, name: &str, result: &WriteResult, now: Instant) -> Result<Option<u64>, u64> {
        let (kind, object) = evict("a", "shop", name);
        match of.admit(kind, object, now) {
            Ok(pass) => Ok(pass.answered(result, now).map(|closing| closing.wait.as_secs())),
            Err(refusal) => Err(refusal.wait.as_secs()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_close_for_up_to_a_minute_and_other_answers_open() {
        let of = Closings::default();
        let mut now = Instant::now();
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = send(&of, "cart-0", &forbidden("cart-0"), now).unwrap().unwrap();
            assert_eq!(send(&of, "cart-0", &WriteResult::Applied, now), Err(wait));
            let all = of.closed(now);
            let [closed] = &all[..] else { panic!("one kind is closed") };
            let ClosedKind { manager, verb, resource, namespace, only, wait: left, .. } = closed;
            assert_eq!(
                (&**manager, *verb, &**resource, namespace.as_deref()),
                ("a", "create", "pods/eviction", Some("shop"))
            );
            assert_eq!((only, left.as_secs()), (&None, wait));
            waits.push(wait);
            now += Duration::from_secs(wait);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(send(&of, "cart-0", &WriteResult::Conflict, now), Ok(None));
        assert_eq!(of.closed(now), []);
        assert_eq!(send(&of, "cart-0", &forbidden("cart-0"), now), Ok(Some(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn one_pod_that_is_refused_now_and_then_is_shown_all_the_time() {
        let of = Closings::default();
        let begin = Instant::now();
        let mut shown = Vec::new();
        let mut firsts = 0;
        // The status is looked at every 2 s, and the key comes back after 150 to 300 s.
        for look in 0..1_800 {
            let now = begin + 2 * look * SECOND;
            if [0, 75, 225, 300, 400].contains(&(look % 450)) {
                let (kind, object) = evict("a", "shop", "cart-0");
                let closing = of.admit(kind, object, now).unwrap().answered(&forbidden("cart-0"), now);
                firsts += usize::from(closing.unwrap().is_first);
            }
            let kinds: Vec<_> = of.closed(now).into_iter().map(|closed| (closed.manager, closed.resource)).collect();
            if shown.last() != Some(&kinds) {
                shown.push(kinds);
            }
        }
        assert_eq!((shown.len(), firsts), (1, 1), "{shown:?}");
        let last = begin + 2 * (3 * 450 + 400) * SECOND;
        assert_eq!(of.closed(last + FORGET - SECOND).len(), 1);
        assert_eq!(of.closed(last + FORGET), [], "10 minutes after its last refusal");
    }

    #[tokio::test(start_paused = true)]
    async fn a_closing_covers_one_plugin_account_verb_and_namespace() {
        let of = Closings::default();
        let now = Instant::now();
        send(&of, "cart-0", &forbidden("cart-0"), now).unwrap();
        let pod = || PodKey::new("shop", "cart-0", "u");
        let sender = |account: Option<&str>| Sender { manager: "a".into(), impersonate: account.map(str::to_owned) };
        let delete = WriteKind::new(&Request::Delete { key: pod(), grace_seconds: None }, &sender(None));
        let other_account = WriteKind::new(&Request::Evict { key: pod() }, &sender(Some("b")));
        for (kind, object) in [evict("b", "shop", "cart-0"), evict("a", "bank", "cart-0"), delete, other_account] {
            drop(of.admit(kind, object, now).unwrap());
        }
        let of = Closings::default();
        for text in [
            r#"admission webhook "deny.example" denied the request: User "a" must not"#,
            r#"pods "cart-0" is forbidden: exceeded quota: compute"#,
        ] {
            assert_eq!(send(&of, "cart-0", &WriteResult::Forbidden(text.into()), now), Ok(None));
        }
        assert!(send(&of, "cart-0", &WriteResult::Applied, now).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_is_sent_at_a_time_and_old_requests_do_not_count() {
        let of = Closings::default();
        let mut now = Instant::now();
        let pass = |name: &str, now: Instant| {
            let (kind, object) = evict("a", "shop", name);
            of.admit(kind, object, now)
        };
        let earlier: Vec<_> = (0..100).map(|index| pass(&format!("cart-{index}"), now).unwrap()).collect();
        let closings = earlier.into_iter().filter_map(|pass| pass.answered(&forbidden("cart-0"), now));
        assert_eq!(closings.map(|closing| (closing.wait, closing.is_first)).collect::<Vec<_>>(), [(SECOND, true)]);
        now += SECOND;
        let probe = pass("cart-1", now).unwrap();
        let refusal = pass("cart-2", now).unwrap_err();
        assert_eq!(refusal.wait, PROBE_PAUSE);
        assert!(refusal.message.starts_with(r#"pods "cart-"#), "{}", refusal.message);
        // A probe without an answer lets another one go.
        drop(probe);
        let probe = pass("cart-2", now).unwrap();
        assert_eq!(probe.answered(&WriteResult::Unknown, now), None);
        let closing = pass("cart-3", now).unwrap().answered(&forbidden("x"), now).unwrap();
        assert_eq!((closing.wait, closing.is_first), (2 * SECOND, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_object_does_not_close_for_a_permitted_one() {
        let of = Closings::default();
        let mut now = Instant::now();
        send(&of, "cart-0", &forbidden("cart-0"), now).unwrap();
        assert_eq!(send(&of, "register", &WriteResult::Applied, now), Err(1));
        now += SECOND;
        assert_eq!(send(&of, "cart-0", &forbidden("cart-0"), now), Err(1));
        assert_eq!(send(&of, "register", &WriteResult::Applied, now), Ok(None));
        assert_eq!(send(&of, "register", &WriteResult::Applied, now), Ok(None));
        now += SECOND;
        // Another refusal of the same object says nothing about others; one of another object does.
        assert_eq!(send(&of, "cart-0", &forbidden("cart-0"), now), Ok(Some(2)));
        assert_eq!(send(&of, "register", &WriteResult::Applied, now), Ok(None));
        now += SECOND;
        assert_eq!(send(&of, "cart-1", &forbidden("cart-1"), now), Ok(Some(4)));
        assert!(send(&of, "register", &WriteResult::Applied, now).is_err());
        // An object that does not come does not hold up the others for long.
        assert_eq!(send(&of, "cart-1", &forbidden("cart-1"), now + 5 * SECOND), Ok(Some(8)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_closed_kinds_is_bounded() {
        let of = Closings::default();
        let now = Instant::now();
        for index in 0..MAX_KINDS + 5 {
            let (kind, object) = evict("a", &format!("shop-{index}"), "cart-0");
            let _ = of
                .admit(kind, object, now)
                .unwrap()
                .answered(&forbidden("x"), now + Duration::from_millis(index as u64));
        }
        assert_eq!(of.closed.lock().refusals.len(), MAX_KINDS);
        assert_eq!(of.closed(now + 2 * FORGET), []);
    }
}
