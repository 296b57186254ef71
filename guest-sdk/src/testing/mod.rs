//! An in-memory fake of the host, for a plugin's own tests under `cargo test`.
//!
//! ```
//! use podium_sdk::{Outcome, Request, Result};
//! use podium_sdk::testing::{Host, Write, pod};
//!
//! fn reconcile(request: &Request) -> Result<Outcome> {
//!     if let Some(pod) = request.pod() {
//!         pod.set_label("seen", "yes")?;
//!     }
//!     Ok(Outcome::settled())
//! }
//!
//! let mut host = Host::with_pods([pod("shop", "cart-0"), pod("shop", "cart-1")]).configured_by(
//!     "
//!     apiVersion: podium.dev/v1alpha1
//!     kind: ReconcilePlugin
//!     metadata: { name: seen, namespace: shop }
//!     spec: { source: { file: seen.wasm }, grants: { write: { labels: [seen] } } }
//!     ",
//! );
//! let run = host.reconcile(reconcile, "shop", "cart-0");
//! run.assert_writes([Write::set_label("shop/cart-0", "seen", "yes")]);
//! host.reconcile(reconcile, "shop", "cart-0").assert_quiet();
//! ```
//!
//! It keeps the guarantees that a plugin can observe: a consistent snapshot, staged writes that a failure drops,
//! writes that change nothing and cost nothing, Events that accompany changes and are sent once, uids, grants, the
//! namespace of a namespaced plugin, pages, and state with versions. It refuses a configuration or a write that the
//! host refuses. It sends nothing, and has no limits except those of writes, of host calls and of the sizes of single
//! values. The test decides which Pod is reconciled and when; [`Host::settle`] decides by the watch of the
//! configuration.

pub(crate) mod calls;

mod authz;
mod configuration;
mod fake;
mod full;
mod host;
mod pod;
mod run;
mod wake;
mod write;

pub use host::{Host, NOW};
pub use pod::{PodBuilder, pod, pod_from_json};
pub use run::{Emitted, LogLine, Run};
pub use write::{AppliedOwner, Write};
