//! The world `plugin` as wit-bindgen makes it, once for all guests here, and a macro that exports one function.

wit_bindgen::generate!({ path: "../../../wit", world: "plugin", pub_export_macro: true });

pub use exports::podium::reconcile::reconciler::{Failure, Guest, Outcome, Request, Subject};
pub use podium::reconcile::{events, log, objects, pods, state, types, writes};

/// Exports `fn(Request) -> Result<Outcome, Failure>`.
#[macro_export]
macro_rules! guest {
    ($function:path) => {
        struct Exported;
        impl $crate::Guest for Exported {
            fn reconcile(request: $crate::Request) -> Result<$crate::Outcome, $crate::Failure> {
                $function(request)
            }
        }
        $crate::export!(Exported with_types_in $crate);
    };
}
