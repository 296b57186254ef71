//! The order of plugins for the queue, from their configuration.

use std::{collections::BTreeMap, sync::Arc};

use podium_vocabulary::{Phase, PluginId, Tenant};

use super::{Lane, LoadedPlugin};
use crate::queue::{Member, Order};

/// Returns the order of the plugins of one tenant, which are this group: by `spec.phase` and `spec.after`, and cluster
/// plugins of the phase `before` ahead of all tenants. Names in `after` that are not loaded do not count.
#[must_use]
pub fn order(group: usize, plugins: &[Arc<LoadedPlugin>]) -> Order<Lane> {
    let lanes: BTreeMap<&PluginId, Lane> = plugins.iter().map(|loaded| (&loaded.spec.id, loaded.lane)).collect();
    let member = |loaded: &Arc<LoadedPlugin>| {
        let spec = &loaded.spec;
        let named = spec.after.iter().map(|name| PluginId { name: name.as_str().into(), ..spec.id.clone() });
        Member {
            lane: loaded.lane,
            leads: spec.tenant() == Tenant::Cluster && spec.phase == Phase::Before,
            group,
            phase: spec.phase as u8,
            after: named.filter_map(|id| lanes.get(&id).copied()).collect(),
        }
    };
    Order::new(&plugins.iter().map(member).collect::<Vec<_>>())
}
