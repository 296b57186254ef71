//! The right of this replica to run plugins and to write, by shard of tenants, for all parts of the host.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use podium_api::{Fence, Permit};
use podium_engine::ingest::GonePods;
use podium_lease::{Mode, Ownership, Sharing};
use podium_vocabulary::{Shards, Tenant, text};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout},
};

use super::{BootTime, LeaseOptions, NAME};
use crate::{
    admin::{Check, Owner, Owners},
    telemetry::LeaseFigures,
};

/// The most time for the last request at a shutdown.
const RELEASE: Duration = Duration::from_secs(2);

/// Whether this replica may run plugins and write, for all parts of the host.
pub(in crate::app) struct Leadership {
    pub(super) now: BootTime,
    duration: Duration,
    /// The name of this process, and the namespace of its Pod.
    own: [String; 2],
    pub(super) inner: Mutex<Inner>,
    pub(super) stop: Notify,
    pub(super) stopped: watch::Sender<bool>,
}

#[derive(Default)]
pub(super) struct Inner {
    pub(super) mode: Mode,
    /// No replica that runs all plugins by itself acts until then.
    pub(super) open: Duration,
    pub(super) leases: Vec<Held>,
    takeovers: u64,
    /// When the API server answered last.
    answered: Option<Duration>,
    unowned: Duration,
    /// Why the latest request failed.
    pub(super) failure: Option<String>,
    /// Why the latest term of this replica ended, until the next one begins.
    pub(super) ended: Option<String>,
    /// Why the namespace of the Leases is not known.
    pub(super) nowhere: Option<String>,
}

/// The holder and the term of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) holder: String,
    pub(super) term: u32,
    /// The Lease is of replicas that share the shards.
    shared: bool,
}

/// A Lease.
#[derive(Debug, Default, Clone)]
pub(super) struct Held {
    shards: Shards,
    /// The end of the right to write.
    pub(super) until: Duration,
    term: u32,
    /// As it was read last.
    pub(super) seen: Option<Seen>,
    /// Why it cannot be used.
    pub(super) unusable: Option<String>,
}

impl Held {
    /// Records what the Lease says. Returns false if it is as before.
    fn saw(&mut self, seen: Option<Seen>) -> bool {
        if seen.is_some() {
            self.unusable = None;
        }
        std::mem::replace(&mut self.seen, seen) != self.seen
    }
}

impl Inner {
    pub(super) fn new(sharing: &Sharing) -> Self {
        let held = |index| Held { shards: sharing.mode().shards(index), ..Held::default() };
        let leases = (0..sharing.leases().len()).map(held).collect();
        Self { mode: sharing.mode(), leases, ..Self::default() }
    }

    /// A term of this replica begins.
    pub(super) fn own(&mut self, index: usize, term: u32, until: Duration) {
        self.takeovers += 1;
        self.ended = None;
        if let Some(held) = self.leases.get_mut(index) {
            held.term = term;
            held.until = until;
        }
    }

    /// Returns why no plugin can be run: the first Lease cannot be used, or none of the shards'.
    fn unusable(&self) -> Option<String> {
        let (first, shards) = self.leases.split_first()?;
        let all_unusable = || shards.iter().try_fold(None, |_, held| held.unusable.clone().map(Some)).flatten();
        first.unusable.clone().or_else(all_unusable)
    }

    pub(super) fn term(&self, index: usize) -> u32 {
        self.leases.get(index).map_or(0, |held| held.term)
    }

    /// Moves the end of the right to write, and returns the one before.
    pub(super) fn extend(&mut self, index: usize, until: Duration) -> Duration {
        self.leases.get_mut(index).map_or(Duration::ZERO, |held| std::mem::replace(&mut held.until, until))
    }

