//! The kinds of placeholders, and the values of a Pod that are stored for them: times, uids, addresses, any string.
//! Each kind has a short encoding, which is decoded to the same JSON byte for byte.

use std::{fmt::Write as _, mem::discriminant};

use super::{
    compact::{Amount, Generated, Recent},
    forms::{self, hex, mac_text, put_hex, put_varint, time_text, unzigzag, uuid_text, varint, zigzag},
    fragment::FRAGMENTS,
    json_string,
    skeleton::MAX_PLACEHOLDERS,
};

/// The first byte of a placeholder in the text of a skeleton. JSON never contains it.
pub(super) const PLACEHOLDER: u8 = 0;
/// Times are stored relative to this second since 1970, which keeps the numbers short.
const EPOCH: i64 = 1_700_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// The Pod's name; nothing is stored.
    Name = 1,
    /// The Pod's uid; nothing is stored.
    Uid,
    /// The Pod's resourceVersion; nothing is stored.
    Revision,
    /// A time as RFC 3339 in UTC to the second: the seconds since the time before it in the fragment.
    Time,
    /// A UUID in lower case with hyphens: 16 bytes.
    Uuid,
    /// An IPv4 address in dotted decimal: 4 bytes.
    Ipv4,
    /// 64 lower-case hexadecimal digits: 32 bytes.
    Digest,
    /// Five lower-case letters or digits at the end of a string, as the API server generates: as they are.
    Suffix,
    /// A node's name of at most 255 bytes without escapes, up to [`own_of_node`]: the length and the name; or for a
    /// name that AWS makes of an address, 0 and the address.
    Text,
    /// A number from 0 to `i32::MAX`: a varint.
    Count,
    /// The number at the end of the Pod's name, as in StatefulSets; nothing is stored.
    Ordinal,
    /// The number before the last part of the Pod's name, as in runs of a CronJob; nothing is stored.
    Run,
    /// The text of an earlier placeholder, whose number follows; nothing is stored.
    Same,
    /// Not a placeholder: the spec or the status is here. The number of the fragment follows.
    Fragment,
    /// The contents of a string that the decoder passes on unread, never empty: as `compact.rs` stores them.
    String,
    /// A word (`words.rs`) of such a string: as `compact.rs` stores it.
    Word,
    /// `metadata.generation`, or an `observedGeneration` of the status: stored as [`Kind::Count`] is. Equal ones of a
    /// fragment refer to the first.
    Generation,
}

impl Kind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        use Kind::*;
        const ALL: [Kind; 17] = [
            Name, Uid, Revision, Time, Uuid, Ipv4, Digest, Suffix, Text, Count, Ordinal, Run, Same, Fragment, String,
            Word, Generation,
        ];
        ALL.get(usize::from(byte).checked_sub(1)?).copied()
    }

    /// Returns true if a value is stored.
    pub(super) fn is_kept(self) -> bool {
        use Kind::*;
        !matches!(self, Name | Uid | Revision | Ordinal | Run | Same | Fragment)
    }

    /// Returns true if a number follows in the text of the skeleton.
    pub(super) fn has_place(self) -> bool {
        matches!(self, Self::Same | Self::Fragment)
    }
}

