//! Components from OCI registries, for plugins: the credentials in pull Secrets, the requests to registries with their
//! failures in the words of a status, and the bytes of components on disk, also of those in ConfigMaps.
//!
//! `podium_registry` has the protocol and `config` the list of registries. `app` decides about the order: a component
//! that is on disk is not pulled again.

mod pull;
mod secret;
mod store;

pub use pull::Images;
pub(crate) use pull::{Access, unlisted};
pub(crate) use secret::credentials;
pub use store::Store;
pub(crate) use store::{Held, MOST_HELD_BYTES};
pub(crate) use store::{Kept, Stored};
