//! How much compiled code the plugins of each tenant have in memory, and how much they may have.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use podium_vocabulary::{PluginId, Tenant};

use super::{super::LoadProblem, Key};

/// The code that plugins use, by tenant. Code that several plugins of a tenant share counts once for the tenant, and
/// once for each other tenant that shares it.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    uses: BTreeMap<Tenant, BTreeMap<u64, CodeUse>>,
    /// The number of uses so far.
    count: u64,
}

#[derive(Debug)]
struct CodeUse {
    plugin: PluginId,
    key: Key,
    bytes: u64,
}

/// The use of code by one version of a plugin, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Charge {
    ledger: Arc<Ledger>,
    tenant: Tenant,
    number: u64,
}

impl Ledger {
    /// Counts the code that a plugin uses. Other versions of the same plugin do not count: they end when this one takes
    /// their place.
    ///
    /// # Errors
    /// Returns an error if the tenant's plugins would have more than `limit` bytes.
    pub(super) fn charge(
        self: &Arc<Self>,
        plugin: &PluginId,
        key: Key,
        bytes: u64,
        limit: u64,
    ) -> Result<Charge, LoadProblem> {
        let tenant = plugin.tenant();
        let mut inner = self.0.lock();
        let others = inner.uses.get(&tenant).into_iter().flat_map(BTreeMap::values).filter(|of| of.plugin != *plugin);
        let codes: BTreeMap<Key, u64> = others.map(|of| (of.key, of.bytes)).chain([(key, bytes)]).collect();
        let sum = codes.values().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        if sum > limit {
            return Err(LoadProblem::TenantCode { tenant: tenant.to_string(), bytes, sum, limit });
        }
        inner.count += 1;
        let number = inner.count;
        inner.uses.entry(tenant.clone()).or_default().insert(number, CodeUse { plugin: plugin.clone(), key, bytes });
        Ok(Charge { ledger: Arc::clone(self), tenant, number })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let uses = &mut self.ledger.0.lock().uses;
        if let Some(of_tenant) = uses.get_mut(&self.tenant) {
            of_tenant.remove(&self.number);
            if of_tenant.is_empty() {
                uses.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Sha256, *};

    fn plugin(namespace: &str, name: &str) -> PluginId {
        PluginId { namespace: Some(namespace.into()), name: name.into() }
    }

    fn key(number: u8) -> Key {
        Key { digest: Sha256([number; 32]), class: "native" }
    }

    #[test]
    fn code_that_plugins_of_a_tenant_share_counts_once() {
        let ledger = Arc::<Ledger>::default();
        let charge = |namespace, name, number| ledger.charge(&plugin(namespace, name), key(number), 40, 100);
        let held = [charge("shop", "a", 1).unwrap(), charge("shop", "b", 1).unwrap(), charge("shop", "c", 2).unwrap()];
        let text = charge("shop", "d", 3).unwrap_err().to_string();
        assert!(text.contains("namespace shop") && text.contains("compiledCodeMiB"), "{text}");
        let other = charge("bank", "a", 3).unwrap();
        let shared = charge("shop", "d", 2).unwrap();
        let updated = charge("shop", "c", 3).map(drop);
        assert!(updated.is_err(), "another plugin uses the code of the version before");
        drop(shared);
        let updated = charge("shop", "c", 3).unwrap();
        drop(held);
        let others = [charge("shop", "a", 1).unwrap()];
        assert!(charge("shop", "b", 4).is_err());
        drop((updated, other));
        assert!(charge("shop", "b", 4).is_ok());
        drop(others);
        assert!(ledger.0.lock().uses.is_empty());
    }
}
