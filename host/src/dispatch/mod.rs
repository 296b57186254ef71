//! One run from key to settled.
