//! Keys to run, in lanes: one in flight per slot, delays, back-off. Knows nothing of Kubernetes.
