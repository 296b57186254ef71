//! Events, lists and errors in the two encodings of the Kubernetes API.

use super::Object;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

/// The prefix of every outermost object in protobuf.
const MAGIC: &[u8] = b"k8s\0";
const TYPE_META: &[u8] = br#"{"kind":"Pod","apiVersion":"v1","#;
const EXPIRED: &str = "too old resource version";

impl Encoding {
    pub(super) fn of_accept(accept: &str) -> Self {
        match accept.contains("protobuf") {
            true => Self::Protobuf,
            false => Self::Json,
        }
    }

    pub(super) fn content_type(self, watch: bool) -> &'static str {
        match (self, watch) {
            (Self::Json, _) => "application/json",
            (Self::Protobuf, false) => "application/vnd.kubernetes.protobuf",
            (Self::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
        }
    }

    pub(super) fn event(self, kind: &str, object: &Object, into: &mut Vec<u8>) {
        match (self, &object.protobuf) {
            (Self::Protobuf, Some(object)) => protobuf_event(kind, object, into),
            (Self::Json, _) | (_, None) => json_event(kind, &object.json, into),
        }
    }

    pub(super) fn bookmark(self, revision: u64, initial_events_end: bool, into: &mut Vec<u8>) {
        match self {
            Self::Json => {
                let end = r#","annotations":{"k8s.io/initial-events-end":"true"}"#;
                let annotations = if initial_events_end { end } else { "" };
                let object = format!(
                    "{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\
                    \"metadata\":{{\"resourceVersion\":\"{revision}\"{annotations}}},\
                    \"spec\":{{\"containers\":null}},\"status\":{{}}}}"
                );
                json_event("BOOKMARK", object.as_bytes(), into);
            }
            Self::Protobuf => {
                let mut metadata = Vec::new();
                field(6, revision.to_string().as_bytes(), &mut metadata);
                if initial_events_end {
                    let mut entry = Vec::new();
                    field(1, b"k8s.io/initial-events-end", &mut entry);
                    field(2, b"true", &mut entry);
                    field(12, &entry, &mut metadata);
                }
                let mut pod = Vec::new();
                field(1, &metadata, &mut pod);
                protobuf_event("BOOKMARK", &unknown("Pod", &pod), into);
            }
        }
    }

    /// Appends the error of lost history.
    pub(super) fn expired(self, into: &mut Vec<u8>) {
        match self {
            Self::Json => {
                let object = format!(
                    "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",\
                    \"message\":\"{EXPIRED}\",\"reason\":\"Expired\",\"code\":410}}"
                );
                json_event("ERROR", object.as_bytes(), into);
            }
            Self::Protobuf => {
                let mut status = Vec::new();
                field(1, b"", &mut status);
                field(2, b"Failure", &mut status);
                field(3, EXPIRED.as_bytes(), &mut status);
                field(4, b"Expired", &mut status);
                number(6, 410, &mut status);
                protobuf_event("ERROR", &unknown("Status", &status), into);
            }
        }
    }

    /// Returns a list. Items lack kind and apiVersion; in protobuf the envelope of each is removed.
    pub(super) fn list(self, objects: &[Object], revision: u64, next: Option<(&str, usize)>) -> Vec<u8> {
        let mut list = Vec::with_capacity(objects.iter().map(|object| object.json.len() + 1).sum::<usize>() + 200);
        match self {
            Self::Json => {
                let next = next.map_or_else(String::new, |(token, left)| {
                    format!(r#","continue":"{token}","remainingItemCount":{left}"#)
                });
                let head = format!(
                    "{{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\
                    \"metadata\":{{\"resourceVersion\":\"{revision}\"{next}}},\"items\":["
                );
                list.extend_from_slice(head.as_bytes());
                for (at, object) in objects.iter().enumerate() {
                    list.extend_from_slice(if at == 0 { b"{" } else { b",{" });
                    list.extend_from_slice(object.json.strip_prefix(TYPE_META).unwrap_or(&object.json));
                }
                list.extend_from_slice(b"]}");
                list
            }
            Self::Protobuf => {
                let mut metadata = Vec::new();
                field(2, revision.to_string().as_bytes(), &mut metadata);
                if let Some((token, left)) = next {
                    field(3, token.as_bytes(), &mut metadata);
                    number(4, left as u64, &mut metadata);
                }
                field(1, &metadata, &mut list);
                for object in objects {
                    let raw = object.protobuf.as_deref().and_then(raw).unwrap_or_default();
                    field(2, raw, &mut list);
                }
                unknown("PodList", &list)
            }
        }
    }
}

fn json_event(kind: &str, object: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(br#"{"type":""#);
    into.extend_from_slice(kind.as_bytes());
    into.extend_from_slice(br#"","object":"#);
    into.extend_from_slice(object);
    into.extend_from_slice(b"}\n");
}

/// Appends a `WatchEvent` after its length.
fn protobuf_event(kind: &str, object: &[u8], into: &mut Vec<u8>) {
    let extension = 1 + varint_length(object.len()) + object.len();
    let length = 2 + kind.len() + 1 + varint_length(extension) + extension;
    into.extend_from_slice(&(length as u32).to_be_bytes());
    field(1, kind.as_bytes(), into);
    into.push(2 << 3 | 2);
    varint(extension as u64, into);
    field(1, object, into);
}

/// Returns a `runtime.Unknown` of version v1 after the magic number.
fn unknown(kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut type_meta = Vec::new();
    field(1, b"v1", &mut type_meta);
    field(2, kind.as_bytes(), &mut type_meta);
    let mut unknown = MAGIC.to_vec();
    field(1, &type_meta, &mut unknown);
    field(2, raw, &mut unknown);
    unknown
}

/// Returns the object in a `runtime.Unknown`.
fn raw(unknown: &[u8]) -> Option<&[u8]> {
    let mut rest = unknown.strip_prefix(MAGIC)?;
    loop {
        let (&tag, behind) = rest.split_first()?;
        let (length, behind) = read_varint(behind)?;
        let (value, behind) = behind.split_at_checked(length)?;
        if tag == (2 << 3 | 2) {
            return Some(value);
        }
        rest = behind;
    }
}

fn field(number: u8, bytes: &[u8], into: &mut Vec<u8>) {
    into.push(number << 3 | 2);
    varint(bytes.len() as u64, into);
    into.extend_from_slice(bytes);
}

fn number(number: u8, value: u64, into: &mut Vec<u8>) {
    into.push(number << 3);
    varint(value, into);
}

fn varint(mut value: u64, into: &mut Vec<u8>) {
    while value > 0x7f {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn varint_length(value: usize) -> usize {
    let mut bytes = Vec::new();
    varint(value as u64, &mut bytes);
    bytes.len()
}

fn read_varint(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(9) {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_in_its_envelope_and_a_torn_one_is_not() {
        let object = vec![7; 300];
        let unknown = unknown("Pod", &object);
        assert_eq!(raw(&unknown), Some(object.as_slice()));
        assert_eq!(raw(&unknown[..unknown.len() - 1]), None);
    }

    #[test]
    fn an_event_has_its_length_before_it() {
        for length in [0, 1, 120, 127, 128, 16_383, 16_384, 70_000] {
            let mut event = Vec::new();
            protobuf_event("MODIFIED", &vec![1; length], &mut event);
            assert_eq!(u32::from_be_bytes(event[..4].try_into().unwrap()) as usize, event.len() - 4);
        }
    }
}
