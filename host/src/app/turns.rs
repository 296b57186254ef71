//! [`ListTurns`] of lists of objects as plugins' accounts, so that their pages take little memory at a time, and a
//! tenant whose requests are not answered delays its own lists only.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use podium_vocabulary::Tenant;
use tokio::sync::Semaphore;

/// The pages that are read at once. Each may take 15 MiB; a request that the API server lets wait takes none.
const PAGES: usize = 4;

pub(super) struct ListTurns {
    pub(super) of_host: Arc<Semaphore>,
    of_tenants: Mutex<BTreeMap<Tenant, Arc<Semaphore>>>,
}

impl ListTurns {
    pub(super) fn new() -> Self {
        Self { of_host: Arc::new(Semaphore::new(PAGES)), of_tenants: Mutex::default() }
    }

    /// Returns the one turn of a tenant.
    pub(super) fn of_tenant(&self, tenant: &Tenant) -> Arc<Semaphore> {
        let mut of_tenants = self.of_tenants.lock();
        // Those without a user.
        of_tenants.retain(|_, turn| Arc::strong_count(turn) > 1);
        of_tenants.entry(tenant.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_of_a_tenant_share_a_turn_as_long_as_there_are_some() {
        let turns = ListTurns::new();
        let tenant = |namespace: &str| Tenant::Namespace(namespace.into());
        let [shop, again, bank] = ["shop", "shop", "bank"].map(|namespace| turns.of_tenant(&tenant(namespace)));
        assert!(Arc::ptr_eq(&shop, &again) && !Arc::ptr_eq(&shop, &bank));
        drop((shop, bank));
        assert!(Arc::ptr_eq(&turns.of_tenant(&tenant("shop")), &again));
        assert_eq!(turns.of_tenants.lock().keys().cloned().collect::<Vec<_>>(), [tenant("shop")]);
    }
}
