//! Tests of delivery to an API server that is scripted, of Events, and of an overloaded API server.

mod delivery;
mod events;
mod overload;
