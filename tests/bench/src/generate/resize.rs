//! In-place resize: the resources of a Pod's first container as placeholders, in the spec as requested and in the
//! status as the kubelet has allocated them.

use super::{
    draft::Draft,
    json::{Json, object, text},
    own::Own,
    template::{Hole, mix},
};

/// One of the four quantities of a container's resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Amount {
    Cpu,
    CpuLimit,
    Memory,
    MemoryLimit,
}

/// Requested milli-CPUs and MiB; limits are twice as much.
const SIZES: [(u32, u32); 6] = [(100, 128), (200, 256), (250, 256), (500, 512), (500, 1024), (1000, 1024)];

impl Amount {
    pub(super) const ALL: [Self; 4] = [Self::Cpu, Self::CpuLimit, Self::Memory, Self::MemoryLimit];

    /// Returns the number after this many changes. Consecutive steps have different sizes.
    pub(super) fn at(self, seed: u64, step: u32) -> u32 {
        let first = mix(seed) % SIZES.len() as u64;
        // One step or five: neither is a multiple of the number of sizes.
        let stride = if mix(seed ^ 0x73) & 1 == 0 { 1 } else { 5 };
        let (cpu, memory) = SIZES[((first + u64::from(step) * stride) % SIZES.len() as u64) as usize];
        match self {
            Self::Cpu => cpu,
            Self::CpuLimit => cpu * 2,
            Self::Memory => memory,
            Self::MemoryLimit => memory * 2,
        }
    }
}

fn place(amount: Amount, allocated: bool) -> char {
    Hole::Own(Own::Resource { amount, allocated }).character()
}

/// Replaces the resources of the first container by placeholders.
pub(super) fn add_places(draft: &mut Draft) {
    let amounts = |cpu, memory| {
        object([
            ("cpu", text(format!("{}m", place(cpu, false)))),
            ("memory", text(format!("{}Mi", place(memory, false)))),
        ])
    };
    if let Some(container) = draft.containers.first_mut() {
        let limits = amounts(Amount::CpuLimit, Amount::MemoryLimit);
        let requests = amounts(Amount::Cpu, Amount::Memory);
        container.set("resources", object([("limits", limits), ("requests", requests)]));
    }
}

/// Turns the resources of a spec into those of the status.
pub(super) fn allocate(resources: &mut Json) {
    resources.each_text(&mut |text| {
        for amount in Amount::ALL {
            if text.contains(place(amount, false)) {
                *text = text.replace(place(amount, false), &place(amount, true).to_string());
            }
        }
    });
}
