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
        /// The resources that the token must be for, separated by spaces.
        scope: Option<String>,
    },
}

impl Challenge {
    /// Reads the challenge to answer, of one or several headers with one or several challenges each: a token before
    /// a password, as other clients choose.
    pub(crate) fn from_headers<'a>(headers: impl IntoIterator<Item = &'a HeaderValue>) -> Option<Self> {
        let headers = headers.into_iter().filter_map(|header| header.to_str().ok());
        let all: Vec<_> = headers.flat_map(Self::all).collect();
        let bearer = all.iter().find(|challenge| matches!(challenge, Self::Bearer { .. }));
        bearer.or(all.first()).cloned()
    }

    /// Reads the challenges of one header that are understood. A comma separates challenges as well as parameters; an
    /// element without `=` behind its first word begins a challenge.
    fn all(text: &str) -> Vec<Self> {
        let mut all: Vec<(String, [Option<String>; 3])> = Vec::new();
        for element in elements(text) {
            let (word, rest) = element.split_at(element.find([' ', '\t', '=']).unwrap_or(element.len()));
            let mut parameter = element;
            if !rest.trim_start().starts_with('=') && !word.is_empty() {
                all.push((word.to_ascii_lowercase(), [const { None }; 3]));
                parameter = rest;
            }
            if let (Some((name, value)), Some((_, [realm, service, scope]))) =
                (parameter.split_once('='), all.last_mut())
            {
                match name.trim().to_ascii_lowercase().as_str() {
                    "realm" => *realm = unquoted(value),
                    "service" => *service = unquoted(value),
                    "scope" => *scope = unquoted(value),
                    _ => {}
                }
            }
        }
        let understood = |(scheme, [realm, service, scope]): (String, [Option<String>; 3])| match scheme.as_str() {
            "basic" => Some(Self::Basic),
            "bearer" => realm.map(|realm| Self::Bearer { realm, service, scope }),
            _ => None,
        };
        all.into_iter().filter_map(understood).collect()
    }
}

/// Splits a header at the commas that are not in quotes.
fn elements(text: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    let is_end = move |character| {
        let escapes = quoted && !escaped && character == '\\';
        let is_literal = std::mem::replace(&mut escaped, escapes);
        quoted ^= character == '"' && !is_literal;
        character == ',' && !quoted
    };
    text.split(is_end).map(str::trim)
}

/// Returns a value, with or without quotes. `None` if a quote is not closed.
fn unquoted(text: &str) -> Option<String> {
    let Some(quoted) = text.trim().strip_prefix('"') else { return Some(text.trim().to_owned()) };
    let mut value = String::new();
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return Some(value),
            '\\' => value.push(characters.next()?),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_of_registries_are_understood() {
        let bearer = |realm: &str, service: Option<&str>| {
            let service = service.map(str::to_owned);
            Some(Challenge::Bearer { realm: realm.to_owned(), service, scope: None })
        };
        let scoped = Challenge::Bearer {
            realm: "https://a.example/token".to_owned(),
            service: Some("b".to_owned()),
            scope: Some("repository:c:pull,push repository:d:pull".to_owned()),
        };
        let of_two =
            r#"Bearer realm="https://a.example/token",service="b",Scope="repository:c:pull,push repository:d:pull""#;
        for (text, expected) in [
            (r#"Basic realm="x""#, Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (of_two, Some(scoped)),
            (r#"bearer service="a, b" , realm=https://c"#, bearer("https://c", Some("a, b"))),
            (r#"Bearer realm="a\"b""#, bearer("a\"b", None)),
            (r#"Bearer realm="a"#, None),
            (r#"Bearer service="a""#, None),
            ("Negotiate", None),
            ("", None),
            // Several in one header.
            (r#"Negotiate, Bearer realm="https://c",service="b""#, bearer("https://c", Some("b"))),
            (r#"Basic realm="x, y", Bearer realm="https://c""#, bearer("https://c", None)),
            (r#"Bearer realm="https://c",service="b", Basic realm="x""#, bearer("https://c", Some("b"))),
            (r#"Negotiate abc==, Basic realm="Bearer realm=\"z\"""#, Some(Challenge::Basic)),
            (r#",, Digest realm="d" , nonce="Bearer realm=e",Basic"#, Some(Challenge::Basic)),
            (r#"Bearer service="a", Basic"#, Some(Challenge::Basic)),
            (r#"realm="a""#, None),
        ] {
            let header = HeaderValue::from_str(text).unwrap();
            assert_eq!(Challenge::from_headers([&header]), expected, "{text}");
        }
    }

    #[test]
    fn a_token_is_preferred_whichever_header_asks_for_it() {
        let headers = ["Negotiate", "Basic realm=x"].map(HeaderValue::from_static);
        assert_eq!(Challenge::from_headers(&headers), Some(Challenge::Basic));
        let headers = ["Basic realm=x", "Bearer realm=y"].map(HeaderValue::from_static);
        let bearer = Challenge::Bearer { realm: "y".to_owned(), service: None, scope: None };
        assert_eq!(Challenge::from_headers(&headers), Some(bearer));
        assert_eq!(Challenge::from_headers(&[]), None);
    }
}
