//! The host calls, one function each, in the SDK's own types: the generated bindings in a component, the fake of
//! `testing` elsewhere. No other module of this crate depends on where it runs.
//!
//! Each import has its own function: a component imports the functions that it can reach, so its imports list what it
//! can do.

#[cfg(target_arch = "wasm32")]
pub(crate) mod component;

#[cfg(target_arch = "wasm32")]
pub(crate) use component::calls::*;

#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::testing::calls::*;

/// A page of `pods.find`.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Each record is preceded by its length.
    pub(crate) pods: Vec<u8>,
    /// The value of `after` for the next call.
    pub(crate) next: Option<String>,
}

/// Returns what to use instead of the function of `std` that panicked with this message, if one did.
#[cfg(any(test, target_arch = "wasm32"))]
fn advice(panic: &str) -> &'static str {
    match panic {
        "time not implemented on this platform" => "; a plugin has no clock of its own: use request.now()",
        _ if panic.contains("not supported on this platform") || panic.contains("not implemented on this platform") => {
            "; a plugin has no threads, files or sockets"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_panic_of_a_missing_part_of_std_has_advice() {
        assert!(super::advice("time not implemented on this platform").contains("use request.now()"));
        let thread = "failed to spawn thread: Error { kind: Unsupported, message: \"operation not supported on this \
                      platform\" }";
        assert!(super::advice(thread).contains("no threads"));
        assert_eq!(super::advice("called `Option::unwrap()` on a `None` value"), "");
    }
}
