//! A configuration and a run, for the suites of the SDK.

use podium_sdk::{
    Outcome, Request, Result,
    testing::{Host, Run},
};

/// A plugin that reads labels only.
pub(crate) const LABELS_ONLY: &str = "
apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: { name: p, namespace: shop }
spec:
  source: { file: p.wasm }
  grants:
    read: { pods: { sections: [labels] } }
    write: { labels: [team, 'shop.example/*'] }
  limits: { writes: 2 }
  config: { threshold: 5 }
";

/// Runs a function on the Pod shop/cart-0.
pub(crate) fn run(host: &mut Host, function: fn(&Request) -> Result<Outcome>) -> Run {
    host.reconcile(function, "shop", "cart-0")
}
