//! Reads that ask the API server itself.
