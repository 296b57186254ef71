//! Generated from `wit/`: both worlds, with everything that they share generated once. Private to the module `runtime`.

/// World `plugin`, and the interfaces that both worlds import.
pub(super) mod native {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "plugin",
        imports: {
            // The two calls that wait for the API server.
            "podium:reconcile/writes.commit": async,
            "podium:reconcile/pods.get-live": async,
            // Long searches let other tasks run.
            "podium:reconcile/pods.find": async,
            "podium:reconcile/pods.count": async,
        },
        exports: { default: async },
    });
}

/// World `plugin-json`.
pub(super) mod json {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "plugin-json",
        imports: {
            "podium:reconcile/pods-json.get-live": async,
            "podium:reconcile/pods-json.find": async,
            "podium:reconcile/pods-json.count": async,
        },
        exports: { default: async },
        with: {
            "podium:reconcile/types": super::native::podium::reconcile::types,
            "podium:reconcile/writes": super::native::podium::reconcile::writes,
            "podium:reconcile/events": super::native::podium::reconcile::events,
            "podium:reconcile/state": super::native::podium::reconcile::state,
            "podium:reconcile/log": super::native::podium::reconcile::log,
        },
    });
}

pub(super) use json::podium::reconcile::pods_json;
pub(super) use native::podium::reconcile::{events, log, pods, state, types, writes};
