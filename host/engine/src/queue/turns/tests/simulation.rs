//! Workers on processors, without threads and clocks: runs have fixed costs, and share the processors equally.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::super::super::{
    Backoff, Claim, Claims, Job, MemoryBudget, Next, Occupancy, slots::Slots, virtual_time::nanos,
};

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(super) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times[(times.len() * percent).div_ceil(100).max(1) - 1]
}

/// A lane is a tenant and a plugin of it.
type Lane = (u32, u32);

#[derive(Debug)]
struct Tenants;

impl Claims<Lane> for Tenants {
    fn claim(&self, (tenant, _): Lane) -> Claim {
        Claim { tenant, bytes: 1 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Plugin {
    cost: Duration,
    /// For how long the run waits after it has computed.
    holds: Duration,
    next: Next,
}

struct Run {
    job: Job<Lane, u32, ()>,
    /// Nanoseconds of the processor, and of waiting after it.
    left: (u64, u64),
}

#[derive(Default)]
struct Figures {
    waited: Vec<Duration>,
    took: Vec<Duration>,
    used: Duration,
}

pub(super) struct Simulation {
    slots: Slots<Lane, u32, ()>,
    processors: u64,
    now: Instant,
    begin: Instant,
    plugins: BTreeMap<Lane, Plugin>,
    running: Vec<Run>,
    /// In order.
    arrivals: VecDeque<(Instant, Lane)>,
    figures: BTreeMap<Lane, Figures>,
    /// Starts: when, tenant, plugin, slot.
    pub(super) trace: Vec<(Duration, u32, u32, u32)>,
}

impl Simulation {
    pub(super) fn new(workers: usize, processors: u32) -> Self {
        let occupancy = Occupancy::new(workers);
        let mut slots = Slots::new(Backoff::default(), occupancy.jobs_of_tenant(), 1);
        slots.turns.set_occupancy(occupancy);
        slots.turns.set_budget(MemoryBudget::new(1_000_000), Arc::new(Tenants));
        let now = Instant::now();
        Self {
            slots,
            processors: processors.into(),
            now,
            begin: now,
            plugins: BTreeMap::new(),
            running: Vec::new(),
            arrivals: VecDeque::new(),
            figures: BTreeMap::new(),
            trace: Vec::new(),
        }
    }

    /// A plugin that settles.
    pub(super) fn plugin(&mut self, tenant: u32, plugin: u32, cost: Duration) {
        self.plugin_with(tenant, plugin, cost, Duration::ZERO, Next::Settled);
    }

    pub(super) fn plugin_with(&mut self, tenant: u32, plugin: u32, cost: Duration, holds: Duration, next: Next) {
        self.plugins.insert((tenant, plugin), Plugin { cost, holds, next });
    }

    /// Adds a number of keys now.
    pub(super) fn add(&mut self, tenant: u32, plugin: u32, keys: u32) {
        (0..keys).for_each(|slot| self.slots.add((tenant, plugin), slot, (), self.now));
    }

    /// Adds one key at a later time. Calls are in the order of the times.
    pub(super) fn arrive(&mut self, after: Duration, tenant: u32, plugin: u32) {
        self.arrivals.push_back((self.now + after, (tenant, plugin)));
    }

    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            while let Some((at, lane)) = self.arrivals.front().copied().filter(|(at, _)| *at <= self.now) {
                self.arrivals.pop_front();
                self.slots.add(lane, u32::MAX, (), at);
            }
            while let Some(job) = self.slots.take(self.now) {
                let plugin = self.plugins[&job.lane];
                self.trace.push((self.now - self.begin, job.lane.0, job.lane.1, job.slot));
                self.figures.entry(job.lane).or_default().waited.push(self.now - job.queued);
                self.running.push(Run { job, left: (nanos(plugin.cost), nanos(plugin.holds)) });
            }
            if self.now >= end {
                return;
            }
            self.step(end);
        }
    }

    /// Advances to the next moment at which something may change.
    fn step(&mut self, end: Instant) {
        let computing = self.running.iter().filter(|run| run.left.0 > 0).count() as u64;
        // Each run has this part of a processor: numerator, denominator.
        let share = (self.processors.min(computing), computing);
        let until = |run: &Run| match run.left {
            (0, waits) => waits,
            (computes, _) => (computes * share.1).div_ceil(share.0),
        };
        let times = [Some(end), self.arrivals.front().map(|(at, _)| *at), self.slots.next_due()];
        let next = times.into_iter().flatten().min().map_or(0, |at| nanos(at.saturating_duration_since(self.now)));
        let passed = self.running.iter().map(until).min().map_or(next, |run| run.min(next));
        self.now += Duration::from_nanos(passed);
        for run in &mut self.running {
            match &mut run.left {
                (0, waits) => *waits = waits.saturating_sub(passed),
                (computes, _) => *computes = computes.saturating_sub((passed * share.0).div_ceil(share.1)),
            }
        }
        let (ended, running) = std::mem::take(&mut self.running).into_iter().partition(|run| run.left == (0, 0));
        self.running = running;
        for Run { job, .. } in Vec::<Run>::from_iter::<Vec<Run>>(ended) {
            let plugin = self.plugins[&job.lane];
            let figures = self.figures.entry(job.lane).or_default();
            figures.took.push(self.now - job.queued);
            figures.used += plugin.cost;
            self.slots.turns.ran(job.number, Some(plugin.cost), self.now);
            self.slots.done(&job, plugin.next, self.now);
        }
    }

    /// The times from the event to the start of the run.
    pub(super) fn waited(&self, tenant: u32, plugin: u32) -> Vec<Duration> {
        self.figures[&(tenant, plugin)].waited.clone()
    }

    /// The times from the event to the end of the run.
    pub(super) fn took(&self, tenant: u32, plugin: u32) -> Vec<Duration> {
        self.figures[&(tenant, plugin)].took.clone()
    }

    /// How many runs of the tenant have ended.
    pub(super) fn runs(&self, tenant: u32) -> usize {
        self.figures(tenant).map(|figures| figures.took.len()).sum()
    }

    pub(super) fn used(&self, tenant: u32) -> Duration {
        self.figures(tenant).map(|figures| figures.used).sum()
    }

    pub(super) fn used_by(&self, tenant: u32, plugin: u32) -> Duration {
        self.figures[&(tenant, plugin)].used
    }

    fn figures(&self, tenant: u32) -> impl Iterator<Item = &Figures> {
        self.figures.range((tenant, 0)..=(tenant, u32::MAX)).map(|(_, figures)| figures)
    }
}
