//! Generated from `wit/`: the interfaces that both worlds import. Private to the module `runtime`. Of the imports only the
//! types are used: [`linking`](super::linking) adds the functions one by one. The types in which a Pod is, of the two
//! forms, are those of [`reads`](super::reads).

mod native {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "plugin",
        exports: { default: async },
    });
}

pub(super) use native::podium::reconcile::{log, state, types};
