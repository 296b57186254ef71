//! Tests of delivery to a scripted API server, of owners of objects, of Events, and of an
//! overloaded API server.

mod delivery;
mod events;
mod overload;
mod owners;
