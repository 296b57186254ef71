//! What the API server would refuse for its form. The rules are those of Kubernetes' apimachinery.

use crate::Refused;

type Check = Result<(), Refused>;

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(Refused::Invalid(message())) }
}

/// A key of labels, annotations, finalizers and conditions: an optional DNS subdomain and `/` before a name.
pub(super) fn key(key: &str) -> Check {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let holds = !name.is_empty() && is_name(name, 63) && prefix.is_none_or(is_subdomain);
    ensure(holds, || format!("key {key:?} is no qualified name"))
}

pub(super) fn label_value(value: &str) -> Check {
    ensure(is_name(value, 63), || {
        format!("label value {value:?} must be at most 63 of [A-Za-z0-9._-] with a letter or digit at both ends")
    })
}

pub(super) fn word(field: &str, word: &str) -> Check {
    let holds = (1..=128).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    ensure(holds, || format!("{field} {word:?} must be one UpperCamelCase word of at most 128 bytes"))
}

pub(super) fn note(note: &str) -> Check {
    ensure(note.len() <= 1024, || format!("a note of {} bytes is longer than 1 KiB", note.len()))
}

fn is_name(text: &str, longest: usize) -> bool {
    let ends = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= longest
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && ends(text.bytes().next())
        && ends(text.bytes().last())
}

fn is_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}
