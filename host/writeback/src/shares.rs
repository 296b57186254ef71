//! [`Shares`]: a bounded memory of all tenants, in which no tenant displaces the entries of another one that has fewer.

#![expect(
    clippy::disallowed_methods,
    reason = "tenants choose the keys, so their hashes must not be known; the order is that of use"
)]

use std::{collections::BTreeMap, hash::Hash, num::NonZeroUsize, sync::Arc};

use lru::LruCache;

/// A key of an entry that counts for a tenant.
pub(super) trait OfTenant: Hash + Eq {
    /// Returns a text that is the same for all keys of the tenant.
    fn tenant(&self) -> &str;
}

/// Entries by tenant. The tenant with the most loses those that were used least recently.
pub(super) struct Shares<K, V> {
    most: NonZeroUsize,
    tenants: BTreeMap<String, LruCache<K, V>>,
}

/// Returns the namespace of a plugin's field manager with a slash, or the name of a plugin of the cluster, which has
/// none, so that a namespace is no plugin's name.
pub(super) fn tenant_of(manager: &str) -> &str {
    let plugin = manager.strip_prefix("podium/").unwrap_or(manager);
    plugin.find('/').map_or(plugin, |slash| &plugin[..=slash])
}

impl OfTenant for String {
    fn tenant(&self) -> &str {
        tenant_of(self)
    }
}

impl<K: OfTenant> OfTenant for Arc<K> {
    fn tenant(&self) -> &str {
        (**self).tenant()
    }
}

impl<K: OfTenant, V> Shares<K, V> {
    /// Returns an empty memory of at most `most` entries.
    pub(super) fn new(most: NonZeroUsize) -> Self {
        Self { most, tenants: BTreeMap::new() }
    }

    /// Returns the entries of the key's tenant, if there are any.
    pub(super) fn get_mut(&mut self, key: &impl OfTenant) -> Option<&mut LruCache<K, V>> {
        self.tenants.get_mut(key.tenant())
    }

    /// Returns the entries of the key's tenant, to which the key may be added.
    pub(super) fn with_room(&mut self, key: &K) -> &mut LruCache<K, V> {
        let is_new = !self.get_mut(key).is_some_and(|entries| entries.contains(key));
        if is_new && self.tenants.values().map(LruCache::len).sum::<usize>() >= self.most.get() {
            if let Some(entries) = self.tenants.values_mut().max_by_key(|entries| entries.len()) {
                entries.pop_lru();
            }
            self.tenants.retain(|_, entries| !entries.is_empty());
        }
        self.tenants.entry(key.tenant().to_owned()).or_insert_with(|| LruCache::sparse(self.most))
    }

    /// Returns the entries of a tenant, as [`OfTenant::tenant`] names it.
    pub(super) fn of_tenant(&self, tenant: &str) -> impl Iterator<Item = (&K, &V)> {
        self.tenants.get(tenant).into_iter().flatten()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.tenants.values().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.tenants.values_mut().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_with_the_name_of_a_plugin_of_the_cluster_is_another_tenant() {
        assert_ne!(tenant_of("podium/shop"), tenant_of("podium/shop/a"));
        assert_eq!(tenant_of("podium/shop/b"), tenant_of("podium/shop/a"));
    }

    #[test]
    fn a_tenant_that_rotates_names_displaces_only_its_own_entries() {
        let mut shares = Shares::new(NonZeroUsize::new(8).unwrap());
        let mut put = |name: String| _ = shares.with_room(&name).put(name, ());
        ["podium/bank/a", "podium/bank/b", "podium/guard"].into_iter().for_each(|name| put(name.to_owned()));
        (0..100).for_each(|number| put(format!("podium/shop/p{number}")));
        put("podium/bank/a".to_owned());
        let mut names: Vec<_> = shares.iter().map(|(name, ())| name.as_str()).collect();
        names.sort_unstable();
        let of_shop = [95, 96, 97, 98, 99].map(|number| format!("podium/shop/p{number}"));
        let expected = ["podium/bank/a", "podium/bank/b", "podium/guard"].into_iter();
        assert_eq!(names, expected.chain(of_shop.iter().map(String::as_str)).collect::<Vec<_>>());
    }
}
