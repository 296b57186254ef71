//! Guests written in the text form of WebAssembly: those of `podium demo --hostile`, and the way to write others.

pub use podium_cli::hostile::{ATTACKS, Attack, End, Module, NEIGHBOUR, SPIN, StringEncoding};
