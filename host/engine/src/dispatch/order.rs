//! The order of plugins for the queue, from their configuration.

use std::{collections::BTreeMap, sync::Arc};

use podium_vocabulary::{Phase, PluginId, Tenant};

use super::{Lane, LoadedPlugin};
use crate::queue::{Member, Order};

/// Returns the order of these plugins: by `spec.phase` and `spec.after` within a tenant, and cluster plugins of the
/// phase `before` ahead of all tenants. Names in `after` that are not loaded do not count.
#[must_use]
pub fn order(plugins: &[Arc<LoadedPlugin>]) -> Order<Lane> {
    let lanes: BTreeMap<&PluginId, Lane> = plugins.iter().map(|loaded| (&loaded.spec.id, loaded.lane)).collect();
    let mut tenants: BTreeMap<Tenant, usize> = BTreeMap::new();
    let member = |loaded: &Arc<LoadedPlugin>| {
        let spec = &loaded.spec;
        let tenant = loaded.spec.tenant();
        let named = spec.after.iter().map(|name| PluginId { name: name.as_str().into(), ..spec.id.clone() });
        let next = tenants.len();
        Member {
            lane: loaded.lane,
            leads: tenant == Tenant::Cluster && spec.phase == Phase::Before,
            group: *tenants.entry(tenant).or_insert(next),
            phase: spec.phase as u8,
            after: named.filter_map(|id| lanes.get(&id).copied()).collect(),
        }
    };
    Order::new(&plugins.iter().map(member).collect::<Vec<_>>())
}
