//! What is happening: counters and latencies by plugin, as plain data. Pure.
