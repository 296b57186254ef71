//! workload-label
