//! Turns, for example to read and compile a component: few at a time, one for each tenant at most, and tenants in
//! rotation. So a tenant whose components take all of the compiler's time delays its own.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;
use podium_vocabulary::Tenant;
use tokio::sync::oneshot;

/// A tenant; each plugin with the scope of the cluster takes turns of its own.
pub(in crate::app) type Taker = (Tenant, Option<Arc<str>>);

pub(in crate::app) struct Turns {
    most: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// The tenants whose turn it is.
    active: Vec<Taker>,
    waiting: BTreeMap<Taker, VecDeque<oneshot::Sender<Turn>>>,
    /// The tenants in `waiting`, the next one first.
    rotation: VecDeque<Taker>,
}

/// A turn, until it is dropped.
#[must_use]
pub(in crate::app) struct Turn {
    turns: Arc<Turns>,
    tenant: Taker,
}

impl Turns {
    /// Creates `most` turns at a time.
    pub(in crate::app) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, inner: Mutex::default() })
    }

    /// Waits for a turn.
    pub(in crate::app) async fn take(self: &Arc<Self>, tenant: Taker) -> Turn {
        loop {
            let (turn, taken) = oneshot::channel();
            {
                let Inner { waiting, rotation, .. } = &mut *self.inner.lock();
                waiting.entry(tenant.clone()).or_insert_with(|| {
                    rotation.push_back(tenant.clone());
                    VecDeque::new()
                });
                waiting.entry(tenant.clone()).or_default().push_back(turn);
            }
            self.give();
            // No waiting sender is dropped; otherwise the turn is asked for again.
            if let Ok(turn) = taken.await {
                return turn;
            }
        }
    }

    fn give(self: &Arc<Self>) {
        while let Some((waiter, tenant)) = self.next() {
            let turn = Turn { turns: Arc::clone(self), tenant };
            // A waiter that gave up meanwhile returns the turn by dropping it, here or with the channel.
            let _ = waiter.send(turn);
        }
    }

    fn next(&self) -> Option<(oneshot::Sender<Turn>, Taker)> {
        let Inner { active, waiting, rotation } = &mut *self.inner.lock();
        while active.len() < self.most {
            let at = rotation.iter().position(|tenant| !active.contains(tenant))?;
            let tenant = rotation.remove(at)?;
            let of_tenant = waiting.get_mut(&tenant)?;
            of_tenant.retain(|waiter| !waiter.is_closed());
            let waiter = of_tenant.pop_front();
            if of_tenant.is_empty() {
                waiting.remove(&tenant);
            } else {
                rotation.push_back(tenant.clone());
            }
            if let Some(waiter) = waiter {
                active.push(tenant.clone());
                return Some((waiter, tenant));
            }
        }
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        {
            let Inner { active, rotation, .. } = &mut *self.turns.inner.lock();
            active.retain(|tenant| *tenant != self.tenant);
            // Its next load waits behind those of others.
            if let Some(at) = rotation.iter().position(|tenant| *tenant == self.tenant) {
                let behind = rotation.remove(at);
                rotation.extend(behind);
            }
        }
        self.turns.give();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn tenant(name: &str) -> Taker {
        (Tenant::Namespace(name.into()), None)
    }

    #[tokio::test]
    async fn a_tenant_has_one_turn_and_tenants_take_them_in_rotation() {
        let turns = Turns::new(2);
        let wait = |name| Box::pin(turns.take(tenant(name)));
        let first = wait("loud").await;
        let (mut second, mut third, mut shop, mut bank) = (wait("loud"), wait("loud"), wait("shop"), wait("bank"));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        let shop = shop.as_mut().now_or_never().unwrap();
        assert!(bank.as_mut().now_or_never().is_none(), "two turns");
        drop(first);
        let bank = bank.as_mut().now_or_never().unwrap();
        assert!(second.as_mut().now_or_never().is_none(), "behind the other tenants");
        drop(shop);
        let second = second.as_mut().now_or_never().unwrap();
        drop(bank);
        assert!(third.as_mut().now_or_never().is_none(), "one turn of a tenant");
        drop(second);
        drop(third.as_mut().now_or_never().unwrap());
        let inner = turns.inner.lock();
        assert!(inner.active.is_empty() && inner.waiting.is_empty() && inner.rotation.is_empty());
    }

    #[tokio::test]
    async fn a_waiter_that_stops_waiting_leaves_its_turn_to_the_next() {
        let turns = Turns::new(1);
        let first = turns.take(tenant("shop")).await;
        let mut gone = Box::pin(turns.take(tenant("shop")));
        assert!(gone.as_mut().now_or_never().is_none());
        let mut next = Box::pin(turns.take(tenant("bank")));
        assert!(next.as_mut().now_or_never().is_none());
        drop(gone);
        drop(first);
        // It has the turn, and is never polled again.
        drop(next);
        assert!(turns.take(tenant("shop")).now_or_never().is_some());
    }
}
