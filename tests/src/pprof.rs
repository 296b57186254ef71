//! Profiles in the format of pprof, read by its specification (profile.proto of google/pprof).

use anyhow::{Context, ensure};
use prost::Message;

#[derive(Message)]
struct Wire {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "12")]
    period: i64,
    #[prost(int64, repeated, tag = "13")]
    comment: Vec<i64>,
}

#[derive(Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// A profile.
#[derive(Debug)]
pub struct Profile {
    /// The functions of each stack, the innermost first, and how often it was seen.
    pub stacks: Vec<(Vec<String>, i64)>,
    pub comment: String,
}

impl Profile {
    /// # Errors
    /// Returns an error if the bytes are no profile of samples and processor time.
    pub fn decode(bytes: &[u8]) -> anyhow::Result<Self> {
        let wire = Wire::decode(bytes)?;
        let text = |at: i64| wire.string_table.get(usize::try_from(at)?).cloned().context("no such text");
        ensure!(text(0)?.is_empty(), "the first text must be empty");
        let types: Vec<_> = wire.sample_type.iter().map(|of| Ok((text(of.kind)?, text(of.unit)?))).collect();
        let types = types.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        let expected = [("samples", "count"), ("cpu", "nanoseconds")].map(|(kind, unit)| (kind.into(), unit.into()));
        ensure!(types == expected, "{types:?}");
        let name = |id: u64| {
            let location = wire.location.iter().find(|location| location.id == id).context("no such location")?;
            let function = location.line.first().context("a location without a line")?.function_id;
            let function = wire.function.iter().find(|of| of.id == function).context("no such function")?;
            text(function.name)
        };
        let mut stacks = Vec::new();
        for sample in &wire.sample {
            let names = sample.location_id.iter().map(|id| name(*id)).collect::<anyhow::Result<Vec<_>>>()?;
            let [count, nanos] = *sample.value.as_slice() else { anyhow::bail!("{sample:?}") };
            ensure!(nanos == count * wire.period, "{sample:?} at a period of {}", wire.period);
            stacks.push((names, count));
        }
        let comment = wire.comment.first().map_or_else(|| Ok(String::new()), |at| text(*at))?;
        Ok(Self { stacks, comment })
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn samples(&self) -> i64 {
        self.stacks.iter().map(|(_, count)| count).sum()
    }

    /// Returns the samples whose innermost function has this in its name.
    #[must_use]
    pub fn in_function(&self, name: &str) -> i64 {
        let own = |stack: &[String]| stack.first().is_some_and(|innermost| innermost.contains(name));
        self.stacks.iter().filter(|(stack, _)| own(stack)).map(|(_, count)| count).sum()
    }

    /// Returns the samples with a function of this in its name, anywhere in the stack.
    #[must_use]
    pub fn below_function(&self, name: &str) -> i64 {
        let own = |stack: &[String]| stack.iter().any(|function| function.contains(name));
        self.stacks.iter().filter(|(stack, _)| own(stack)).map(|(_, count)| count).sum()
    }
}