    /// Records what the Leases say. Returns those whose holder or term is another one.
    pub(super) fn saw(&mut self, sharing: &Sharing, now: Duration) -> Vec<usize> {
        self.open = sharing.open();
        self.answered = sharing.leases().iter().filter_map(Ownership::answered).max();
        self.unowned = unowned(sharing, now);
        let seen = |lease: &Ownership| {
            let record = lease.seen()?;
            Some(Seen { holder: record.holder.clone(), term: record.term, shared: record.shared })
        };
        let leases = self.leases.iter_mut().zip(sharing.leases()).enumerate();
        leases.filter_map(|(index, (held, lease))| held.saw(seen(lease)).then_some(index)).collect()
    }
}

/// Returns for how long some plugins have been run by no living replica, as far as this one knows.
fn unowned(sharing: &Sharing, now: Duration) -> Duration {
    let is_of_one = sharing.leases()[0].seen().is_some_and(|record| !record.shared);
    let first = usize::from(sharing.mode() == Mode::All && !is_of_one);
    let last = if first == 0 { 1 } else { sharing.leases().len() };
    let leases = sharing.leases().get(first..last).unwrap_or_default();
    leases.iter().map(|lease| lease.unowned(now)).max().unwrap_or_default()
}

impl Leadership {
    pub(in crate::app) fn new(options: &LeaseOptions) -> Arc<Self> {
        let began = Instant::now();
        let now = options.boot_time.clone().unwrap_or_else(|| Arc::new(move || began.elapsed()));
        let (stopped, _) = watch::channel(false);
        let duration = options.duration;
        let own = [&options.holder, &options.own_namespace].map(Clone::clone);
        let inner = Mutex::new(Inner { mode: options.active_replicas, ..Inner::default() });
        Arc::new(Self { now, duration, own, inner, stop: Notify::new(), stopped })
    }

    /// Returns the right to write, for each request that changes something.
    pub(in crate::app) fn fence(self: &Arc<Self>) -> Fence {
        let this = self.clone();
        Arc::new(move |tenant| this.permit(tenant))
    }

    /// Returns the right to write for a tenant; without one, that of the shard that is held for longest.
    fn permit(&self, tenant: Option<&Tenant>) -> Option<Permit> {
        let inner = self.inner.lock();
        let shards = tenant.map_or(Shards::ALL, Shards::of_tenant);
        let held = inner.leases.iter().filter(|held| held.shards.intersects(shards)).max_by_key(|held| held.until)?;
        let until = held.until.min(inner.open);
        let left = until.checked_sub((self.now)()).filter(|left| !left.is_zero())?;
        Some(Permit { left, term: held.term.into() })
    }

    /// Returns the number of shards for which this replica may write.
    fn shards(&self) -> usize {
        let inner = self.inner.lock();
        let now = (self.now)();
        let held = inner.leases.iter().filter(|held| held.until.min(inner.open) > now);
        held.map(|held| held.shards).fold(Shards::NONE, Shards::with).len()
    }

    /// Returns the line of `/readyz`. A standby is ready.
    pub(in crate::app) fn check(&self) -> Check {
        let shards = self.shards();
        let inner = self.inner.lock();
        let is_known = inner.answered.is_some_and(|at| (self.now)().saturating_sub(at) < self.duration);
        let reason = || inner.failure.as_deref().unwrap_or("no answer yet");
        let unknown = || (!is_known).then(|| format!("the Lease is not known: {}", reason()));
        let failure = inner.nowhere.clone().or_else(|| inner.unusable()).or_else(unknown);
        let is_open = inner.open > (self.now)();
        let first = inner.leases.first();
        let note = match (inner.mode, first.and_then(|held| held.seen.as_ref())) {
            (Mode::All, _) if is_open => format!("this replica holds {shards} of {} shards", Shards::COUNT),
            (Mode::One, _) if shards > 0 => {
                format!("this replica holds it, term {}", first.map_or(0, |held| held.term))
            }
            (_, Some(Seen { holder, term, shared })) if !holder.is_empty() => {
                let others = if *shared { ", with --active-replicas all" } else { "" };
                format!("standby; {holder} holds it, term {term}{others}")
            }
            _ => "standby; no replica holds it".to_owned(),
        };
        let ended = inner.ended.as_ref().filter(|_| shards == 0);
        let ended = ended.map_or_else(String::new, |reason| format!("; the last term of this replica ended: {reason}"));
        let unusable =
            inner.leases.iter().enumerate().filter_map(|(index, held)| {
                Some(format!("; {}: {}", Sharing::name(NAME, index), held.unusable.as_ref()?))
            });
        let note = note + &ended + &unusable.collect::<String>();
        Check { failure, required: true, ..Check::passed("lease", text::line(&note)) }
    }