/// A value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Revision(u64),
    /// Seconds since 1970.
    Time(i64),
    Uuid(&'a [u8; 16]),
    Ipv4([u8; 4]),
    /// `ip-` and an IPv4 address with hyphens.
    NodeIp([u8; 4]),
    Ipv6([u8; 16]),
    Mac([u8; 6]),
    Digest(&'a [u8]),
    /// Bytes as lower-case hexadecimal digits.
    Hex(&'a [u8]),
    Count(u32),
    Amount(Amount),
    /// Characters that the API server generates.
    Generated(Generated),
    /// Contents of a JSON string, with escapes.
    Json(&'a str),
}

/// Reads the values of one fragment in order.
#[derive(Debug, Clone)]
pub(super) struct ValueReader<'a> {
    all: &'a [u8],
    /// The rest of them.
    own: &'a [u8],
    time: i64,
    strings: Recent,
}

impl<'a> ValueReader<'a> {
    pub(super) fn new(own: &'a [u8]) -> Self {
        Self { all: own, own, time: EPOCH, strings: Recent::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.own.is_empty()
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.own.split_at_checked(count)?;
        self.own = rest;
        Some(taken)
    }

    /// Returns the next value. Returns None for malformed bytes, and for kinds without a stored value.
    pub(super) fn next(&mut self, kind: Kind) -> Option<Value<'a>> {
        Some(match kind {
            Kind::Time => {
                let (delta, rest) = varint(self.own)?;
                self.own = rest;
                self.time = self.time.wrapping_add(unzigzag(delta));
                Value::Time(self.time)
            }
            Kind::Uuid => Value::Uuid(self.take(16)?.first_chunk()?),
            Kind::Digest => Value::Digest(self.take(32)?),
            Kind::Ipv4 => Value::Ipv4(*self.take(4)?.first_chunk()?),
            Kind::Suffix => Value::Text(str::from_utf8(self.take(5)?).ok()?),
            Kind::Text => {
                match usize::from(*self.take(1)?.first()?) {
                    // No name is empty.
                    0 => Value::NodeIp(*self.take(4)?.first_chunk()?),
                    length => Value::Text(str::from_utf8(self.take(length)?).ok()?),
                }
            }
            Kind::Count | Kind::Generation => {
                let (count, rest) = varint(self.own)?;
                self.own = rest;
                Value::Count(u32::try_from(count).ok()?)
            }
            Kind::String | Kind::Word => {
                let (value, end) = self.strings.read(self.all, self.all.len() - self.own.len())?;
                self.own = &self.all[end..];
                value
            }
            Kind::Name | Kind::Uid | Kind::Revision | Kind::Ordinal | Kind::Run | Kind::Same | Kind::Fragment => {
                return None;
            }
        })
    }
}

/// Writes the values of one fragment.
#[derive(Debug, Default)]
pub(super) struct ValueWriter {
    pub(super) bytes: Vec<u8>,
    time: Option<i64>,
    strings: Recent,
}

impl ValueWriter {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.time = None;
        self.strings = Recent::default();
    }

    pub(super) fn push(&mut self, value: Value<'_>) {
        match value {
            Value::Time(time) => {
                let since = zigzag(time.wrapping_sub(self.time.unwrap_or(EPOCH)));
                self.time = Some(time);
                match u8::try_from(since) {
                    // Most times are equal to the previous one.
                    Ok(short @ ..0x80) => self.bytes.push(short),
                    _ => put_varint(since, &mut self.bytes),
                }
            }
            Value::Uuid(bytes) => self.bytes.extend_from_slice(bytes),
            Value::Digest(bytes) => self.bytes.extend_from_slice(bytes),
            Value::Ipv4(bytes) => self.bytes.extend_from_slice(&bytes),
            Value::Count(count) => put_varint(u64::from(count), &mut self.bytes),
            // These come from strings, which `push_string` stores.
            Value::Ipv6(_) | Value::Mac(_) | Value::Hex(_) | Value::Amount(_) | Value::Generated(_) => {}
            Value::Json(_) | Value::Text(_) | Value::NodeIp(_) | Value::Revision(_) => {}
        }
    }

    /// Appends the contents of a JSON string of [`Kind::String`] or [`Kind::Word`].
    pub(super) fn push_string(&mut self, contents: &str) {
        self.strings.push(contents, &mut self.bytes);
    }

    pub(super) fn push_suffix(&mut self, text: &[u8]) {
        self.bytes.extend_from_slice(text);
    }

    /// Appends the previous time again. Does nothing if there is none.
    pub(super) fn push_same_time(&mut self) {
        if self.time.is_some() {
            self.bytes.push(0);
        }
    }

    /// Appends a node's name. Returns false if it is too long.
    pub(super) fn push_text(&mut self, text: &[u8]) -> bool {
        if let Some(address) = forms::node_ip(text) {
            self.bytes.push(0);
            self.bytes.extend_from_slice(&address);
            return true;
        }
        let Ok(length) = u8::try_from(text.len()) else { return false };
        self.bytes.push(length);
        self.bytes.extend_from_slice(text);
        true
    }
}

impl Value<'_> {
    /// Returns true if the value is valid in JSON. Bytes of another process can be anything.
    pub(super) fn is_valid(self) -> bool {
        match self {
            Self::Text(text) => json_string::contents(text.as_bytes()).is_some_and(|text| !text.contains('\\')),
            Self::Json(contents) => json_string::contents(contents.as_bytes()).is_some(),
            // The years 1 to 9999.
            Self::Time(seconds) => (-62_135_596_800..253_402_300_800).contains(&seconds) && !self.is_sentinel(),
            Self::Count(count) => i32::try_from(count).is_ok() && !self.is_sentinel(),
            _ => true,
        }
    }

    /// Returns true for a time or count that is a sentinel.
    fn is_sentinel(self) -> bool {
        const NUMBERS: usize = FRAGMENTS * MAX_PLACEHOLDERS;
        match self {
            Self::Time(seconds) => (sentinel_time(0)..sentinel_time(NUMBERS)).contains(&seconds),
            Self::Count(count) => (sentinel_count(0)..sentinel_count(NUMBERS)).contains(&count),
            _ => false,
        }
    }

    /// Appends the JSON of the value.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Text(text) | Self::Json(text) => out.extend_from_slice(text.as_bytes()),
            Self::Revision(number) => write_number(number, out),
            Self::Count(number) => write_number(u64::from(number), out),
            Self::Amount(amount) => {
                write_number(amount.number, out);
                out.extend_from_slice(amount.unit().as_bytes());
            }
            Self::Generated(generated) => out.extend(generated.text()),
            Self::Time(seconds) => out.extend_from_slice(&time_text(seconds)),
            Self::Ipv4(bytes) => put_bytes(bytes, b'.', out),
            Self::NodeIp(bytes) => {
                out.extend_from_slice(forms::NODE_IP);
                put_bytes(bytes, b'-', out);
            }
            Self::Ipv6(bytes) => forms::put_ipv6(bytes, out),
            Self::Mac(bytes) => out.extend_from_slice(&mac_text(bytes)),
            Self::Hex(bytes) => put_hex(bytes, out),
            Self::Uuid(bytes) => out.extend_from_slice(&uuid_text(bytes)),
            Self::Digest(bytes) => bytes.as_chunks().0.iter().for_each(|bytes| out.extend_from_slice(&hex(bytes))),
        }
    }

    /// Appends the text that the JSON encodes.
    pub(super) fn write_text(self, out: &mut Vec<u8>) {
        match self {
            Self::Json(contents) => json_string::write_text(contents, out),
            other => other.write(out),
        }
    }

    /// Returns true if both encode the same text; `self` and `other` are of one kind.
    pub(super) fn is_same_text(self, other: Self) -> bool {
        // Two strings of different bytes can only encode the same text with escapes. Bytes of another process may have
        // any of the forms that write a text.
        let has_escapes = |value| matches!(value, Self::Json(contents) if contents.contains('\\'));
        self == other
            || (discriminant(&self) != discriminant(&other) || has_escapes(self) || has_escapes(other))
                && self.text() == other.text()
    }

    fn text(self) -> Vec<u8> {
        let mut text = Vec::new();
        match self {
            Self::Json(contents) => text.extend_from_slice(json_string::text(contents).as_bytes()),
            other => other.write(&mut text),
        }
        text
    }

    /// Returns the number of bytes that [`Self::write_text`] appends.
    pub(super) fn len(self) -> usize {
        match self {
            Self::Json(contents) => json_string::text_length(contents),
            Self::Text(text) => text.len(),
            Self::Time(_) => 20,
            Self::Uuid(_) => 36,
            Self::Digest(_) => 64,
            Self::Mac(_) => 17,
            Self::Hex(bytes) => 2 * bytes.len(),
            Self::Ipv6(_) => self.text().len(),
            Self::Ipv4(bytes) => 3 + bytes.into_iter().map(|byte| digits(u64::from(byte))).sum::<usize>(),
            Self::NodeIp(bytes) => forms::NODE_IP.len() + Self::Ipv4(bytes).len(),
            Self::Count(number) => digits(u64::from(number)),
            Self::Amount(amount) => digits(amount.number) + amount.unit().len(),
            Self::Generated(generated) => generated.len(),
            Self::Revision(number) => digits(number),
        }
    }
}

