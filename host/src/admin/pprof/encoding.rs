//! The format of pprof, which `go tool pprof`, Grafana and others read: a message of protobuf, not compressed.
//!
//! Source of the numbers: profile.proto in google/pprof.

use std::time::Duration;

use podium_vocabulary::text;
use prost::Message;

use super::Profile;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Encoded {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    #[prost(int64, tag = "10")]
    pub(crate) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(crate) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(crate) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(crate) comment: Vec<i64>,
}

/// Fields named as numbers are places in the table of strings.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(crate) value: Vec<i64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(crate) struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct Function {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) name: i64,
}

/// The beginning of the table of strings, whose first one must be empty.
const STRINGS: [&str; 5] = ["", "samples", "count", "cpu", "nanoseconds"];
const SAMPLES: ValueType = ValueType { kind: 1, unit: 2 };
const CPU: ValueType = ValueType { kind: 3, unit: 4 };

/// Returns a profile in the format of pprof, with a comment on it. Each function is one location.
pub(super) fn encoded(profile: &Profile, comment: String) -> Vec<u8> {
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let period = nanos(profile.every);
    let id = |number: usize| number as u64 + 1;
    let mut string_table: Vec<String> = STRINGS.map(str::to_owned).into();
    let mut function = Vec::new();
    for (number, name) in profile.samples.names() {
        function.push(Function { id: id(number), name: string_table.len().cast_signed() as i64 });
        string_table.push(text::line(&format!("{:#}", rustc_demangle::demangle(name))));
    }
    let location = function.iter().map(|of| Location { id: of.id, line: vec![Line { function_id: of.id }] }).collect();
    let sample = profile.samples.stacks().map(|(stack, count)| {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let location_id = stack.iter().map(|number| id(*number)).collect();
        Sample { location_id, value: vec![count, count.saturating_mul(period)] }
    });
    let sample = sample.collect();
    string_table.push(comment);
    let encoded = Encoded {
        sample_type: vec![SAMPLES, CPU],
        sample,
        location,
        function,
        comment: vec![string_table.len().cast_signed() as i64 - 1],
        string_table,
        duration_nanos: nanos(profile.took),
        period_type: Some(CPU),
        period,
    };
    encoded.encode_to_vec()
}
