//! Finds the values in a string of a Pod's JSON: the whole string, its beginning, its end, or names within it.

use memchr::memmem::Finder;

use super::{
    forms,
    fragment::Fragment,
    placeholder::{self, Kind, Value},
    scan::{Extent, Scanner},
};

/// The highest number of a placeholder to which a later one can refer.
const MAX_PLACE: usize = u8::MAX as usize;
/// The length of a name below which longer strings are not searched for it, because it may occur by chance.
const MIN_NAME: usize = 5;
/// The most digits of a StatefulSet's Pod index.
const MAX_DIGITS: usize = 5;
/// The length above which strings are not searched for names, and the most names that are found in one string. This
/// bounds the numbers that are stored for a string with placeholders.
const LONGEST_WITH_NAMES: usize = 32 << 10;
const MAX_NAMES: usize = 100;
const GENERATED: &[u8] = b"kube-api-access-";

impl<'a> Scanner<'a, '_> {
    /// Scans a string without escapes.
    #[inline]
    pub(super) fn text(&mut self, from: usize, end: usize) {
        if self.extent == Extent::Identity {
            return;
        }
        let text = &self.json[from..end];
        match text.len() {
            20 if text[19] == b'Z' => {
                if let Some(time) = text.first_chunk().and_then(placeholder::time) {
                    self.drafts[self.fragment].own.push(Value::Time(time));
                    return self.placeholder(Kind::Time, from, end);
                }
            }
            36 if text[8] == b'-' => {
                if let Some(uuid) = text.first_chunk().and_then(forms::uuid) {
                    return self.value_leaf(Kind::Uuid, from, end, Value::Uuid(&uuid));
                }
            }
            7..=18 if text[0].is_ascii_digit() => {
                // An address, or an address with a prefix length.
                let address = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
                if let Some((bytes, _)) = forms::ipv4(text).filter(|(_, length)| *length == address) {
                    return self.value_leaf(Kind::Ipv4, from, from + address, Value::Ipv4(bytes));
                }
            }
            21 if text.starts_with(GENERATED) => return self.generated(from + GENERATED.len(), end),
            64.. if text.len() == 64 || text[..text.len() - 64].ends_with(b"//") => {
                if let Some(digest) = text.last_chunk().and_then(forms::digest) {
                    return self.value_leaf(Kind::Digest, end - 64, end, Value::Digest(&digest));
                }
            }
            1..=MAX_DIGITS if self.fragment == Fragment::Object => {
                if forms::ordinal(self.name) == Some(text) {
                    self.placeholder(Kind::Ordinal, from, end);
                }
                return;
            }
            _ => {}
        }
        if self.names(from, end) {
            return;
        }
        // The placeholder that is referred to is in the spec; a status may contain the node's name too.
        let node = self.node.filter(|_| self.fragment == Fragment::Spec);
        if let Some((place, own, _)) = node.filter(|(place, _, node)| text == *node && *place <= MAX_PLACE) {
            self.placeholder(Kind::Same, from, from + own);
            self.drafts[self.fragment].text.push(place as u8);
        }
    }

    /// Finds the Pod's name anywhere in a string, and its uid after it, as in the kubelet's messages; or, in Pods of
    /// a CronJob, the number of the run. Returns false if there is neither.
    #[inline]
    fn names(&mut self, from: usize, end: usize) -> bool {
        let json = self.json;
        let mut at = from;
        let length = self.name.len();
        if end - from > LONGEST_WITH_NAMES {
            return false;
        }
        if length > 0 && (length == end - from || (MIN_NAME..end - from).contains(&length)) {
            for _ in 0..MAX_NAMES {
                let place = self.next_name(at, end);
                if at > from {
                    self.uid_within(at, place.unwrap_or(end));
                }
                let Some(place) = place else { break };
                self.placeholder(Kind::Name, place, place + length);
                at = place + length;
            }
            if at > from {
                return true;
            }
        }
        if let Some(run) = self.run.clone() {
            for _ in 0..MAX_NAMES {
                let Some(place) = run.find(&json[at..end]) else { break };
                self.placeholder(Kind::Run, at + place, at + place + run.needle().len());
                at += place + run.needle().len();
            }
        }
        at > from
    }

    /// Returns the first occurrence of the Pod's name in a string. All strings of a value are searched at once.
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
        let text = &self.json[from..end];
        let length = self.uid.len();
        let place = text.windows(length.max(MIN_NAME)).position(|bytes| bytes == self.uid);
        if let Some(place) = place {
            self.placeholder(Kind::Uid, from + place, from + place + length);
        }
    }

    /// Scans the five characters that the API server generated for a volume's name.
    fn generated(&mut self, from: usize, end: usize) {
        let suffix = &self.json[from..end];
        if forms::is_suffix(suffix) && !self.same(Kind::Suffix, from, end) {
            self.drafts[self.fragment].own.push_suffix(suffix);
            self.placeholder(Kind::Suffix, from, end);
        }
    }

    pub(super) fn value_leaf(&mut self, kind: Kind, from: usize, end: usize, value: Value<'_>) {
        if !self.same(kind, from, end) {
            self.drafts[self.fragment].own.push(value);
            self.placeholder(kind, from, end);
        }
    }

    /// Refers to an earlier placeholder with the same text. Returns false if there is none.
    fn same(&mut self, kind: Kind, from: usize, end: usize) -> bool {
        let text = &self.json[from..end];
        let placeholders = self.drafts[self.fragment].placeholders.iter().take(MAX_PLACE + 1);
        let mut like = placeholders.enumerate().filter(|(_, (other, ..))| *other == kind);
        let Some((place, _)) = like.find(|(_, (_, from, end))| &self.json[*from..*end] == text) else { return false };
        self.placeholder(Kind::Same, from, end);
        self.drafts[self.fragment].text.push(place as u8);
        true
    }
}
