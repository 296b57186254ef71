//! The Pods: one Writer, many Readers, immutable snapshots.
