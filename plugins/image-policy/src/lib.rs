//! image-policy
