//! The sandbox: the only room that knows wasmtime.
