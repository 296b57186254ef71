//! The state of one Pod, and its change by an event.

use std::fmt::Write;

use rand::{Rng, rngs::SmallRng};

use super::{
    own, push_time, push_uid,
    template::{Hole, mix, push_digest},
    workload::{Kind, Phase},
};

/// The constant part of a Pod.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) workload: u32,
    pub(super) name: Box<str>,
    pub(super) ordinal: u32,
    pub(super) node: u32,
    pub(super) ip: u32,
    /// The seed of ids and times.
    pub(super) seed: u64,
    pub(super) created: i64,
}

impl Identity {
    pub(super) fn pod_ip(&self) -> [u8; 4] {
        let [_, a, b, c] = self.ip.to_be_bytes();
        [100, 64 + (a & 63), b, c]
    }
}

/// The part of a Pod that events change.
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) revision: u64,
    pub(super) restarts: u32,
    pub(super) started: i64,
    pub(super) last_started: i64,
    pub(super) last_finished: i64,
    pub(super) ready: i64,
    pub(super) reported: i64,
    /// The number of changes of the spec.
    pub(super) generation: u32,
    /// The latest change that the kubelet has seen.
    pub(super) observed: u32,
}

impl State {
    pub(super) fn new(random: &mut SmallRng, kind: Kind, identity: &Identity, revision: u64) -> Self {
        let started = identity.created + 3 + random.random_range(0..20);
        let phase = match (kind, random.random_range(0..100)) {
            (Kind::Job, 0..70) => Phase::Succeeded,
            (Kind::Real | Kind::Job, _) => Phase::Running,
            (_, 0..2) => Phase::Pending,
            (_, 2..4) => Phase::Unready,
            (_, 4..7) => Phase::Crashed,
            (_, 7..15) => Phase::Recovered,
            _ => Phase::Running,
        };
        let restarts = match phase {
            Phase::Crashed | Phase::Recovered => random.random_range(1..40),
            _ => 0,
        };
        let ran = i64::from(restarts) * 300 + random.random_range(5..300);
        let mut state = Self {
            phase,
            revision,
            restarts,
            started,
            last_started: started,
            last_finished: started + ran,
            ready: started + 5,
            reported: started + 6,
            generation: 1,
            observed: 1,
        };
        if restarts > 0 {
            state.last_started = started + ran - random.random_range(1..120);
            state.started = state.last_finished + 1;
            state.ready = state.started + 5;
            state.reported = state.ready;
        }
        state
    }

    /// Returns the state of a new Pod.
    pub(super) fn created(now: i64, revision: u64) -> Self {
        Self {
            phase: Phase::Pending,
            revision,
            restarts: 0,
            started: now,
            last_started: now,
            last_finished: now,
            ready: now,
            reported: now,
            generation: 1,
            observed: 1,
        }
    }

    /// Changes the resources that the spec requests, or the allocated ones if they differ from the requested. A Pod
    /// that is not running does not change.
    pub(super) fn resize(&mut self, now: i64) -> bool {
        if matches!(self.phase, Phase::Pending | Phase::Succeeded) {
            return false;
        }
        if self.observed < self.generation {
            self.observed = self.generation;
            self.reported = now;
        } else {
            self.generation += 1;
        }
        true
    }

    /// Applies the next status update of the kubelet. The Pod goes through the usual states; one that has succeeded
    /// does not change.
    pub(super) fn advance(&mut self, random: &mut SmallRng, now: i64) -> bool {
        let chance = random.random_range(0..100);
        let next = match (self.phase, chance) {
            (Phase::Succeeded, _) => return false,
            (Phase::Pending, _) => Phase::Running,
            (Phase::Crashed, _) => Phase::Recovered,
            (Phase::Unready, 0..70) if self.restarts == 0 => Phase::Running,
            (Phase::Unready, 0..70) => Phase::Recovered,
            (Phase::Running | Phase::Recovered, 0..60) => Phase::Unready,
            (Phase::Unready | Phase::Running | Phase::Recovered, _) => Phase::Crashed,
        };
        match next {
            Phase::Crashed => {
                self.restarts += 1;
                self.last_started = self.started;
                self.last_finished = now;
            }
            Phase::Recovered if self.phase == Phase::Crashed => self.started = now,
            Phase::Running if self.phase == Phase::Pending => self.started = now,
            _ => {}
        }
        self.phase = next;
        self.ready = now;
        self.reported = now;
        true
    }
}

pub(super) fn push(hole: Hole, identity: &Identity, state: &State, into: &mut String) {
    let seed = identity.seed;
    // Containers that were not restarted started with the Pod.
    let of_container = |at: u8, time: i64| if at == 0 { time } else { identity.created + 3 + i64::from(at) };
    let restarts = |at: u8| if at == 0 { state.restarts } else { 0 };
    // Writing to a String does not fail.
    let _ = match hole {
        Hole::Name => {
            into.push_str(&identity.name);
            Ok(())
        }
        Hole::Uid => {
            push_uid(mix(seed), mix(!seed), into);
            Ok(())
        }
        Hole::Revision => write!(into, "{}", state.revision),
        Hole::Generation => write!(into, "{}", state.generation),
        Hole::ObservedGeneration => write!(into, "{}", state.observed),
        Hole::Created => push_time(identity.created, into),
        Hole::Scheduled => push_time(identity.created + (seed & 1).cast_signed(), into),
        Hole::Sandbox => push_time(identity.created + 2, into),
        Hole::Ready => push_time(state.ready, into),
        Hole::Reported => push_time(state.reported, into),
        Hole::Node => {
            write!(into, "ip-10-{}-{}-12.eu-west-1.compute.internal", identity.node >> 8, identity.node & 255)
        }
        Hole::HostIp => write!(into, "10.{}.{}.12", identity.node >> 8, identity.node & 255),
        Hole::PodIp => {
            let [a, b, c, d] = identity.pod_ip();
            write!(into, "{a}.{b}.{c}.{d}")
        }
        Hole::Token => {
            into.push_str(&super::suffix(mix(seed ^ 0x70_6b65)));
            Ok(())
        }
        Hole::Ordinal => write!(into, "{}", identity.ordinal),
        Hole::SandboxId => {
            push_digest(seed ^ 0x5a5a, into);
            Ok(())
        }
        Hole::ContainerId(at) => {
            push_digest(container(seed, at, restarts(at)), into);
            Ok(())
        }
        Hole::LastContainerId(at) => {
            push_digest(container(seed, at, restarts(at).wrapping_sub(1)), into);
            Ok(())
        }
        Hole::Started(at) => push_time(of_container(at, state.started), into),
        Hole::LastStarted(at) => push_time(of_container(at, state.last_started), into),
        Hole::LastFinished(at) => push_time(of_container(at, state.last_finished) + i64::from(at), into),
        Hole::Restarts(at) => write!(into, "{}", restarts(at)),
        Hole::Own(value) => own::push(value, identity, state, into),
    };
}

fn container(seed: u64, at: u8, run: u32) -> u64 {
    mix(seed ^ (u64::from(run) << 8) ^ u64::from(at) ^ 0xc0_0000_0000)
}
