//! Generated from `wit/`: the interfaces that both worlds import. Private to the module `runtime`. Only the types of
//! the imports are used: [`linking`](super::linking) adds the functions one by one. The types of a Pod in either form
//! are those of [`reads`](super::reads).

mod native {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "plugin",
        exports: { default: async },
    });
}

pub(super) use native::podium::reconcile::{log, state, types};
