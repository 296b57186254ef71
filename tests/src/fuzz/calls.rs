//! Host calls with arbitrary typed arguments: the bytes are a program of the guest `caller`, which passes them through
//! the generated bindings, so that every call has well-formed arguments of its types.

#![expect(clippy::unwrap_used, reason = "a panic is a finding")]

use podium_runtime::Plugin;

use super::run::Rig;
use crate::guests;

thread_local! {
    static CALLER: (Rig, Plugin) = {
        let rig = Rig::new();
        let plugin = rig.engine.compile(&rig.spec(), &guests::component("caller").unwrap()).unwrap();
        (rig, plugin)
    };
}

pub fn run(input: &[u8]) {
    // A longer value of the state than a plugin can store is refused.
    let input = &input[..input.len().min(64 << 10)];
    CALLER.with(|(rig, plugin)| drop(rig.run(plugin, input)));
}
