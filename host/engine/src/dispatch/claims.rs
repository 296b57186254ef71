//! [`Claims`]: the objects to which the deliveries of each plugin are writing. Two deliveries of one plugin never write
//! to one object at the same time: the second is planned when the cache shows what the first wrote, and sends only the
//! changes that the object still lacks. Otherwise runs on Pods of one workload that start together, each of which
//! writes to all of them, would each send every write.
//!
//! Deliveries to one object are sent in the order in which they came, so none is passed for ever by others that need
//! fewer objects. A delivery waits only for earlier ones, so deliveries never wait for each other in a circle.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use podium_sync::Notify;
use podium_vocabulary::{self as vocabulary, Action, ObjectRef};

use super::Lane;
use crate::ports::Staged;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// By uid.
    Pod(Arc<str>),
    Object(ObjectRef),
}

/// The targets of all deliveries under way.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The deliveries to each target by their tickets. The first one writes, when it is the first one at all of its
    /// targets; the others wait. None is empty.
    ///
    /// A `watch` channel would wake them in a random order, and a simulation would not repeat.
    targets: BTreeMap<(Target, Lane), BTreeMap<u64, Arc<Notify>>>,
    tickets: u64,
}

/// The targets of one delivery, which ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    targets: BTreeSet<(Target, Lane)>,
    ticket: u64,
}

impl Claims {
    /// Waits until no earlier delivery of the plugin writes, or waits to write, to any of these targets.
    pub(super) async fn claim(&self, lane: Lane, staged: &Staged) -> Claim<'_> {
        let targets = staged.writes.iter().map(|write| (target(&write.get().action), lane));
        let (claim, turn) = self.enter(targets.collect());
        while !claim.is_first() {
            turn.notified().await;
        }
        claim
    }

    fn enter(&self, targets: BTreeSet<(Target, Lane)>) -> (Claim<'_>, Arc<Notify>) {
        let turn = Arc::new(Notify::new());
        let mut state = self.0.lock();
        state.tickets += 1;
        let ticket = state.tickets;
        for target in &targets {
            state.targets.entry(target.clone()).or_default().insert(ticket, turn.clone());
        }
        (Claim { claims: self, targets, ticket }, turn)
    }
}

impl Claim<'_> {
    fn is_first(&self) -> bool {
        let state = self.claims.0.lock();
        let first = |target| state.targets.get(target).and_then(BTreeMap::first_key_value);
        self.targets.iter().all(|target| first(target).is_none_or(|(ticket, _)| *ticket == self.ticket))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.claims.0.lock();
        // In the order of their tickets.
        let mut freed = BTreeMap::new();
        for target in &self.targets {
            let Some(deliveries) = state.targets.get_mut(target) else { continue };
            deliveries.remove(&self.ticket);
            match deliveries.first_key_value() {
                Some((ticket, turn)) => _ = freed.insert(*ticket, turn.clone()),
                None => _ = state.targets.remove(target),
            }
        }
        freed.values().for_each(|turn| turn.notify_one());
    }
}

/// Returns the Pod or the object that the action writes to.
fn target(action: &Action) -> Target {
    match action.target() {
        vocabulary::Target::Object(object) => Target::Object(object.clone()),
        vocabulary::Target::Pod(pod) => Target::Pod(pod.uid.clone()),
    }
}
