//! The faults of replicas, of their connections and of the server.

use super::{CALM, Event, MILLI, Recovery, SECOND, Simulation};
use crate::{Fitness, Input, Part};

impl Simulation {
    pub(super) fn fault(&mut self) {
        let at = self.at;
        if at >= CALM {
            for index in 0..self.replicas.len() {
                self.schedule(at, index, Event::Start);
            }
            return;
        }
        let next = at + self.random.between(self.pace / 2, self.pace * 2);
        self.schedule(next.min(CALM), 0, Event::Fault);
        let holder = self.replicas.iter().position(|replica| replica.until.is_some());
        let any = self.random.between(0, self.replicas.len() as u64) as usize;
        let index = holder.filter(|_| self.random.once_in(2)).unwrap_or(any);
        let most = (CALM - at).min(20 * SECOND);
        let until = at + self.random.between(100, most.max(101));
        let until = if self.random.once_in(2) { until.min(at + 3 * SECOND) } else { until };
        // In a third of the simulations the server has no fault.
        let kinds = if self.seed.is_multiple_of(3) { 6 } else { 13 };
        let choice = self.random.between(0, kinds);
        if self.trace {
            println!("{at:>10} fault {choice} of {index} until {until}");
        }
        if choice > 4 || self.replicas[index].ownership.is_some() {
            self.begin(choice, index, until);
        }
        self.healthy = self.healthy.max(self.stalled).max(self.down);
    }

    fn begin(&mut self, choice: u64, index: usize, until: u64) {
        let at = self.at;
        let replica = &mut self.replicas[index];
        match choice {
            0 => {
                replica.ownership = None;
                replica.until = None;
                self.count("kill");
                self.schedule(until, index, Event::Start);
            }
            1 if replica.paused <= at => {
                replica.stops = replica.stops.or(Some(at));
                self.step(index, Input::Stop);
            }
            2 => {
                replica.paused = replica.paused.max(until);
                replica.stops = replica.stops.map(|_| replica.paused);
                replica.stuck = replica.stuck.map(|(part, _, end)| (part, replica.paused, end));
                self.disturb(index, until);
            }
            3 if replica.stuck.is_none() => {
                let part = Part::ALL[self.random.between(0, Part::ALL.len() as u64) as usize];
                let until = until + 10 * SECOND;
                self.replicas[index].stuck = Some((part, at.max(self.replicas[index].paused), until));
                self.schedule(until, index, Event::Recover(Recovery::Stuck));
            }
            4 if replica.fitness == Fitness::Fit && replica.paused <= at => {
                replica.fitness = if self.random.once_in(2) { Fitness::Late } else { Fitness::Unfit };
                let fitness = replica.fitness;
                self.step(index, Input::Fitness(fitness));
                self.schedule(until, index, Event::Recover(Recovery::Fitness));
            }
            6 => {
                replica.cut = replica.cut.max(until);
                self.disturb(index, until);
            }
            5 if replica.cut <= at => {
                replica.slow = until;
                self.disturb(index, until + 10 * SECOND);
            }
            7 if replica.stepped + 2 * self.longest < at || replica.stepped == 0 => {
                let most = if self.random.once_in(2) { 700 * MILLI } else { 30 * SECOND };
                replica.steps += self.random.between(0, most);
                replica.stepped = at;
                self.disturb(index, at);
            }
            8 => self.stalled = until.min(at + 15 * SECOND),
            9 => self.down = until.min(at + 15 * SECOND),
            10 if self.may_delete => {
                self.server.delete(at);
                self.changed = at;
                self.released = None;
                self.count("deleted");
            }
            11 => self.restore(),
            12 if !self.spoiled && self.may_delete => {
                self.server.spoil(at);
                self.spoiled = true;
                self.changed = at;
                self.released = None;
                self.schedule(until, 0, Event::Recover(Recovery::Lease));
            }
            _ => {}
        }
    }

    /// The server returns to an earlier state. Requests under way are lost; replicas that have not read the Lease
    /// since, or not under its present holder, cannot read for one duration.
    fn restore(&mut self) {
        let at = self.at;
        let mut of = at.saturating_sub(self.random.between(SECOND, 40 * SECOND));
        if self.random.once_in(2) {
            of = self.server.released_before(at.saturating_sub(SECOND)).unwrap_or(of);
        }
        let before = self.present();
        self.server.restore(of, at);
        let restored = self.present();
        self.spoiled = self.server.record().is_some_and(Result::is_err);
        if self.spoiled {
            self.schedule(at + SECOND, 0, Event::Recover(Recovery::Lease));
        }
        self.changed = at;
        self.released = None;
        self.restored = at + self.longest + self.longest / 20;
        self.count("restored");
        for body in &mut self.bodies {
            if matches!(body, Some((_, _, Event::Arrive(..)))) {
                let (index, process, _) = body.take().unwrap();
                *body = Some((index, process, Event::Tick(u64::MAX)));
            }
        }
        for index in 0..self.replicas.len() {
            let replica = &mut self.replicas[index];
            if !replica.knows(&before) || replica.known.as_ref() == Some(&restored) {
                replica.cut = replica.cut.max(self.restored);
            }
            let until = replica.cut;
            self.disturb(index, until);
        }
    }
}
