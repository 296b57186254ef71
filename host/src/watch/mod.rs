//! Turns the API server's list and watch into observations, in order, with nothing lost and nothing going back in time.
