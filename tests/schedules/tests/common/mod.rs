//! The number of orders to try, and the schedulers.

use shuttle::{
    Config, Runner,
    scheduler::{PctScheduler, RandomScheduler, Scheduler},
};

/// Runs `test` in many orders of its threads' steps: half of them at random, which switches threads often, and half
/// by priorities that change a few times (PCT), which finds faults that need one thread to pause for long.
///
/// `PODIUM_SCHEDULES` sets the number of orders, `least` by default; a slow test tries one in `share` of
/// `PODIUM_SCHEDULES`. A failure prints a seed: with `PODIUM_SCHEDULES_SEED` set to it and one schedule, the same
/// order is repeated.
pub(crate) fn check(least: usize, share: usize, test: impl Fn() + Send + Sync + Copy + 'static) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let requested = number("PODIUM_SCHEDULES").map(|count| usize::try_from(count).expect("a count") / share);
    let count = requested.unwrap_or(least);
    let seed = number("PODIUM_SCHEDULES_SEED").unwrap_or(7);
    let half = count.div_ceil(2);
    run(RandomScheduler::new_from_seed(seed, half), test);
    for changes in [1, 2, 4] {
        run(PctScheduler::new_from_seed(seed, changes + 1, half.div_ceil(3)), test);
    }
}

fn run(scheduler: impl Scheduler + 'static, test: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 0x40_000;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(test);
}
