//! The four kinds of patch. Each is a pure function from an object and a patch to an object.

pub(crate) mod apply;
pub(crate) mod json;
pub(crate) mod lists;
pub(crate) mod merge;
pub(crate) mod strategic;
