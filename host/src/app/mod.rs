//! Builds the rooms, spawns, joins, shuts down.
