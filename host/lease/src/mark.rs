//! The mark: which deletions need not be delivered again by the next holder.

use std::fmt::Write;

use podium_vocabulary::fnv;

/// The revision up to which all deletions have settled, except some. A hint that saves repetitions: without one, and
/// where it cannot be read, the next holder delivers every deletion that it knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mark {
    /// The term of the holder that wrote it.
    pub term: u32,
    /// How often that holder had seen the API server's history set back; a mark says nothing about another epoch. A
    /// list for another reason does not count.
    pub epoch: u64,
    /// The resource version up to which deletions have settled.
    pub revision: u64,
    /// Hashes of the uids of deleted Pods below `revision` that have not settled.
    pub unsettled: Vec<u64>,
}

impl Mark {
    /// More unsettled deletions have no mark, because annotations end at 256 KiB and are written with each renewal.
    pub const MOST: usize = 1_000;

    /// Returns a uid as it is in [`Mark::unsettled`].
    pub fn hash(uid: &str) -> u64 {
        fnv(uid)
    }

    /// Returns the text of the annotation; `None` if too many deletions have not settled.
    pub(crate) fn text(&self) -> Option<String> {
        let mut text = format!("{} {} {} ", self.term, self.epoch, self.revision);
        for uid in &self.unsettled {
            // Writing into a String never fails.
            let _ = write!(text, "{uid:016x}");
        }
        (self.unsettled.len() <= Self::MOST).then_some(text)
    }

    /// Parses the text of the annotation; `None` if it is not one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        let [term, epoch, revision, uids] = [parts.next()?, parts.next()?, parts.next()?, parts.next()?];
        let is_hex = uids.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_hex || uids.len() % 16 != 0 || uids.len() / 16 > Self::MOST {
            return None;
        }
        let uid = |at: usize| u64::from_str_radix(uids.get(at..at + 16)?, 16).ok();
        let unsettled = (0..uids.len()).step_by(16).map(uid).collect::<Option<_>>()?;
        Some(Self { term: term.parse().ok()?, epoch: epoch.parse().ok()?, revision: revision.parse().ok()?, unsettled })
    }
}
