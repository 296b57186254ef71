//! Implementations of the traits of [`ports`](crate::ports) for tests of this crate and of podium-host, and the log of
//! one thread. No other code uses it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use podium_pods::pod::{CachedPod, PodView};
use podium_vocabulary::{PodKey, Refused};
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
    subscriber::{DefaultGuard, NoSubscriber},
};

use crate::ports::{Asker, Deliver, Live, Sender, Sent, Staged};

/// An API server without Pods that accepts deliveries and does nothing with them.
pub struct Nowhere;

impl Deliver for Nowhere {
    fn deliver<'a>(
        &'a self,
        _: &'a Sender,
        _: &'a PodKey,
        _: &'a dyn PodView,
        _: Staged,
        _: u64,
    ) -> BoxFuture<'a, Sent> {
        Box::pin(std::future::ready(Sent::default()))
    }

    fn held(&self, _: &Sender) -> Option<Duration> {
        None
    }
}

impl Live for Nowhere {
    fn get<'a>(
        &'a self,
        _: Asker,
        _: &'a Sender,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Makes a subscriber that of this thread, until the result is dropped.
///
/// As [`tracing::subscriber::set_default`], but no event is lost. With a single subscriber in the process, tracing asks
/// only the thread that first reaches a place of the code whether that place is of interest. If this is a thread of
/// another test, without a subscriber, the place is disabled for all threads. So there is always a second subscriber.
#[must_use]
pub fn log_to(subscriber: impl Into<Dispatch>) -> (DefaultGuard, Dispatch) {
    let second = Dispatch::new(NoSubscriber::new());
    (tracing::dispatcher::set_default(&subscriber.into()), second)
}

/// A subscriber that counts warnings.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<AtomicUsize>);

impl Warnings {
    /// Returns the number of warnings so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, SeqCst);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::{Warnings, log_to};

    #[test]
    fn a_call_site_first_reached_without_a_subscriber_is_logged() {
        let warn = || tracing::warn!("here");
        let warnings = Warnings::default();
        let logged = log_to(warnings.clone());
        std::thread::scope(|scope| scope.spawn(warn).join().unwrap());
        warn();
        drop(logged);
        assert_eq!(warnings.count(), 1);
    }
}
