//! From a crate to a component.
