//! The sandbox against real components: each limit obeyed and violated, grants refused at load and at the call, nothing
//! left behind by a run. The engine is the real one; the world around a run is a small fake.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

mod cpu;
mod egress;
mod grants;
mod javascript;
mod languages;
mod limits;
mod prices;
mod profiles;
mod python;
mod reuse;
mod runs;
mod scripts;
mod table;
mod texts;
mod worlds;
