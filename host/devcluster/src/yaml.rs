//! The API server's reader of the body of an apply patch. It parses YAML even if a client sends JSON, and its parser
//! (go-yaml 2) does not accept all JSON: it refuses some characters and escapes, and treats U+0085, U+2028 and U+2029
//! inside a string as line breaks, which it folds.

use std::borrow::Cow;

use serde_json::json;

/// The most bytes within which a key of a flow mapping must end.
const LONGEST_KEY: usize = 1024;

/// Returns the JSON that the API server reads from this JSON text.
///
/// # Errors
/// Returns the parser's message if it refuses the text.
pub(crate) fn reread(text: &str) -> Result<Cow<'_, str>, &'static str> {
    if !text.chars().all(is_allowed) {
        return Err("yaml: control characters are not allowed");
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut folded = false;
    while let Some(start) = rest.find('"') {
        let end = closing_quote(&rest[start + 1..]).map_or(rest.len(), |at| start + 1 + at);
        let string = &rest[start + 1..end];
        check_escapes(string)?;
        let breaks = string.contains(is_break);
        let is_key = rest.get(end + 1..).is_some_and(|after| after.trim_start().starts_with(':'));
        if is_key && breaks {
            return Err("yaml: line 1: did not find expected ',' or '}'");
        }
        if is_key && string.len() > LONGEST_KEY {
            return Err("yaml: did not find expected ',' or '}'");
        }
        out.push_str(&rest[..=start]);
        if breaks {
            fold(string, &mut out);
            folded = true;
        } else {
            out.push_str(string);
        }
        rest = &rest[end..];
        if let Some(after) = rest.strip_prefix('"') {
            out.push('"');
            rest = after;
        }
    }
    out.push_str(rest);
    Ok(if folded { Cow::Owned(out) } else { Cow::Borrowed(text) })
}

/// Returns the parser's message for each key that occurs twice in one map of a text of one line.
pub(crate) fn duplicates(keys: &[String]) -> Vec<String> {
    keys.iter().map(|key| format!("line 1: key {} already set in map", json!(key))).collect()
}

fn is_allowed(letter: char) -> bool {
    matches!(letter, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

fn is_break(letter: char) -> bool {
    matches!(letter, '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns the index of the closing quote of a string; `text` begins after the opening one.
fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

fn check_escapes(string: &str) -> Result<(), &'static str> {
    let mut rest = string;
    while let Some(at) = rest.find('\\') {
        let escape = &rest[at + 1..];
        if escape.starts_with('/') {
            return Err("yaml: found unknown escape character");
        }
        let code = escape.strip_prefix('u').and_then(|code| u32::from_str_radix(code.get(..4)?, 16).ok());
        if code.is_some_and(|code| (0xd800..0xe000).contains(&code)) {
            return Err("yaml: found invalid Unicode character escape code");
        }
        let mut letters = escape.chars();
        letters.next();
        rest = letters.as_str();
    }
    Ok(())
}

/// Folds line breaks: blanks around them are removed, a single U+0085 becomes a space, several become a line feed
/// each except the first, and the other two stay.
fn fold(string: &str, out: &mut String) {
    let is_blank = |letter: char| letter == ' ' || is_break(letter);
    let mut rest = string;
    while let Some(start) = rest.find(is_blank) {
        let (text, run) = rest.split_at(start);
        let end = run.find(|letter| !is_blank(letter)).unwrap_or(run.len());
        let (run, after) = run.split_at(end);
        out.push_str(text);
        let breaks: Vec<char> = run.chars().filter(|letter| is_break(*letter)).collect();
        match breaks.as_slice() {
            [] => out.push_str(run),
            ['\u{85}'] => out.push(' '),
            ['\u{85}', kept @ ..] | kept => {
                for letter in kept {
                    if *letter == '\u{85}' {
                        out.push_str("\\n");
                    } else {
                        out.push(*letter);
                    }
                }
            }
        }
        rest = after;
    }
    out.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(string: &str) -> String {
        let text = format!("{{\"k\": \"{string}\"}}");
        let read = reread(&text).unwrap();
        serde_json::from_str::<serde_json::Value>(&read).unwrap()["k"].as_str().unwrap().to_owned()
    }

    #[test]
    fn line_breaks_of_yaml_inside_a_string_are_folded() {
        assert_eq!(value("a \u{85} b"), "a b");
        assert_eq!(value("a\u{85}\u{85}b"), "a\nb");
        assert_eq!(value("a \u{2028} b\u{2029}"), "a\u{2028}b\u{2029}");
        assert_eq!(value("a  b\\u0085\\\\"), "a  b\u{85}\\");
        assert_eq!(value("\u{e9}\u{1f600}"), "\u{e9}\u{1f600}");
    }

    #[test]
    fn characters_and_escapes_that_yaml_does_not_have_are_refused() {
        for bad in ["\u{7f}", "\u{80}", "\u{fffe}", "\\ud83d\\ude00", "\\/"] {
            assert!(reread(&format!("{{\"k\": \"{bad}\"}}")).is_err(), "{bad:?}");
        }
        assert!(reread("{\"a\u{85}b\": 1}").is_err());
        assert!(reread(&format!("{{\"{}\": 1}}", "k".repeat(1025))).is_err());
        assert!(reread("{\"k\\\"\": \"\\\\\", \"l\": [1, \"\\u00e9\"]}").is_ok());
    }
}
