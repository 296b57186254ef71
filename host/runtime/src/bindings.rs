//! Generated from `wit/`: both worlds, with everything that they share generated once. Private to the module `runtime`.
//! Of the imports only the types are used: [`linking`](super::linking) adds the functions one by one.

/// World `plugin`, and the interfaces that both worlds import.
pub(super) mod native {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "plugin",
        exports: { default: async },
    });
}

/// World `plugin-json`.
pub(super) mod json {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "plugin-json",
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
pub(super) use native::podium::reconcile::{log, pods, state, types};
