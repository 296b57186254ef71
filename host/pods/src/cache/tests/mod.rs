//! Tests of the cache as a whole. Those of one file are at its end.

mod properties;
