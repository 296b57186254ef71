//! JSON that others wrote, parsed only if its values take a bounded memory: `{"":0}` takes a hundred times the memory
//! of its text, so that a bound on the bytes of a text is none on what it costs. No schema is checked here.

use serde::de::Error;
use serde_json::Value;

/// The most memory that the values of a text may take, in bytes. An object of a megabyte that people wrote takes about
/// as much.
pub const MOST_MEMORY: usize = 8 << 20;

/// Bytes of a value: the size of [`Value`].
const VALUE: usize = 32;
/// Bytes of the first member of an object, of which the standard library's map makes a node of 11 names and values, and
/// of another one, of the nodes that are half full after a division.
const FIRST_MEMBER: usize = 640;
const MEMBER: usize = 112;
/// The fewest elements for which a vector has memory.
const ELEMENTS: usize = 4;
/// The places of an element of a vector that has just doubled, whose former memory is still there.
const GROWTH: usize = 3;
/// The least memory of a text.
const TEXT: usize = 16;

/// Parses a text.
///
/// # Errors
/// Returns an error if it is no JSON, nests more than 128 levels, or its values would take more than [`MOST_MEMORY`].
pub fn value(text: &[u8]) -> serde_json::Result<Value> {
    // No text of fewer bytes has such values.
    let memory = if text.len() < MOST_MEMORY / FIRST_MEMBER { 0 } else { memory(text) };
    if memory > MOST_MEMORY {
        let mebibytes = |bytes: usize| bytes.div_ceil(1 << 20);
        return Err(serde_json::Error::custom(format_args!(
            "its values would take {} MiB of memory; at most {}",
            mebibytes(memory),
            mebibytes(MOST_MEMORY)
        )));
    }
    serde_json::from_slice(text)
}

/// Returns about how many bytes of memory the values of a text take while it is parsed, rather too many than too few.
/// Of a text that is no JSON any number.
fn memory(text: &[u8]) -> usize {
    let mut memory = VALUE + text.len();
    let mut last = 0;
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'"' => {
                memory += TEXT;
                // To its end; the byte after a backslash does not end it.
                while let Some(byte) = bytes.next().filter(|byte| **byte != b'"') {
                    if *byte == b'\\' {
                        bytes.next();
                    }
                }
            }
            b':' => memory += if last == b'{' { FIRST_MEMBER } else { MEMBER },
            b'[' => memory += ELEMENTS * VALUE,
            b',' => memory += GROWTH * VALUE,
            _ => {}
        }
        if matches!(byte, b'{' | b'}' | b'[' | b']' | b':' | b',') {
            last = byte;
        }
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_would_take_too_much_memory_are_not_parsed() {
        for (part, parts, fits) in [
            // As people write it: many short texts, a list of mappings.
            (r#""0123456789012345678901234567890123456789""#, 24_000, true),
            (r#"{"name":"a-name-of-a-port","containerPort":8080,"protocol":"TCP"}"#, 6_000, true),
            (r#"{"":0}"#, 11_000, true),
            (r#"{"":0}"#, 14_000, false),
            ("[[]]", 20_000, true),
            ("[[]]", 40_000, false),
            (r#"{"":{"":0}}"#, 7_000, false),
            ("0", 200_000, false),
        ] {
            let text = format!("[{}]", vec![part; parts].join(","));
            match value(text.as_bytes()) {
                Ok(values) => assert!(fits && values.as_array().unwrap().len() == parts, "{parts} of {part}"),
                Err(error) => {
                    assert!(!fits, "{parts} of {part}: {error}");
                    assert!(error.to_string().ends_with("MiB of memory; at most 8"), "{error}");
                }
            }
        }
    }

    #[test]
    fn what_is_in_a_text_is_not_counted() {
        let text = serde_json::to_string(&r#"{"a":[{},{"\":0,"#.repeat(100_000)).unwrap();
        assert!(value(text.as_bytes()).unwrap().is_string());
        assert!(value(br#"{"a":"#).is_err());
    }
}
