//! The memory of the states of all plugins: a bound for each tenant, and one for the host.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use podium_vocabulary::Tenant;

use super::State;

/// The most bytes of the states of a tenant together. The states of all `ClusterReconcilePlugin`s are one tenant's.
pub(super) const TENANT_BYTES: usize = 16 << 20;
/// The most bytes of all states where nothing else is set.
const HOST_BYTES: usize = 256 << 20;

/// The states of all plugins.
#[derive(Debug)]
pub(super) struct States {
    most: AtomicUsize,
    total: Arc<Total>,
    tenants: Mutex<BTreeMap<Tenant, OfTenant>>,
}

#[derive(Debug, Default)]
struct OfTenant {
    bytes: Arc<AtomicUsize>,
    states: Vec<Weak<Mutex<State>>>,
}

#[derive(Debug, Default)]
struct Total {
    bytes: AtomicUsize,
    /// The number of values that were ever put, by which the oldest is found.
    puts: AtomicU64,
}

/// The sums that a state counts for. The default one counts for no tenant.
#[derive(Debug, Default)]
pub(super) struct Share {
    tenant: Arc<AtomicUsize>,
    total: Arc<Total>,
}

impl Share {
    /// Counts the bytes of an entry instead of those of the one that it replaces, and returns the number of the put;
    /// `None` if the tenant would exceed its bound.
    pub(super) fn exchange(&self, before: usize, now: usize) -> Option<u64> {
        let within = |sum: usize| Some((sum + now).saturating_sub(before)).filter(|sum| *sum <= TENANT_BYTES);
        self.tenant.fetch_update(Relaxed, Relaxed, within).ok()?;
        self.total.bytes.fetch_add(now, Relaxed);
        self.total.bytes.fetch_sub(before, Relaxed);
        Some(self.total.puts.fetch_add(1, Relaxed))
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.tenant.fetch_sub(bytes, Relaxed);
        self.total.bytes.fetch_sub(bytes, Relaxed);
    }
}

impl Default for States {
    fn default() -> Self {
        Self { most: HOST_BYTES.into(), total: Arc::default(), tenants: Mutex::default() }
    }
}

impl States {
    /// Sets the most bytes of all states together.
    pub(super) fn set_most(&self, bytes: usize) {
        self.most.store(bytes, Relaxed);
    }

    /// Returns an empty state of a tenant's plugin or group.
    pub(super) fn create(&self, tenant: Tenant) -> Arc<Mutex<State>> {
        let mut tenants = self.tenants.lock();
        tenants.retain(|_, of_tenant| {
            of_tenant.states.retain(|state| state.strong_count() > 0);
            !of_tenant.states.is_empty()
        });
        let of_tenant = tenants.entry(tenant).or_default();
        let share = Share { tenant: of_tenant.bytes.clone(), total: self.total.clone() };
        let state = Arc::new(Mutex::new(State::new(share)));
        of_tenant.states.push(Arc::downgrade(&state));
        state
    }

