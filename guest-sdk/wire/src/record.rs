//! The bytes of a record: codec, version, header, a table of sections, and the sections.
//!
//! ```text
//! u8 codec (1 = bincode legacy) | u8 version (1) | u8 sections n | u32 header length
//! n times: u8 section | u32 length            (ascending by section)
//! header | section bytes in the table's order
//! ```
//! Numbers are little endian. Opening a record reads the table and decodes the header; a section is decoded on
//! access.
//!
//! # How a record grows
//! Components outlive the release that they were built with. So within one version of the WIT package, and of the
//! record:
//! - [`Header`], [`Lifecycle`], [`Spec`] and [`Status`] may only gain fields at their end, and the other sections
//!   values after the present one; a new section has the next number. A reader ignores bytes after the fields that it
//!   knows, and sections that it does not know.
//! - No field is removed or reordered, and no field changes its type. The elements of lists and all enums do not
//!   change, because other bytes follow them: new fields of containers, for instance, are a new list at the end of the
//!   section.
//! - `full` is Kubernetes JSON and grows with Kubernetes; no other value follows it.
//!
//! The version is increased together with that of the WIT package and never by itself. The rule holds in one
//! direction: a component that knows a field newer than its host finds the section truncated, so hosts are upgraded
//! first. The host only decodes its own encoding, and exactly: [`crate::decode`]. `tests/golden.rs` pins the layout.

use serde::de::DeserializeOwned;

use crate::codec::{self, CodecError};
use crate::pod::{Annotations, Header, Labels, Lifecycle, Owners, Spec, Status};

const CODEC_BINCODE_LEGACY: u8 = 1;
const VERSION: u8 = 1;
const PREFIX: usize = 7;
const TABLE_ENTRY: usize = 5;

/// A part of the record that is granted, watched and compared separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Section {
    Labels = 0,
    Annotations = 1,
    Owners = 2,
    Lifecycle = 3,
    Spec = 4,
    Status = 5,
    /// The whole object as Kubernetes JSON. It is not encoded: its bytes are the text.
    Full = 6,
}

impl Section {
    /// The number of sections.
    pub const COUNT: usize = 7;
    /// All sections, in the order of the encoding.
    pub const ALL: [Self; Self::COUNT] =
        [Self::Labels, Self::Annotations, Self::Owners, Self::Lifecycle, Self::Spec, Self::Status, Self::Full];

    /// Returns the name in configuration and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Labels => "labels",
            Self::Annotations => "annotations",
            Self::Owners => "owners",
            Self::Lifecycle => "lifecycle",
            Self::Spec => "spec",
            Self::Status => "status",
            Self::Full => "full",
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte)).copied()
    }
}

/// A set of sections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SectionSet(u8);

impl SectionSet {
    pub const EMPTY: Self = Self(0);
    pub const ALL: Self = Self((1 << Section::COUNT) - 1);

    #[must_use]
    pub const fn with(self, section: Section) -> Self {
        Self(self.0 | 1 << section as u8)
    }
    #[must_use]
    pub const fn contains(self, section: Section) -> bool {
        self.0 & (1 << section as u8) != 0
    }
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
    #[must_use]
    pub const fn is_subset_of(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
    pub fn iter(self) -> impl Iterator<Item = Section> {
        Section::ALL.into_iter().filter(move |section| self.contains(*section))
    }
}

impl FromIterator<Section> for SectionSet {
    fn from_iter<I: IntoIterator<Item = Section>>(sections: I) -> Self {
        sections.into_iter().fold(Self::EMPTY, Self::with)
    }
}

/// A decoded Pod with all fields that Podium stores. [`SectionBytes::encode`] and [`Record`] are its two encoded
/// forms.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    pub header: Header,
    pub labels: Labels,
    pub annotations: Annotations,
    pub owners: Owners,
    pub lifecycle: Lifecycle,
    pub spec: Spec,
    pub status: Status,
    /// The whole object as Kubernetes JSON, without managedFields, including fields that are not in the others. Empty
    /// if it was left out: decoding leaves it out, because the caller has the text.
    pub full: String,
}

