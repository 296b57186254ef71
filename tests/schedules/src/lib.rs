//! Empty: `tests` runs podium-encoding, podium-pods and podium-engine in many orders of their threads' steps, `publish`
//! with `--cfg podium_model="loom"` and the others with `"shuttle"`. `tests/tests/schedules.rs` sets these flags;
//! without them there are no tests.
