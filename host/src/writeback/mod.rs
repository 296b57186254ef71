//! From authorised writes to the fewest API requests (plan, pure) and back with reports (apply, IO).