/// The sections of one Pod, each encoded separately: the form in which the host stores and compares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionBytes<B = Vec<u8>>([B; Section::COUNT]);

impl SectionBytes {
    /// # Errors
    /// Returns an error if a section exceeds [`crate::MAX_ENCODED_BYTES`]; no Pod of a real API server does.
    pub fn encode(pod: &Pod) -> Result<Self, CodecError> {
        let sections = [
            codec::encode(&pod.labels)?,
            codec::encode(&pod.annotations)?,
            codec::encode(&pod.owners)?,
            codec::encode(&pod.lifecycle)?,
            codec::encode(&pod.spec)?,
            codec::encode(&pod.status)?,
            pod.full.clone().into_bytes(),
        ];
        let encoded = &sections[..Section::Full as usize];
        match encoded.iter().map(Vec::len).find(|length| *length > codec::MAX_ENCODED_BYTES) {
            Some(length) => Err(CodecError::Encode(format!("a section of {length} bytes is too large"))),
            None => Ok(Self(sections)),
        }
    }
}

impl<B: AsRef<[u8]>> SectionBytes<B> {
    /// Returns sections that are already encoded.
    #[must_use]
    pub fn from_fn(section: impl FnMut(Section) -> B) -> Self {
        Self(Section::ALL.map(section))
    }

    #[must_use]
    pub fn get(&self, section: Section) -> &[u8] {
        self.0[section as usize].as_ref()
    }

    /// Returns the same sections in another kind of buffer.
    pub fn map<C>(self, keep: impl FnMut(B) -> C) -> SectionBytes<C> {
        SectionBytes(self.0.map(keep))
    }

    /// Returns the sections whose bytes differ.
    #[must_use]
    pub fn changed_from<C: AsRef<[u8]>>(&self, old: &SectionBytes<C>) -> SectionSet {
        Section::ALL.into_iter().filter(|section| self.get(*section) != old.get(*section)).collect()
    }

    /// Returns the bytes of a record with the sections in `wanted`.
    ///
    /// # Errors
    /// Returns an error if the header cannot be encoded, which does not happen.
    pub fn record(&self, header: &Header, wanted: SectionSet) -> Result<Vec<u8>, CodecError> {
        let header = codec::encode(header)?;
        let body: usize = wanted.iter().map(|section| TABLE_ENTRY + self.get(section).len()).sum();
        let mut bytes = Vec::with_capacity(PREFIX + header.len() + body);
        bytes.extend([CODEC_BINCODE_LEGACY, VERSION, wanted.iter().count() as u8]);
        bytes.extend(length(&header)?);
        for section in wanted.iter() {
            bytes.push(section as u8);
            bytes.extend(length(self.get(section))?);
        }
        bytes.extend(&header);
        for section in wanted.iter() {
            bytes.extend(self.get(section));
        }
        Ok(bytes)
    }
}

fn length(bytes: &[u8]) -> Result<[u8; 4], CodecError> {
    u32::try_from(bytes.len())
        .map(u32::to_le_bytes)
        .map_err(|_| CodecError::Encode(format!("{} bytes do not fit a record", bytes.len())))
}

/// Why bytes are not a record, or a section cannot be read from it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Another codec or version: host and guest were built from different releases.
    #[error("record of codec {codec}, version {version}; this build reads codec 1, version 1")]
    Version { codec: u8, version: u8 },
    /// The table or its lengths do not match the bytes.
    #[error("malformed record: {0}")]
    Malformed(&'static str),
    /// The section is not in this record: the plugin was not granted it.
    #[error(
        "section {0} is not in this record; grant it under spec.grants.read.pods.sections of the plugin's configuration"
    )]
    NotGranted(&'static str),
    #[error(transparent)]
    Codec(#[from] CodecError),
}

/// An opened record: its header, and the ranges of its sections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    header: Header,
    bytes: Vec<u8>,
    sections: [Option<(u32, u32)>; Section::COUNT],
}

