//! The runner of scripts in JavaScript: a component of the world `script` that executes any script on QuickJS.
//!
//! `prepare` compiles a script once, and a run executes the bytes that `program.code` returns. A run is a function of
//! its request and of the host's answers: the clock stands still at the request's time, and the seed of `Math.random`
//! comes from the request.
//!
//! [`engine`] has QuickJS, [`calls`] the host's functions, and `podium.js` the module that scripts import; its types
//! are in `podium.d.ts`. The crate knows nothing of grants: the host links only functions that the script may call.
#![cfg(target_arch = "wasm32")]

mod calls;
mod engine;

#[expect(unsafe_code, unreachable_pub, reason = "the generated exports")]
mod bindings {
    wit_bindgen::generate!({ path: "../../wit", world: "script", pub_export_macro: true });

    use super::Runner;
    export!(Runner with_types_in self);
}

use bindings::exports::podium::reconcile::{
    preparation::{self, ScriptError},
    reconciler_json::{self, Failure, Outcome, Request},
};

struct Runner;

impl preparation::Guest for Runner {
    fn prepare(source: String) -> Result<Vec<u8>, ScriptError> {
        engine::prepare(source)
    }
}

impl reconciler_json::Guest for Runner {
    fn reconcile(request: Request) -> Result<Outcome, Failure> {
        engine::run(request)
    }
}
