//! Components from OCI registries: a bounded client of the distribution protocol, and the check of signatures.
//!
//! A registry, every server on its way and every client that may push to it are hostile here. The client
//! connects only to registries that the platform lists, and from there to addresses that it has checked, except through
//! a proxy, which resolves names itself; every answer
//! has a bound on its size and its time; and no byte of a component is returned before the digest of all of them is the
//! expected one. docs/rationale.md says why this is no general client.
//!
//! The crate reads no file and no environment: certificates and credentials come from the caller. Only rustls reads the
//! clock, for the validity of certificates.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests have files and tasks of their own"
    )
)]

mod address;
mod allowed;
mod answer;
mod challenge;
mod client;
pub mod credentials;
mod digest;
mod error;
mod layout;
mod proxy;
mod pull;
mod push;
mod reference;
mod session;
pub mod signature;
mod tls;

pub use allowed::{Allowed, Hops, Registry};
pub use client::{Client, Limits, Resolve, SystemResolver};
pub use credentials::{Credentials, Keyring};
pub use digest::Digest;
pub use error::Error;
pub use proxy::{Proxies, Proxy};
pub use pull::Component;
pub use push::{Artifact, Pushed};
pub use reference::{Host, Reference};
pub use tls::authorities;
