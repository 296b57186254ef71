//! Text with placeholders: a Pod of a workload in one state, rendered once and filled in for every Pod.
//!
//! A placeholder is one character of Unicode's private use area, which is never escaped and which no real object
//! contains.

use std::fmt::Write;

use super::{json::Json, own::Own};

/// A value that differs between the Pods of a workload, or between the states of one Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hole {
    Name,
    Uid,
    Revision,
    Generation,
    ObservedGeneration,
    Created,
    Scheduled,
    /// The time at which the network was set up.
    Sandbox,
    /// The last transition of Ready.
    Ready,
    /// The last write of the kubelet.
    Reported,
    Node,
    HostIp,
    PodIp,
    /// Five characters, as in kube-api-access-x7k2p.
    Token,
    Ordinal,
    /// The sandbox's id, as network plugins annotate it.
    SandboxId,
    /// The number of the container; 0 is the one that is restarted.
    ContainerId(u8),
    LastContainerId(u8),
    Started(u8),
    LastStarted(u8),
    LastFinished(u8),
    Restarts(u8),
    /// A value of a population that has its own values.
    Own(Own),
}

/// The number of a Pod's containers with their own placeholders; the ids of further ones are the same in every Pod.
const MAX_CONTAINERS: u8 = 120;
/// The numbers of init containers; containers have the others.
const INIT_CONTAINERS: std::ops::Range<u8> = 4..8;
const FIRST: u32 = 0xE000;

/// Returns the numbers of a Pod's containers, in their order.
pub(super) fn container_numbers() -> impl Iterator<Item = u8> {
    (0..INIT_CONTAINERS.start).chain(INIT_CONTAINERS.end..MAX_CONTAINERS)
}

/// Returns the numbers of a Pod's init containers, in their order.
pub(super) fn init_container_numbers() -> impl Iterator<Item = u8> {
    INIT_CONTAINERS
}

const PLAIN: [Hole; 16] = [
    Hole::Name,
    Hole::Uid,
    Hole::Revision,
    Hole::Generation,
    Hole::ObservedGeneration,
    Hole::Created,
    Hole::Scheduled,
    Hole::Sandbox,
    Hole::Ready,
    Hole::Reported,
    Hole::Node,
    Hole::HostIp,
    Hole::PodIp,
    Hole::Token,
    Hole::Ordinal,
    Hole::SandboxId,
];

impl Hole {
    fn all() -> impl Iterator<Item = Hole> {
        let of_containers = (0..MAX_CONTAINERS).flat_map(|at| {
            [
                Hole::ContainerId(at),
                Hole::LastContainerId(at),
                Hole::Started(at),
                Hole::LastStarted(at),
                Hole::LastFinished(at),
                Hole::Restarts(at),
            ]
        });
        // The many numbers of containers come last, because a placeholder is looked up from the beginning.
        PLAIN.into_iter().chain(Own::all().map(Hole::Own)).chain(of_containers)
    }

    pub(super) fn character(self) -> char {
        let at = Self::all().zip(FIRST..).find(|(hole, _)| *hole == self).map(|(_, code)| code);
        at.and_then(char::from_u32).unwrap_or('\u{f8ff}')
    }

    /// Returns the placeholder as a separate string.
    pub(super) fn text(self) -> Json {
        Json::Text(self.character().to_string())
    }
}

#[derive(Debug, Clone)]
pub(super) struct Template {
    /// Each literal text with the placeholder after it.
    pieces: Vec<(Box<str>, Hole)>,
    tail: Box<str>,
}

impl Template {
    pub(super) fn new(pod: &Json) -> Self {
        let mut rendered = String::new();
        pod.render(&mut rendered);
        let holes: Vec<Hole> = Hole::all().collect();
        let mut pieces = Vec::new();
        let mut text = String::new();
        for character in rendered.chars() {
            let code = u32::from(character).wrapping_sub(FIRST) as usize;
            match holes.get(code) {
                Some(hole) => pieces.push((std::mem::take(&mut text).into(), *hole)),
                None => text.push(character),
            }
        }
        Self { pieces, tail: text.into() }
    }

    /// Returns the placeholders in the order of the text.
    pub(super) fn holes(&self) -> impl Iterator<Item = Hole> {
        self.pieces.iter().map(|(_, hole)| *hole)
    }

    pub(super) fn fill(&self, into: &mut String, mut value: impl FnMut(Hole, &mut String)) {
        for (text, hole) in &self.pieces {
            into.push_str(text);
            value(*hole, into);
        }
        into.push_str(&self.tail);
    }
}

/// Appends 64 hexadecimal digits derived from the seed, in the form of ids of containers and images.
pub(super) fn push_digest(seed: u64, into: &mut String) {
    for part in 0..4 {
        // Writing to a String does not fail.
        let _ = write!(into, "{:016x}", mix(seed.wrapping_add(part << 56)));
    }
}

/// Mixes a number bijectively: the finalizer of splitmix64.
pub(super) fn mix(seed: u64) -> u64 {
    let mut value = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::json::{object, text};

    #[test]
    fn placeholders_are_filled_in_order_and_literals_are_kept() {
        let name = format!("data-{}-x", Hole::Name.character());
        let template = Template::new(&object([("a", text(name)), ("b", Hole::LastStarted(7).text())]));
        let mut filled = String::new();
        template.fill(&mut filled, |hole, into| into.push_str(&format!("<{hole:?}>")));
        assert_eq!(filled, r#"{"a":"data-<Name>-x","b":"<LastStarted(7)>"}"#);
    }
}
