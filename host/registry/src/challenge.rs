//! The header WWW-Authenticate, as far as registries use it.

use http::HeaderValue;

/// The kind of authentication that a registry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Challenge {
    Basic,
    /// A token from the realm.
    Bearer {
        realm: String,
        service: Option<String>,
    },
}

impl Challenge {
    /// Reads the first challenge that is understood, of one or several headers.
    pub(crate) fn of<'a>(headers: impl IntoIterator<Item = &'a HeaderValue>) -> Option<Self> {
        headers.into_iter().filter_map(|header| header.to_str().ok()).find_map(Self::parse)
    }

    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        let mut rest = rest.trim_start();
        while let Some((name, after)) = rest.split_once('=') {
            let (value, after) = value(after)?;
            match name.trim().to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                _ => {}
            }
            rest = after.trim_start().trim_start_matches(',').trim_start();
        }
        realm.map(|realm| Self::Bearer { realm, service })
    }
}

/// Returns a value, with or without quotes, and what follows it.
fn value(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(',').unwrap_or(text.len());
        return Some((text[..end].trim().to_owned(), &text[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_of_registries_are_understood() {
        let bearer = |realm: &str, service: Option<&str>| {
            Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
        };
        for (text, expected) in [
            (r#"Basic realm="x""#, Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                r#"Bearer realm="https://a.example/token",service="b",scope="repository:c:pull,push",error="d""#,
                bearer("https://a.example/token", Some("b")),
            ),
            (r#"bearer service="a, b" , realm=https://c"#, bearer("https://c", Some("a, b"))),
            (r#"Bearer realm="a\"b""#, bearer("a\"b", None)),
            (r#"Bearer realm="a"#, None),
            (r#"Bearer service="a""#, None),
            ("Negotiate", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(text), expected, "{text}");
        }
    }

    #[test]
    fn the_first_challenge_that_is_understood_counts() {
        let headers = ["Negotiate", "Basic realm=x"].map(HeaderValue::from_static);
        assert_eq!(Challenge::of(&headers), Some(Challenge::Basic));
        assert_eq!(Challenge::of(&[]), None);
    }
}
