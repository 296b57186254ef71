//! Values that differ from Pod to Pod only in some populations. All of them are derived from the Pod's seed, address
//! and state, so nothing is stored for them.

use std::fmt::Write;

use super::{
    resize,
    state::{Identity, State},
    suffix,
    template::mix,
    words::push_words,
};

/// A value of a population.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    /// A new value with each revision.
    Annotation,
    PodIp6,
    HostIp6,
    /// The Pod's address, MAC address and gateway in a CNI plugin's annotation.
    CniIp,
    CniMac,
    CniGateway,
    FreeText,
    LargeText,
    Environment,
    /// The suffix of a volume's name.
    Sidecar,
    /// Resources in the spec and, with `allocated`, in the status.
    Resource {
        amount: resize::Amount,
        allocated: bool,
    },
    /// The value of one of [`LABELS`] labels.
    Label(u8),
}

pub(super) const LABELS: u8 = 10;
/// The number of values of each of these labels over all Pods.
pub(super) const LABEL_VALUES: u64 = 30;
const FREE_TEXT_BYTES: std::ops::RangeInclusive<usize> = 40..=120;
/// The length of a large annotation. The API server allows 256 KiB in all annotations of an object.
const LARGE_TEXT_BYTES: usize = 200_000;

impl Own {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let resources = resize::Amount::ALL
            .into_iter()
            .flat_map(|amount| [false, true].map(|allocated| Self::Resource { amount, allocated }));
        [
            Self::Annotation,
            Self::PodIp6,
            Self::HostIp6,
            Self::CniIp,
            Self::CniMac,
            Self::CniGateway,
            Self::FreeText,
            Self::LargeText,
            Self::Environment,
            Self::Sidecar,
        ]
        .into_iter()
        .chain(resources)
        .chain((0..LABELS).map(Self::Label))
    }
}

/// Appends the value as the contents of a JSON string.
pub(super) fn push(value: Own, identity: &Identity, state: &State, into: &mut String) -> std::fmt::Result {
    let seed = identity.seed;
    let [a, b, c, d] = identity.pod_ip();
    match value {
        Own::Annotation => push_characters(mix(seed ^ state.revision), 24, into),
        Own::PodIp6 => {
            write!(into, "fd00:10:{:x}:{:x}::{:x}", identity.node, u16::from_be_bytes([b, c]), u16::from(d) + 2)?
        }
        Own::HostIp6 => write!(into, "2001:db8:{:x}::{:x}", identity.node >> 8, (identity.node & 255) + 0x10)?,
        Own::CniIp => write!(into, "{a}.{b}.{c}.{d}")?,
        // Derived from the address as in OVN-Kubernetes.
        Own::CniMac => write!(into, "0a:58:{a:02x}:{b:02x}:{c:02x}:{d:02x}")?,
        Own::CniGateway => write!(into, "{a}.{b}.{c}.1")?,
        Own::FreeText => {
            let lengths = (FREE_TEXT_BYTES.end() - FREE_TEXT_BYTES.start() + 1) as u64;
            push_words(seed, FREE_TEXT_BYTES.start() + (mix(seed ^ 0x74_6578) % lengths) as usize, into);
        }
        Own::LargeText => push_words(seed, LARGE_TEXT_BYTES, into),
        Own::Environment => push_characters(seed ^ 0x65_6e76, 24, into),
        Own::Sidecar => into.push_str(&suffix(mix(seed ^ 0x70_726f_7879))),
        Own::Resource { amount, allocated } => {
            let step = if allocated { state.observed } else { state.generation };
            write!(into, "{}", amount.at(seed, step))?;
        }
        Own::Label(at) => write!(into, "value-{:02}", mix(seed ^ (u64::from(at) << 40)) % LABEL_VALUES)?,
    }
    Ok(())
}

/// Appends this many characters of the alphabet of generated names.
fn push_characters(seed: u64, count: usize, into: &mut String) {
    let end = into.len() + count;
    for part in 0.. {
        into.push_str(&suffix(mix(seed.wrapping_add(part << 48))));
        if into.len() >= end {
            into.truncate(end);
            return;
        }
    }
}
