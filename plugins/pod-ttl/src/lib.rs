//! pod-ttl
