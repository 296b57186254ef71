//! spread-guard
