//! crashloop-triage
