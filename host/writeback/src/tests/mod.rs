//! Tests of delivery to a scripted API server, of objects of other kinds and their owners, of Events, and of an
//! overloaded API server.

mod changed;
mod children;
mod delivery;
mod events;
mod overload;
mod owners;
mod scale;
mod wire;