impl Record {
    /// Opens the bytes of one record.
    ///
    /// # Errors
    /// Returns an error on bytes that [`SectionBytes::record`] of this or a later release of the same version does
    /// not produce; never panics.
    pub fn open(bytes: Vec<u8>) -> Result<Self, RecordError> {
        let Some((prefix, _)) = bytes.split_first_chunk::<PREFIX>() else {
            return Err(RecordError::Malformed("shorter than its prefix"));
        };
        let [codec, version, count, length @ ..] = *prefix;
        if (codec, version) != (CODEC_BINCODE_LEGACY, VERSION) {
            return Err(RecordError::Version { codec, version });
        }
        let header_length = u32::from_le_bytes(length) as usize;
        let table_end = PREFIX + usize::from(count) * TABLE_ENTRY;
        let table = bytes.get(PREFIX..table_end).ok_or(RecordError::Malformed("table cut off"))?;
        let header_end = table_end.checked_add(header_length).ok_or(RecordError::Malformed("header too long"))?;
        let header = bytes.get(table_end..header_end).ok_or(RecordError::Malformed("header cut off"))?;
        let header = codec::decode_prefix(header)?;
        let mut sections = [None; Section::COUNT];
        let mut start = header_end;
        let mut previous = None;
        for entry in table.chunks_exact(TABLE_ENTRY) {
            let &[section, a, b, c, d] = entry else { return Err(RecordError::Malformed("table cut off")) };
            if previous.is_some_and(|previous| previous >= section) {
                return Err(RecordError::Malformed("sections out of order"));
            }
            previous = Some(section);
            let end = start
                .checked_add(u32::from_le_bytes([a, b, c, d]) as usize)
                .filter(|end| *end <= bytes.len())
                .ok_or(RecordError::Malformed("section cut off"))?;
            // Both fit into a u32, because `end` is at most the length of a record.
            let (Ok(from), Ok(to)) = (u32::try_from(start), u32::try_from(end)) else {
                return Err(RecordError::Malformed("longer than 4 GiB"));
            };
            if let Some(known) = Section::from_byte(section) {
                sections[known as usize] = Some((from, to));
            }
            start = end;
        }
        if start != bytes.len() {
            return Err(RecordError::Malformed("bytes left over"));
        }
        Ok(Self { header, bytes, sections })
    }

    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the sections of this record that this build knows.
    #[must_use]
    pub fn sections(&self) -> SectionSet {
        Section::ALL.into_iter().filter(|section| self.sections[*section as usize].is_some()).collect()
    }

    fn bytes(&self, section: Section) -> Result<&[u8], RecordError> {
        let (from, to) = self.sections[section as usize].ok_or(RecordError::NotGranted(section.name()))?;
        Ok(&self.bytes[from as usize..to as usize])
    }

    fn section<T: DeserializeOwned>(&self, section: Section) -> Result<T, RecordError> {
        Ok(codec::decode_prefix(self.bytes(section)?)?)
    }

