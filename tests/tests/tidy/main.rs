//! The suites that read the checkout: the map of the code, the prose, the commands that run tests, and faults that are
//! put into the code on purpose.

mod architecture;
mod cookbook;
mod languages;
mod limits;
mod prose;
mod recipes;
mod seeded_faults;
