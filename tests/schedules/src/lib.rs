//! Nothing: `tests` runs podium-pods and podium-engine in many orders of their threads' steps, `publish` with
//! `--cfg podium_model="loom"` and the others with `"shuttle"`. Without one of these there is nothing to run;
//! `tests/tests/schedules.rs` sets them.
