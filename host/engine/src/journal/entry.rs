//! The entries of the journal. Each is the payload of a frame, in `podium-wire`'s encoding.

use std::{borrow::Cow, io::Read};

use serde::{Deserialize, Serialize};

use crate::frames::{self, Frames, ReadError, TooLong};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Entry<'a> {
    /// Assigns a number to a plugin. Numbers are assigned in order from 0. Entries of the number's previous plugin
    /// are forgotten. Written twice, a sector apart, because without it all runs of the plugin are lost.
    Plugin { number: u32, plugin: Option<Plugin<'a>> },
    /// The plugin is about to run on this incarnation for the first time.
    Runs { plugin: u32, namespace: Cow<'a, str>, name: Cow<'a, str>, uid: Cow<'a, str> },
    /// The deletion has settled for the plugin.
    Settled { plugin: u32, uid: Cow<'a, str> },
    /// The cluster of all entries: the uid of its namespace kube-system. Written twice, a sector apart.
    Cluster { uid: Cow<'a, str> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plugin<'a> {
    pub(super) namespace: Option<Cow<'a, str>>,
    pub(super) name: Cow<'a, str>,
    /// Since when the plugin is not loaded, in epoch milliseconds.
    pub(super) absent_since: Option<u64>,
}

impl Entry<'_> {
    /// Appends the entry.
    ///
    /// # Errors
    /// Returns an error if the entry is longer than any entry of a Kubernetes object. Then nothing is appended.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), TooLong> {
        let payload = podium_wire::encode(self).map_err(|_| TooLong)?;
        frames::append(&payload, bytes)
    }
}

/// Reads entries one after another, and passes over damage between them.
pub(super) struct Entries<R> {
    frames: Frames<R>,
    /// The end of the latest valid entry.
    offset: u64,
    damage: Damage,
}

/// The damage that valid entries follow.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// The number of damaged places. Each has lost at least one entry.
    pub(super) places: u64,
    /// The reason of the first one.
    pub(super) first: Option<String>,
}

impl Damage {
    pub(super) fn add(&mut self, reason: String) {
        self.places += 1;
        self.first.get_or_insert(reason);
    }
}

impl<R: Read> Entries<R> {
    /// Returns a reader of entries. `source` must be positioned after the header.
    pub(super) fn new(source: R) -> Self {
        let frames = Frames::new(source);
        Self { offset: frames.offset(), frames, damage: Damage::default() }
    }

    /// Returns the offset of the next entry. After an error it is the end of the valid entries.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the damage before the offset.
    pub(super) fn damage(&mut self) -> &mut Damage {
        &mut self.damage
    }

    /// Returns the next entry, or `None` at the end. After damage the next entry is the first one with a right
    /// checksum, at any offset, because the damaged bytes may be a length.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if no valid entry follows the damage.
    pub(super) fn next(&mut self) -> Result<Option<Entry<'static>>, ReadError> {
        let mut damaged = None;
        loop {
            let reason = match self.frames.read() {
                Ok(Some(payload)) => match podium_wire::decode(payload) {
                    Ok(entry) => {
                        self.offset = self.frames.offset();
                        damaged.into_iter().for_each(|reason| self.damage.add(reason));
                        return Ok(Some(entry));
                    }
                    // The frame is valid, so the next one follows it.
                    Err(error) => error.to_string(),
                },
                Ok(None) => return damaged.map_or(Ok(None), |reason| Err(ReadError::Damaged(reason))),
                Err(ReadError::Damaged(reason)) => {
                    self.frames.skip();
                    reason
                }
                Err(error) => return Err(error),
            };
            damaged.get_or_insert(reason);
        }
    }
}