    /// # Errors
    /// Returns an error if the section was not granted or its bytes are malformed. The same applies to all methods
    /// below.
    pub fn labels(&self) -> Result<Labels, RecordError> {
        self.section(Section::Labels)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn annotations(&self) -> Result<Annotations, RecordError> {
        self.section(Section::Annotations)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn owners(&self) -> Result<Owners, RecordError> {
        self.section(Section::Owners)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn lifecycle(&self) -> Result<Lifecycle, RecordError> {
        self.section(Section::Lifecycle)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn spec(&self) -> Result<Spec, RecordError> {
        self.section(Section::Spec)
    }
    /// # Errors
    /// See [`Self::labels`].
    pub fn status(&self) -> Result<Status, RecordError> {
        self.section(Section::Status)
    }
    /// Returns the whole object as Kubernetes JSON, without managedFields.
    ///
    /// # Errors
    /// See [`Self::labels`].
    pub fn full(&self) -> Result<&str, RecordError> {
        str::from_utf8(self.bytes(Section::Full)?).map_err(|_| RecordError::Malformed("full object is not UTF-8"))
    }
}

/// Splits a page of `pods.find` into records: each is preceded by its length, u32 little endian.
///
/// # Errors
/// Returns an error if a length does not match the bytes.
pub fn split_page(mut page: &[u8]) -> Result<Vec<&[u8]>, RecordError> {
    let mut records = Vec::new();
    while !page.is_empty() {
        let (length, rest) = page.split_first_chunk::<4>().ok_or(RecordError::Malformed("page cut off"))?;
        let length = u32::from_le_bytes(*length) as usize;
        if length > rest.len() {
            return Err(RecordError::Malformed("page cut off"));
        }
        let (record, rest) = rest.split_at(length);
        records.push(record);
        page = rest;
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        Pod {
            header: Header { namespace: "shop".into(), name: "cart-0".into(), uid: "u1".into(), ..Header::default() },
            labels: [("app".to_owned(), "cart".to_owned())].into(),
            full: r#"{"later": 1}"#.into(),
            ..Pod::default()
        }
    }

    #[test]
    fn a_record_contains_exactly_the_requested_sections() {
        let wanted = SectionSet::EMPTY.with(Section::Labels).with(Section::Lifecycle);
        let bytes = SectionBytes::encode(&pod()).unwrap().record(&pod().header, wanted).unwrap();
        let record = Record::open(bytes).unwrap();
        assert_eq!(record.sections(), wanted);
        assert_eq!(record.header(), &pod().header);
        assert_eq!(record.labels().unwrap(), pod().labels);
        assert_eq!(record.spec(), Err(RecordError::NotGranted("spec")));
    }

    #[test]
    fn a_damaged_table_never_panics() {
        let bytes = SectionBytes::encode(&pod()).unwrap().record(&pod().header, SectionSet::ALL).unwrap();
        for end in 0..bytes.len() {
            assert!(Record::open(bytes[..end].to_vec()).is_err(), "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut hostile = bytes.clone();
            hostile[at] ^= 0xff;
            if let Ok(record) = Record::open(hostile) {
                let _ = (record.labels(), record.spec(), record.status(), record.lifecycle(), record.full());
            }
        }
    }

    /// Returns a record with all sections, as a later release might write it: `more` after the header and every
    /// encoded section, and a section that this build does not know.
    fn grown(more: &[u8]) -> Vec<u8> {
        let grown = |bytes: &[u8]| [bytes, more].concat();
        let sections = SectionBytes::encode(&pod()).unwrap();
        let encoded = Section::ALL.iter().filter(|section| **section != Section::Full);
        let mut parts: Vec<_> = encoded.map(|section| grown(sections.get(*section))).collect();
        parts.push(sections.get(Section::Full).to_vec());
        parts.push(b"unknown".to_vec());
        let header = grown(&codec::encode(&pod().header).unwrap());
        let mut bytes = vec![CODEC_BINCODE_LEGACY, VERSION, parts.len() as u8];
        bytes.extend(length(&header).unwrap());
        for (section, part) in parts.iter().enumerate() {
            bytes.push(section as u8);
            bytes.extend(length(part).unwrap());
        }
        [bytes, header, parts.concat()].concat()
    }

    #[test]
    fn a_record_of_a_later_release_reads_as_far_as_it_is_known() {
        let record = Record::open(grown(&[0xff; 3])).unwrap();
        assert_eq!(record.sections(), SectionSet::ALL);
        let read = Pod {
            header: record.header().clone(),
            labels: record.labels().unwrap(),
            annotations: record.annotations().unwrap(),
            owners: record.owners().unwrap(),
            lifecycle: record.lifecycle().unwrap(),
            spec: record.spec().unwrap(),
            status: record.status().unwrap(),
            full: record.full().unwrap().to_owned(),
        };
        assert_eq!(read, pod());
    }

    #[test]
    fn a_change_names_its_sections() {
        let mut new = pod();
        new.status.phase = "Running".into();
        let old = SectionBytes::encode(&pod()).unwrap();
        let new = SectionBytes::encode(&new).unwrap();
        assert_eq!(new.changed_from(&old), SectionSet::EMPTY.with(Section::Status));
    }
}
