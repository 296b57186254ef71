//! `podium build`: what is printed, and where the component goes.
