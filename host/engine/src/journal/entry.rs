//! Entries of the journal: each the payload of a frame, in `podium-wire`'s encoding.

use std::{borrow::Cow, io::Read};

use serde::{Deserialize, Serialize};

use crate::frames::{Format, Frames, ReadError, TooLong};

pub(super) const FORMAT: Format = Format {
    magic: *b"podium",
    version: 2,
    // An entry holds four names, each of at most 253 bytes where Kubernetes made them.
    max_payload: 64 << 10,
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Entry<'a> {
    /// Numbers are given in order from 0. A number that gets another plugin forgets what its old one ran on.
    Plugin { number: u32, plugin: Option<Plugin<'a>> },
    /// The plugin is about to run on this incarnation for the first time.
    Runs { plugin: u32, namespace: Cow<'a, str>, name: Cow<'a, str>, uid: Cow<'a, str> },
    /// The plugin is done with its deletion.
    Settled { plugin: u32, uid: Cow<'a, str> },
    /// What all entries are of: the uid of the cluster's namespace kube-system.
    Cluster { uid: Cow<'a, str> },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plugin<'a> {
    pub(super) namespace: Option<Cow<'a, str>>,
    pub(super) name: Cow<'a, str>,
    /// Since when the host does without it, in epoch milliseconds.
    pub(super) absent_since: Option<u64>,
}

impl Entry<'_> {
    /// Appends the entry.
    ///
    /// # Errors
    /// When the entry is longer than any entry of a Kubernetes object. Nothing is appended then.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), TooLong> {
        let payload = podium_wire::encode(self).map_err(|_| TooLong)?;
        FORMAT.append(&payload, bytes)
    }
}

/// Reads entries one after another.
pub(super) struct Entries<R> {
    frames: Frames<R>,
    /// Where the good entries end.
    offset: u64,
}

impl<R: Read> Entries<R> {
    /// `source` stands behind the header.
    pub(super) fn new(source: R) -> Self {
        let frames = Frames::new(source, &FORMAT);
        Self { offset: frames.offset(), frames }
    }

    /// Where the entry begins that [`Self::next`] reads next, and where the good ones end once it fails.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next entry; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<Entry<'static>>, ReadError> {
        let Some(payload) = self.frames.read()? else { return Ok(None) };
        let entry = podium_wire::decode(payload).map_err(|error| ReadError::Damaged(error.to_string()))?;
        self.offset = self.frames.offset();
        Ok(Some(entry))
    }
}
