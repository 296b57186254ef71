//! The seed of a run's random numbers.
//!
//! A plugin can compute its seed from its random numbers. The seed is therefore a digest: neither the host's seed nor
//! the seeds of other plugins' runs can be computed from it.

use podium_vocabulary::PluginId;
use sha2::{Digest, Sha256};

use crate::ports::TraceId;

/// Returns the seed of a plugin's run of this number.
pub(super) fn of_run(host: u64, plugin: &PluginId, number: u64) -> u64 {
    let digest = Sha256::new()
        .chain_update(host.to_le_bytes())
        .chain_update(number.to_le_bytes())
        .chain_update(plugin.to_string())
        .finalize();
    digest.iter().take(8).fold(0, |seed, byte| seed << 8 | u64::from(*byte))
}

/// Returns the id of the trace of a plugin's run of this number, which began at this time: the numbers of a plugin that
/// is created again begin at 0 again.
pub(super) fn trace_of_run(host: u64, plugin: &PluginId, number: u64, now_millis: u64) -> TraceId {
    let digest = Sha256::new()
        .chain_update("trace")
        .chain_update(host.to_le_bytes())
        .chain_update(number.to_le_bytes())
        .chain_update(now_millis.to_le_bytes())
        .chain_update(plugin.to_string())
        .finalize();
    TraceId(std::array::from_fn(|at| digest[at]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_of_its_host_its_plugin_and_its_number() {
        let plugin = |namespace: &str, name: &str| PluginId { namespace: Some(namespace.into()), name: name.into() };
        let seed = of_run(1, &plugin("shop", "tidy"), 2);
        assert_eq!(seed, of_run(1, &plugin("shop", "tidy"), 2));
        for other in [
            of_run(2, &plugin("shop", "tidy"), 2),
            of_run(1, &plugin("bank", "tidy"), 2),
            of_run(1, &plugin("shop", "tidy"), 3),
        ] {
            // Half of the bits of two digests differ.
            assert!((8..56).contains(&(seed ^ other).count_ones()), "{seed:x} and {other:x}");
        }
    }
}
