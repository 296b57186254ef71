//! Which plugins a change concerns. Pure.
