//! [`Claims`]: the objects to which the deliveries of each plugin are writing. Two deliveries of one plugin never write
//! to one object at the same time: the second is planned when the cache shows what the first wrote, and sends only the
//! changes that the object still lacks. Otherwise runs on Pods of one workload that start together, each of which
//! writes to all of them, would each send every write.

use std::{collections::BTreeSet, sync::Arc};

use parking_lot::Mutex;
use podium_pods::{
    model::{Action, ObjectRef},
    sync::watch,
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
#[derive(Debug)]
pub(super) struct Claims {
    held: Mutex<BTreeSet<(Lane, Target)>>,
    /// Changes when a claim has ended.
    freed: watch::Sender<()>,
    receiver: watch::Receiver<()>,
}

impl Default for Claims {
    fn default() -> Self {
        let (freed, receiver) = watch::channel(());
        Self { held: Mutex::default(), freed, receiver }
    }
}

/// The targets of one delivery, which ends when this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Claim<'a> {
    claims: &'a Claims,
    targets: Vec<(Lane, Target)>,
}

impl Claims {
    /// Waits until no other delivery of the plugin writes to any of these targets. A delivery waits for all of its
    /// targets and holds none meanwhile, so deliveries never wait for each other in a circle.
    pub(super) async fn claim(&self, lane: Lane, staged: &Staged) -> Claim<'_> {
        let targets: BTreeSet<_> = staged.writes.iter().map(|write| (lane, target(&write.get().action))).collect();
        let targets = Vec::from_iter(targets);
        let mut freed = self.receiver.clone();
        loop {
            // Before the look, so that a claim that ends after it wakes this one.
            freed.mark_unchanged();
            if self.take(&targets) {
                return Claim { claims: self, targets };
            }
            // It only fails without a sender, which `self` has.
            let _ = freed.changed().await;
        }
    }

    fn take(&self, targets: &[(Lane, Target)]) -> bool {
        let mut held = self.held.lock();
        let free = targets.iter().all(|target| !held.contains(target));
        if free {
            held.extend(targets.iter().cloned());
        }
        free
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.targets.is_empty() {
            return;
        }
        let mut held = self.claims.held.lock();
        for target in &self.targets {
            held.remove(target);
        }
        drop(held);
        self.claims.freed.send_replace(());
    }
}

fn target(action: &Action) -> Target {
    match action {
        Action::ApplyObject { object, .. } | Action::DeleteObject { object, .. } => Target::Object(object.clone()),
        Action::SetLabel { target, .. }
        | Action::RemoveLabel { target, .. }
        | Action::SetAnnotation { target, .. }
        | Action::RemoveAnnotation { target, .. }
        | Action::AddFinalizer { target, .. }
        | Action::RemoveFinalizer { target, .. }
        | Action::SetCondition { target, .. }
        | Action::RemoveCondition { target, .. }
        | Action::DeletePod { target, .. }
        | Action::EvictPod { target } => Target::Pod(target.uid.clone()),
    }
}
