//! Hostile components in the text form of WebAssembly, which need no compilation target: those of `podium demo
//! --hostile` and of the hostile suite.

mod attacks;
mod module;

pub use attacks::{ATTACKS, Attack, End, NEIGHBOUR, SPIN};
pub use module::{Module, StringEncoding};