/// Appends the numbers of an IPv4 address.
fn put_bytes(bytes: [u8; 4], separator: u8, out: &mut Vec<u8>) {
    for (at, byte) in bytes.into_iter().enumerate() {
        if at > 0 {
            out.push(separator);
        }
        write_number(u64::from(byte), out);
    }
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

fn write_number(number: u64, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut left = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Parses a time of a Pod: any time except the sentinels.
pub(super) fn time(text: &[u8; 20]) -> Option<i64> {
    forms::time(text).filter(|time| !Value::Time(*time).is_sentinel())
}

/// Parses a count of a Pod: any count except the sentinels.
pub(super) fn count(text: &[u8]) -> Option<(u32, usize)> {
    forms::count(text).filter(|(count, _)| !Value::Count(*count).is_sentinel())
}

/// The beginning of a sentinel in a text.
pub(super) const SENTINEL: &str = "~placeholder-of-pod~";

/// Returns the sentinel of placeholder `at`: a text that is decoded instead of its value and located in the sections.
pub(super) fn sentinel_text(at: usize) -> String {
    let mut text = String::with_capacity(18);
    // Writing to a String cannot fail.
    let _ = write!(text, "{SENTINEL}{at:05}");
    text
}

/// Like [`sentinel_text`], for times: seconds since 1970, in the year 2096.
pub(super) fn sentinel_time(at: usize) -> i64 {
    4_000_000_000 + at as i64
}

/// Like [`sentinel_text`], for counts.
pub(super) fn sentinel_count(at: usize) -> u32 {
    0x6d5a_0000 + at as u32
}
#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::forms::{digest, ipv4, number, time, uuid};

    fn written(value: Value<'_>) -> String {
        let mut out = Vec::new();
        value.write(&mut out);
        assert_eq!(out.len(), value.len());
        String::from_utf8(out).unwrap()
    }

    proptest! {

        #[test]
        fn every_parsed_placeholder_value_is_restored_exactly(text in "[0-9a-f.:TZ-]{0,40}") {
            let bytes = text.as_bytes();
            if let Some(value) = bytes.first_chunk::<20>().filter(|_| bytes.len() == 20).and_then(time) {
                prop_assert_eq!(&written(Value::Time(value)), &text);
            }
            if let Some((value, _)) = ipv4(bytes).filter(|(_, length)| *length == bytes.len()) {
                prop_assert_eq!(&written(Value::Ipv4(value)), &text);
            }
            if let Some(value) = number(bytes) {
                prop_assert_eq!(&written(Value::Revision(value)), &text);
            }
        }

        #[test]
        fn values_come_back_in_their_order(
            times in prop::collection::vec(-62_135_596_800..253_402_300_800_i64, 0..6),
            id in any::<[u8; 16]>(),
            hash in any::<[u8; 32]>(),
            address in any::<[u8; 4]>(),
            count in any::<u32>(),
        ) {
            let mut own = ValueWriter::default();
            times.iter().for_each(|time| own.push(Value::Time(*time)));
            for value in [Value::Uuid(&id), Value::Digest(&hash), Value::Ipv4(address), Value::Count(count)] {
                own.push(value);
            }
            prop_assert!(own.push_text(b"node-1"));
            let mut values = ValueReader::new(&own.bytes);
            for time in times {
                prop_assert_eq!(values.next(Kind::Time), Some(Value::Time(time)));
            }
            prop_assert_eq!(values.next(Kind::Uuid), Some(Value::Uuid(&id)));
            prop_assert_eq!(values.next(Kind::Digest), Some(Value::Digest(&hash)));
            prop_assert_eq!(values.next(Kind::Ipv4), Some(Value::Ipv4(address)));
            prop_assert_eq!(values.next(Kind::Count), Some(Value::Count(count)));
            prop_assert_eq!(values.next(Kind::Text), Some(Value::Text("node-1")));
            prop_assert!(values.is_empty());
        }
    }

    #[test]
    fn a_node_name_made_of_an_address_takes_five_bytes() {
        for (name, bytes) in [
            ("ip-10-0-179-12", 5),
            ("ip-255-255-255-255", 5),
            // Other spellings are other names.
            ("ip-10-0-179-012", 16),
            ("ip-10-0-179-256", 16),
            ("ip-10-0-179", 12),
            ("ip-10-0-179-12-a", 17),
            ("IP-10-0-179-12", 15),
            ("ip-10.0.179.12", 15),
            ("node-1", 7),
        ] {
            let mut own = ValueWriter::default();
            assert!(own.push_text(name.as_bytes()));
            assert_eq!(own.bytes.len(), bytes, "{name}");
            let mut values = ValueReader::new(&own.bytes);
            let value = values.next(Kind::Text).unwrap();
            assert_eq!((&*written(value), values.is_empty(), value.is_valid()), (name, true, true));
            let as_text = Value::Text(name);
            assert!(
                value.is_same_text(as_text) && as_text.is_same_text(value) && !value.is_same_text(Value::Text("a"))
            );
        }
    }

    #[test]
    fn uids_and_digests_are_restored_and_other_texts_are_not_parsed() {
        let text = b"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
        assert_eq!(written(Value::Uuid(&uuid(text).unwrap())).as_bytes(), text);
        assert_eq!(uuid(b"0A1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"), None);
        assert_eq!(uuid(b"0a1b2c3d_4e5f_6071_8293_a4b5c6d7e8f9"), None);
        let text = [b'7'; 64];
        assert_eq!(written(Value::Digest(&digest(&text).unwrap())).as_bytes(), text);
        assert_eq!(digest(&[b'F'; 64]), None);
    }
}
