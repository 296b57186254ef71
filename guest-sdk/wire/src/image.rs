//! The syntax of references to images of OCI registries: `HOST/REPOSITORY:TAG@DIGEST`. Configurations are checked with
//! it, and the client of registries reads references by it.

/// The most bytes of a reference.
pub const MAX_IMAGE_BYTES: usize = MAX_HOST_BYTES + 1 + MAX_REPOSITORY_BYTES + 1 + MAX_TAG_BYTES + 1 + DIGEST_BYTES;
/// The most bytes of a host with its port.
pub const MAX_HOST_BYTES: usize = 253 + ":65535".len();
/// As the registries have it.
const MAX_REPOSITORY_BYTES: usize = 255;
/// As the specification has it.
const MAX_TAG_BYTES: usize = 128;
/// `sha256:` and 64 digits.
const DIGEST_BYTES: usize = "sha256:".len() + 64;

/// The parts of a reference. The host is always explicit; there is no default registry and no default tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image<'a> {
    /// The host of the registry, with an optional port.
    pub host: &'a str,
    /// The name of the repository.
    pub repository: &'a str,
    /// The tag; of tag and digest at least one is there.
    pub tag: Option<&'a str>,
    /// `sha256:` and 64 hexadecimal digits in lower case.
    pub digest: Option<&'a str>,
}

/// Reads a reference.
///
/// # Errors
/// Returns an error for any other text.
pub fn image(text: &str) -> Result<Image<'_>, &'static str> {
    if text.contains("://") {
        return Err("must not have a scheme; write HOST/REPOSITORY:TAG");
    }
    let (host, rest) = text.split_once('/').unwrap_or(("", text));
    // As in all clients, a first part without these is a repository of a default registry, and there is none here.
    if !(host.contains(['.', ':']) || host == "localhost") {
        return Err("must begin with the host of a registry, as in registry.example/team/plugin:1.0");
    }
    let (name, _) = registry_host(host).map_err(|_| "must begin with a host and an optional port")?;
    if ["docker.io", "index.docker.io"].iter().any(|alias| name.eq_ignore_ascii_case(alias)) {
        return Err("must have the host registry-1.docker.io instead, and there is no library/ by default");
    }
    let (rest, digest) = match rest.split_once('@') {
        Some((rest, digest)) if is_digest(digest) => (rest, Some(digest)),
        Some(_) => return Err("must have sha256: and 64 hexadecimal digits in lower case after its @"),
        None => (rest, None),
    };
    let (repository, tag) = match rest.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (rest, None),
    };
    if repository.len() > MAX_REPOSITORY_BYTES || !repository.split('/').all(is_part) {
        return Err("must have a repository of lower-case letters, digits and separators between slashes");
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err("must have a tag of up to 128 letters, digits, '_', '.' and '-'");
    }
    if tag.is_none() && digest.is_none() {
        return Err("must have a tag or a digest");
    }
    Ok(Image { host, repository, tag, digest })
}

/// Reads a host with an optional port. Returns the name as it is written, of an IPv6 address with its brackets.
///
/// # Errors
/// Returns an error for any other text.
pub fn registry_host(text: &str) -> Result<(&str, Option<u16>), &'static str> {
    const WRONG: &str = "must be a host with an optional port, such as registry.example:5000";
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| is_number && *port > 0).ok_or(WRONG)?;
            (name, Some(port))
        }
        _ => (text, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_name = name.len() <= 253 && name.split('.').all(is_label);
    let is_ipv6 = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .is_some_and(|name| name.parse::<std::net::Ipv6Addr>().is_ok());
    if is_name || is_ipv6 { Ok((name, port)) } else { Err(WRONG) }
}

fn is_digest(text: &str) -> bool {
    let digits = text.strip_prefix("sha256:").unwrap_or_default();
    digits.len() == 64 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Letters and digits with single separators between them: `.`, `_`, `__` or any number of `-`.
fn is_part(part: &str) -> bool {
    let is_character = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    let ends = [bytes.first(), bytes.last()];
    let separators = part.split(|character: char| character.is_ascii_lowercase() || character.is_ascii_digit());
    ends.iter().all(|end| end.is_some_and(|byte| is_character(*byte)))
        && separators
            .into_iter()
            .all(|separator| matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|byte| byte == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= MAX_TAG_BYTES
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || byte == b'.' || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_reference_is_one() {
        let host = format!("{}.{}:65535", ["a".repeat(63).as_str(); 3].join("."), "a".repeat(61));
        let repository = "a".repeat(MAX_REPOSITORY_BYTES);
        let tag = "a".repeat(MAX_TAG_BYTES);
        let text = format!("{host}/{repository}:{tag}@sha256:{}", "0".repeat(64));
        let parts = image(&text).unwrap();
        assert_eq!((parts.host, parts.repository, parts.tag), (&*host, &*repository, Some(&*tag)));
        assert_eq!((text.len(), host.len()), (MAX_IMAGE_BYTES, MAX_HOST_BYTES));
    }
}
