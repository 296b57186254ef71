//! Which lane is next: first the tenant that was charged least, then that tenant's lane that was charged least.
//!
//! The last place of a tenant is for a lane that has no job, if one is due: a plugin whose runs take long does not
//! hold up another one of its tenant for more than one run.
//!
//! A tenant is passed over while it has as many jobs as one tenant may have, while too little memory is free for its
//! jobs, and, if one worker is left, while its runs hold workers for long. A lane without tokens for its next job is
//! not looked at until it has them ([`budget`]). Each operation takes a time that grows with
//! the logarithm of the number of lanes and in proportion to the number of different sizes of jobs.
//!
//! Nothing here waits, and the time is an argument of every call.

mod board;
mod budget;
mod remembered;
mod tenant;

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::Arc,
    time::Duration,
};

use board::{Board, Listing};
use budget::{LaneTokens, Timer};
use foldhash::quality::FixedState;
pub use remembered::Remembered;
use tenant::{Tenant, Wait};
use tokio::time::Instant;

use super::{
    admission::{Claim, Claims, MemoryBudget, Occupancy},
    tokens::KINDS,
    virtual_time::{Account, Key, Present, nanos},
};

/// The charge for every job beside its run: the host takes the key, reads the cache and returns the key.
pub(super) const JOB: Duration = Duration::from_micros(10);
/// For how much longer than its own time a run may hold its worker: it waits for a sandbox, which loads of plugins use
/// too, for the API server's answers to commits and live reads, and for commits of other runs of its plugin.
const WAITS: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Turns<L> {
    /// Jobs that one lane may have at a time.
    lane_limit: usize,
    occupancy: Occupancy,
    budget: MemoryBudget,
    /// `None`: each lane is a tenant, and jobs take no memory.
    claims: Option<Arc<dyn Claims<L>>>,
    lanes: HashMap<L, Lane, FixedState>,
    tenants: HashMap<u32, Tenant<L>, FixedState>,
    present: Present,
    board: Board,
    /// Lanes that began to wait for tokens or memory, for the one that looks at what waits for them.
    pub(super) delayed: Vec<L>,
    /// When lanes that wait for tokens may have them.
    timers: BTreeMap<(Instant, u64), Timer<L>>,
    /// The worker, the memory and the place that jobs hold, by the job's number.
    taken: HashMap<u64, Taken<L>, FixedState>,
    /// Bytes of all runs under way.
    memory: u64,
    /// Runs under way.
    running: usize,
    /// Jobs that have started so far.
    started: u64,
    numbers: u64,
}

#[derive(Debug)]
struct Lane {
    account: Account,
    tenant: u32,
    bytes: u64,
    stage: Stage,
    /// Its key in its group, if it is in it.
    listed: Option<Key>,
    /// Jobs that are not done, also of the time before the lane was removed and used again.
    jobs: usize,
    /// Those of them that have a place.
    placed: usize,
    /// The cost of its latest runs, in nanoseconds.
    estimate: u64,
    tokens: LaneTokens,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It was removed, and not used since.
    Removed,
    /// It has no due slot.
    Idle,
    /// It has a due slot.
    Due,
}

#[derive(Debug, Clone, Copy)]
struct Taken<L> {
    lane: L,
    claim: Claim,
    charged: u64,
    since: Instant,
    /// The run is under way.
    running: bool,
    /// Its requests were sent, and it has no place any more.
    sent: bool,
}

/// The jobs, the waiting keys and the debt of a tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TenantFigures {
    /// Runs under way.
    pub runs: usize,
    /// Jobs under way whose run has ended.
    pub deliveries: usize,
    /// Keys that are due and not yet taken.
    pub waiting: usize,
    /// Those of them that have been due for more than 30 s.
    pub stale: usize,
    /// Those of them whose lane waits for tokens.
    pub without_tokens: usize,
    /// Requests of runs that were refused for want of tokens since the queue has the tenant, by the kind of
    /// the tokens.
    pub refused: [u64; KINDS],
    /// The cost by which the tenant is ahead of the tenant whose turn it is.
    pub debt: Duration,
}

