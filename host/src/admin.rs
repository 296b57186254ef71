//! The operator's port: /healthz, /readyz, /metrics.
