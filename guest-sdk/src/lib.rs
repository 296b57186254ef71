//! Write a Kubernetes reconciler as one plain function; Podium runs it in a sandbox.
//!
//! ```
//! use podium_sdk::{Outcome, Request, Result, reconciler};
//!
//! reconciler!(reconcile);
//!
//! fn reconcile(request: &Request) -> Result<Outcome> {
//!     let Some(pod) = request.pod() else { return Ok(Outcome::settled()) };
//!     if pod.label("team")?.is_none() {
//!         pod.set_label("team", "unowned")?;
//!     }
//!     Ok(Outcome::settled())
//! }
//! ```
//!
//! This is a whole plugin. The host calls `reconcile` with a Pod after a change of something that the plugin's
//! configuration watches, and never passes the change itself: compare the Pod's state with the desired one, and stage
//! the difference.
//!
//! - **Read** the Pod of the run with [`Request::pod`] and the accessors of [`Pod`], others with [`pods`]. All reads
//!   of a run see one snapshot. A section that the configuration does not grant is an error, never an empty one.
//!   [`objects`] reads objects of other kinds from the API server, and scales them.
//! - **Write** by staging: [`Pod::set_label`] and similar methods, [`writes`] by key, [`Pod::emit`] for an [`Event`].
//!   Staged writes are sent after the run succeeded; a run that fails or panics sends nothing. A staged write that
//!   would change nothing costs no request. [`writes::commit`] sends at once, for a plugin that needs the response.
//! - **Return** an [`Outcome`]: settled, or a requeue after a time. Or return an [`Error`]: `?` on any error causes a
//!   retry with back-off, [`Error::terminal`] waits for a change.
//! - **Settle.** Derive everything from the object, so that a second run on the same Pod stages nothing: no
//!   timestamps and no counters in annotations, no [`Event`] without a visible change. [`state`] is a cache that may
//!   be lost, and [`Request::now`] the only clock.
//! - **Configure** with [`Request::config`], **log** with [`log`].
//! - **Test** natively: under `cargo test` the same function runs against `testing::Host`, an in-memory fake of the
//!   host that reads the plugin's own configuration file.
//!
//! ```
//! # use podium_sdk::{Outcome, Request, Result};
//! # fn reconcile(request: &Request) -> Result<Outcome> {
//! #     let Some(pod) = request.pod() else { return Ok(Outcome::settled()) };
//! #     if pod.label("team")?.is_none() { pod.set_label("team", "unowned")?; }
//! #     Ok(Outcome::settled())
//! # }
//! use podium_sdk::testing::{Host, Write, pod};
//!
//! let mut host = Host::with_pods([pod("shop", "cart-0")]);
//! host.reconcile(reconcile, "shop", "cart-0").assert_writes([Write::set_label("shop/cart-0", "team", "unowned")]);
//! host.reconcile(reconcile, "shop", "cart-0").assert_quiet();
//! ```
//!
//! The crate is of type `["cdylib", "rlib"]`; `podium build` makes the component. The component imports exactly the
//! host calls that the plugin uses, and the host refuses to load one that can do more than its configuration grants.
//!
//! Types that may gain variants or fields are `non_exhaustive`. Structs of a Pod ([`Spec`], [`Status`],
//! [`Lifecycle`]) are not, so that tests can construct them: end such a literal with `..Spec::default()`, and a new
//! field breaks nothing. Names ([`PodKey`], [`ObjectRef`]), the structs in a Pod's lists and Kubernetes' own closed
//! sets of values do not change.
//!
//! The SDK has no clock, random numbers, files or network on purpose. A run is a function of its request and of the
//! host's answers, so it can be recorded and replayed.

#![warn(missing_docs)]

pub mod events;
pub mod log;
pub mod objects;
pub mod pods;
pub mod state;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;
pub mod writes;

mod duration;
mod error;
mod event;
mod host;
mod key;
mod outcome;
mod pod;
mod quantity;
mod request;

pub use duration::duration;
pub use error::{CallError, Error, Result, ResultExt};
pub use event::{Event, EventType};
pub use key::{ObjectOwner, ObjectRef, PodKey};
pub use outcome::Outcome;
pub use pod::Pod;
pub use podium_wire::{
    Annotations, Condition, ConditionStatus, Container, ContainerState, ContainerStatus, InvalidTimestamp, Labels,
    Lifecycle, Owner, Port, RestartPolicy, Spec, Status, Timestamp, Toleration, Volume, Workload,
};
pub use quantity::{InvalidQuantity, Quantity};
pub use request::Request;
pub use serde_json::{Value, json};
pub use writes::{WriteId, WriteReport, WriteResult};

/// The example there compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// A plugin's function: `fn(&Request) -> Result<Outcome>`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no reconciler",
    label = "must be a `fn(&podium_sdk::Request) -> podium_sdk::Result<podium_sdk::Outcome>`"
)]
pub trait Reconciler: Fn(&Request) -> Result<Outcome> {}

impl<F: Fn(&Request) -> Result<Outcome>> Reconciler for F {}

/// Names a function as a reconciler, so that a function of another type does not compile.
#[doc(hidden)]
pub const fn is_reconciler<F: Reconciler>(_: &F) {}

/// Exports a function as the plugin: `reconciler!(reconcile);`, once per crate.
///
/// A function of another type does not compile, and neither does a second `reconciler!`:
///
/// ```compile_fail,E0631
/// # use podium_sdk::{Outcome, Request, Result, reconciler};
/// fn reconcile(request: Request) -> Result<Outcome> {
///     Ok(Outcome::settled())
/// }
/// reconciler!(reconcile);
/// # fn main() {}
/// ```
///
/// ```compile_fail,E0428
/// # use podium_sdk::{Outcome, Request, Result, reconciler};
/// # fn reconcile(_: &Request) -> Result<Outcome> {
/// #     Ok(Outcome::settled())
/// # }
/// reconciler!(reconcile);
/// reconciler!(reconcile);
/// # fn main() {}
/// ```
///
/// The function is a `fn(&Request) -> Result<Outcome>` and is not changed, so tests call it like any other.
#[macro_export]
macro_rules! reconciler {
    ($function:path) => {
        // The name in the compiler's message about a second `reconciler!`.
        #[allow(dead_code, non_camel_case_types, reason = "its name is a message")]
        enum a_plugin_has_one_reconciler {}

        // A component has the check in `run`, so that the compiler reports it once.
        #[cfg(not(target_arch = "wasm32"))]
        const _: () = $crate::is_reconciler(&$function);

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            struct Plugin;

            impl $crate::__private::Guest for Plugin {
                fn reconcile(
                    request: $crate::__private::Request,
                ) -> ::core::result::Result<$crate::__private::Outcome, $crate::__private::Failure> {
                    $crate::__private::run($function, request)
                }
            }

    $crate::__private::export!(Plugin with_types_in $crate::__private::bindings);
        };
    };
}

/// Items that the expansion of [`reconciler!`] names. Not for authors; they may change in any release.
#[cfg(target_arch = "wasm32")]
#[doc(hidden)]
pub mod __private {
    pub use crate::host::component::{
        Guest,
        bindings::{
            self, export,
            exports::podium::reconcile::reconciler::Request,
            podium::reconcile::types::{Failure, Outcome},
        },
        run,
    };
}