    pub(in crate::app) fn figures(&self, gone: &GonePods) -> LeaseFigures {
        let shards = self.shards();
        let inner = self.inner.lock();
        let Inner { takeovers, unowned, .. } = *inner;
        LeaseFigures { leads: shards > 0, shards, takeovers, unowned, dropped: gone.dropped() }
    }

    /// Returns which replica runs the plugins of each shard, as this one knows.
    pub(in crate::app) fn owners(&self) -> Owners {
        let inner = self.inner.lock();
        let owner = |(index, held): (usize, &Held)| {
            let seen = held.seen.as_ref();
            let (holder, term) = seen.map(|seen| (seen.holder.clone(), seen.term)).unwrap_or_default();
            // Behind the name of the Pod is a number of the process.
            let pod = holder.rsplit_once('_').map_or("", |(pod, _)| pod).to_owned();
            let shards = (0..Shards::COUNT).filter(|number| held.shards.intersects(Shards::one(*number))).collect();
            Owner { lease: Sharing::name(NAME, index), shards, holder, pod, term }
        };
        let held = inner.leases.iter().enumerate().filter(|(_, held)| !held.shards.is_empty());
        let [answers, namespace] = self.own.clone();
        Owners { shared: inner.mode == Mode::All, namespace, answers, owners: held.map(owner).collect() }
    }

    /// Returns true if replicas share the plugins.
    pub(in crate::app) fn shares(&self) -> bool {
        self.inner.lock().mode == Mode::All
    }

    /// Returns true while this replica may write.
    pub(in crate::app) fn leads(&self) -> bool {
        self.permit(None).is_some()
    }