impl<L> Turns<L>
where
    L: Copy + Eq + Hash,
{
    pub(super) fn new(lane_limit: usize, hasher: &FixedState) -> Self {
        Self {
            lane_limit: lane_limit.max(1),
            occupancy: Occupancy::UNLIMITED,
            budget: MemoryBudget::UNLIMITED,
            claims: None,
            lanes: HashMap::with_hasher(hasher.clone()),
            tenants: HashMap::with_hasher(hasher.clone()),
            present: Present::default(),
            board: Board::default(),
            delayed: Vec::new(),
            timers: BTreeMap::new(),
            taken: HashMap::with_hasher(hasher.clone()),
            memory: 0,
            running: 0,
            started: 0,
            numbers: 0,
        }
    }

    pub(super) fn set_budget(&mut self, budget: MemoryBudget, claims: Arc<dyn Claims<L>>) {
        self.budget = budget;
        self.claims = Some(claims);
    }

    pub(super) fn set_occupancy(&mut self, occupancy: Occupancy) {
        self.occupancy = occupancy;
    }

    /// Records whether the lane has a due slot, and reads the present claim of its jobs.
    pub(super) fn due(&mut self, lane: L, due: bool, now: Instant) {
        let claim = self.claim(lane);
        match self.lanes.get(&lane) {
            None if !due => return,
            None => self.open(lane, claim, now),
            Some(state) if (state.tenant, state.bytes) != (claim.tenant, claim.bytes) => self.move_to(lane, claim, now),
            Some(_) => {}
        }
        if let Some(claims) = &self.claims {
            let demand = claims.demand(lane);
            self.set_demand(lane, &demand, now);
        }
        self.set_due(lane, due, now);
    }

    /// Records whether a lane whose job has just started has another due slot. Its claim was read for that job.
    pub(super) fn set_due(&mut self, lane: L, due: bool, now: Instant) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.stage = match state.stage {
                Stage::Removed | Stage::Idle if due => Stage::Due,
                Stage::Due if !due => Stage::Idle,
                Stage::Removed | Stage::Idle | Stage::Due => state.stage,
            };
        }
        self.place(lane, now);
    }

    /// Returns the next lane of which a job may start, after it has read its claim. The caller calls [`Self::start`]
    /// for it, unless the lane has no due slot after all, and [`Self::set_due`].
    pub(super) fn next(&mut self, now: Instant) -> Option<L> {
        self.hand_out(now);
        loop {
            let lane = self.choose(now)?;
            let claim = self.claim(lane);
            let is_current = |state: &Lane| (state.tenant, state.bytes) == (claim.tenant, claim.bytes);
            if self.lanes.get(&lane).is_some_and(is_current) {
                return Some(lane);
            }
            self.due(lane, true, now);
        }
    }

    /// Starts a job of the lane, and charges the cost of the lane's latest runs in advance. The caller calls
    /// [`Self::set_due`] next.
    pub(super) fn start(&mut self, lane: L, job: u64, now: Instant) -> Option<Claim> {
        self.numbers += 1;
        self.started += 1;
        self.running += 1;
        let turn = self.numbers;
        let number = self.lanes.get(&lane)?.tenant;
        if let Some(tenant) = self.tenants.get_mut(&number)
            && let Some((first, ..)) = tenant.least()
        {
            tenant.present.advance(first);
        }
        let state = self.lanes.get_mut(&lane)?;
        let claim = Claim { tenant: state.tenant, bytes: state.bytes };
        state.stage = Stage::Idle;
        let charged = state.estimate.max(nanos(JOB));
        state.account.charge(charged, turn);
        state.jobs += 1;
        state.placed += 1;
        self.memory = self.memory.saturating_add(claim.bytes);
        let taken = Taken { lane, claim, charged, since: now, running: true, sent: false };
        self.taken.insert(job, taken);
        if let Some(tenant) = self.tenants.get_mut(&claim.tenant) {
            tenant.account.charge(charged, turn);
            tenant.runs += 1;
            tenant.jobs += 1;
            tenant.memory = tenant.memory.saturating_add(claim.bytes);
        }
        self.place(lane, now);
        self.claims.is_some().then_some(claim)
    }

    /// Frees the worker and the memory of a job and charges what its run cost; `None` if nothing was run. Once for
    /// each job: returns false after that.
    pub(super) fn ran(&mut self, job: u64, cost: Option<Duration>, now: Instant) -> bool {
        let Some(taken) = self.taken.get_mut(&job).filter(|taken| taken.running) else { return false };
        taken.running = false;
        let Taken { lane, claim, charged, since, .. } = *taken;
        self.running -= 1;
        self.memory = self.memory.saturating_sub(claim.bytes);
        let used = nanos(JOB + cost.unwrap_or_default());
        self.correct((claim.tenant, lane), charged, used);
        if let Some(tenant) = self.tenants.get_mut(&claim.tenant) {
            tenant.runs -= 1;
            tenant.memory = tenant.memory.saturating_sub(claim.bytes);
            tenant.lately.ran(now.saturating_duration_since(since), used, now);
            if cost.is_some()
                && let Some(state) = self.lanes.get_mut(&lane).filter(|state| state.tenant == claim.tenant)
            {
                // A quarter of the latest, so that one unusual run does not decide.
                state.estimate = state.estimate - state.estimate / 4 + used / 4;
            }
        }
        self.place(lane, now);
        self.serve(claim.tenant, now);
        true
    }

    /// Charges a cost that no job had to a lane and its tenant.
    pub(super) fn charge_cost(&mut self, lane: L, cost: Duration, now: Instant) {
        if !self.lanes.contains_key(&lane) {
            self.open(lane, self.claim(lane), now);
        }
        let Some(tenant) = self.lanes.get(&lane).map(|state| state.tenant) else { return };
        self.correct((tenant, lane), 0, nanos(cost));
        self.place(lane, now);
    }

    /// Replaces a cost that a tenant and its lane were charged.
    fn correct(&mut self, (number, lane): (u32, L), charged: u64, used: u64) {
        let Some(tenant) = self.tenants.get_mut(&number) else { return };
        tenant.account.correct(charged, used);
        if let Some(state) = self.lanes.get_mut(&lane).filter(|state| state.tenant == number) {
            state.account.correct(charged, used);
        }
    }

    /// Ends a job.
    pub(super) fn done(&mut self, job: u64, now: Instant) {
        self.sent(job, now);
        let Some(Taken { lane, .. }) = self.taken.remove(&job) else { return };
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.jobs -= 1;
            if state.stage == Stage::Removed && state.jobs == 0 {
                self.lanes.remove(&lane);
            }
        }
    }

    /// Frees the place of a job whose run has ended and whose requests were sent.
    pub(super) fn sent(&mut self, job: u64, now: Instant) {
        self.ran(job, None, now);
        let Some(taken) = self.taken.get_mut(&job).filter(|taken| !taken.sent) else { return };
        taken.sent = true;
        let Taken { lane, claim, .. } = *taken;
        if let Some(tenant) = self.tenants.get_mut(&claim.tenant) {
            tenant.jobs -= 1;
        }
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.placed -= 1;
        }
        self.place(lane, now);
        self.serve(claim.tenant, now);
    }

    /// The lane was removed. Without jobs, nothing is kept of it.
    pub(super) fn remove(&mut self, lane: L, now: Instant) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        state.stage = Stage::Removed;
        let has_jobs = state.jobs > 0;
        self.place(lane, now);
        if !has_jobs {
            self.lanes.remove(&lane);
        }
    }

    /// True if a job may start now, perhaps except for memory.
    pub(super) fn has_next(&self) -> bool {
        !self.board.is_empty() && self.has_idle_worker()
    }

    /// True if fewer runs are under way than there are workers.
    pub(super) fn has_idle_worker(&self) -> bool {
        self.occupancy.idle(self.running) > 0
    }

    /// True while each worker has a run, and one of them may go on for longer.
    pub(super) fn is_busy(&self, now: Instant) -> bool {
        let may_go_on = |taken: &Taken<L>| {
            let hold = self.claims.as_ref().map_or(Duration::ZERO, |claims| claims.hold(taken.lane));
            taken.running && now < taken.since + hold + WAITS
        };
        !self.has_idle_worker() && self.taken.values().any(may_go_on)
    }

    /// True while a job is not done.
    pub(super) fn is_running(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Returns what each tenant has, by number. `waiting` returns how many keys of a lane are due, and how many of
    /// them are stale.
    pub(super) fn figures(&self, waiting: impl Fn(L) -> (usize, usize)) -> BTreeMap<u32, TenantFigures> {
        let of = |(number, tenant): (&u32, &Tenant<L>)| {
            let deliveries = tenant.jobs - tenant.runs;
            let debt = self.present.debt(tenant.account);
            let runs = tenant.runs;
            let refused = tenant.tokens.refused;
            (*number, TenantFigures { runs, deliveries, waiting: 0, stale: 0, without_tokens: 0, refused, debt })
        };
        let mut figures: BTreeMap<_, _> = self.tenants.iter().map(of).collect();
        for (lane, state) in &self.lanes {
            if let Some(of) = figures.get_mut(&state.tenant) {
                let (keys, stale) = waiting(*lane);
                of.waiting += keys;
                of.stale += stale;
                of.without_tokens += if state.tokens.is_waiting() { keys } else { 0 };
            }
        }
        figures
    }

    pub(super) fn rest(&self, lane: L) -> Option<Duration> {
        self.claims.as_ref().map(|claims| claims.rest(lane)).filter(|rest| !rest.is_zero())
    }

    fn claim(&self, lane: L) -> Claim {
        if let Some(claims) = &self.claims {
            return claims.claim(lane);
        }
        let unused = || self.tenants.keys().max().map_or(0, |last| last.saturating_add(1));
        Claim { tenant: self.lanes.get(&lane).map_or_else(unused, |state| state.tenant), bytes: 0 }
    }

    fn open(&mut self, lane: L, claim: Claim, now: Instant) {
        let account = self.open_account(claim.tenant, now);
        let Claim { tenant, bytes } = claim;
        let tokens = LaneTokens::new(now);
        let state =
            Lane { account, tenant, bytes, stage: Stage::Idle, listed: None, jobs: 0, placed: 0, estimate: 0, tokens };
        self.lanes.insert(lane, state);
    }

    /// Returns the account of a lane that is new to the tenant.
    fn open_account(&mut self, tenant: u32, now: Instant) -> Account {
        self.numbers += 2;
        let number = self.numbers;
        let present = self.present;
        self.tenants.entry(tenant).or_insert_with(|| Tenant::new(present.open(number - 1), now)).present.open(number)
    }

    /// Moves the lane to the group, and perhaps the tenant, of another claim.
    fn move_to(&mut self, lane: L, claim: Claim, now: Instant) {
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        let old = state.tenant;
        if state.stage == Stage::Due {
            state.stage = Stage::Idle;
        }
        self.place(lane, now);
        let account = (old != claim.tenant).then(|| self.open_account(claim.tenant, now));
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.tenant = claim.tenant;
            state.bytes = claim.bytes;
            state.account = account.unwrap_or(state.account);
        }
    }

    /// Places the lane and its tenant where they belong. Called after whatever changes them.
    fn place(&mut self, lane: L, now: Instant) {
        self.put(lane, now);
        if let Some(number) = self.lanes.get(&lane).map(|state| state.tenant) {
            self.serve(number, now);
        }
    }

    /// True if the lane's own jobs permit another one.
    fn may_start(&self, lane: &Lane) -> bool {
        lane.stage == Stage::Due && lane.placed < self.lane_limit
    }

    /// Moves the lane into its group if it may start a job, else among those that wait for tokens, or nowhere.
    fn put(&mut self, lane: L, now: Instant) {
        let Some(state) = self.lanes.get(&lane) else { return };
        let is_open = if self.may_start(state) { self.is_open(lane, now) } else { self.end_waiting(lane) };
        let Some(state) = self.lanes.get_mut(&lane) else { return };
        let Some(tenant) = self.tenants.get_mut(&state.tenant) else { return };
        let listed = state.listed.take();
        listed.iter().for_each(|key| tenant.remove(state.bytes, key));
        if is_open {
            if listed.is_none() {
                tenant.present.cap_credit(&mut state.account);
                // Its successors pass it as those of the lanes that were there when the wait began.
                self.delayed.extend(tenant.wait.filter(|wait| wait.bytes <= state.bytes).map(|_| lane));
            }
            state.listed = Some(state.account.key());
            tenant.insert(state.bytes, state.account.key(), lane, state.placed);
        } else if listed.is_some() {
            tenant.wait = tenant.wait.filter(|wait| wait.lane != lane);
            tenant.tokens.admitted = tenant.tokens.admitted.filter(|admitted| *admitted != lane);
        }
    }

    /// Lists the tenant on the board if it may start a job, where it belongs now.
    fn refresh(&mut self, number: u32, now: Instant) {
        let Some(tenant) = self.tenants.get_mut(&number) else { return };
        let runs = self.occupancy.runs_of_tenant();
        let jobs = self.occupancy.jobs_of_tenant();
        if tenant.groups.is_empty() || tenant.runs >= runs || tenant.jobs >= jobs {
            self.board.set(number, tenant, None);
            return;
        }
        tenant.has_last_place = tenant.runs + 1 == runs || tenant.jobs + 1 == jobs;
        self.present.cap_credit(&mut tenant.account);
        let left = self.budget.left_of_tenant(tenant.memory);
        self.wait_beyond(number, self.budget.of_tenant(), left, now);
        let Some(tenant) = self.tenants.get_mut(&number) else { return };
        let least = match &tenant.wait {
            // Nothing else of the tenant starts before.
            Some(wait) if wait.is_overdue(self.started, now) => wait.bytes,
            Some(_) | None => tenant.groups.first_key_value().map_or(u64::MAX, |(bytes, _)| *bytes),
        };
        let wait = tenant.wait.filter(|wait| wait.bytes <= left).map(|wait| wait.number);
        let place = (!tenant.lately.is_light(now), least);
        let listing = Listing { place, key: tenant.account.key(), wait };
        self.board.set(number, tenant, (least <= left).then_some(listing));
    }

    /// The tenant's next job of those that take at most `fits` bytes begins to wait if it takes more than `most`.
    fn wait_beyond(&mut self, number: u32, fits: u64, most: u64, now: Instant) {
        let Some(tenant) = self.tenants.get_mut(&number).filter(|tenant| tenant.wait.is_none()) else { return };
        let Some((_, bytes, lane)) = tenant.first_within(fits).filter(|(_, bytes, _)| *bytes > most) else { return };
        self.numbers += 1;
        tenant.wait = Some(Wait { number: self.numbers, lane, bytes, since: now, from: self.started });
        self.delayed.extend(tenant.listed(bytes));
    }

    /// True if the lane waits for tokens.
    pub(super) fn waits_for_tokens(&self, lane: L) -> bool {
        self.lanes.get(&lane).is_some_and(|state| state.tokens.is_waiting())
    }

    /// True if the lane waits for tokens or memory. Lanes that would otherwise go after it do not wait for it then.
    pub(super) fn is_delayed(&self, lane: L) -> bool {
        let Some(state) = self.lanes.get(&lane) else { return false };
        let wait = self.tenants.get(&state.tenant).and_then(|tenant| tenant.wait);
        let waits_for_memory = state.bytes > self.budget.of_tenant() || wait.is_some_and(|it| it.bytes <= state.bytes);
        state.tokens.is_waiting() || waits_for_memory
    }

    fn choose(&mut self, now: Instant) -> Option<L> {
        loop {
            let idle = self.occupancy.idle(self.running);
            if idle == 0 {
                return None;
            }
            let only_light = idle <= self.occupancy.kept();
            let free = self.budget.left(self.memory);
            let longest = self.board.longest(only_light).and_then(|number| self.tenants.get(&number)?.wait);
            let overdue = longest.filter(|wait| wait.is_overdue(self.started, now));
            let most = match overdue {
                Some(wait) if wait.bytes <= free => return Some(wait.lane),
                // All free memory is kept for it.
                Some(_) => 0,
                None => free,
            };
            let first = self.board.first(only_light, most, (0, 0));
            if overdue.is_none() {
                self.pass(only_light, free, first, now);
            }
            let (_, number) = first?;
            let tenant = self.tenants.get(&number)?;
            let most = most.min(self.budget.left_of_tenant(tenant.memory));
            let overdue = tenant.wait.filter(|wait| wait.is_overdue(self.started, now));
            let next = match overdue {
                Some(wait) => (wait.bytes <= most).then_some(wait.lane),
                None => tenant.first_within(most).map(|(.., lane)| lane),
            };
            if next.is_some() {
                return next;
            }
            // Since it was listed its wait has become overdue.
            self.refresh(number, now);
        }
    }

    /// The jobs that would come before the one of `first` begin to wait for memory. If the very first one waits, those
    /// after it began to wait when it did.
    fn pass(&mut self, only_light: bool, free: u64, first: Option<(Key, u32)>, now: Instant) {
        if let Some((head, _)) = self.board.first(false, free, (0, 0)) {
            self.present.advance(head);
        }
        let mut next = self.board.first(only_light, u64::MAX, (0, 0));
        if next.is_some_and(|(_, number)| self.tenants.get(&number).is_some_and(|tenant| tenant.wait.is_some())) {
            return;
        }
        while let Some((key, number)) = next.filter(|(key, _)| first.is_none_or(|(first, _)| *key <= first)) {
            let left = self.tenants.get(&number).map_or(0, |tenant| self.budget.left_of_tenant(tenant.memory));
            self.wait_beyond(number, left, free, now);
            self.refresh(number, now);
            next = self.board.first(only_light, u64::MAX, key);
        }
    }
}

#[cfg(test)]
mod tests;
