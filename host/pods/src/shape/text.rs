//! What is a Pod's own in a text of its JSON: the whole of it, its beginning, its end, or places within it.

use memchr::memmem::Finder;

use super::{
    leaf::{self, Kind, Value},
    scan::{Leaves, OUTER, SPEC, Scanner},
};

/// How far back a leaf finds its like.
const MAX_PLACE: usize = u8::MAX as usize;
/// A name within a longer text is cut out, unless it is so short that chance puts it there.
const LEAST_NAME: usize = 5;
/// Numbers of Pods of a StatefulSet are not longer.
const MOST_DIGITS: usize = 5;
/// Longer texts are not searched for names, and a text has at most this many leaves, so that what is stored about a
/// text with leaves has a bounded size.
const LONGEST_WITH_NAMES: usize = 32 << 10;
const MOST_NAMES: usize = 100;
const GENERATED: &[u8] = b"kube-api-access-";

impl<'a> Scanner<'a, '_> {
    /// A string without escapes that is a value.
    #[inline]
    pub(super) fn text(&mut self, from: usize, end: usize) {
        if self.wanted == Leaves::Identity {
            return;
        }
        let text = &self.json[from..end];
        match text.len() {
            20 if text[19] == b'Z' => {
                if let Some(time) = text.first_chunk().and_then(leaf::time) {
                    self.parts[self.part].own.push(Value::Time(time));
                    return self.leaf(Kind::Time, from, end);
                }
            }
            36 if text[8] == b'-' => {
                if let Some(uuid) = text.first_chunk().and_then(leaf::uuid) {
                    return self.value_leaf(Kind::Uuid, from, end, Value::Uuid(&uuid));
                }
            }
            7..=18 if text[0].is_ascii_digit() => {
                // Alone or before the length of its network's prefix.
                let address = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
                if let Some((bytes, _)) = leaf::ipv4(text).filter(|(_, length)| *length == address) {
                    return self.value_leaf(Kind::Ipv4, from, from + address, Value::Ipv4(bytes));
                }
            }
            21 if text.starts_with(GENERATED) => return self.generated(from + GENERATED.len(), end),
            64.. if text.len() == 64 || text[..text.len() - 64].ends_with(b"//") => {
                if let Some(digest) = text.last_chunk().and_then(leaf::digest) {
                    return self.value_leaf(Kind::Digest, end - 64, end, Value::Digest(&digest));
                }
            }
            1..=MOST_DIGITS if self.part == OUTER => {
                if leaf::ordinal(self.name) == Some(text) {
                    self.leaf(Kind::Ordinal, from, end);
                }
                return;
            }
            _ => {}
        }
        if self.names(from, end) {
            return;
        }
        // The leaf is the spec's: in a status, which may name the node too, it would be another.
        let node = self.node.filter(|_| self.part == SPEC);
        if let Some((place, own, _)) = node.filter(|(place, _, node)| text == *node && *place <= MAX_PLACE) {
            self.leaf(Kind::Same, from, from + own);
            self.parts[self.part].key.push(place as u8);
        }
    }

    /// The Pod's name wherever it stands in a text, and its uid behind it, as in the kubelet's messages; or, in the
    /// Pods of a CronJob's Jobs, what names the run. False where there is neither.
    #[inline]
    fn names(&mut self, from: usize, end: usize) -> bool {
        let json = self.json;
        let mut at = from;
        let length = self.name.len();
        if end - from > LONGEST_WITH_NAMES {
            return false;
        }
        if length > 0 && (length == end - from || (LEAST_NAME..end - from).contains(&length)) {
            for _ in 0..MOST_NAMES {
                let place = self.next_name(at, end);
                if at > from {
                    self.uid_within(at, place.unwrap_or(end));
                }
                let Some(place) = place else { break };
                self.leaf(Kind::Name, place, place + length);
                at = place + length;
            }
            if at > from {
                return true;
            }
        }
        if let Some(run) = self.run.clone() {
            for _ in 0..MOST_NAMES {
                let Some(place) = run.find(&json[at..end]) else { break };
                self.leaf(Kind::Run, at + place, at + place + run.needle().len());
                at += place + run.needle().len();
            }
        }
        at > from
    }

    /// Where the Pod's name stands first in a text. It is looked for in all texts of a value at once.
    #[inline]
    fn next_name(&mut self, from: usize, end: usize) -> Option<usize> {
        let (looked_from, place) = self.next_name;
        if !(looked_from..=place).contains(&from) {
            let finder = self.finder.get_or_insert_with(|| Finder::new(self.name));
            let place = finder.find(&self.json[from..self.value_end.max(end)]).map_or(usize::MAX, |place| from + place);
            self.next_name = (from, place);
        }
        let (_, place) = self.next_name;
        (place < end && place + self.name.len() <= end).then_some(place)
    }

    fn uid_within(&mut self, from: usize, end: usize) {
        let (text, length) = (&self.json[from..end], self.uid.len());
        let place = text.windows(length.max(LEAST_NAME)).position(|bytes| bytes == self.uid);
        if let Some(place) = place {
            self.leaf(Kind::Uid, from + place, from + place + length);
        }
    }

    /// The five letters that the API server chose for a volume's name.
    fn generated(&mut self, from: usize, end: usize) {
        let suffix = &self.json[from..end];
        if leaf::is_suffix(suffix) && !self.same(Kind::Suffix, from, end) {
            self.parts[self.part].own.push_suffix(suffix);
            self.leaf(Kind::Suffix, from, end);
        }
    }

    fn value_leaf(&mut self, kind: Kind, from: usize, end: usize, value: Value<'_>) {
        if !self.same(kind, from, end) {
            self.parts[self.part].own.push(value);
            self.leaf(kind, from, end);
        }
    }

    /// Refers to an earlier leaf of the same text, if there is one.
    fn same(&mut self, kind: Kind, from: usize, end: usize) -> bool {
        let text = &self.json[from..end];
        let leaves = self.parts[self.part].leaves.iter().take(MAX_PLACE + 1);
        let mut like = leaves.enumerate().filter(|(_, (other, ..))| *other == kind);
        let Some((place, _)) = like.find(|(_, (_, from, end))| &self.json[*from..*end] == text) else { return false };
        self.leaf(Kind::Same, from, end);
        self.parts[self.part].key.push(place as u8);
        true
    }
}