    /// Ends the runs that are left, releases the Leases, and takes none any more, at a shutdown.
    pub(in crate::app) async fn hand_over(&self) {
        self.stop.notify_one();
        let mut stopped = self.stopped.subscribe();
        if timeout(RELEASE, stopped.wait_for(|stopped| *stopped)).await.is_err() {
            tracing::warn!("the API server does not answer; the Lease, if this replica holds it, expires by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Option<Seen> {
        Some(Seen { holder: "a".to_owned(), term: 1, shared: false })
    }

    #[test]
    fn a_lease_that_cannot_be_used_stays_so_until_one_is_read() {
        let mut held = Held { seen: seen(), ..Held::default() };
        held.unusable = Some("of another installation".to_owned());
        assert!(held.saw(None));
        assert!(held.unusable.is_some());
        assert!(held.saw(seen()) && !held.saw(seen()));
        assert!(held.unusable.is_none());
    }

    #[test]
    fn one_shard_whose_lease_cannot_be_used_leaves_the_replica_ready() {
        let sharing = Sharing::new("a".to_owned(), Duration::from_secs(8), Mode::All, Duration::ZERO);
        let inner = Mutex::new(Inner { answered: Some(Duration::ZERO), ..Inner::new(&sharing) });
        let (stopped, _) = watch::channel(false);
        let now: BootTime = Arc::new(|| Duration::ZERO);
        let duration = Duration::from_secs(8);
        let own = <_>::default();
        let leadership = Leadership { now, duration, own, inner, stop: Notify::new(), stopped };
        let spoil = |index: usize| leadership.inner.lock().leases[index].unusable = Some("rubbish".to_owned());
        spoil(4);
        let Check { failure, note, .. } = leadership.check();
        assert_eq!(
            (failure, note.as_deref()),
            (None, Some("standby; no replica holds it; podium-host-shard-3: rubbish"))
        );
        (1..16).for_each(spoil);
        assert_eq!(leadership.check().failure, None);
        spoil(16);
        assert_eq!(leadership.check().failure.as_deref(), Some("rubbish"), "no shard is left");
        *leadership.inner.lock() = Inner { answered: Some(Duration::ZERO), ..Inner::new(&sharing) };
        spoil(0);
        assert_eq!(leadership.check().failure.as_deref(), Some("rubbish"), "it says that shards are shared");
    }

    #[test]
    fn a_standby_says_why_its_last_term_ended() {
        let sharing = Sharing::new("a".to_owned(), Duration::from_secs(8), Mode::One, Duration::ZERO);
        let inner = Mutex::new(Inner { answered: Some(Duration::ZERO), ..Inner::new(&sharing) });
        let (stopped, _) = watch::channel(false);
        let now: BootTime = Arc::new(|| Duration::ZERO);
        let duration = Duration::from_secs(8);
        let own = ["a".to_owned(), "podium".to_owned()];
        let leadership = Leadership { now, duration, own, inner, stop: Notify::new(), stopped };
        let note = || leadership.check().note.unwrap();
        leadership.inner.lock().ended = Some("no worker took a key for 10 s".to_owned());
        assert_eq!(
            note(),
            "standby; no replica holds it; the last term of this replica ended: no worker took a key for 10 s"
        );
        leadership.inner.lock().open = Duration::from_secs(9);
        leadership.inner.lock().own(0, 7, Duration::from_secs(6));
        assert_eq!(note(), "this replica holds it, term 7");
        leadership.inner.lock().extend(0, Duration::ZERO);
        assert_eq!(note(), "standby; no replica holds it");
    }

    #[test]
    fn the_right_to_write_is_of_a_shard_and_ends_with_the_sharing() {
        let clock = Arc::new(Mutex::new(Duration::ZERO));
        let time = clock.clone();
        let sharing = Sharing::new("a".to_owned(), Duration::from_secs(8), Mode::All, Duration::ZERO);
        let inner = Mutex::new(Inner::new(&sharing));
        let (stopped, _) = watch::channel(false);
        let now: BootTime = Arc::new(move || *time.lock());
        let duration = Duration::from_secs(8);
        let own = <_>::default();
        let leadership = Leadership { now, duration, own, inner, stop: Notify::new(), stopped };
        // Shards 9 and 5.
        let shop = Tenant::Namespace("shop".into());
        leadership.inner.lock().own(10, 7, Duration::from_secs(6));
        assert_eq!((leadership.permit(Some(&shop)), leadership.shards()), (None, 0), "shards are not shared");
        leadership.inner.lock().open = Duration::from_secs(5);
        let permit = |left| Some(Permit { left: Duration::from_secs(left), term: 7 });
        assert_eq!(leadership.permit(Some(&shop)), permit(5));
        assert_eq!((leadership.permit(Some(&Tenant::Cluster)), leadership.permit(None)), (None, permit(5)));
        leadership.inner.lock().open = Duration::from_secs(9);
        *clock.lock() = Duration::from_secs(4);
        assert_eq!((leadership.permit(Some(&shop)), leadership.shards()), (permit(2), 1));
        *clock.lock() = Duration::from_secs(6);
        assert_eq!((leadership.permit(Some(&shop)), leadership.shards()), (None, 0));
        let owners = leadership.owners();
        assert_eq!((owners.shared, owners.owners.len(), &*owners.owners[9].lease), (true, 16, "podium-host-shard-9"));
    }
}
