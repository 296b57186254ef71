//! Arbitrary bytes as a record, as its sections and as a page of records: an error, or a value that encodes to the
//! same bytes.

#![expect(clippy::unwrap_used, reason = "a panic is a finding")]

use std::fmt::Debug;

use podium_wire::{
    Annotations, Header, Labels, Lifecycle, Owners, Pod, Record, RecordError, SectionBytes, Spec, Status, decode,
    encode, json, split_page,
};
use serde::{Serialize, de::DeserializeOwned};

pub fn run(input: &[u8]) {
    exact::<Header>(input);
    // In maps keys may be in any order and duplicated: these become a map, which has one encoding.
    canonical::<Labels>(input);
    canonical::<Annotations>(input);
    exact::<Owners>(input);
    exact::<Lifecycle>(input);
    canonical::<Spec>(input);
    exact::<Status>(input);
    if let Ok(records) = split_page(input) {
        let whole: usize = records.iter().map(|record| 4 + record.len()).sum();
        assert_eq!(whole, input.len());
        records.into_iter().for_each(open);
    }
    open(input);
}

/// Checks that a value has only one encoding.
fn exact<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    if let Ok(value) = decode::<T>(bytes) {
        assert_eq!(encode(&value).unwrap(), bytes);
    }
}

fn canonical<T: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8]) {
    if let Ok(value) = decode::<T>(bytes) {
        let encoded = encode(&value).unwrap();
        assert!(encoded.len() <= bytes.len());
        assert_eq!(decode::<T>(&encoded).unwrap(), value);
    }
}

fn open(bytes: &[u8]) {
    let Ok(record) = Record::open(bytes.to_vec()) else { return };
    fn kept<T: Default>(section: Result<T, RecordError>) -> Option<T> {
        match section {
            Ok(section) => Some(section),
            Err(RecordError::NotGranted(_)) => Some(T::default()),
            Err(_) => None,
        }
    }
    let read = || {
        Some(Pod {
            header: record.header().clone(),
            labels: kept(record.labels())?,
            annotations: kept(record.annotations())?,
            owners: kept(record.owners())?,
            lifecycle: kept(record.lifecycle())?,
            spec: kept(record.spec())?,
            status: kept(record.status())?,
            full: kept(record.full().map(str::to_owned))?,
        })
    };
    let Some(pod) = read() else { return };
    let written = SectionBytes::encode(&pod).unwrap().record(&pod.header, record.sections()).unwrap();
    assert!(written.len() <= bytes.len(), "fields that a later release appends only make a record longer");
    let again = Record::open(written.clone()).unwrap();
    assert_eq!((again.header(), again.sections()), (record.header(), record.sections()));
    assert_eq!((again.labels(), again.spec(), again.status()), (record.labels(), record.spec(), record.status()));
    assert_eq!(again.full(), record.full());
    assert_eq!(json::render(&again).unwrap(), json::render(&record).unwrap());
}