    /// Drops values if all states together exceed the bound: the oldest of the tenant that has the most, down to a
    /// little less than the bound, so that not each put does this. The caller holds the lock of no state.
    pub(super) fn make_room(&self) {
        let most = self.most.load(Relaxed);
        let total = || self.total.bytes.load(Relaxed);
        if total() <= most {
            return;
        }
        while total() > most - most / 16 {
            let (bytes, second, states) = {
                let tenants = self.tenants.lock();
                let mut all: Vec<_> = tenants.values().map(|of| (of.bytes.load(Relaxed), of)).collect();
                all.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
                let Some((_, most)) = all.first() else { return };
                let second = all.get(1).map_or(0, |(bytes, _)| *bytes);
                (most.bytes.clone(), second, most.states.iter().filter_map(Weak::upgrade).collect::<Vec<_>>())
            };
            let mut ages: Vec<(u64, &Arc<Mutex<State>>)> =
                states.iter().filter_map(|state| Some((state.lock().oldest()?, state))).collect();
            ages.sort_by_key(|(age, _)| *age);
            // Those that are being created or dropped have no value to drop.
            let Some((_, state)) = ages.first() else { return };
            // All values of this state that are older than those of the others.
            let next = ages.get(1).map_or(u64::MAX, |(age, _)| *age);
            let mut state = state.lock();
            let is_most = || bytes.load(Relaxed) >= second;
            while total() > most - most / 16 && is_most() && state.oldest().is_some_and(|oldest| oldest < next) {
                state.drop_oldest();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop(name: &str) -> Tenant {
        Tenant::Namespace(name.into())
    }

    #[test]
    fn a_full_state_makes_room_for_its_own_puts() {
        let states = States::default();
        let all: Vec<_> = (0..16).map(|_| states.create(shop("shop"))).collect();
        let value = || vec![0; (1 << 20) - 300];
        for state in &all {
            state.lock().put("one", value(), None).unwrap();
        }
        let mut first = all[0].lock();
        first.put("other", value(), None).unwrap();
        assert!(first.get("one").is_none() && first.get("other").is_some(), "it replaces its own oldest");
    }

    #[test]
    fn tenants_with_as_much_lose_as_much() {
        let states = States::default();
        states.set_most(4 << 20);
        let all = ["a", "b", "c", "d"].map(|name| states.create(shop(name)));
        let keys: Vec<String> = (0..10).map(|at| at.to_string()).collect();
        for (key, state) in keys.iter().flat_map(|key| all.iter().map(move |state| (key, state))) {
            state.lock().put(key, vec![0; 100_000], None).unwrap();
        }
        for state in &all {
            state.lock().put("x", vec![0; 47_000], None).unwrap();
        }
        states.make_room();
        let left = all.each_ref().map(|state| keys.iter().filter(|key| state.lock().get(key).is_some()).count());
        assert!(left.iter().all(|left| *left >= 9) && left.contains(&9), "{left:?}");
    }

    #[test]
    fn a_put_beyond_the_bound_of_its_tenant_is_refused() {
        let states = States::default();
        let of_shop: Vec<_> = (0..20).map(|_| states.create(shop("shop"))).collect();
        let value = || vec![0; (1 << 19) - 1];
        let puts = of_shop.iter().flat_map(|state| ["a", "b"].map(|key| state.lock().put(key, value(), None).is_ok()));
        let accepted = puts.filter(|accepted| *accepted).count();
        assert_eq!(accepted, 31, "each key and entry counts too");
        assert!(states.create(shop("bank")).lock().put("a", value(), None).is_ok());

        of_shop[0].lock().remove("a", None).unwrap();
        assert!(of_shop[19].lock().put("a", value(), None).is_ok());
        assert!(of_shop[18].lock().put("a", value(), None).is_err());
        drop(of_shop);
        assert!(states.create(shop("shop")).lock().put("a", value(), None).is_ok(), "unloaded plugins have none");
        assert_eq!(states.tenants.lock().len(), 1, "bank's is gone");
    }

    #[test]
    fn beyond_the_bound_of_the_host_the_tenant_with_the_most_loses_values() {
        let states = States::default();
        states.set_most(4 << 20);
        let small = states.create(shop("bank"));
        let large = [(); 4].map(|()| states.create(shop("shop")));
        small.lock().put("k", vec![0; 1 << 20 >> 1], None).unwrap();
        for (at, key) in ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter().enumerate() {
            large[at % 4].lock().put(key, vec![0; (1 << 19) - 1], None).unwrap();
            states.make_room();
        }
        let kept = |key: &str| large.iter().any(|state| state.lock().get(key).is_some());
        assert_eq!(["a", "b", "c", "d", "h"].map(kept), [false, false, true, true, true]);
        assert!(small.lock().get("k").is_some());
        assert!(states.total.bytes.load(Relaxed) <= 4 << 20);
        // A plugin notices as it does for its own share: the entry is absent.
        assert_eq!(large[0].lock().remove("a", Some(1)), Err(crate::ports::StateError::Conflict(None)));
    }

    #[test]
    fn the_bound_holds_over_puts_of_many_threads_and_small_values() {
        let states = Arc::new(States::default());
        states.set_most(1 << 20);
        let put = |tenant: usize| {
            let states = states.clone();
            std::thread::spawn(move || {
                let own: Vec<_> = (0..4).map(|_| states.create(shop(&tenant.to_string()))).collect();
                for at in 0..4_000_u32 {
                    own[at as usize % 4].lock().put(&at.to_string(), vec![0; 100], None).unwrap();
                    states.make_room();
                }
                own
            })
        };
        let kept: Vec<_> = [0, 1, 2].map(put).into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(states.total.bytes.load(Relaxed) <= 1 << 20);
        drop(kept);
        assert_eq!(states.total.bytes.load(Relaxed), 0);
    }
}
