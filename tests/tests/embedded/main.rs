//! The suites that need no process of their own and no control plane: the sandbox, the whole host on the embedded
//! cluster, and the programs as their users run them. One binary, because linking the host takes longer than most of
//! them.

mod cancel;
mod cases;
mod children;
mod command_line;
mod compile;
mod cookbook;
mod deploy;
mod host;
mod inputs;
mod packages;
mod podium;
mod regressions;
mod residue;
mod sandbox;
mod taint;
mod test_host;
