//! Tests of delivery to a scripted API server, of Events, and of an overloaded API server.

mod delivery;
mod events;
mod overload;
