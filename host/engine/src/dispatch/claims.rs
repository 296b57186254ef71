//! [`Claims`]: the objects to which the deliveries of each plugin are writing. Two deliveries of one plugin never write
//! to one object at the same time: the second is planned when the cache shows what the first wrote, and sends only the
//! changes that the object still lacks. Otherwise runs on Pods of one workload that start together, each of which
//! writes to all of them, would each send every write.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;
use podium_pods::{
    model::{Action, ObjectRef},
    sync::Notify,
};

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
    held: BTreeSet<(Lane, Target)>,
    /// Deliveries that wait, in the order in which they began to wait. A `watch` channel would wake them in a random
    /// order, and a simulation would not repeat.
    waiting: BTreeMap<u64, Arc<Notify>>,
    tickets: u64,
}

/// The targets of one delivery, which ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    targets: Vec<(Lane, Target)>,
}

/// The place of a delivery that waits, which ends when this is dropped.
struct Place<'a> {
    claims: &'a Claims,
    ticket: u64,
    freed: Arc<Notify>,
}

impl Claims {
    /// Waits until no other delivery of the plugin writes to any of these targets. A delivery waits for all of its
    /// targets and holds none meanwhile, so deliveries never wait for each other in a circle.
    pub(super) async fn claim(&self, lane: Lane, staged: &Staged) -> Claim<'_> {
        let targets: BTreeSet<_> =
            staged.writes.iter().filter_map(|write| Some((lane, target(&write.get().action)?))).collect();
        let targets = Vec::from_iter(targets);
        let place = {
            let mut state = self.0.lock();
            if state.take(&targets) {
                return Claim { claims: self, targets };
            }
            state.tickets += 1;
            let (ticket, freed) = (state.tickets, Arc::new(Notify::new()));
            state.waiting.insert(ticket, freed.clone());
            Place { claims: self, ticket, freed }
        };
        loop {
            place.freed.notified().await;
            if self.0.lock().take(&targets) {
                return Claim { claims: self, targets };
            }
        }
    }
}

impl State {
    fn take(&mut self, targets: &[(Lane, Target)]) -> bool {
        let free = targets.iter().all(|target| !self.held.contains(target));
        if free {
            self.held.extend(targets.iter().cloned());
        }
        free
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.targets.is_empty() {
            return;
        }
        let mut state = self.claims.0.lock();
        for target in &self.targets {
            state.held.remove(target);
        }
        for freed in state.waiting.values() {
            freed.notify_one();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.claims.0.lock().waiting.remove(&self.ticket);
    }
}

/// Returns the Pod or the object that the action writes to.
fn target(action: &Action) -> Option<Target> {
    match action {
        Action::ApplyObject { object, .. } | Action::DeleteObject { object, .. } => {
            Some(Target::Object(object.clone()))
        }
        action => action.pod().map(|pod| Target::Pod(pod.uid.clone())),
    }
}
